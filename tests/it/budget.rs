//! Attempts and the deadline: a budget that is stored with the task and never restarts, and what becomes of work that used it up.

use leasehold::api::proto::complete_request::Outcome as Said;
use leasehold::api::proto::{self as pb, Cause, ErrorClass, Outcome, RepairState, TaskState};

use crate::town::{LEASE, Lease, SECOND, Town, failed, micros, span};

/// It went to people, and no worker gets it any more.
async fn needs_people(town: &Town, id: &str, cause: Cause) -> pb::Task {
    let task = town.wait_for_state(id, TaskState::RepairRequired).await;
    assert_eq!((task.cause(), task.terminal, task.boundary.as_str()), (cause, true, ""));
    let repair = task.repair.as_ref().expect("it leaves a repair");
    assert_eq!((repair.state(), repair.owner.as_str()), (RepairState::Open, ""));
    town.clock.advance(SECOND * 86_400).await;
    town.worker("w9").finds_nothing().await;
    assert_eq!(town.task(id).await, task);
    task
}

#[tokio::test]
async fn three_failed_attempts_are_all_there_are() {
    let town = Town::start().await;
    town.submit("t").await;
    for attempt in 1..=3 {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!((lease.attempt(), lease.lease.attempts_left), (attempt, 3 - attempt));
        lease.fail(ErrorClass::Transient).await.applied();
        town.clock.advance(SECOND * 10).await;
    }
    let task = needs_people(&town, "t", Cause::AttemptsExhausted).await;
    assert_eq!((task.attempt, task.attempts_charged), (3, 3));
    assert_eq!(task.last_error.unwrap().code, "provider_busy");
    assert_eq!(town.attempts("t").await.len(), 3);
    town.row_held(10, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn lost_leases_use_up_attempts_like_failures() {
    let town = Town::start().await;
    town.spec("t").retry(3, SECOND).submit().await;
    for attempt in 1..=3 {
        let lease = town.worker("w1").reporting_effects().claim_one().await;
        assert_eq!(lease.attempt(), attempt);
        town.clock.advance(LEASE + SECOND * 2).await;
    }
    let task = needs_people(&town, "t", Cause::AttemptsExhausted).await;
    assert_eq!((task.attempt, task.attempts_charged, task.unknown_attempts), (3, 3, 0));
    let outcomes: Vec<_> = town.attempts("t").await.iter().map(|attempt| (attempt.outcome(), attempt.charged)).collect();
    assert_eq!(outcomes, [(Outcome::Expired, true); 3]);
    town.audit().await;
}

#[tokio::test]
async fn one_attempt_may_mean_just_one() {
    let town = Town::start().await;
    town.spec("fails").retry(1, SECOND).submit().await;
    let task = town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause()), (TaskState::RepairRequired, Cause::AttemptsExhausted));
    town.spec("dies").retry(1, SECOND).submit().await;
    town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND).await;
    needs_people(&town, "dies", Cause::AttemptsExhausted).await;
    town.audit().await;
}

#[tokio::test]
async fn a_permanent_error_is_never_retried() {
    let town = Town::start().await;
    town.submit("t").await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Permanent).await.applied();
    let task = needs_people(&town, "t", Cause::PermanentError).await;
    assert_eq!(task.last_error.unwrap().error_class(), ErrorClass::Permanent);
    town.audit().await;
}

#[tokio::test]
async fn a_retry_that_could_not_begin_before_the_deadline_is_not_planned() {
    let town = Town::start().await;
    town.spec("t").ttl(SECOND * 30).retry(5, SECOND * 60).submit().await;
    let task = town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied().task.unwrap();
    assert_eq!((task.state(), task.next_attempt_time), (TaskState::RepairRequired, None));
    assert_eq!(needs_people(&town, "t", Cause::DeadlinePassed).await.attempt, 1);
    town.audit().await;
}

