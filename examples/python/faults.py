"""FAULT SWITCHES, for demos and tests only: they kill or freeze this very process at a named point.

A worker without these flags runs none of this.
"""

import os
import signal
import subprocess
import sys
import threading

POINTS = ("claimed", "effect-begun", "provider-accepted", "artifact-written")

# Thaws its parent after a while, unless the parent is gone: then the number may be somebody else's.
THAW = """
import os, signal, sys, time
time.sleep(float(sys.argv[1]))
if os.getppid() == int(sys.argv[2]):
    os.kill(int(sys.argv[2]), signal.SIGCONT)
"""


class Faults:
    def __init__(self, flags):
        self._die_at = flags.die_at
        self._stalls = {point: getattr(flags, f"stall_after_{point.replace('-', '_')}") for point in POINTS[1:]}

    def at(self, point):
        if self._die_at == point:
            stop_here(signal.SIGKILL)
        if self._stalls.get(point):
            freeze(self._stalls.pop(point))  # once: whoever wakes up goes on as usual


def add_fault_flags(parser):
    group = parser.add_argument_group("fault switches (for demos and tests only)")
    group.add_argument("--die-at", choices=POINTS, help="kill -9 this process there, at the first task")
    for point in POINTS[1:]:
        text = "freeze the whole process there, at the first task; SIGCONT thaws it sooner"
        group.add_argument(f"--stall-after-{point}", type=float, metavar="SECONDS", help=text)


def freeze(seconds):
    """Stops every thread, heartbeats too, as a paused machine would."""
    subprocess.Popen([sys.executable, "-c", THAW, str(seconds), str(os.getpid())])
    stop_here(signal.SIGSTOP)


def stop_here(number):
    """Signals this very thread, so that it stops before it takes another step. All others stop with it."""
    signal.pthread_kill(threading.get_ident(), number)
