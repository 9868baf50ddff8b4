//! Old versions do not run: a floor that rises cancels what waits below it, and tells whoever runs it.

use leasehold::api::proto::{Cause, Directive, ErrorClass, Outcome, RaiseSubjectRequest, TaskState, raise_subject_request::Floor};
use tonic::Code;

use crate::town::{Answer, EDITED, LEASE, SECOND, Town, counts, micros};

const SUBJECT: &str = "m-9";

/// It is CANCELED because its version was superseded.
async fn is_superseded(town: &Town, id: &str) {
    let task = town.wait_for_state(id, TaskState::Canceled).await;
    assert_eq!((task.cause(), task.reason.as_str()), (Cause::Superseded, EDITED), "{id}");
}

#[tokio::test]
async fn what_waits_below_a_raised_floor_is_canceled_wherever_it_waits_and_what_stands_above_stays() {
    let town = Town::start().await;
    town.spec("retry").about(SUBJECT, 1).retry(3, SECOND * 60).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.spec("scheduled").about(SUBJECT, 1).start_delay(SECOND * 60).submit().await;
    town.spec("head").about(SUBJECT, 2).key("c-a").start_delay(SECOND * 90).submit().await;
    town.spec("blocked").about(SUBJECT, 0).key("c-a").submit().await;
    town.spec("behind it").about(SUBJECT, 2).key("c-a").submit().await;
    town.spec("ready").about(SUBJECT, 1).submit().await;
    town.spec("new").about(SUBJECT, 2).submit().await;
    town.spec("other").about("m-10", 1).submit().await;
    town.submit("about nothing").await;
    let raised = town.raise(SUBJECT, 2).await;
    assert_eq!((counts(&raised), raised.more), ((4, 0, 0), false));
    for id in ["retry", "scheduled", "blocked", "ready"] {
        is_superseded(&town, id).await;
    }
    let above = ["head", "behind it", "new", "other", "about nothing"];
    assert_eq!(town.states(&above).await, ["SCHEDULED", "BLOCKED", "READY", "READY", "READY"]);
    town.clock.advance(SECOND * 120).await;
    let mut left: Vec<String> = Vec::new();
    for lease in town.worker("w1").claim_all(4).await {
        left.push(lease.id().to_owned());
        lease.complete().await.applied();
    }
    left.push(town.worker("w1").claim_one().await.id().to_owned());
    left.sort();
    assert_eq!(left, ["about nothing", "behind it", "head", "new", "other"]);
    town.row_held(22, "ready", None).await;
    town.audit().await;
}

#[tokio::test]
async fn what_runs_below_a_raised_floor_is_told_and_neither_extended_nor_begun_nor_completed() {
    let town = Town::start().await;
    town.spec("v1").about(SUBJECT, 1).submit().await;
    let lease = town.worker("w1").claim_one().await;
    let ends = micros(town.task("v1").await.lease_expire_time.as_ref());
    let raised = town.raise(SUBJECT, 2).await;
    assert_eq!((counts(&raised), raised.more), ((0, 1, 0), false));
    let task = town.task("v1").await;
    assert_eq!((task.state(), task.cancel_requested, task.cause()), (TaskState::Leased, true, Cause::Superseded));
    town.clock.advance(SECOND * 20).await;
    let held = lease.heartbeat_for(LEASE * 10).await.ok();
    assert_eq!((held.directive(), held.cause(), held.reason.as_str()), (Directive::Cancel, Cause::Superseded, EDITED));
    assert_eq!(micros(held.expire_time.as_ref()), ends);
    let refused = lease.begin_effect("call-1").await.refused_with("SUBJECT_STALE");
    assert_eq!((refused.says("subject_id"), refused.number("version"), refused.number("floor")), (SUBJECT, 1, 2));
    // Its success is refused now and when it is said again; that it happened stays on the attempt.
    lease.complete().await.refused_with("SUBJECT_STALE");
    lease.complete().await.refused_with("SUBJECT_STALE");
    is_superseded(&town, "v1").await;
    let attempt = town.attempts("v1").await.remove(0);
    assert_eq!((attempt.outcome(), attempt.receipt_ref.as_str()), (Outcome::Succeeded, "receipt-1"));
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (0, 0, 1));
    assert_eq!(town.history("v1").await, ["SUBMITTED>READY", "LEASED>LEASED", "CANCEL_REQUESTED>LEASED", "ENDED>CANCELED"]);
    town.row_held(22, "v1", None).await;
    town.audit().await;
}

