"""The notification worker: shows a hint on a device by way of a push provider, and never pretends to know more than it does.

Success here means `provider_accepted`: the provider took the request. It never means delivered, shown or read.

The task id is the idempotency key, so that every attempt is the same push to the provider. Each attempt has a request id
of its own, told to Leasehold before the call; by it the next attempt can ask what became of this one.
"""

import argparse
import json
import logging
import os
import socket
import sys

from faults import Faults, add_fault_flags
from leasehold_worker import Worker, add_server_flags, connect_by_flags, outcomes, run_until_signal
from push_client import PushClient, Refused, Unknown, Unreachable


class Notify:
    """The handler for tasks of kind `notify`."""

    def __init__(self, provider, faults):
        self._provider = provider
        self._faults = faults

    def __call__(self, held):
        self._faults.at("claimed")
        body = read(held.task.spec.payload)
        if body is None:
            return outcomes.permanent("BAD_PAYLOAD", "not a JSON object")
        if held.unknown_attempts:
            outcome = self._look_for_receipt(held)
            if outcome is not None:
                return outcome
        return self._send(held, body)

    def _look_for_receipt(self, held):
        """An earlier attempt may have pushed: ask, instead of pushing again. None: it has not."""
        request_ids = [attempt.effect_ref for attempt in reversed(held.unknown_attempts)]
        try:
            receipt = self._provider.find_receipt(held.task.spec.task_id, request_ids)
        except (Refused, Unknown, Unreachable) as error:
            return outcomes.transient("RECEIPT_LOOKUP_FAILED", str(error))
        if receipt is None:
            return None
        logging.info("%s found the receipt of an earlier attempt: %s", held, receipt["receipt"])
        return outcomes.succeeded(receipt["receipt"], effect_ref=receipt["request_id"])

    def _send(self, held, body):
        request_id = f"{held.task.uid}:{held.ref.fencing_token}"
        held.begin_effect(request_id)
        self._faults.at("effect-begun")
        # The last look: whoever slept since then must not push any more.
        if held.cancel_requested.is_set():
            return outcomes.canceled("asked to stop; nothing was sent")
        if held.remaining() <= 0:
            return outcomes.transient("LEASE_OVER", "nothing was sent")
        return self._push(held.task.spec.task_id, request_id, body)

    def _push(self, key, request_id, body):
        try:
            receipt = self._provider.push(key, request_id, body)["receipt"]
        except Unknown as error:
            return outcomes.unknown(str(error), "the provider may have accepted")
        except Unreachable as error:
            return outcomes.transient(str(error))
        except Refused as no:
            return refused(no)
        self._faults.at("provider-accepted")
        return outcomes.succeeded(receipt)


def refused(no):
    """What a provider's no means for the task."""
    if no.code == "DEVICE_OFFLINE":
        return outcomes.skipped("the device is offline: this hint has no point now")
    if no.http_code >= 500 or no.http_code == 429:
        return outcomes.transient(no.code, f"HTTP {no.http_code}", no.retry_after)
    return outcomes.permanent(no.code, f"HTTP {no.http_code}")


def read(payload):
    try:
        body = json.loads(payload)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def slots(text):
    value = int(text)
    if not 1 <= value <= 500:
        raise argparse.ArgumentTypeError("1 to 500")
    return value


def flags():
    parser = argparse.ArgumentParser(description="Works on notification tasks.")
    add_server_flags(parser)
    parser.add_argument("--queue", default="notify")
    parser.add_argument("--worker-id", default=f"{socket.gethostname()}:{os.getpid()}")
    parser.add_argument("--slots", type=slots, default=4, metavar="N", help="tasks at a time (4)")
    parser.add_argument("--provider", default="http://127.0.0.1:7390", metavar="URL")
    parser.add_argument("--provider-timeout", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help="length of the leases (the task's or the queue's)")
    parser.add_argument("--stop-grace", type=float, default=30.0, metavar="SECONDS", help="time for running work at a stop (30)")
    add_fault_flags(parser)
    return parser.parse_args()


def main():
    given = flags()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    handler = Notify(PushClient(given.provider, given.provider_timeout), Faults(given))
    worker = Worker(
        connect_by_flags(given),
        given.queue,
        given.worker_id,
        {"notify": handler},
        slots=given.slots,
        lease_seconds=given.lease,
        stop_grace=given.stop_grace,
    )
    return 0 if run_until_signal(worker) else 1


if __name__ == "__main__":
    sys.exit(main())
