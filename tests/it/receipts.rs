//! Receipts stand beside the state and never change it, before the task's end and after it.

use leasehold::api::proto::{self as pb, TaskState};
use prost_types::Timestamp;
use tonic::Code;

use crate::town::{Answer, SECOND, Town, eventually, micros, task_ref};

const KIND: &str = "device_received";
/// Receipts that a task may have.
const MOST: usize = 100;

/// The task as it was, but for the evidence: revision, time of the last change, and the receipts themselves.
fn beside_its_evidence(task: pb::Task) -> pb::Task {
    pb::Task { revision: 0, update_time: None, receipts: Vec::new(), ..task }
}

#[tokio::test]
async fn a_receipt_is_shown_beside_the_state_whatever_that_is_and_changes_nothing() {
    let town = Town::start().await;
    town.policy("boundary = 'provider_accepted'").await;
    for state in ["READY", "LEASED", "COMPLETED", "CANCELED", "REPAIR_REQUIRED"] {
        town.submit(state).await;
        if !matches!(state, "READY") {
            let lease = town.worker("w1").claim_one().await;
            match state {
                "COMPLETED" => drop(lease.complete().await.applied()),
                "CANCELED" => drop(lease.stop("quiet hours").await.applied()),
                "REPAIR_REQUIRED" => drop(lease.fail(pb::ErrorClass::Permanent).await.applied()),
                _ => {}
            }
        } else {
            town.worker("w1").claim_one().await;
            town.execute("UPDATE live SET due = due").await;
        }
        let before = town.task(state).await;
        let occurred = Timestamp { seconds: 1_700_000_000, nanos: 5_000 };
        let request = pb::RecordReceiptRequest {
            task: Some(pb::TaskRef { uid: before.uid.clone(), ..task_ref(state) }),
            kind: KIND.into(),
            receipt_ref: "r-1".into(),
            effect_ref: "call-1".into(),
            occur_time: Some(occurred),
        };
        let begin = town.clock.now().await;
        assert!(Answer::from(town.tasks().record_receipt(request).await).ok().created);
        let after = town.task(state).await;
        assert_eq!(after.revision, before.revision + i64::from(!after.terminal), "an ended task keeps the revision of its end");
        let receipt = &after.receipts[0];
        assert_eq!((receipt.kind.as_str(), receipt.receipt_ref.as_str(), receipt.effect_ref.as_str()), (KIND, "r-1", "call-1"));
        assert_eq!((receipt.occur_time, after.receipts.len()), (Some(occurred), 1));
        assert!(micros(receipt.record_time.as_ref()) >= begin);
        assert_eq!(beside_its_evidence(after), beside_its_evidence(before));
        assert_eq!(town.history(state).await.last().unwrap().split('>').next(), Some("RECEIPT"));
    }
    town.audit().await;
}

#[tokio::test]
async fn the_same_receipt_again_is_recorded_once_and_another_kind_or_ref_is_another_one() {
    let town = Town::start().await;
    town.submit("t").await;
    for ended in [false, true] {
        let kind = if ended { "after" } else { "before" };
        assert!(town.receipt("t", kind, "r-1").await);
        assert!(!town.receipt("t", kind, "r-1").await);
        assert!(town.receipt("t", kind, "r-2").await);
        assert!(town.receipt("t", &format!("{kind} read"), "r-1").await);
        if !ended {
            town.worker("w1").claim_one().await.complete().await.applied();
            assert!(!town.receipt("t", kind, "r-1").await, "it was recorded before the task ended");
        }
    }
    let receipts = town.task("t").await.receipts;
    let told: Vec<(&str, &str)> = receipts.iter().map(|one| (one.kind.as_str(), one.receipt_ref.as_str())).collect();
    let expected =
        [("before", "r-1"), ("before", "r-2"), ("before read", "r-1"), ("after", "r-1"), ("after", "r-2"), ("after read", "r-1")];
    assert_eq!(told, expected);
    town.audit().await;
}

