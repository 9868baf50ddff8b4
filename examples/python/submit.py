"""The producer's side: submits the notification for one version of a message to one device of a user.

Run it again as often as you like: the task's name is made of what it is about, so the same fact makes one task. A new version
is a new task, linked to the old one, and makes the older versions stale.
"""

import argparse
import json
import sys
import time

from leasehold_worker import RpcError, add_server_flags, connect_by_flags, reason_of
from leasehold_worker.connection import duration
from leasehold_worker.stubs import attempt_pb2, task_pb2, task_service_pb2 as pb, task_service_pb2_grpc

CALL_SECONDS = 10
WAIT_SECONDS_MAX = 60  # the server's limit for one wait


def task_id(given, version):
    return f"notify:{given.user}:{given.device}:{given.message}:v{version}"


def spec(given):
    """One intention: references only, no text of the message."""
    payload = {
        "conversation": given.conversation,
        "message": given.message,
        "version": given.version,
        "user": given.user,
        "device": given.device,
    }
    asked = task_pb2.TaskSpec(
        queue=given.queue,
        task_id=task_id(given, given.version),
        kind=given.kind,
        payload=json.dumps(payload, sort_keys=True).encode(),
        content_type="application/json",
        target=given.device,
        event_id=f"evt:{given.message}:v{given.version}",
        # A newer version makes the older ones stale, in the same commit.
        subjects=[task_pb2.Subject(id=given.message, version=given.version, raise_floor=given.version > 1)],
        fairness_key=given.conversation,  # a hot conversation waits for itself only
        ordering_key=given.device,  # hints appear on a device in the order of their messages
    )
    if given.version > 1:
        older = task_pb2.TaskRef(queue=given.queue, task_id=task_id(given, given.version - 1))
        asked.derived_from.CopyFrom(older)
    return asked


def wait(tasks, ref, seconds):
    """Waits for the task's end, in as many calls as it takes. Answers the task as it then stands."""
    until = time.monotonic() + seconds
    while True:
        left = min(WAIT_SECONDS_MAX, max(0.0, until - time.monotonic()))
        request = pb.GetTaskRequest(task=ref, wait_until=pb.WaitUntil(timeout=duration(left)))
        task = tasks.GetTask(request, timeout=left + CALL_SECONDS).task
        if task.terminal or time.monotonic() >= until:
            return task


def show(task):
    print(f"task      {task.spec.task_id}")
    print(f"uid       {task.uid}")
    print(f"state     {task_pb2.TaskState.Name(task.state)[len('TASK_STATE_') :]}")
    print(f"attempts  {task.attempt} ({task.unknown_attempts} unknown)")
    if task.boundary:
        print(f"boundary  {task.boundary}")
    if task.receipt_ref:
        print(f"receipt   {task.receipt_ref}")
    if task.cause:
        print(f"cause     {task_pb2.Cause.Name(task.cause)[len('CAUSE_') :]}")
    if task.reason:
        print(f"reason    {task.reason}")
    if task.HasField("last_error"):
        kind = attempt_pb2.ErrorClass.Name(task.last_error.error_class)[len("ERROR_CLASS_") :]
        print(f"error     {kind} {task.last_error.code} {task.last_error.message}")


def show_attempts(attempts):
    for attempt in attempts:
        ended = f"{outcome(attempt)} receipt={attempt.receipt_ref or '-'} effect_ref={attempt.effect_ref or '-'}"
        print(f"attempt {attempt.number}: {attempt.worker_id} token={attempt.fencing_token} {ended}")
        for late in attempt.late_reports:
            print(f"  reported too late, kept as evidence: {outcome(late)} receipt={late.receipt_ref or '-'}")


def outcome(report):
    """An attempt's or a late report's outcome in words, e.g. `FAILED UNKNOWN PROVIDER_TIMEOUT`."""
    name = attempt_pb2.Outcome.Name(report.outcome)[len("OUTCOME_") :]
    if not report.error_class:
        return name
    return f"{name} {attempt_pb2.ErrorClass.Name(report.error_class)[len('ERROR_CLASS_') :]} {report.code}".strip()


def flags():
    parser = argparse.ArgumentParser(description="Submits a notification task.")
    add_server_flags(parser)
    parser.add_argument("--queue", default="notify")
    parser.add_argument("--kind", default="notify")
    parser.add_argument("--conversation", default="c-a")
    parser.add_argument("--message", default="m-9")
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--user", default="u-b")
    parser.add_argument("--device", default="d-b1")
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="wait for the task's end; exit 2 if it doesn't come")
    parser.add_argument("--attempts", action="store_true", help="show what each attempt did")
    return parser.parse_args()


def main():
    given = flags()
    tasks = task_service_pb2_grpc.TaskServiceStub(connect_by_flags(given))
    try:
        answer = tasks.Submit(pb.SubmitRequest(spec=spec(given)), timeout=CALL_SECONDS)
        print(f"created   {str(answer.created).lower()}")
        ref = task_pb2.TaskRef(queue=given.queue, task_id=answer.task.spec.task_id)
        task = answer.task if given.wait is None else wait(tasks, ref, given.wait)
        show(task)
        if given.attempts:
            show_attempts(tasks.ListAttempts(pb.ListAttemptsRequest(task=ref), timeout=CALL_SECONDS).attempts)
    except RpcError as error:
        print(f"refused   {reason_of(error)}: {error.details()}", file=sys.stderr)
        return 1
    return 2 if given.wait is not None and not task.terminal else 0


if __name__ == "__main__":
    sys.exit(main())
