"""A lease in a handler's hands.

Deliberately not here: extending it (heartbeats.py) and ending it (worker.py). A handler reads the task, looks at the flags,
calls `begin_effect` before it acts outside, and returns an outcome.
"""

import logging
import threading
import time

import grpc

from . import outcomes
from .connection import duration, hopeless, pauses, reason_of, seconds
from .stubs import worker_service_pb2 as pb

log = logging.getLogger("leasehold.worker")

CALL_SECONDS = 5.0
# Answers that mean "stop and say so", with the lease still ours to settle; every other refusal means that it is lost.
ASKED_TO_STOP = {"CANCEL_REQUESTED", "SUBJECT_STALE"}


class MayNotAct(Exception):
    """The effect may not begin. Let it through: the runtime settles the lease as `outcome` says (None: it is over)."""

    def __init__(self, reason, outcome=None):
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome


class HeldLease:
    """What is known of one lease. Flags are set by the heartbeats' thread and may be waited for by the handler."""

    def __init__(self, lease, worker_service, lease_seconds=None):
        self.task = lease.task
        self.ref = lease.lease_ref
        self.attempt = lease.attempt
        self.attempts_left = lease.attempts_left
        self.unknown_attempts = list(lease.unknown_attempts)
        self.heartbeat_interval = seconds(lease.heartbeat_interval)
        self.cancel_requested = threading.Event()
        self.lost = threading.Event()
        self.effect_begun = False
        self._cancel_reason = ""
        self._service = worker_service
        self._lease_seconds = lease_seconds
        self._reporter = threading.Lock()
        # Claim is a long poll, so the moment before the call is no use here. This is late by the answer's way, which
        # the next heartbeat or BeginEffect corrects; whether the effect may begin is never judged from it.
        self._ends = time.monotonic() + seconds(lease.remaining)

    def __str__(self):
        return f"task={self.task.spec.task_id} attempt={self.attempt} token={self.ref.fencing_token}"

    def remaining(self):
        """Seconds until the lease ends, as far as this worker can know. 0: over or lost."""
        return 0.0 if self.lost.is_set() else max(0.0, self._ends - time.monotonic())

    def check(self):
        """Raises MayNotAct if the work should not go on. For the time before begin_effect."""
        if self.cancel_requested.is_set():
            raise MayNotAct("CANCEL_REQUESTED", outcomes.canceled(self._cancel_reason))
        if self._reporter.locked():
            raise MayNotAct("GIVEN_BACK")
        if self.remaining() <= 0:
            raise MayNotAct("LEASE_OVER")

    def begin_effect(self, effect_ref):
        """Tells the server that the effect is about to begin. Returns only if it said yes; else raises MayNotAct.

        `effect_ref` names the outside call, so that a later attempt can ask the provider what became of it.
        """
        request = pb.BeginEffectRequest(
            lease=self.ref, effect_ref=effect_ref, lease_duration=duration(self._lease_seconds)
        )
        for pause in pauses():
            self.check()
            sent = time.monotonic()
            try:
                answer = self._service.BeginEffect(request, timeout=min(CALL_SECONDS, self.remaining()))
            except grpc.RpcError as error:
                if hopeless(error):
                    raise self._refused(reason_of(error)) from error
                log.warning("%s begin_effect unanswered, repeating: %s", self, reason_of(error))
                self.lost.wait(pause)
            else:
                self.extend(sent, answer.remaining)
                self.check()  # the answer may have come after the lease's end
                self.effect_begun = True
                return

    def extend(self, sent, remaining):
        """Takes a `remaining` from the server, measured from the moment before the call was sent."""
        self._ends = sent + seconds(remaining)

    def ask_to_stop(self, reason):
        """The server wants the work to stop."""
        self._cancel_reason = reason
        self.cancel_requested.set()

    def take_report(self):
        """True for the first caller only: one lease, one report, whoever ends it."""
        return self._reporter.acquire(blocking=False)

    def _refused(self, reason):
        if reason in ASKED_TO_STOP:
            self.ask_to_stop(reason)
            return MayNotAct(reason, outcomes.canceled(reason))
        self.lost.set()
        return MayNotAct(reason)
