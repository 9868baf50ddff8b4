//! Unknown is a result of its own: what may have happened is neither failed nor done, and whoever comes next is told.

use leasehold::api::proto::complete_request::Outcome as Said;
use leasehold::api::proto::{self as pb, Cause, ErrorClass, Outcome, Stage, TaskState};

use crate::town::{LEASE, SECOND, Town, failed};

#[tokio::test]
async fn a_lost_lease_of_a_worker_that_promised_nothing_is_unknown_and_never_called_not_begun() {
    let town = Town::start().await;
    town.submit("t").await;
    town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND * 2).await;
    let next = town.worker("w2").claim_one().await;
    let told = &next.lease.unknown_attempts;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].number, told[0].worker_id.as_str(), told[0].effect_ref.as_str()), (1, "w1", ""));
    assert_eq!((told[0].outcome(), told[0].error_class(), told[0].charged), (Outcome::Expired, ErrorClass::Unknown, true));
    let task = town.task("t").await;
    assert_eq!((task.unknown_attempts, task.last_error.unwrap().error_class()), (1, ErrorClass::Unknown));
    town.audit().await;
}

#[tokio::test]
async fn a_lost_lease_of_a_worker_that_promised_to_say_so_and_did_not_is_known_to_have_done_nothing() {
    let town = Town::start().await;
    town.submit("t").await;
    town.worker("w1").reporting_effects().claim_one().await;
    town.clock.advance(LEASE + SECOND * 2).await;
    let next = town.worker("w2").claim_one().await;
    assert_eq!(next.lease.unknown_attempts, []);
    let attempt = town.attempts("t").await.remove(0);
    assert_eq!(
        (attempt.outcome(), attempt.error_class(), attempt.stage()),
        (Outcome::Expired, ErrorClass::Transient, Stage::Claimed)
    );
    assert!(attempt.charged);
    assert_eq!(town.task("t").await.unknown_attempts, 0);
    town.row_held(5, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn after_a_crash_in_mid_effect_the_next_lease_carries_the_providers_request_id() {
    let town = Town::start().await;
    town.submit("t").await;
    let first = town.worker("w1").reporting_effects().claim_one().await;
    first.begin_effect("provider-request-7").await.applied();
    town.clock.advance(LEASE + SECOND * 2).await;
    let second = town.worker("w2").reporting_effects().claim_one().await;
    let told = &second.lease.unknown_attempts;
    assert_eq!((told.len(), told[0].number, told[0].effect_ref.as_str()), (1, 1, "provider-request-7"));
    assert_eq!((told[0].stage(), told[0].error_class()), (Stage::EffectBegun, ErrorClass::Unknown));
    assert!(told[0].effect_begun_time.is_some());
    second.begin_effect("provider-request-8").await.applied();
    town.clock.advance(LEASE + SECOND * 5).await;
    let third = town.worker("w3").claim_one().await;
    let refs: Vec<&str> = third.lease.unknown_attempts.iter().map(|attempt| attempt.effect_ref.as_str()).collect();
    assert_eq!(refs, ["provider-request-7", "provider-request-8"]);
    town.row_held(6, "t", None).await;
    town.audit().await;
}

#[tokio::test]
async fn a_worker_that_does_not_know_says_so_and_the_next_one_is_told() {
    let town = Town::start().await;
    town.submit("t").await;
    let first = town.worker("w1").claim_one().await;
    let said = pb::Failed { effect_ref: "provider-request-7".into(), ..failed(ErrorClass::Unknown) };
    let task = first.report(Said::Failed(said)).await.applied().task.unwrap();
    assert_eq!((task.state(), task.unknown_attempts), (TaskState::RetryAt, 1));
    town.clock.advance(SECOND * 2).await;
    let second = town.worker("w2").claim_one().await;
    let told = &second.lease.unknown_attempts;
    assert_eq!((told.len(), told[0].outcome(), told[0].effect_ref.as_str()), (1, Outcome::Failed, "provider-request-7"));
    // A receipt was found: the doubt stays on the record of attempt 1, and the task is done.
    second.complete().await.applied();
    assert_eq!(town.task("t").await.unknown_attempts, 1);
    town.audit().await;
}

#[tokio::test]
async fn a_queue_can_leave_the_unknown_to_people() {
    let town = Town::start().await;
    town.policy("on_unknown = 'REPAIR'").await;
    for id in ["says so", "dies", "dies before it began", "fails"] {
        town.submit(id).await;
    }
    let worker = town.worker("w1").reporting_effects();
    for lease in worker.claim_all(4).await {
        match lease.id() {
            "says so" => drop(lease.fail(ErrorClass::Unknown).await.applied()),
            "dies" => drop(lease.begin_effect("effect-1").await.applied()),
            "fails" => drop(lease.fail(ErrorClass::Transient).await.applied()),
            _ => {}
        }
    }
    town.clock.advance(LEASE + SECOND).await;
    for id in ["says so", "dies"] {
        assert_eq!(town.wait_for_state(id, TaskState::RepairRequired).await.cause(), Cause::OutcomeUnknown, "{id}");
    }
    // What is known to have failed goes on.
    let mut again: Vec<String> = town.worker("w2").claim_all(2).await.iter().map(|lease| lease.id().to_owned()).collect();
    again.sort();
    assert_eq!(again, ["dies before it began", "fails"]);
    town.audit().await;
}

#[tokio::test]
async fn used_up_attempts_name_the_cause_even_if_the_last_one_is_unknown() {
    let town = Town::start().await;
    town.spec("t").retry(1, SECOND).submit().await;
    town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND).await;
    let task = town.wait_for_state("t", TaskState::RepairRequired).await;
    assert_eq!((task.cause(), task.unknown_attempts), (Cause::AttemptsExhausted, 1));
    assert_eq!(task.last_error.unwrap().error_class(), ErrorClass::Unknown);
    town.audit().await;
}