#[tokio::test]
async fn a_retry_needs_the_queues_margin_to_run_before_the_deadline() {
    let town = Town::start().await;
    town.policy("deadline_margin_us = 25000000").await;
    town.spec("too long").ttl(SECOND * 30).retry(5, SECOND * 10).submit().await;
    let task = town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause()), (TaskState::RepairRequired, Cause::DeadlinePassed));
    town.spec("fits").ttl(SECOND * 40).retry(5, SECOND * 10).submit().await;
    let task = town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied().task.unwrap();
    assert_eq!(task.state(), TaskState::RetryAt);
    town.audit().await;
}

#[tokio::test]
async fn the_deadline_passes_wherever_a_task_waits() {
    let town = Town::start().await;
    let soon = SECOND * 30;
    town.spec("retry").ttl(soon).retry(3, SECOND * 20).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.spec("scheduled").ttl(soon).start_delay(SECOND * 3_600).submit().await;
    town.spec("head").key("c-a").start_delay(SECOND * 172_800).ttl(SECOND * 259_200).submit().await;
    town.spec("blocked").key("c-a").ttl(soon).submit().await;
    town.spec("ready").ttl(soon).submit().await;
    let ids = ["retry", "scheduled", "blocked", "ready", "head"];
    assert_eq!(town.states(&ids).await, ["RETRY_AT", "SCHEDULED", "BLOCKED", "READY", "SCHEDULED"]);
    town.clock.advance(SECOND * 31).await;
    for id in &ids[..4] {
        let task = town.wait_for_state(id, TaskState::RepairRequired).await;
        assert_eq!((task.cause(), task.repair.unwrap().state()), (Cause::DeadlinePassed, RepairState::Open), "{id}");
    }
    assert_eq!(town.states(&["head"]).await, ["SCHEDULED"]);
    town.worker("w1").finds_nothing().await;
    for id in ["retry", "ready"] {
        town.row_held(11, id, None).await;
    }
    town.audit().await;
}

#[tokio::test]
async fn what_is_overdue_is_not_handed_out_in_the_moments_before_it_is_swept() {
    let town = Town::start().await;
    for round in 0..5 {
        let (overdue, good) = (format!("overdue-{round}"), format!("good-{round}"));
        town.spec(&overdue).ttl(SECOND * 30).submit().await;
        town.submit(&good).await;
        town.clock.advance(SECOND * 31).await;
        let leases = town.worker("w1").claim(5).await;
        assert_eq!(leases.iter().map(Lease::id).collect::<Vec<_>>(), [good]);
        leases[0].complete().await.applied();
        town.wait_for_state(&overdue, TaskState::RepairRequired).await;
        assert_eq!(town.attempts(&overdue).await, []);
    }
    town.audit().await;
}

