"""A small worker runtime for Leasehold: write a handler per kind of task, and let `Worker` keep the leases.

    from leasehold_worker import Worker, connect, outcomes, run_until_signal

    def greet(held):
        held.begin_effect("req-1")        # returns only if the server said yes; otherwise it raises
        ...                               # act
        return outcomes.succeeded(receipt_ref="rcpt-1")

    worker = Worker(connect("127.0.0.1:7233"), "greetings", "w1", {"greet": greet})
    run_until_signal(worker)

    connection.py   the channel, and which errors mean what
    held.py         a lease in a handler's hands: its time, its flags, begin_effect
    outcomes.py     how an attempt can end
    heartbeats.py   keeps the held leases, from a thread of its own
    worker.py       claims, runs handlers, settles every lease, stops gracefully
    stubs.py        the generated code, which setup.sh puts into ../gen

No wall clock is read anywhere: the server sends durations, and they are measured with time.monotonic().
"""

from . import stubs  # noqa: F401, I001 - first, see there
from . import outcomes
from .connection import RpcError, add_server_flags, connect, connect_by_flags, reason_of
from .held import HeldLease, MayNotAct
from .worker import Worker, run_until_signal

__all__ = [
    "HeldLease",
    "MayNotAct",
    "RpcError",
    "Worker",
    "add_server_flags",
    "connect",
    "connect_by_flags",
    "outcomes",
    "reason_of",
    "run_until_signal",
]