#[tokio::test]
async fn a_receipt_told_at_two_servers_at_once_is_new_at_one_of_them() {
    let town = Town::with_servers(2).await;
    for id in ["live", "ended"] {
        town.submit(id).await;
        if id == "ended" {
            town.worker("w1").claim(2).await[1].complete().await.applied();
        }
        for round in 0..10 {
            let receipt = |server: usize| {
                let request = pb::RecordReceiptRequest {
                    task: Some(task_ref(id)),
                    kind: KIND.into(),
                    receipt_ref: format!("r-{round}"),
                    ..Default::default()
                };
                let mut tasks = town.tasks_at(server);
                async move { Answer::from(tasks.record_receipt(request).await).ok().created }
            };
            let created: [bool; 4] = tokio::join!(receipt(0), receipt(1), receipt(0), receipt(1)).into();
            assert_eq!(created.iter().filter(|new| **new).count(), 1, "{created:?}");
        }
    }
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM receipts").await, 20);
    town.audit().await;
}

#[tokio::test]
async fn a_receipt_and_the_end_of_its_task_that_meet_both_stand() {
    let town = Town::start().await;
    town.submit("t").await;
    let lease = town.worker("w1").claim_one().await;
    let mut held = town.hold_task("t").await;
    let race = async {
        held.until_waited_for().await;
        held.let_go().await;
    };
    let (completed, created, ()) = tokio::join!(lease.complete(), town.receipt("t", KIND, "r-1"), race);
    completed.applied();
    assert!(created);
    let task = town.task("t").await;
    assert_eq!((task.state(), task.receipts.len()), (TaskState::Completed, 1));
    town.audit().await;
}

#[tokio::test]
async fn a_task_has_a_hundred_receipts_at_most_and_those_that_it_has_stay_known() {
    let town = Town::start().await;
    town.submit("t").await;
    for number in 0..MOST {
        assert!(town.receipt("t", KIND, &format!("r-{number}")).await);
    }
    assert_eq!(town.try_receipt("t", KIND, "one more").await.refused_with("RECEIPTS_FULL").number("limit"), MOST as i64);
    assert!(!town.receipt("t", KIND, "r-0").await);
    let task = town.task("t").await;
    assert_eq!((task.receipts.len(), task.receipts[MOST - 1].receipt_ref.as_str()), (MOST, "r-99"));
    assert_eq!(task.revision, MOST as i64 + 1);
    town.audit().await;
}

#[tokio::test]
async fn a_receipt_moves_nothing_that_time_has_decided() {
    let town = Town::start().await;
    town.spec("t").retry(3, SECOND * 60).submit().await;
    let lease = town.worker("w1").claim_one().await;
    assert!(town.receipt("t", KIND, "r-1").await);
    lease.complete().await.applied();
    town.try_receipt("nobody", KIND, "r-1").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    let lacking = town.try_receipt("t", "", "").await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    assert!(lacking.status.message().contains("kind"), "{}", lacking.status.message());
    town.audit().await;
}

/// N9: the message was edited, v2 ran, and the device's receipt for v1 arrives afterwards: both stand on the record.
#[tokio::test]
async fn a_receipt_for_a_superseded_version_stands_beside_it() {
    let town = Town::start().await;
    town.spec("v1").about("m-9", 1).submit().await;
    let lease = town.worker("w1").reporting_effects().claim_one().await;
    lease.begin_effect("call-1").await.applied();
    town.spec("v2").superseding("m-9", 2).submit().await;
    lease.complete().await.refused_with("SUBJECT_STALE");
    town.worker("w1").claim_one().await.complete().await.applied();
    assert!(town.receipt("v1", KIND, "r-1").await && town.receipt("v2", KIND, "r-1").await);
    let superseded = eventually("v1 has ended", async || Some(town.task("v1").await).filter(|task| task.terminal)).await;
    assert_eq!((superseded.state(), superseded.receipts.len()), (TaskState::Canceled, 1));
    assert_eq!((town.task("v2").await.state(), town.task("v2").await.receipts.len()), (TaskState::Completed, 1));
    town.audit().await;
}