#[tokio::test]
async fn a_lease_ends_with_the_deadline_and_a_late_success_is_refused() {
    let town = Town::start().await;
    town.spec("t").ttl(SECOND * 20).submit().await;
    let lease = town.worker("w1").claim_one().await;
    let task = town.task("t").await;
    assert_eq!(task.lease_expire_time, task.deadline_time);
    let mut held = town.hold_task("t").await;
    let late = {
        let lease = lease.clone();
        tokio::spawn(async move { lease.complete().await })
    };
    held.until_waited_for_patiently().await;
    town.clock.advance(SECOND * 21).await;
    held.let_go().await;
    late.await.unwrap().refused_with("TASK_DEADLINE_PASSED");
    needs_people(&town, "t", Cause::DeadlinePassed).await;
    let attempt = town.attempts("t").await.remove(0);
    assert_eq!((attempt.outcome(), attempt.late_reports.len()), (Outcome::Expired, 1));
    town.row_held(11, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn the_deadline_counts_before_used_up_attempts_and_attempts_before_the_lease_end() {
    let town = Town::start().await;
    town.spec("all at once").ttl(SECOND * 20).retry(1, SECOND).submit().await;
    town.spec("attempts").retry(1, SECOND).submit().await;
    town.spec("lease").retry(2, SECOND * 600).submit().await;
    town.worker("w1").claim_all(3).await;
    town.clock.advance(SECOND * 60).await;
    let causes = [("all at once", Cause::DeadlinePassed), ("attempts", Cause::AttemptsExhausted)];
    for (id, cause) in causes {
        assert_eq!(town.wait_for_state(id, TaskState::RepairRequired).await.cause(), cause, "{id}");
    }
    town.wait_for_state("lease", TaskState::RetryAt).await;
    town.audit().await;
}

#[tokio::test]
async fn backoff_grows_up_to_its_cap_and_asking_again_does_not_shorten_it() {
    let town = Town::start().await;
    let retry = pb::RetryPolicy {
        max_attempts: Some(5),
        initial_backoff: Some(span(SECOND * 10)),
        max_backoff: Some(span(SECOND * 30)),
        multiplier: Some(2.0),
        jitter: Some(0.0),
    };
    town.spec("t").with(|spec| spec.retry = Some(retry)).submit().await;
    for (attempt, wait) in [(1, 10), (2, 20), (3, 30), (4, 30)] {
        let lease = town.worker("w1").claim_one().await;
        let task = lease.fail(ErrorClass::Transient).await.applied().task.unwrap();
        let (next, now) = (micros(task.next_attempt_time.as_ref()), micros(task.update_time.as_ref()));
        assert_eq!((task.state(), task.attempt, next - now), (TaskState::RetryAt, attempt, wait * 1_000_000));
        town.clock.advance(SECOND * u32::try_from(wait - 5).unwrap()).await;
        for _ in 0..5 {
            town.worker("w1").finds_nothing().await;
        }
        assert_eq!(town.task("t").await, task);
        town.clock.advance(SECOND * 6).await;
    }
    town.row_held(12, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn jitter_spreads_the_backoff_between_nothing_and_its_whole() {
    let town = Town::start().await;
    let retry = pb::RetryPolicy { initial_backoff: Some(span(SECOND * 100)), ..pb::RetryPolicy::default() };
    for number in 0..16 {
        town.spec(&format!("t-{number}")).with(|spec| spec.retry = Some(retry)).submit().await;
    }
    let mut waits = Vec::new();
    for lease in town.worker("w1").claim_all(16).await {
        let task = lease.fail(ErrorClass::Transient).await.applied().task.unwrap();
        waits.push(micros(task.next_attempt_time.as_ref()) - micros(task.update_time.as_ref()));
    }
    assert!(waits.iter().all(|wait| (0..=100_000_000).contains(wait)), "{waits:?}");
    waits.sort_unstable();
    waits.dedup();
    // That 16 draws fall into one tenth of the whole happens once in 10^14 runs.
    assert!(waits.last().unwrap() - waits[0] > 10_000_000, "{waits:?}");
    town.audit().await;
}

#[tokio::test]
async fn retry_after_is_a_lower_bound_of_the_backoff() {
    let town = Town::start().await;
    for (id, after, wait) in [("longer", 90, 90), ("shorter", 5, 10)] {
        town.spec(id).retry(3, SECOND * 10).submit().await;
        let lease = town.worker("w1").claim_one().await;
        let said = pb::Failed { retry_after: Some(span(SECOND * after)), ..failed(ErrorClass::Transient) };
        let task = lease.report(Said::Failed(said)).await.applied().task.unwrap();
        let waits = micros(task.next_attempt_time.as_ref()) - micros(task.update_time.as_ref());
        assert_eq!(waits, wait * 1_000_000, "{id}");
    }
    town.audit().await;
}

#[tokio::test]
async fn twenty_releases_are_free_and_the_next_one_is_charged() {
    let town = Town::start().await;
    town.spec("t").retry(1, SECOND).submit().await;
    for attempt in 1..=20 {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.attempt(), attempt);
        let task = lease.release().await.applied().task.unwrap();
        assert_eq!((task.state(), task.attempts_charged), (TaskState::Ready, 0));
    }
    town.worker("w1").claim_one().await.release().await.applied();
    let task = needs_people(&town, "t", Cause::AttemptsExhausted).await;
    assert_eq!((task.attempt, task.attempts_charged), (21, 1));
    let charged: Vec<bool> = town.attempts("t").await.iter().map(|attempt| attempt.charged).collect();
    assert_eq!(charged, [vec![false; 20], vec![true]].concat());
    town.audit().await;
}
