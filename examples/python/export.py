"""The export worker: writes the notes of a frozen snapshot into an artifact, under its own token, and publishes it by its success.

Success here means `artifact_published`: Leasehold accepted this attempt's reference, digest and size. Whoever comes too late has written
a file that nobody points at.
"""

import argparse
import json
import logging
import os
import socket
import sys

from artifacts import Artifacts
from faults import Faults, add_fault_flags
from leasehold_worker import Worker, add_server_flags, connect_by_flags, outcomes, run_until_signal


class Stopped(Exception):
    """Asked to stop half-way."""


class Export:
    """The handler for tasks of kind `export`."""

    def __init__(self, artifacts, faults, pace=0.0):
        self._artifacts = artifacts
        self._faults = faults
        self._pace = pace

    def __call__(self, held):
        self._faults.at("claimed")
        try:
            asked = json.loads(held.task.spec.payload)
            notes = self._artifacts.snapshot(asked["snapshot"])
        except (ValueError, KeyError, FileNotFoundError) as error:
            return outcomes.permanent("BAD_SNAPSHOT", type(error).__name__)
        export = held.task.spec.task_id.replace(":", "-")
        held.begin_effect(f"exports/{export}/{held.ref.fencing_token}")
        self._faults.at("effect-begun")
        try:
            ref, digest, size = self._artifacts.put(export, held.ref.fencing_token, self._lines(held, notes))
        except Stopped:
            return outcomes.canceled("asked to stop; nothing was published")
        self._faults.at("artifact-written")
        return outcomes.succeeded(result_ref=ref, result_digest=digest, result_size=size)

    def _lines(self, held, notes):
        for note in notes:
            if held.cancel_requested.wait(self._pace) or held.lost.is_set():
                raise Stopped
            yield json.dumps(note, sort_keys=True).encode() + b"\n"


def flags():
    parser = argparse.ArgumentParser(description="Works on export tasks.")
    add_server_flags(parser)
    parser.add_argument("--queue", default="exports")
    parser.add_argument("--worker-id", default=f"{socket.gethostname()}:{os.getpid()}")
    parser.add_argument("--folder", default="artifacts", help="the artifact store")
    parser.add_argument("--lease", type=float, metavar="SECONDS", help="length of the leases (the task's or the queue's)")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="time for each note (0)")
    parser.add_argument("--stop-grace", type=float, default=30.0, metavar="SECONDS", help="time for running work at a stop (30)")
    add_fault_flags(parser)
    return parser.parse_args()


def main():
    given = flags()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    worker = Worker(
        connect_by_flags(given),
        given.queue,
        given.worker_id,
        {"export": Export(Artifacts(given.folder), Faults(given), given.pace)},
        lease_seconds=given.lease,
        stop_grace=given.stop_grace,
    )
    return 0 if run_until_signal(worker) else 1


if __name__ == "__main__":
    sys.exit(main())