#[tokio::test]
async fn a_worker_that_ignores_a_raised_floor_loses_its_task_with_its_lease() {
    let town = Town::start().await;
    town.spec("v1").about(SUBJECT, 1).submit().await;
    let lease = town.worker("w1").claim_one().await;
    town.raise(SUBJECT, 2).await;
    for _ in 0..3 {
        town.clock.advance(SECOND * 8).await;
        assert_eq!(lease.heartbeat().await.ok().directive(), Directive::Cancel);
    }
    town.clock.advance(SECOND * 7).await;
    is_superseded(&town, "v1").await;
    lease.heartbeat().await.refused_with("TASK_TERMINAL");
    assert_eq!(town.attempts("v1").await[0].outcome(), Outcome::Expired);
    town.audit().await;
}

#[tokio::test]
async fn a_stale_submit_is_refused_and_leaves_nothing_but_a_known_task_is_told_as_it_stands() {
    let town = Town::start().await;
    town.spec("known").about(SUBJECT, 1).submit().await;
    town.raise(SUBJECT, 2).await;
    let refused = town.spec("v1").about("other", 0).about(SUBJECT, 1).try_submit().await.refused_with("SUBJECT_STALE");
    assert_eq!((refused.says("subject_id"), refused.number("version"), refused.number("floor")), (SUBJECT, 1, 2));
    town.look_up("v1").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 1);
    // Identity comes first: a relay that repeats what it sent long ago must learn that it was accepted.
    let again = town.spec("known").about(SUBJECT, 1).try_submit().await.ok();
    assert_eq!((again.created, again.task.unwrap().state()), (false, TaskState::Canceled));
    town.spec("v2").about(SUBJECT, 2).submit().await;
    let batch = vec![town.spec("b1").about(SUBJECT, 1), town.spec("b2").about(SUBJECT, 3), town.spec("b3").about(SUBJECT, 0)];
    let mut answers = town.submit_batch(batch.clone(), false).await.ok();
    answers.remove(2).refused_with("SUBJECT_STALE");
    assert!(answers.remove(1).ok().created);
    answers.remove(0).refused_with("SUBJECT_STALE");
    town.submit_batch(batch, true).await.refused_with("SUBJECT_STALE");
    town.audit().await;
}

#[tokio::test]
async fn a_floor_never_sinks_and_a_revoked_subject_is_stale_at_every_version() {
    let town = Town::start().await;
    town.floor(SUBJECT).await.refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    let begin = town.clock.now().await;
    let floor = town.raise(SUBJECT, 3).await.subject.unwrap();
    assert_eq!(
        (floor.subject_id.as_str(), floor.min_version, floor.revoked, floor.reason.as_str()),
        (SUBJECT, Some(3), false, EDITED)
    );
    assert!(micros(floor.update_time.as_ref()) >= begin);
    town.floor("m-10").await.refused_as(Code::NotFound, "SUBJECT_NOT_FOUND");
    for lower in [0, 2, 3] {
        assert_eq!(town.raise(SUBJECT, lower).await.subject.unwrap(), floor);
    }
    assert_eq!(town.floor(SUBJECT).await.ok().subject.unwrap(), floor);
    town.spec("v3").about(SUBJECT, 3).submit().await;
    let revoked = town.revoke(SUBJECT).await;
    assert_eq!(counts(&revoked), (1, 0, 0));
    let task = town.task("v3").await;
    assert_eq!((task.state(), task.cause(), task.reason.as_str()), (TaskState::Canceled, Cause::Revoked, EDITED));
    let floor = revoked.subject.unwrap();
    assert_eq!((floor.min_version, floor.revoked), (Some(3), true));
    assert_eq!(town.raise(SUBJECT, i64::MAX).await.subject.unwrap(), floor);
    let refused = town.spec("v4").about(SUBJECT, i64::MAX).try_submit().await.refused_with("SUBJECT_STALE");
    assert_eq!(refused.says("floor"), "revoked");
    let nothing = RaiseSubjectRequest::default();
    Answer::from(town.tasks().raise_subject(nothing).await).refused_as(Code::InvalidArgument, "INVALID_FIELD");
    town.audit().await;
}

#[tokio::test]
async fn a_floor_on_any_of_its_subjects_makes_a_task_stale() {
    let town = Town::start().await;
    town.spec("t").about(SUBJECT, 1).about("member u-b", 7).submit().await;
    town.spec("u").about(SUBJECT, 1).about("member u-c", 7).submit().await;
    assert_eq!(counts(&town.revoke("member u-b").await), (1, 0, 0));
    assert_eq!(town.states(&["t", "u"]).await, ["CANCELED", "READY"]);
    assert_eq!(town.task("t").await.cause(), Cause::Revoked);
    assert_eq!(town.worker("w1").claim_one().await.id(), "u");
    town.audit().await;
}

