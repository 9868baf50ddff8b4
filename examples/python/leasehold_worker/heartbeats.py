"""Keeps the held leases, in one call for all of them, from a thread of its own: handlers may block as long as they like."""

import logging
import threading
import time

import grpc

from .connection import reason_in, reason_of
from .stubs import lease_pb2, task_pb2, worker_service_pb2 as pb

log = logging.getLogger("leasehold.worker")

# However short a lease was cut by its task's deadline, don't beat faster than this.
INTERVAL_MIN = 0.1
CALL_SECONDS = 10.0


class Heartbeats(threading.Thread):
    """Beats whenever the first of its leases is due, for all of them."""

    def __init__(self, worker_service, worker_id):
        super().__init__(name="heartbeats", daemon=True)
        self._service = worker_service
        self._worker_id = worker_id
        self._due = {}  # held lease -> when its next heartbeat is due
        self._changed = threading.Condition()
        self._closed = False

    def add(self, held):
        with self._changed:
            self._due[held] = time.monotonic() + interval(held)
            self._changed.notify()

    def drop(self, held):
        with self._changed:
            self._due.pop(held, None)

    def close(self):
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self):
        while True:
            batch = self._wait_until_due()
            if batch is None:
                return
            try:
                self._beat(batch)
            except grpc.RpcError as error:
                log.warning("heartbeat of %d leases failed: %s", len(batch), reason_of(error))
                self._plan(batch, fraction=3)  # sooner than usual: there is still time to keep them

    def _wait_until_due(self):
        with self._changed:
            while not self._closed:
                pause = min(self._due.values()) - time.monotonic() if self._due else None
                if pause is not None and pause <= 0:
                    return list(self._due)
                self._changed.wait(pause)
        return None

    def _beat(self, batch):
        items = [pb.HeartbeatItem(lease=held.ref) for held in batch]
        # A call that hangs must not eat the time of the next one.
        timeout = min(CALL_SECONDS, max(0.3, min(map(interval, batch))))
        sent = time.monotonic()
        answer = self._service.Heartbeat(pb.HeartbeatRequest(worker_id=self._worker_id, items=items), timeout=timeout)
        self._plan(batch)
        for held, result in zip(batch, answer.results):
            self._obey(held, result, sent)

    def _obey(self, held, result, sent):
        if result.HasField("error"):
            held.lost.set()
            self.drop(held)
            log.warning("%s lease lost: %s", held, reason_in(result.error) or result.error.message)
            return
        held.extend(sent, result.held.remaining)
        if result.held.directive == lease_pb2.DIRECTIVE_CANCEL and not held.cancel_requested.is_set():
            cause = task_pb2.Cause.Name(result.held.cause)
            log.info("%s told to stop: %s", held, cause)
            held.ask_to_stop(result.held.reason or cause)

    def _plan(self, batch, fraction=1):
        with self._changed:
            for held in batch:
                if held in self._due:
                    self._due[held] = time.monotonic() + interval(held) / fraction


def interval(held):
    return max(INTERVAL_MIN, held.heartbeat_interval)
