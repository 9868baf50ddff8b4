"""How an attempt can end: what a handler returns. The runtime adds the lease and sends it as Complete.

Say what is known. `transient` and `permanent` mean that the effect did not happen; when nobody can tell, it is `unknown`.
"""

from .connection import duration
from .stubs import attempt_pb2, worker_service_pb2 as pb


def succeeded(receipt_ref="", effect_ref="", **result):
    """It reached the queue's boundary. `result`: result_ref, result_digest, result_size, result."""
    return pb.CompleteRequest(succeeded=pb.Succeeded(receipt_ref=receipt_ref, effect_ref=effect_ref, **result))


def transient(code, message="", retry_after=None):
    """It did not happen and may succeed later, no sooner than `retry_after` seconds from now."""
    return _failed(attempt_pb2.ERROR_CLASS_TRANSIENT, code, message, retry_after)


def permanent(code, message=""):
    """It did not happen and never will as it is: for people to repair."""
    return _failed(attempt_pb2.ERROR_CLASS_PERMANENT, code, message)


def unknown(code, message=""):
    """It may have happened. The next attempt is told, with this one's effect_ref."""
    return _failed(attempt_pb2.ERROR_CLASS_UNKNOWN, code, message)


def skipped(reason):
    """It has no point any more, which is not a failure."""
    return pb.CompleteRequest(skipped=pb.Skipped(reason=reason))


def canceled(reason):
    """Stopped before it happened, because told to or by the worker's own policy."""
    return pb.CompleteRequest(canceled=pb.Canceled(reason=reason))


def released(reason, delay=None):
    """Given back before the effect began; not charged. Ready again after `delay` seconds."""
    return pb.CompleteRequest(released=pb.Released(reason=reason, delay=duration(delay)))


def describe(outcome):
    """For log lines: the outcome's name, with the code of a failure."""
    name = outcome.WhichOneof("outcome")
    return f"failed {outcome.failed.code}" if name == "failed" else name


def _failed(error_class, code, message, retry_after=None):
    failed = pb.Failed(error_class=error_class, code=code, message=message, retry_after=duration(retry_after))
    return pb.CompleteRequest(failed=failed)
