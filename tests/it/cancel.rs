//! Cancel is a request; canceled is a fact.

use leasehold::api::proto::complete_request::Outcome as Said;
use leasehold::api::proto::{self as pb, Cause, Directive, ErrorClass, Outcome, TaskState};

use crate::town::{LEASE, Lease, SECOND, Town, micros, succeeded};

const REASON: &str = "the message was recalled";

/// A task that runs and was asked to stop.
async fn running_and_canceled(town: &Town, id: &str) -> Lease {
    town.submit(id).await;
    let lease = town.worker("w1").claim_one().await;
    let task = town.cancel(id).await.ok().task.unwrap();
    assert_eq!(
        (task.state(), task.cancel_requested, task.cause(), task.reason.as_str()),
        (TaskState::Leased, true, Cause::Requested, REASON)
    );
    lease
}

async fn is_canceled_as_asked(town: &Town, id: &str) -> pb::Task {
    let task = town.wait_for_state(id, TaskState::Canceled).await;
    assert_eq!((task.cause(), task.reason.as_str(), task.terminal), (Cause::Requested, REASON, true));
    assert_eq!((task.boundary.as_str(), task.receipt_ref.as_str(), task.repair.as_ref()), ("", "", None));
    task
}

#[tokio::test]
async fn what_waits_is_canceled_at_once_wherever_it_waits() {
    let town = Town::start().await;
    town.spec("scheduled").start_delay(SECOND * 60).submit().await;
    town.spec("retry").retry(3, SECOND * 60).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.spec("head").key("c-a").start_delay(SECOND * 60).submit().await;
    town.spec("blocked").key("c-a").submit().await;
    town.submit("ready").await;
    let ids = ["scheduled", "retry", "blocked", "ready"];
    assert_eq!(town.states(&ids).await, ["SCHEDULED", "RETRY_AT", "BLOCKED", "READY"]);
    for id in ids {
        let task = town.cancel(id).await.ok().task.unwrap();
        assert_eq!((task.state(), task.cancel_requested), (TaskState::Canceled, false));
        is_canceled_as_asked(&town, id).await;
    }
    town.clock.advance(SECOND * 120).await;
    assert_eq!(town.worker("w1").claim_one().await.id(), "head");
    town.worker("w1").finds_nothing().await;
    town.row_held(9, "ready", None).await;
    town.audit().await;
}

#[tokio::test]
async fn cancel_again_is_fine_and_changes_nothing() {
    let town = Town::start().await;
    town.submit("waiting").await;
    let first = town.cancel("waiting").await.ok().task.unwrap();
    assert_eq!(town.cancel("waiting").await.ok().task.unwrap(), first);
    let lease = running_and_canceled(&town, "running").await;
    let asked = town.task("running").await;
    assert_eq!(town.cancel("running").await.ok().task.unwrap(), asked);
    lease.stop("told to").await.applied();
    assert_eq!(town.history("running").await, ["SUBMITTED>READY", "LEASED>LEASED", "CANCEL_REQUESTED>LEASED", "ENDED>CANCELED"]);
    town.audit().await;
}

#[tokio::test]
async fn what_has_ended_otherwise_cannot_be_canceled_any_more() {
    let town = Town::start().await;
    for id in ["completed", "skipped", "repair"] {
        town.submit(id).await;
        let lease = town.worker("w1").claim_one().await;
        let (ended, state) = match id {
            "completed" => (lease.complete().await, "COMPLETED"),
            "skipped" => (lease.skip("the device is offline").await, "SKIPPED"),
            _ => (lease.fail(ErrorClass::Permanent).await, "REPAIR_REQUIRED"),
        };
        let task = ended.applied().task.unwrap();
        assert_eq!(town.cancel(id).await.refused_with("TASK_TERMINAL").says("state"), state);
        assert_eq!(town.task(id).await.revision, task.revision);
    }
    town.row_held(9, "completed", None).await;
    town.audit().await;
}

