"""The notification task end to end, against a running server: LEASEHOLD_SERVER=127.0.0.1:7233 .venv/bin/python test_n9.py

Each test has a queue of its own, a push provider and workers as real processes. What it asserts are the server's records of
the attempts and the provider's record of requests and effects, which must agree on what happened.
"""

import signal
import subprocess
import sys
import threading
import unittest

from leasehold_worker import MayNotAct, RpcError, Worker, outcomes, reason_of
from leasehold_worker.stubs import (
    attempt_pb2 as a,
    repair_service_pb2 as repair_pb,
    task_pb2 as t,
    task_service_pb2 as task_pb,
)
from town import CALL_SECONDS, DEADLINE_SECONDS, HERE, LEASE_SECONDS, SERVER, Provider, Town, eventually


class N9(unittest.TestCase):
    def setUp(self):
        self.town = Town(self)
        self.provider = Provider(self)

    # What happens when nothing goes wrong.

    def test_a_normal_run_has_one_effect_and_completes_with_the_providers_receipt(self):
        self.worker("w1")
        submit = [sys.executable, str(HERE / "submit.py"), "--server", SERVER, "--queue", self.town.queue]
        said = subprocess.run([*submit, "--wait", "30"], check=True, capture_output=True, text=True).stdout
        again = subprocess.run(submit, check=True, capture_output=True, text=True).stdout
        [effect] = self.provider.effects()
        self.assertEqual(effect["key"], "notify:u-b:d-b1:m-9:v1")
        self.assertRegex(said, r"created +true")
        self.assertRegex(said, r"state +COMPLETED")
        self.assertRegex(said, r"boundary +provider_accepted")
        self.assertRegex(said, rf"receipt +{effect['receipt']}")
        self.assertRegex(again, r"created +false")

    # What the provider says, and what it doesn't.

    def test_a_lost_answer_is_unknown_and_the_next_attempt_finds_the_receipt(self):
        self.provider.arm("drop")
        self.worker("w1")
        task, (first, second) = self.completed_after_two_attempts()
        self.assert_unknown(first, "PROVIDER_NO_ANSWER", outcome=a.OUTCOME_FAILED)
        self.assert_receipt_found_instead_of_sending_again(task, first, second)

    def test_an_answer_that_takes_too_long_is_unknown_and_the_next_attempt_finds_the_receipt(self):
        self.provider.arm("delay", seconds=DEADLINE_SECONDS)
        self.worker("w1", "--provider-timeout", 0.3)
        task, (first, second) = self.completed_after_two_attempts()
        self.assert_unknown(first, "PROVIDER_TIMEOUT", outcome=a.OUTCOME_FAILED)
        self.assert_receipt_found_instead_of_sending_again(task, first, second)

    def test_a_provider_that_is_down_is_asked_again_under_the_same_key(self):
        self.provider.arm("500")
        self.worker("w1")
        _, (first, second) = self.completed_after_two_attempts()
        self.assertEqual((first.error_class, first.code), (a.ERROR_CLASS_TRANSIENT, "PROVIDER_DOWN"))
        self.assertEqual(len({request["key"] for request in self.provider.requests()}), 1)
        self.assertNotEqual(first.effect_ref, second.effect_ref)

    def test_a_refusal_for_good_is_left_to_people(self):
        self.provider.arm("400")
        self.worker("w1")
        task = self.town.ended(self.town.submit())
        self.assertEqual(task.state, t.TASK_STATE_REPAIR_REQUIRED)
        self.assertEqual(task.last_error.code, "BAD_DEVICE_TOKEN")
        self.assertEqual(self.provider.effects(), [])

    def test_an_offline_device_is_skipped_which_is_not_a_failure(self):
        self.provider.arm("offline")
        self.worker("w1")
        task = self.town.ended(self.town.submit())
        self.assertEqual(task.state, t.TASK_STATE_SKIPPED)
        self.assertIn("offline", task.reason)
        self.assertFalse(task.HasField("last_error"))

    def test_a_kind_that_no_handler_knows_needs_repair(self):
        self.worker("w1")
        task = self.town.ended(self.town.submit(kind="fax"))
        self.assertEqual(task.state, t.TASK_STATE_REPAIR_REQUIRED)
        self.assertEqual(task.last_error.code, "UNKNOWN_KIND")
        self.assertEqual(self.provider.requests(), [])

    # Workers that die.

    def test_a_worker_killed_before_its_effect_is_known_to_have_done_nothing(self):
        _, (first, _) = self.completed_after_a_death_at("claimed")
        self.assertEqual((first.outcome, first.error_class), (a.OUTCOME_EXPIRED, a.ERROR_CLASS_TRANSIENT))
        self.assertEqual(self.provider.lookups(), [])
        self.assertEqual(len(self.provider.effects()), 1)

    def test_a_worker_killed_after_its_effect_began_leaves_the_question_to_the_next_one(self):
        _, (first, second) = self.completed_after_a_death_at("effect-begun")
        self.assert_unknown(first, outcome=a.OUTCOME_EXPIRED)
        self.assertIn(first.effect_ref, [look["request_id"] for look in self.provider.lookups()])
        self.assertEqual([request["request_id"] for request in self.provider.requests()], [second.effect_ref])
        self.assertEqual(len(self.provider.effects()), 1)

    def test_a_worker_killed_after_the_provider_accepted_leaves_a_receipt_to_find(self):
        task, (first, second) = self.completed_after_a_death_at("provider-accepted")
        self.assert_unknown(first, outcome=a.OUTCOME_EXPIRED)
        self.assert_receipt_found_instead_of_sending_again(task, first, second)

    # Workers that sleep.

    def test_a_worker_that_slept_past_its_lease_cannot_complete_its_successors_task(self):
        task, first = self.overtaken_while_frozen("provider-accepted")
        [late] = first.late_reports
        self.assertEqual(late.outcome, a.OUTCOME_SUCCEEDED)
        self.assertEqual(late.receipt_ref, task.receipt_ref)
        self.assertEqual(len(self.provider.requests()), 1)

    def test_a_worker_that_slept_past_its_lease_before_the_call_does_not_call_any_more(self):
        _, first = self.overtaken_while_frozen("effect-begun")
        [late] = first.late_reports
        self.assertEqual((late.outcome, late.code), (a.OUTCOME_FAILED, "LEASE_OVER"))
        self.assertEqual(len(self.provider.requests()), 1)

    def test_a_handler_that_blocks_for_longer_than_its_lease_keeps_it(self):
        self.provider.arm("delay", seconds=DEADLINE_SECONDS)
        worker = self.worker("w1", "--provider-timeout", DEADLINE_SECONDS)
        ref = self.town.submit()

        def kept_for_longer():
            attempts = self.town.attempts(ref)
            return attempts and kept_for(attempts[0]) > 2.5 * LEASE_SECONDS

        eventually(kept_for_longer, "the lease is kept for two and a half times its length", worker)
        self.provider.clear()
        task = self.town.ended(ref)
        self.assertEqual((task.state, task.attempt), (t.TASK_STATE_COMPLETED, 1))

    # Workers that are told to stop.

    def test_a_worker_told_to_stop_finishes_what_runs_and_takes_no_more(self):
        self.provider.arm("delay", seconds=DEADLINE_SECONDS)
        worker = self.worker("w1", "--slots", 2, "--provider-timeout", DEADLINE_SECONDS)
        running = self.town.submit()
        eventually(self.provider.requests, "the push is under way", worker)
        worker.signal(signal.SIGTERM)
        eventually(lambda: worker.said("stopping:"), "the worker stops", worker)
        waiting = self.town.submit(device="d-b2", message="m-10")
        self.assertTrue(worker.running())
        self.provider.clear()
        self.assertEqual(worker.ended(), 0, worker)
        task = self.town.task(running)
        self.assertEqual((task.state, task.attempt), (t.TASK_STATE_COMPLETED, 1), worker)
        self.assertFalse(self.town.task(waiting).terminal)
        self.worker("w2")
        task = self.town.ended(waiting)
        self.assertEqual((task.state, task.attempts_charged), (t.TASK_STATE_COMPLETED, 1))

    def test_work_that_has_not_begun_is_given_back_at_a_stop(self):
        entered, end = threading.Event(), threading.Event()
        self.addCleanup(end.set)

        def dawdle(_held):
            entered.set()
            end.wait(DEADLINE_SECONDS)
            return outcomes.transient("TOO_LATE")

        ref = self.town.submit()
        worker = self.in_process("w1", dawdle, stop_grace=0)
        self.assertTrue(entered.wait(DEADLINE_SECONDS))
        worker.stop()
        eventually(lambda: self.town.task(ref).state == t.TASK_STATE_READY, "the task is given back")
        [first] = self.town.attempts(ref)
        self.assertEqual((first.outcome, first.charged), (a.OUTCOME_RELEASED, False))

    def test_a_running_handler_sees_a_cancel_and_may_not_begin(self):
        refusals = []

        def obedient(held):
            held.cancel_requested.wait(DEADLINE_SECONDS)
            try:
                held.begin_effect("req-1")
            except MayNotAct as no:
                refusals.append(no.reason)
                raise
            return outcomes.succeeded("rcpt-1")

        ref = self.town.submit()
        self.in_process("w1", obedient)
        eventually(lambda: self.town.task(ref).state == t.TASK_STATE_LEASED, "the task is leased")
        self.town.cancel(ref)
        task = self.town.ended(ref)
        self.assertEqual((task.state, task.cause), (t.TASK_STATE_CANCELED, t.CAUSE_REQUESTED))
        self.assertEqual(refusals, ["CANCEL_REQUESTED"])
        self.assertEqual(self.town.attempts(ref)[0].outcome, a.OUTCOME_CANCELED)

    # Messages that are edited.

    def test_an_edited_message_supersedes_its_older_version_and_what_happened_stays_on_record(self):
        self.provider.arm("drop")
        self.worker("w1")
        ref = self.town.submit()
        done, (first, second) = self.completed_after_two_attempts(ref)
        self.assert_receipt_found_instead_of_sending_again(done, first, second)
        self.provider.arm("400")
        broken = self.town.ended(self.town.submit(device="d-b2"))
        self.assertEqual(broken.state, t.TASK_STATE_REPAIR_REQUIRED)
        self.provider.clear()
        # m-9 becomes v2: the Submit of its notification raises the floor in the same commit.
        newer = self.town.ended(self.town.submit(version=2))
        self.assertEqual(newer.state, t.TASK_STATE_COMPLETED)
        self.assertEqual(len(self.provider.effects()), 2)
        # v1 can be neither submitted nor replayed any more.
        with self.assertRaises(RpcError) as refused:
            self.town.submit(device="d-b3")
        self.assertEqual(reason_of(refused.exception), "SUBJECT_STALE")
        with self.assertRaises(RpcError) as refused:
            self.replay(t.TaskRef(queue=self.town.queue, task_id=broken.spec.task_id))
        self.assertEqual(reason_of(refused.exception), "SUBJECT_STALE")
        item = repair_pb.GetRepairRequest(task=t.TaskRef(queue=self.town.queue, task_id=broken.spec.task_id))
        self.assertEqual(self.town.repairs.GetRepair(item, timeout=CALL_SECONDS).repair.state, t.REPAIR_STATE_OPEN)
        # The device says later that it showed v1. It stands beside the state, and the state stays what it was.
        receipt = task_pb.RecordReceiptRequest(task=ref, kind="device_received", receipt_ref="dev-7")
        self.assertTrue(self.town.tasks.RecordReceipt(receipt, timeout=CALL_SECONDS).created)
        self.assertFalse(self.town.tasks.RecordReceipt(receipt, timeout=CALL_SECONDS).created)
        after = self.town.task(ref)
        self.assertEqual((after.state, after.receipt_ref), (t.TASK_STATE_COMPLETED, done.receipt_ref))
        self.assertEqual([(one.kind, one.receipt_ref) for one in after.receipts], [("device_received", "dev-7")])

    def test_an_edit_cancels_what_waits_and_tells_what_runs(self):
        told = threading.Event()

        def obedient(held):
            held.cancel_requested.wait(DEADLINE_SECONDS)
            told.set()
            return outcomes.canceled("a newer version is in force")

        running = self.town.submit()
        worker = self.in_process("w1", obedient)
        eventually(lambda: self.town.task(running).state == t.TASK_STATE_LEASED, "v1 runs")
        worker.stop()  # it takes no more, and goes on with what it has
        waiting = self.town.submit(device="d-b2")
        self.town.submit(version=2)
        task = self.town.ended(waiting)
        self.assertEqual((task.state, task.cause), (t.TASK_STATE_CANCELED, t.CAUSE_SUPERSEDED))
        task = self.town.ended(running)
        self.assertEqual((task.state, task.cause), (t.TASK_STATE_CANCELED, t.CAUSE_SUPERSEDED))
        self.assertTrue(told.is_set())

    # Stories that several tests begin with, and what they come to.

    def completed_after_a_death_at(self, point):
        doomed = self.worker("w1", "--die-at", point)
        ref = self.town.submit()
        self.assertEqual(doomed.ended(), -signal.SIGKILL)
        self.worker("w2")
        return self.completed_after_two_attempts(ref)

    def overtaken_while_frozen(self, point):
        """w1 freezes at `point`, w2 takes over and completes, w1 wakes up and reports. Returns the task and attempt 1."""
        slow = self.worker("w1", f"--stall-after-{point}", 10 * DEADLINE_SECONDS)
        ref = self.town.submit()
        eventually(lambda: self.town.task(ref).stage == a.STAGE_EFFECT_BEGUN, "w1's effect has begun", slow)
        quick = self.worker("w2")
        task, (first, second) = self.completed_after_two_attempts(ref)
        self.assertEqual((first.worker_id, second.worker_id), ("w1", "w2"))
        self.assertLess(first.fencing_token, second.fencing_token)
        self.assert_unknown(first, outcome=a.OUTCOME_EXPIRED)
        slow.signal(signal.SIGCONT)
        eventually(lambda: slow.said("report refused: LEASE_SUPERSEDED"), "w1's late report is refused", slow, quick)
        after = self.town.task(ref)
        self.assertEqual((after.state, after.receipt_ref), (t.TASK_STATE_COMPLETED, task.receipt_ref))
        self.assertEqual(len(self.provider.effects()), 1)
        return task, self.town.attempts(ref)[0]

    def completed_after_two_attempts(self, ref=None):
        ref = ref or self.town.submit()
        task = self.town.ended(ref)
        attempts = self.town.attempts(ref)
        self.assertEqual(task.state, t.TASK_STATE_COMPLETED, attempts)
        self.assertEqual(len(attempts), 2, attempts)
        self.assertEqual(attempts[1].outcome, a.OUTCOME_SUCCEEDED)
        return task, attempts

    def assert_unknown(self, attempt, code=None, outcome=None):
        self.assertEqual((attempt.outcome, attempt.error_class), (outcome, a.ERROR_CLASS_UNKNOWN), attempt)
        self.assertEqual(attempt.stage, a.STAGE_EFFECT_BEGUN)
        self.assertTrue(attempt.effect_ref)
        if code:
            self.assertEqual(attempt.code, code)

    def assert_receipt_found_instead_of_sending_again(self, task, first, second):
        [effect] = self.provider.effects()
        [request] = self.provider.requests()
        self.assertEqual(request["request_id"], first.effect_ref)
        self.assertEqual(task.receipt_ref, effect["receipt"])
        self.assertEqual(second.receipt_ref, effect["receipt"])
        self.assertEqual(second.stage, a.STAGE_CLAIMED)

    def worker(self, name, *flags):
        return self.town.worker(self.provider, name, *flags)

    def replay(self, ref):
        request = repair_pb.ResolveRepairRequest(task=ref, replay=repair_pb.Replay(), reason="the token was mended")
        return self.town.repairs.ResolveRepair(request, timeout=CALL_SECONDS)

    def in_process(self, name, handler, **more):
        worker = Worker(self.town.channel, self.town.queue, name, {"notify": handler}, lease_seconds=LEASE_SECONDS, **more)
        runner = threading.Thread(target=worker.run, daemon=True)
        runner.start()
        self.addCleanup(runner.join, DEADLINE_SECONDS)
        self.addCleanup(worker.stop)
        return worker


def kept_for(attempt):
    """Seconds from the attempt's start to its last heartbeat, both by the server's clock."""
    if not attempt.HasField("last_heartbeat_time"):
        return 0.0
    return (attempt.last_heartbeat_time.ToDatetime() - attempt.start_time.ToDatetime()).total_seconds()


if __name__ == "__main__":
    unittest.main(verbosity=2)
