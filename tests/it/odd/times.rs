//! Instants and spans at the edges of the calendar.

use leasehold::api::proto::{self as pb, TaskState};
use pb::task_spec::{End, Start};
use prost_types::Timestamp;
use std::time::Duration;
use tonic::Code;

use crate::town::{Answer, SECOND, Spec, Town, micros, released, span, task_ref};

const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;
const LEAP_DAY: i64 = 951_782_400;
const YEAR: Duration = Duration::from_secs(366 * 86_400);

fn at(seconds: i64, nanos: i32) -> Timestamp {
    Timestamp { seconds, nanos }
}

fn starting(spec: Spec<'_>, instant: Timestamp) -> Spec<'_> {
    spec.with(|spec| spec.start = Some(Start::NotBeforeTime(instant)))
}

fn ending(spec: Spec<'_>, instant: Timestamp) -> Spec<'_> {
    spec.with(|spec| spec.end = Some(End::DeadlineTime(instant)))
}

#[tokio::test]
async fn instants_of_the_years_1_to_9999_are_kept_and_others_are_refused() {
    let town = Town::start().await;
    for (number, instant) in [at(FIRST, 0), at(LEAP_DAY, 0), at(-1, 999_999_000), at(0, 1_000)].into_iter().enumerate() {
        // What should have started long ago is READY; what should have ended long ago goes to people.
        let started = format!("started-{number}");
        let task = starting(town.spec(&started), instant).submit().await;
        assert_eq!((task.state(), task.spec.unwrap().start), (TaskState::Ready, Some(Start::NotBeforeTime(instant))));
        let ended = format!("ended-{number}");
        ending(town.spec(&ended), instant).submit().await;
        let task = town.wait_for_state(&ended, TaskState::RepairRequired).await;
        assert_eq!((task.cause(), task.deadline_time), (pb::Cause::DeadlinePassed, Some(instant)));
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), started);
        lease.complete().await.applied();
        let receipt = |occurred| pb::RecordReceiptRequest {
            task: Some(task_ref(&ended)),
            kind: "device_read".into(),
            receipt_ref: format!("r-{number}"),
            effect_ref: String::new(),
            occur_time: Some(occurred),
        };
        assert!(Answer::from(town.tasks().record_receipt(receipt(instant)).await).ok().created);
        assert_eq!(town.task(&ended).await.receipts[0].occur_time, Some(instant));
    }
    // A start that no deadline allows waits for its deadline.
    let task = starting(town.spec("never"), at(LAST, 999_999_999)).ttl(SECOND * 60).submit().await;
    assert_eq!(task.state(), TaskState::Scheduled);
    town.clock.advance(SECOND * 61).await;
    assert_eq!(town.wait_for_state("never", TaskState::RepairRequired).await.cause(), pb::Cause::DeadlinePassed);
    for bad in [at(FIRST - 1, 0), at(LAST + 1, 0), at(0, -1), at(0, 1_000_000_000), at(i64::MAX, 0), at(i64::MIN, i32::MIN)] {
        starting(town.spec("bad"), bad).try_submit().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
        ending(town.spec("bad"), bad).try_submit().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    for far in [at(LAST, 0), at(4_102_444_800, 0)] {
        ending(town.spec("bad"), far).try_submit().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    town.audit().await;
}

#[tokio::test]
async fn spans_as_long_as_they_may_be_end_where_the_deadline_does() {
    let town = Town::start().await;
    let late = town.spec("late").start_delay(YEAR).ttl(YEAR).submit().await;
    assert_eq!(late.state(), TaskState::Scheduled);
    assert_eq!(micros(late.deadline_time.as_ref()) - micros(late.create_time.as_ref()), YEAR.as_micros() as i64);
    town.spec("longer").ttl(YEAR + Duration::from_micros(1)).try_submit().await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    town.spec("t").ttl(YEAR).submit().await;
    let lease = town.worker("w1").for_a_lease_of(SECOND * 12 * 3_600).claim_one().await;
    let held = lease.heartbeat_for(SECOND * 12 * 3_600).await.ok();
    assert!(held.remaining.unwrap().seconds <= 12 * 3_600);
    // A retry that could not begin before the deadline is none.
    let failure = pb::Failed { retry_after: Some(span(YEAR)), ..crate::town::failed(pb::ErrorClass::Transient) };
    let task = lease.report(pb::complete_request::Outcome::Failed(failure)).await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause()), (TaskState::RepairRequired, pb::Cause::DeadlinePassed));
    town.submit("released").await;
    let lease = town.worker("w1").claim_one().await;
    let task = lease.report(pb::complete_request::Outcome::Released(released(Some(YEAR)))).await.applied().task.unwrap();
    assert_eq!((task.state(), task.cause()), (TaskState::RepairRequired, pb::Cause::DeadlinePassed));
    town.audit().await;
}