#[tokio::test]
async fn a_heartbeat_after_a_cancel_is_told_to_stop_and_extends_nothing() {
    let town = Town::start().await;
    let lease = running_and_canceled(&town, "t").await;
    let ends = micros(town.task("t").await.lease_expire_time.as_ref());
    town.clock.advance(SECOND * 20).await;
    for held in [lease.heartbeat().await.ok(), lease.heartbeat_for(LEASE * 10).await.ok()] {
        assert_eq!((held.directive(), held.cause(), held.reason.as_str()), (Directive::Cancel, Cause::Requested, REASON));
        assert_eq!(micros(held.expire_time.as_ref()), ends);
        assert!(held.remaining.unwrap().seconds < 10);
    }
    // It goes on heartbeating, and the task is over when the lease is.
    town.clock.advance(SECOND * 11).await;
    let ended = is_canceled_as_asked(&town, "t").await;
    assert!(micros(ended.end_time.as_ref()) >= ends);
    lease.heartbeat().await.refused_with("TASK_TERMINAL");
    lease.complete().await.refused_with("TASK_TERMINAL");
    let attempt = town.attempts("t").await.remove(0);
    assert_eq!((attempt.outcome(), attempt.late_reports.len()), (Outcome::Expired, 1));
    town.row_held(9, "t", None).await;
    town.row_held(34, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn a_heartbeat_without_a_cancel_extends_the_lease_and_never_shortens_it() {
    let town = Town::start().await;
    town.spec("t").ttl(SECOND * 100).submit().await;
    let lease = town.worker("w1").claim_one().await;
    let begin = town.task("t").await;
    let (ends, deadline) = (micros(begin.lease_expire_time.as_ref()), micros(begin.deadline_time.as_ref()));
    assert_eq!(micros(lease.heartbeat_for(SECOND).await.ok().expire_time.as_ref()), ends);
    town.clock.advance(SECOND * 20).await;
    let held = lease.heartbeat().await.ok();
    assert_eq!(held.directive(), Directive::Continue);
    assert!(micros(held.expire_time.as_ref()) >= ends + 20_000_000);
    // No lease outlasts the deadline.
    assert_eq!(micros(lease.heartbeat_for(SECOND * 3_600).await.ok().expire_time.as_ref()), deadline);
    lease.complete().await.applied();
    town.audit().await;
}

#[tokio::test]
async fn a_success_after_a_cancel_is_not_published_but_kept_as_evidence() {
    let town = Town::start().await;
    town.policy("boundary = 'provider_accepted'").await;
    let lease = running_and_canceled(&town, "t").await;
    let said = pb::Succeeded { result_ref: "s3://out".into(), ..succeeded() };
    lease.report(Said::Succeeded(said)).await.refused_with("CANCEL_REQUESTED");
    let task = is_canceled_as_asked(&town, "t").await;
    assert_eq!(task.result_ref, "");
    let attempt = town.attempts("t").await.remove(0);
    assert_eq!(
        (attempt.outcome(), attempt.receipt_ref.as_str(), attempt.result_ref.as_str()),
        (Outcome::Succeeded, "receipt-1", "s3://out")
    );
    town.audit().await;
}

#[tokio::test]
async fn whatever_else_a_worker_reports_after_a_cancel_cancels_the_task() {
    let town = Town::start().await;
    for (id, outcome) in [
        ("fails", Outcome::Failed),
        ("fails for good", Outcome::Failed),
        ("skips", Outcome::Skipped),
        ("stops", Outcome::Canceled),
        ("releases", Outcome::Released),
    ] {
        let lease = running_and_canceled(&town, id).await;
        let answer = match id {
            "fails" => lease.fail(ErrorClass::Transient).await,
            "fails for good" => lease.fail(ErrorClass::Permanent).await,
            "skips" => lease.skip("the device is offline").await,
            "stops" => lease.stop("told to").await,
            _ => lease.release().await,
        };
        assert_eq!(answer.applied().task.unwrap().state(), TaskState::Canceled);
        is_canceled_as_asked(&town, id).await;
        assert_eq!(town.attempts(id).await[0].outcome(), outcome, "{id}");
    }
    town.audit().await;
}

#[tokio::test]
async fn a_worker_may_cancel_by_its_own_policy() {
    let town = Town::start().await;
    town.submit("t").await;
    let task = town.worker("w1").claim_one().await.stop("quiet hours").await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause(), task.reason.as_str()), (TaskState::Canceled, Cause::Worker, "quiet hours"));
    town.audit().await;
}

#[tokio::test]
async fn a_cancel_counts_before_a_deadline_used_up_attempts_and_a_lease_end_that_are_due_with_it() {
    let town = Town::start().await;
    town.spec("t").ttl(SECOND * 20).retry(1, SECOND).submit().await;
    let lease = town.worker("w1").claim_one().await;
    town.cancel("t").await.ok();
    town.clock.advance(SECOND * 60).await;
    is_canceled_as_asked(&town, "t").await;
    assert_eq!(town.attempts("t").await[0].outcome(), Outcome::Expired);
    lease.complete().await.refused_with("TASK_TERMINAL");
    town.audit().await;
}

#[tokio::test]
async fn of_a_cancel_and_a_completion_that_meet_one_is_told_that_it_came_too_late() {
    let town = Town::start().await;
    town.submit("t").await;
    let lease = town.worker("w1").claim_one().await;
    let held = town.hold_task("t").await;
    let racing = async {
        let mut held = held;
        held.until_waited_for().await;
        held.let_go().await;
    };
    let (completed, canceled, ()) = tokio::join!(lease.complete(), town.cancel("t"), racing);
    // One of the two was first, and the other one was told so.
    let task = town.task("t").await;
    if task.state() == TaskState::Completed {
        completed.applied();
        canceled.refused_with("TASK_TERMINAL");
    } else {
        assert!(canceled.ok().task.unwrap().cancel_requested);
        completed.refused_with("CANCEL_REQUESTED");
        is_canceled_as_asked(&town, "t").await;
    }
    town.audit().await;
}

#[tokio::test]
async fn whoever_shares_a_batch_is_answered_with_the_task_as_its_own_command_left_it() {
    let town = Town::start().await;
    let ids: Vec<String> = (0..50).map(|n| format!("t{n}")).collect();
    for id in &ids {
        town.submit(id).await;
    }
    let leases = town.worker("w1").claim(50).await;
    // A hundred calls at once: the first ones occupy the lanes, the others meet in the batches after them.
    let town_ref = &town;
    let races = leases.iter().map(|lease| async move {
        let (canceled, completed) = tokio::join!(town_ref.cancel(lease.id()), lease.complete());
        (lease.id(), canceled, completed)
    });
    for (id, canceled, completed) in futures_util::future::join_all(races).await {
        if completed.0.is_ok() {
            assert_eq!(completed.applied().task.unwrap().state(), TaskState::Completed, "{id}");
            canceled.refused_with("TASK_TERMINAL");
        } else {
            completed.refused_with("CANCEL_REQUESTED");
            let told = canceled.ok().task.unwrap();
            assert_eq!((told.state(), told.cancel_requested), (TaskState::Leased, true), "{id}");
            is_canceled_as_asked(&town, id).await;
        }
    }
    town.audit().await;
}
