"""The worker: claims no more than it has hands for, runs a handler per lease, and settles every lease that it got."""

import logging
import signal
import threading
import time
import traceback
import uuid

import grpc

from . import outcomes
from .connection import duration, hopeless, pauses, reason_in, reason_of
from .heartbeats import Heartbeats
from .held import CALL_SECONDS, HeldLease, MayNotAct
from .stubs import task_pb2, worker_service_pb2 as pb, worker_service_pb2_grpc

log = logging.getLogger("leasehold.worker")

WAIT_SECONDS = 20.0
# On top of `wait`, for the way there and back.
WAIT_GRACE_SECONDS = 5.0
# A report is repeated until its lease is over, but at least this long: a late one is refused and kept as evidence.
REPORT_SECONDS = 10.0


class Worker:
    """Works on one queue. `handlers` maps a task's kind to a function from HeldLease to an outcome."""

    def __init__(self, channel, queue, worker_id, handlers, slots=1, lease_seconds=None, stop_grace=30.0):
        self._service = worker_service_pb2_grpc.WorkerServiceStub(channel)
        self._queue = queue
        self._worker_id = worker_id
        self._handlers = handlers
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._stop_grace = stop_grace
        self._stopping = threading.Event()
        self._claim_call = None
        self._running = set()
        self._changed = threading.Condition()
        self._heartbeats = Heartbeats(self._service, worker_id)

    def run(self):
        """Works until `stop`. True: every lease was settled; False: some were left to their end.

        Raises grpc.RpcError if the server won't let this worker claim, after the same orderly stop.
        """
        log.info("worker ready queue=%s worker=%s slots=%d", self._queue, self._worker_id, self._slots)
        self._heartbeats.start()
        try:
            while not self._stopping.is_set():
                free = self._wait_for_free_slots()
                for lease in self._claim(free):
                    self._take(lease)
        finally:
            settled = self._drain()
        return settled

    def stop(self):
        """Takes no new work from now on; `run` returns when the running handlers have ended or had their time."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._claim_call:
            self._claim_call.cancel()

    # Taking work.

    def _wait_for_free_slots(self):
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or len(self._running) < self._slots)
            return self._slots - len(self._running)

    def _claim(self, free):
        """One claim, repeated under one request_id until it is answered, so that no lease gets lost on the way."""
        request = pb.ClaimRequest(
            queue=self._queue,
            worker_id=self._worker_id,
            max_tasks=free,
            wait=duration(WAIT_SECONDS),
            lease_duration=duration(self._lease_seconds),
            request_id=uuid.uuid4().hex,
            reports_effect=True,
        )
        for pause in pauses():
            if self._stopping.is_set():
                return []
            try:
                return self._poll(request)
            except grpc.FutureCancelledError:
                return []  # by stop; the server gives back what was on its way
            except grpc.RpcError as error:
                if hopeless(error):
                    raise
                log.warning("claim unanswered, repeating: %s", reason_of(error))
                self._stopping.wait(pause)

    def _poll(self, request):
        self._claim_call = self._service.Claim.future(request, timeout=WAIT_SECONDS + WAIT_GRACE_SECONDS)
        if self._stopping.is_set():  # stop may have come before it could see the call
            self._claim_call.cancel()
        return self._claim_call.result().leases

    def _take(self, lease):
        held = HeldLease(lease, self._service, self._lease_seconds)
        log.info("%s claimed unknown_attempts=%d", held, len(held.unknown_attempts))
        with self._changed:
            self._running.add(held)
        self._heartbeats.add(held)
        threading.Thread(target=self._work, args=(held,), name=str(held), daemon=True).start()

    # Working.

    def _work(self, held):
        try:
            if self._stopping.is_set():
                outcome = outcomes.released("the worker is stopping")
            else:
                outcome = self._handle(held)
            self._settle(held, outcome)
        finally:
            self._heartbeats.drop(held)
            with self._changed:
                self._running.discard(held)
                self._changed.notify_all()

    def _handle(self, held):
        """What became of it. None: the lease is lost and nothing was begun."""
        kind = held.task.spec.kind
        handler = self._handlers.get(kind)
        if handler is None:
            return outcomes.permanent("UNKNOWN_KIND", f"this worker has no handler for kind {kind!r}")
        try:
            outcome = handler(held)
            if not isinstance(outcome, pb.CompleteRequest):
                raise TypeError("a handler returns an outcome")
            return outcome
        except MayNotAct as no:
            log.warning("%s may not act: %s", held, no.reason)
            return outcomes.unknown("STOPPED_MIDWAY", no.reason) if held.effect_begun else no.outcome
        except Exception as error:  # noqa: BLE001 - a handler's bug must not cost the lease's settlement
            return failed_by(error, held)

    def _settle(self, held, outcome):
        if outcome is None or (held.lost.is_set() and not held.effect_begun):
            log.warning("%s dropped: the lease is lost and nothing was begun", held)
        elif not held.take_report():
            log.warning("%s was given back meanwhile; not reported: %s", held, outcomes.describe(outcome))
        else:
            self._report(held, outcome)

    def _report(self, held, outcome):
        """Sends Complete until it is answered. The same report twice is one report, so repeating is safe."""
        outcome.lease.CopyFrom(held.ref)
        patience = time.monotonic() + REPORT_SECONDS
        for pause in pauses():
            try:
                answer = self._service.Complete(outcome, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                if hopeless(error):
                    # Lost leases and stops end here too: it changed no state, and is kept on the attempt as evidence.
                    log.warning("%s report refused: %s (%s)", held, reason_of(error), outcomes.describe(outcome))
                    return
                if held.remaining() <= 0 and time.monotonic() > patience:
                    log.error("%s report not delivered: %s", held, outcomes.describe(outcome))
                    return
                log.warning("%s report unanswered, repeating: %s", held, reason_of(error))
                time.sleep(pause)
            else:
                state = task_pb2.TaskState.Name(answer.task.state)
                log.info("%s reported %s -> %s", held, outcomes.describe(outcome), state)
                return

    # Stopping.

    def _drain(self):
        self._stopping.set()
        log.info("stopping: no new work, running=%d", len(self._running))
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=self._stop_grace)
            running = list(self._running)
        # What a handler reports at this moment is not taken from it.
        unbegun = [held for held in running if not held.effect_begun and held.take_report()]
        given_back = self._give_back(unbegun) if unbegun else []
        left = [held for held in running if held not in given_back]
        for held in left:
            log.warning("%s left to its lease's end", held)
        self._heartbeats.close()
        log.info("stopped left=%d", len(left))
        return not left

    def _give_back(self, leases):
        """Hands back what has not begun, and returns what was taken. From here on held.check() refuses to go on."""
        requests = [outcomes.released("the worker is stopping") for _ in leases]
        for held, request in zip(leases, requests):
            request.lease.CopyFrom(held.ref)
        try:
            answer = self._service.CompleteBatch(pb.CompleteBatchRequest(requests=requests), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            log.error("giving back failed: %s", reason_of(error))
            return []
        return [held for held, result in zip(leases, answer.results) if given_back(held, result)]


def given_back(held, result):
    if result.HasField("error"):
        log.warning("%s give-back refused: %s", held, reason_in(result.error))
        return False
    log.info("%s given back", held)
    return True


def failed_by(error, held):
    """An exception in a handler: transient if nothing was begun, unknown if the effect may have happened."""
    # The exception's own text stays out of logs and reports: it may quote the payload.
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s handler raised %s\n%s", held, type(error).__name__, where)
    kind = outcomes.unknown if held.effect_begun else outcomes.transient
    return kind("HANDLER_ERROR", type(error).__name__)


def run_until_signal(worker):
    """Runs the worker until SIGTERM or SIGINT; a second signal ends the process at once. True: every lease was settled."""
    settled = []
    signaled = []

    def work():
        try:
            settled.append(worker.run())
        except grpc.RpcError as error:
            log.error("the server refuses this worker: %s %s", reason_of(error), error.details())

    def on_signal(number, _frame):
        # No more than a note: a handler that takes locks could meet the thread that it interrupted.
        signaled.append(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    runner = threading.Thread(target=work, name="worker")
    runner.start()
    while runner.is_alive() and not signaled:
        runner.join(0.2)
    worker.stop()
    runner.join()
    return settled == [True]
