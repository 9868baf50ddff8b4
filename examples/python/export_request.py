"""The API's side of an export: freezes the input, submits, and answers at once with an id that can be looked up.

Accepted is not done: the id answers SCHEDULED, READY, LEASED … until the artifact is published, and an id that nobody asked for is not
found, never pending.
"""

import json

from artifacts import digest_of
from leasehold_worker import RpcError, reason_of
from leasehold_worker.stubs import task_pb2, task_service_pb2 as pb

CALL_SECONDS = 10


def request(tasks, artifacts, queue, export, tenant, notes):
    """Accepts an export of `notes`. Asked again under the same id it is the same export. Returns the name to look it up by."""
    snapshot = artifacts.freeze(export.replace(":", "-"), notes)
    spec = task_pb2.TaskSpec(
        queue=queue,
        task_id=export,
        kind="export",
        payload=json.dumps({"snapshot": snapshot}).encode(),
        content_type="application/json",
        fairness_key=tenant,
    )
    tasks.Submit(pb.SubmitRequest(spec=spec), timeout=CALL_SECONDS)
    return task_pb2.TaskRef(queue=queue, task_id=export)


def look_up(tasks, ref):
    """The export's task; None: there is no such export."""
    try:
        return tasks.GetTask(pb.GetTaskRequest(task=ref), timeout=CALL_SECONDS).task
    except RpcError as error:
        if reason_of(error) == "TASK_NOT_FOUND":
            return None
        raise


def read(artifacts, task):
    """The published bytes. Only of a COMPLETED export, and only if they are what the winner said they were."""
    if task.state != task_pb2.TASK_STATE_COMPLETED:
        raise LookupError(f"the export is {task_pb2.TaskState.Name(task.state)}")
    data = artifacts.read(task.result_ref)
    if len(data) != task.result_size or digest_of(data) != task.result_digest:
        raise LookupError("the artifact is not the one that was published")
    return data