#[tokio::test]
async fn a_new_version_supersedes_the_old_ones_with_its_own_submit() {
    let town = Town::start().await;
    town.spec("v1").about(SUBJECT, 1).submit().await;
    town.spec("running").about(SUBJECT, 1).priority(10).submit().await;
    let lease = town.worker("w1").claim_one().await;
    town.spec("v2").superseding(SUBJECT, 2).submit().await;
    let task = town.task("v1").await;
    assert_eq!((task.state(), task.cause(), task.reason.as_str()), (TaskState::Canceled, Cause::Superseded, ""));
    lease.begin_effect("call-1").await.refused_with("SUBJECT_STALE");
    assert_eq!(lease.heartbeat().await.ok().cause(), Cause::Superseded);
    lease.stop("told to").await.applied();
    assert_eq!(town.floor(SUBJECT).await.ok().subject.unwrap().min_version, Some(2));
    // Known, so nothing is raised; stale, so nothing is raised; and what is refused raises nothing.
    town.spec("v1").superseding(SUBJECT, 1).try_submit().await.ok();
    town.spec("late v1").superseding("m-10", 5).superseding(SUBJECT, 1).try_submit().await.refused_with("SUBJECT_STALE");
    town.spec("v2").superseding(SUBJECT, 9).try_submit().await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    assert_eq!(town.floor(SUBJECT).await.ok().subject.unwrap().min_version, Some(2));
    town.floor("m-10").await.refused_as(Code::NotFound, "SUBJECT_NOT_FOUND");
    assert_eq!(town.worker("w1").claim_one().await.id(), "v2");
    town.audit().await;
}

#[tokio::test]
async fn specs_of_one_batch_go_by_the_floors_that_those_before_them_raised() {
    let town = Town::start().await;
    let specs = || {
        vec![
            town.spec("a").about(SUBJECT, 1),
            town.spec("b").superseding(SUBJECT, 2),
            town.spec("c").about(SUBJECT, 1),
            town.spec("d").about(SUBJECT, 2),
        ]
    };
    town.submit_batch(specs(), true).await.refused_with("SUBJECT_STALE");
    town.floor(SUBJECT).await.refused_as(Code::NotFound, "SUBJECT_NOT_FOUND");
    let mut answers = town.submit_batch(specs(), false).await.ok();
    assert!(answers.remove(3).ok().created);
    answers.remove(2).refused_with("SUBJECT_STALE");
    answers.drain(..).for_each(|answer| assert!(answer.ok().created));
    assert_eq!(town.states(&["a", "b", "d"]).await, ["CANCELED", "READY", "READY"]);
    town.submit_batch(vec![town.spec("e").superseding(SUBJECT, 3)], true).await.ok();
    assert_eq!(town.states(&["a", "b", "d", "e"]).await, ["CANCELED", "CANCELED", "CANCELED", "READY"]);
    town.audit().await;
}

#[tokio::test]
async fn a_raised_floor_says_how_many_stale_tasks_have_had_their_effect_or_may_have() {
    let town = Town::start().await;
    let submit = async |id: &str| town.spec(id).about(SUBJECT, 1).retry(3, SECOND * 60).submit().await;
    submit("completed").await;
    town.worker("w1").claim_one().await.complete().await.applied();
    submit("skipped").await;
    town.worker("w1").claim_one().await.skip("the device is offline").await.applied();
    submit("unknown").await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Unknown).await.applied();
    submit("failed").await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    submit("begun").await;
    town.worker("w1").reporting_effects().claim_one().await.begin_effect("call-1").await.applied();
    submit("claimed").await;
    town.worker("w1").reporting_effects().claim_one().await;
    submit("waits").await;
    town.spec("fresh").about(SUBJECT, 2).priority(10).submit().await;
    town.worker("w1").claim_one().await.complete().await.applied();
    // Canceled: unknown, failed, waits. Told: begun, claimed. Of an effect: completed, unknown, begun.
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (3, 2, 3));
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (0, 0, 3));
    assert_eq!(counts(&town.raise("m-10", 2).await), (0, 0, 0));
    town.audit().await;
}

#[tokio::test]
async fn of_two_raises_at_once_each_task_is_counted_by_one() {
    let town = Town::with_servers(2).await;
    for number in 0..60 {
        town.spec(&format!("t-{number}")).about(SUBJECT, 1).submit().await;
    }
    let raise = |server| crate::town::raise_by(town.tasks_at(server), SUBJECT, Floor::MinVersion(2));
    let (one, other) = tokio::join!(raise(0), raise(1));
    let (one, other) = (one.ok(), other.ok());
    assert_eq!(one.canceled_count + other.canceled_count, 60);
    assert_eq!(one.subject, other.subject);
    town.audit().await;
}
