"""What the notify worker knows of the push provider: how to ask, and what each answer proves.

The provider's contract, as far as we rely on it: 202 means accepted, once per idempotency key; every 4xx and 5xx means not
accepted; a receipt can be asked for by idempotency key or by request id, from the moment of acceptance.
"""

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request


class Unknown(Exception):
    """The provider may have accepted. The text is a code."""


class Refused(Exception):
    """The provider did not accept."""

    def __init__(self, http_code, code, retry_after=None):
        super().__init__(f"{http_code} {code}")
        self.http_code = http_code
        self.code = code
        self.retry_after = retry_after


class Unreachable(Exception):
    """Nobody listened, so nothing was sent."""


class PushClient:
    def __init__(self, url, timeout):
        self._url = url.rstrip("/")
        self._timeout = timeout

    def push(self, key, request_id, body):
        """Asks the provider to push. Returns the receipt: {"receipt", "key", "request_id"}."""
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": header(key),
            "X-Request-Id": header(request_id),
        }
        request = urllib.request.Request(f"{self._url}/push", json.dumps(body).encode(), headers, method="POST")
        return self._call(request)

    def find_receipt(self, key, request_ids):
        """The receipt of an earlier push, by its request id or else by the idempotency key. None: there is none."""
        questions = [("request_id", request_id) for request_id in request_ids if request_id] + [("key", key)]
        for name, value in questions:
            query = urllib.parse.urlencode({name: header(value)})
            try:
                return self._call(urllib.request.Request(f"{self._url}/receipts?{query}"))
            except Refused as no:
                if no.code != "NO_RECEIPT":
                    raise
        return None

    def _call(self, request):
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise refusal(error) from error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                raise Unreachable("PROVIDER_UNREACHABLE") from error
            raise Unknown(no_answer(error.reason)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Unknown(no_answer(error)) from error


def refusal(error):
    try:
        code = json.load(error).get("code", "")
    except (OSError, ValueError, AttributeError):
        code = ""
    after = error.headers.get("Retry-After", "")
    return Refused(error.code, code or f"HTTP_{error.code}", float(after) if after.isdigit() else None)


def no_answer(error):
    timeout = isinstance(error, (TimeoutError, socket.timeout))  # one and the same from Python 3.10 on
    return "PROVIDER_TIMEOUT" if timeout else "PROVIDER_NO_ANSWER"


def header(text):
    """Ids are any UTF-8; headers are not."""
    return urllib.parse.quote(text, safe=":@/~+=,")
