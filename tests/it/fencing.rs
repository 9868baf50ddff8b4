//! Whose word counts: tokens rise, and what an old or ended lease says changes nothing but is kept as evidence.

use leasehold::api::proto::complete_request::Outcome as Said;
use leasehold::api::proto::{self as pb, ErrorClass, Outcome, Stage, TaskState};
use tonic::Code;

use crate::town::{LEASE, Lease, SECOND, Town, failed, succeeded};

const ID: &str = "notify:u-b:d-b1:m-9:v1";

/// W1's late "succeeded" is refused, and the second attempt stands as if it had never been said.
async fn the_late_report_of_the_first_attempt_changes_nothing(town: &Town, slow: &Lease, quick: &Lease) {
    let before = town.task(ID).await;
    let refused = slow.complete().await.refused_with("LEASE_SUPERSEDED");
    assert_eq!((refused.number("fencing_token"), refused.number("current_fencing_token")), (slow.token(), quick.token()));
    assert_eq!(refused.says("state"), "LEASED");

    let after = town.task(ID).await;
    // The evidence is an event, and so moves the revision and the time of the last change; nothing else has moved.
    assert_eq!(after.revision, before.revision + 1);
    assert_eq!(pb::Task { revision: before.revision, update_time: before.update_time, ..after.clone() }, before);
    assert_eq!((after.state(), after.fencing_token, after.worker_id.as_str()), (TaskState::Leased, quick.token(), "w2"));

    let attempts = town.attempts(ID).await;
    let late = &attempts[0].late_reports;
    assert_eq!((attempts.len(), late.len()), (2, 1));
    assert_eq!((late[0].outcome(), late[0].receipt_ref.as_str()), (Outcome::Succeeded, "receipt-1"));
    assert_eq!(attempts[1].late_reports, []);
    assert_eq!(attempts[1].outcome(), Outcome::Running);

    // Said again it is refused again, and kept once.
    slow.complete().await.refused_with("LEASE_SUPERSEDED");
    assert_eq!(town.attempts(ID).await[0].late_reports.len(), 1);
    quick.complete().await.applied();
    assert_eq!(town.task(ID).await.state(), TaskState::Completed);
    slow.complete().await.refused_with("LEASE_SUPERSEDED");
    town.audit().await;
}

#[tokio::test]
async fn a_worker_that_slept_past_its_lease_cannot_complete_its_successors_attempt() {
    let town = Town::start().await;
    town.submit(ID).await;
    let slow = town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND * 2).await;
    let quick = town.worker("w2").claim_one().await;
    assert_eq!((slow.attempt(), quick.attempt()), (1, 2));
    the_late_report_of_the_first_attempt_changes_nothing(&town, &slow, &quick).await;
    town.row_held(7, ID, None).await;
}

#[tokio::test]
async fn a_worker_that_released_its_lease_cannot_complete_its_successors_attempt() {
    let town = Town::start().await;
    town.submit(ID).await;
    let slow = town.worker("w1").claim_one().await;
    slow.release().await.applied();
    let quick = town.worker("w2").claim_one().await;
    the_late_report_of_the_first_attempt_changes_nothing(&town, &slow, &quick).await;
}

#[tokio::test]
async fn a_worker_that_released_with_a_delay_cannot_complete_its_successors_attempt() {
    let town = Town::start().await;
    town.submit(ID).await;
    let slow = town.worker("w1").claim_one().await;
    let task = slow.release_for(SECOND * 60).await.applied().task.unwrap();
    assert_eq!((task.state(), task.attempts_charged), (TaskState::RetryAt, 0));
    town.worker("w2").finds_nothing().await;
    town.clock.advance(SECOND * 61).await;
    let quick = town.worker("w2").claim_one().await;
    the_late_report_of_the_first_attempt_changes_nothing(&town, &slow, &quick).await;
}

#[tokio::test]
async fn a_worker_that_reported_a_failure_cannot_complete_the_retry() {
    let town = Town::start().await;
    town.submit(ID).await;
    let slow = town.worker("w1").claim_one().await;
    slow.fail(ErrorClass::Transient).await.applied();
    town.clock.advance(SECOND * 2).await;
    let quick = town.worker("w2").claim_one().await;
    the_late_report_of_the_first_attempt_changes_nothing(&town, &slow, &quick).await;
}

