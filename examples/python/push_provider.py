"""A double of a push provider, for demos and tests: one process, all in memory.

    POST   /push       Idempotency-Key, X-Request-Id, JSON body -> 202 {"receipt", "key", "request_id"}.
                       The same key again: the same receipt, and no second effect.
    GET    /receipts   ?key=... or ?request_id=... -> the receipt, or 404.
    GET    /effects    {"requests", "effects", "lookups"}: every push with its answer, what took effect, and every look for
                       a receipt.
    POST   /faults     {"fault": F, "times": N, "seconds": S}: the next N pushes (default 1) meet the fault F:
                         drop     accept, then hang up without an answer
                         delay    accept, then wait S seconds (or until faults are cleared) before answering
                         500      refuse, not accepted
                         400      refuse, not accepted
                         offline  refuse: the device is offline
    DELETE /faults     forget armed faults and end delays.

Prints `push-provider ready port=NNNN` once it listens.
"""

import argparse
import json
import socket
import threading
import urllib.parse
import uuid
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSALS = {
    "500": (500, "PROVIDER_DOWN"),
    "400": (400, "BAD_DEVICE_TOKEN"),
    "offline": (409, "DEVICE_OFFLINE"),
}
FAULTS = {"drop", "delay", *REFUSALS}


class Provider:
    """What was asked, what took effect, and which faults are armed."""

    def __init__(self):
        self._lock = threading.Lock()
        self._requests = []
        self._receipts = {}  # by key
        self._request_ids = {}  # request id -> key
        self._lookups = []
        self._faults = deque()
        self._cleared = threading.Event()

    def arm(self, fault, times, seconds):
        with self._lock:
            self._faults.extend([(fault, seconds)] * times)

    def clear(self):
        with self._lock:
            self._faults.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def push(self, key, request_id):
        """Takes a push. Returns (HTTP code, answer, fault, what ends a delay)."""
        with self._lock:
            fault, seconds = self._faults.popleft() if self._faults else (None, 0)
            if fault in REFUSALS:
                code, reason = REFUSALS[fault]
                answer = {"code": reason}
            else:
                code, answer = 202, self._accept(key, request_id)
            self._requests.append({"key": key, "request_id": request_id, "code": code, "fault": fault})
            return code, answer, fault, (self._cleared, seconds)

    def receipt(self, key=None, request_id=None):
        with self._lock:
            receipt = self._receipts.get(key or self._request_ids.get(request_id))
            self._lookups.append({"key": key, "request_id": request_id, "found": receipt is not None})
            return receipt

    def effects(self):
        with self._lock:
            effects = list(self._receipts.values())
            return {"requests": list(self._requests), "effects": effects, "lookups": list(self._lookups)}

    def _accept(self, key, request_id):
        self._request_ids[request_id] = key
        fresh = {"receipt": f"rcpt-{uuid.uuid4().hex[:12]}", "key": key, "request_id": request_id}
        return self._receipts.setdefault(key, fresh)


class Handler(BaseHTTPRequestHandler):
    provider = None  # set by main

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/push":
            self._push()
        elif self.path == "/faults":
            self._arm(body)
        else:
            self._answer(404, {"code": "NO_SUCH_PAGE"})

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/effects":
            self._answer(200, self.provider.effects())
        elif url.path == "/receipts":
            query = dict(urllib.parse.parse_qsl(url.query))
            receipt = self.provider.receipt(query.get("key"), query.get("request_id"))
            self._answer(200 if receipt else 404, receipt or {"code": "NO_RECEIPT"})
        else:
            self._answer(404, {"code": "NO_SUCH_PAGE"})

    def do_DELETE(self):
        self.provider.clear()
        self._answer(200, {})

    def _push(self):
        key, request_id = self.headers.get("Idempotency-Key"), self.headers.get("X-Request-Id")
        if not key or not request_id:
            self._answer(400, {"code": "MISSING_HEADER"})
            return
        code, answer, fault, (cleared, seconds) = self.provider.push(key, request_id)
        if fault == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault == "delay":
            cleared.wait(seconds)
        self._answer(code, answer)

    def _arm(self, body):
        try:
            asked = json.loads(body)
            fault, times, seconds = str(asked["fault"]), int(asked.get("times", 1)), float(asked.get("seconds", 0))
        except (ValueError, KeyError, TypeError):
            fault = None
        if fault not in FAULTS:
            self._answer(400, {"code": "BAD_FAULT"})
            return
        self.provider.arm(fault, times, seconds)
        self._answer(200, {})

    def _answer(self, code, answer):
        body = json.dumps(answer).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            pass  # whoever asked is gone; what was accepted stays accepted

    def log_message(self, *_args):
        pass  # /effects is the log


def main():
    parser = argparse.ArgumentParser(description="A push provider's double.")
    parser.add_argument("--port", type=int, default=7390, help="0: any free one")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    Handler.provider = Provider()
    print(f"push-provider ready port={server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
