"""The export job end to end, against a running server: LEASEHOLD_SERVER=127.0.0.1:7233 .venv/bin/python test_export.py

Each test has a queue, an artifact store and workers of its own, as real processes.
"""

import json
import signal
import tempfile
import unittest

import export_request
from artifacts import Artifacts, digest_of
from leasehold_worker.stubs import attempt_pb2 as a, task_pb2 as t
from town import DEADLINE_SECONDS, LEASE_SECONDS, Process, SERVER, Town, eventually

NOTES = [{"note": n, "text": f"private text {n}"} for n in range(50)]
EXPORT = "export:u-b:2026-11"


class ExportJob(unittest.TestCase):
    def setUp(self):
        self.town = Town(self, "export", boundary="artifact_published")
        folder = tempfile.TemporaryDirectory(prefix="artifacts-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.artifacts = Artifacts(folder.name)

    def test_an_export_is_published_as_it_was_frozen_with_its_digest_and_size(self):
        self.assertIsNone(self.look_up(t.TaskRef(queue=self.town.queue, task_id=EXPORT)))
        notes = [dict(note) for note in NOTES]
        ref = self.request(notes)
        notes[0]["text"] = "edited afterwards"
        self.assertEqual(self.request(notes), ref)  # asked again: the same export, the same snapshot
        accepted = self.look_up(ref)
        self.assertFalse(accepted.terminal)
        self.worker("w1")
        task = self.town.ended(ref)
        self.assertEqual((task.state, task.boundary), (t.TASK_STATE_COMPLETED, "artifact_published"))
        data = export_request.read(self.artifacts, task)
        self.assertEqual([json.loads(line) for line in data.splitlines()], NOTES)
        self.assertEqual((task.result_digest, task.result_size), (digest_of(data), len(data)))

    def test_a_worker_that_slept_past_its_lease_cannot_publish(self):
        slow = self.worker("w1", "--stall-after-artifact-written", 10 * DEADLINE_SECONDS)
        ref = self.request()
        eventually(lambda: len(self.artifacts.of(self.export())) == 1, "w1 has written its artifact", slow)
        [late] = self.artifacts.of(self.export())
        quick = self.worker("w2")
        task = self.town.ended(ref)
        first, second = self.town.attempts(ref)
        self.assertEqual((task.state, task.result_ref), (t.TASK_STATE_COMPLETED, second.result_ref))
        self.assertEqual(second.result_ref, f"exports/{self.export()}/{second.fencing_token}.ndjson")
        self.assertLess(first.fencing_token, second.fencing_token)
        slow.signal(signal.SIGCONT)
        eventually(lambda: slow.said("report refused: LEASE_SUPERSEDED"), "w1's late publish is refused", slow, quick)
        after = self.town.task(ref)
        self.assertEqual((after.state, after.result_ref), (t.TASK_STATE_COMPLETED, second.result_ref))
        [report] = self.town.attempts(ref)[0].late_reports
        self.assertEqual((report.outcome, report.result_ref), (a.OUTCOME_SUCCEEDED, late))
        export_request.read(self.artifacts, after)

    def test_a_worker_killed_half_way_leaves_no_artifact_and_the_next_one_publishes(self):
        doomed = self.worker("w1", "--die-at", "effect-begun")
        ref = self.request()
        self.assertEqual(doomed.ended(), -signal.SIGKILL)
        self.assertEqual(self.artifacts.of(self.export()), [])
        self.worker("w2")
        task = self.town.ended(ref)
        self.assertEqual((task.state, task.attempt), (t.TASK_STATE_COMPLETED, 2))
        self.assertEqual(self.artifacts.of(self.export()), [task.result_ref])
        export_request.read(self.artifacts, task)

    def test_an_export_canceled_half_way_is_never_shown_as_done(self):
        worker = self.worker("w1", "--pace", DEADLINE_SECONDS)
        ref = self.request()
        eventually(lambda: self.town.task(ref).stage == a.STAGE_EFFECT_BEGUN, "the export is under way", worker)
        self.town.cancel(ref)
        task = self.town.ended(ref)
        self.assertEqual((task.state, task.cause), (t.TASK_STATE_CANCELED, t.CAUSE_REQUESTED))
        self.assertEqual((task.boundary, task.result_ref), ("", ""))
        self.assertEqual(self.artifacts.of(self.export()), [])
        with self.assertRaises(LookupError):
            export_request.read(self.artifacts, task)

    def worker(self, name, *flags):
        lease = str(LEASE_SECONDS)
        own = ["--queue", self.town.queue, "--worker-id", name, "--lease", lease, "--folder", self.folder]
        return Process(self, name, "export.py", "--server", SERVER, *own, *map(str, flags))

    def request(self, notes=NOTES):
        return export_request.request(self.town.tasks, self.artifacts, self.town.queue, EXPORT, "u-b", notes)

    def look_up(self, ref):
        return export_request.look_up(self.town.tasks, ref)

    def export(self):
        return EXPORT.replace(":", "-")


if __name__ == "__main__":
    unittest.main(verbosity=2)