#[tokio::test]
async fn tokens_rise_along_a_task() {
    let town = Town::start().await;
    town.spec(ID).retry(5, SECOND).submit().await;
    let mut tokens = Vec::new();
    for attempt in 1..=5 {
        let lease = town.worker(&format!("w{attempt}")).claim_one().await;
        assert_eq!(lease.attempt(), attempt);
        tokens.push(lease.token());
        if attempt % 2 == 0 {
            lease.release().await.applied()
        } else {
            lease.fail(ErrorClass::Transient).await.applied()
        };
        town.clock.advance(SECOND * 2).await;
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let kept: Vec<i64> = town.attempts(ID).await.iter().map(|attempt| attempt.fencing_token).collect();
    assert_eq!(kept, tokens);
    town.audit().await;
}

#[tokio::test]
async fn tokens_rise_along_an_ordering_key_from_task_to_task_and_server_to_server() {
    let town = Town::with_servers(2).await;
    for number in 0..6 {
        town.spec(&format!("m-{number}")).key("c-a").at(number % 2).submit().await;
    }
    let mut last = 0;
    for number in 0..6 {
        let lease = town.worker_at((number / 2) % 2, "w").claim_one().await;
        assert_eq!(lease.id(), format!("m-{number}"));
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn an_expired_lease_that_nobody_took_over_can_do_nothing_more() {
    let town = Town::start().await;
    for id in ["beats", "begins", "completes"] {
        town.submit(id).await;
    }
    let leases = town.worker("w1").claim_all(3).await;
    town.clock.advance(LEASE + SECOND).await;
    for lease in &leases {
        let refused = match lease.id() {
            "beats" => lease.heartbeat().await.refused_with("LEASE_EXPIRED"),
            "begins" => lease.begin_effect("effect-1").await.refused_with("LEASE_EXPIRED"),
            _ => lease.complete().await.refused_with("LEASE_EXPIRED"),
        };
        assert_eq!(refused.number("fencing_token"), lease.token());
    }
    for lease in &leases {
        let task = town.task(lease.id()).await;
        assert!(!task.terminal && task.worker_id.is_empty(), "{task:?}");
        assert_eq!(town.attempts(lease.id()).await[0].outcome(), Outcome::Expired);
    }
    let late = town.attempts("completes").await.remove(0).late_reports;
    assert_eq!(late.iter().map(pb::LateReport::outcome).collect::<Vec<_>>(), [Outcome::Succeeded]);
    assert_eq!(town.attempts("beats").await[0].late_reports, []);
    town.audit().await;
}

#[tokio::test]
async fn a_report_that_waited_for_its_row_across_the_end_of_its_lease_is_late() {
    let town = Town::start().await;
    town.submit(ID).await;
    let lease = town.worker("w1").claim_one().await;
    let mut held = town.hold_task(ID).await;
    // Sent in time, and judged by the time at which the row can be had.
    let completing = {
        let lease = lease.clone();
        tokio::spawn(async move { lease.complete().await })
    };
    held.until_waited_for().await;
    town.clock.advance(LEASE + SECOND).await;
    held.let_go().await;
    completing.await.unwrap().refused_with("LEASE_EXPIRED");
    let task = town.task(ID).await;
    assert!(!task.terminal && task.receipt_ref.is_empty(), "{task:?}");
    assert_eq!(town.attempts(ID).await[0].late_reports.len(), 1);
    town.audit().await;
}

#[tokio::test]
async fn a_heartbeat_that_waited_for_its_row_across_the_end_of_its_lease_revives_nothing() {
    let town = Town::start().await;
    town.submit(ID).await;
    let lease = town.worker("w1").claim_one().await;
    let mut held = town.hold_task(ID).await;
    let beating = {
        let lease = lease.clone();
        tokio::spawn(async move { lease.heartbeat().await })
    };
    held.until_waited_for().await;
    town.clock.advance(LEASE + SECOND).await;
    held.let_go().await;
    beating.await.unwrap().refused_with("LEASE_EXPIRED");
    assert_ne!(town.task(ID).await.state(), TaskState::Leased);
    town.audit().await;
}

#[tokio::test]
async fn the_same_report_again_is_answered_and_changes_nothing() {
    let town = Town::start().await;
    town.submit("done").await;
    town.spec("again").retry(3, SECOND * 60).submit().await;
    let worker = town.worker("w1");
    for lease in worker.claim_all(2).await {
        let said = || if lease.id() == "done" { Said::Succeeded(succeeded()) } else { Said::Failed(failed(ErrorClass::Transient)) };
        let first = lease.report(said()).await.applied().task.unwrap();
        let again = lease.report(said()).await.already_applied().task.unwrap();
        assert_eq!((again.state, again.revision), (first.state, first.revision));
        assert_eq!(town.task(lease.id()).await.revision, first.revision);
        assert_eq!(town.attempts(lease.id()).await[0].late_reports, []);
    }
    town.audit().await;
}

#[tokio::test]
async fn the_report_that_ended_an_earlier_attempt_is_still_known_when_the_next_one_runs() {
    let town = Town::start().await;
    town.spec(ID).retry(3, SECOND).submit().await;
    let first = town.worker("w1").claim_one().await;
    first.fail(ErrorClass::Transient).await.applied();
    town.clock.advance(SECOND * 2).await;
    let second = town.worker("w2").claim_one().await;
    let task = first.fail(ErrorClass::Transient).await.already_applied().task.unwrap();
    assert_eq!((task.state(), task.fencing_token), (TaskState::Leased, second.token()));
    // Another story from the same lease is not the same report.
    first.fail(ErrorClass::Permanent).await.refused_with("LEASE_SUPERSEDED");
    assert_eq!(town.attempts(ID).await[0].late_reports.len(), 1);
    second.complete().await.applied();
    town.audit().await;
}

#[tokio::test]
async fn a_second_story_from_the_same_lease_is_refused_once_the_task_has_ended() {
    let town = Town::start().await;
    town.submit(ID).await;
    let lease = town.worker("w1").claim_one().await;
    lease.complete().await.applied();
    let refused = lease.fail(ErrorClass::Permanent).await.refused_with("TASK_TERMINAL");
    assert_eq!(refused.says("state"), "COMPLETED");
    assert_eq!(town.task(ID).await.state(), TaskState::Completed);
    assert_eq!(town.attempts(ID).await[0].late_reports.len(), 1);
    town.audit().await;
}

#[tokio::test]
async fn only_the_first_eight_late_reports_are_kept() {
    let town = Town::start().await;
    town.submit(ID).await;
    let slow = town.worker("w1").claim_one().await;
    slow.release().await.applied();
    town.worker("w2").claim_one().await.complete().await.applied();
    for number in 0..10 {
        let said = pb::Succeeded { receipt_ref: format!("receipt-{number}"), ..succeeded() };
        slow.report(Said::Succeeded(said)).await.refused_with("LEASE_SUPERSEDED");
    }
    let late = town.attempts(ID).await.remove(0).late_reports;
    let kept: Vec<&str> = late.iter().map(|report| report.receipt_ref.as_str()).collect();
    assert_eq!(kept, (0..8).map(|number| format!("receipt-{number}")).collect::<Vec<_>>());
    town.audit().await;
}

#[tokio::test]
async fn a_token_that_was_never_handed_out_is_not_taken_for_the_next_one() {
    let town = Town::start().await;
    town.submit(ID).await;
    let mut lease = town.worker("w1").claim_one().await;
    lease.lease.lease_ref.as_mut().unwrap().fencing_token += 1;
    lease.complete().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let task = town.task(ID).await;
    assert_eq!((task.state(), task.revision), (TaskState::Leased, 2));
    town.audit().await;
}

#[tokio::test]
async fn a_lost_lease_or_a_cancel_keeps_the_effect_from_beginning() {
    let town = Town::start().await;
    town.submit("lost").await;
    let lost = town.worker("w1").reporting_effects().claim_one().await;
    town.clock.advance(LEASE + SECOND * 2).await;
    let taken = town.worker("w2").claim_one().await;
    lost.begin_effect("effect-1").await.refused_with("LEASE_SUPERSEDED");
    taken.complete().await.applied();
    taken.begin_effect("effect-2").await.refused_with("TASK_TERMINAL");

    town.submit("canceled").await;
    let told = town.worker("w1").reporting_effects().claim_one().await;
    town.cancel("canceled").await.ok();
    let refused = told.begin_effect("effect-3").await.refused_with("CANCEL_REQUESTED");
    assert_eq!(refused.says("cause"), "REQUESTED");
    assert_eq!(town.task("canceled").await.stage(), Stage::Claimed);
    let begun: i64 = town.sql("SELECT count(*) FROM events WHERE kind = 'EFFECT_BEGUN'").await;
    assert_eq!(begun, 0);
    town.row_held(35, "lost", None).await;
    town.audit().await;
}

#[tokio::test]
async fn when_begin_effect_is_answered_everybody_can_see_it() {
    let town = Town::start().await;
    for number in 0..20 {
        let id = format!("m-{number}");
        town.submit(&id).await;
        let lease = town.worker("w1").reporting_effects().claim_one().await;
        lease.begin_effect(&format!("effect-{number}")).await.applied();
        let seen: String = town
            .sql(format!(
                "SELECT l.stage || ' ' || l.effect_ref || ' ' || e.kind FROM live l JOIN tasks t USING (queue_id, uid)
                 JOIN events e ON e.queue_id = l.queue_id AND e.uid = l.uid AND e.revision = l.revision WHERE t.task_id = '{id}'"
            ))
            .await;
        assert_eq!(seen, format!("EFFECT_BEGUN effect-{number} EFFECT_BEGUN"));
        lease.begin_effect(&format!("effect-{number}")).await.already_applied();
        lease.begin_effect("another").await.refused_with("EFFECT_BEGUN");
        lease.release().await.refused_with("EFFECT_BEGUN");
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn nobody_reaches_a_task_through_another_queue_not_even_beside_somebody_who_may() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.name = "other".into()).await;
    town.submit("m-9").await;
    let worker = town.worker("w");
    let own = worker.claim_one().await;
    let mut foreign = own.clone();
    foreign.lease.lease_ref.as_mut().expect("a lease").queue = "other".into();
    let reports = vec![(&foreign, Said::Failed(failed(ErrorClass::Permanent))), (&own, Said::Succeeded(succeeded()))];
    let mut answers = worker.report_all(reports).await.into_iter();
    answers.next().expect("two answers").refused_as(Code::NotFound, "TASK_NOT_FOUND");
    answers.next().expect("two answers").applied();
    assert_eq!(town.task("m-9").await.state(), TaskState::Completed);
    town.audit().await;
}
