//! A floor rises over a crowd of tasks and of workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::api::proto::raise_subject_request::Floor;
use tokio::task::JoinSet;
use tonic::Code;

use super::{BATCH, SUBJECT};
use crate::town::{Answer, SECOND, Town, eventually, raise_by};

/// Tasks on one subject, waiting for their floor to rise; so that it takes a debug build some seconds to walk over them.
const CROWD: usize = 10_000;
/// Tasks that are submitted above the floor meanwhile.
const FRESH: i64 = 200;

/// What was answered, unless the machine is too busy to carry it out now.
fn unless_busy<T>(answer: Answer<T>) -> Option<T> {
    match answer.0 {
        Err(status) if status.code() == Code::Unavailable => None,
        other => Some(Answer(other).ok()),
    }
}

/// Workers in a crowd, until it is over: what each of them leased, in calls that began when the floor had risen, of what stands below it.
fn claimers(town: &Town, risen: &Arc<AtomicBool>, over: &Arc<AtomicBool>) -> JoinSet<Vec<String>> {
    let mut workers = JoinSet::new();
    for number in 0..4 {
        let (worker, risen, over) = (town.worker(&format!("w{number}")), risen.clone(), over.clone());
        workers.spawn(async move {
            let mut stale = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let after = risen.load(Ordering::SeqCst);
                let Some(leases) = unless_busy(worker.try_claim_within(5, SECOND).await) else { continue };
                for lease in leases {
                    if after && lease.id().starts_with("v1") {
                        stale.push(lease.id().to_owned());
                    }
                    loop {
                        let answer = lease.complete().await;
                        if answer.0.as_ref().err().is_none_or(|status| status.code() != Code::Unavailable) {
                            if answer.0.is_err() {
                                answer.refused_with("SUBJECT_STALE");
                            }
                            break;
                        }
                    }
                }
            }
            stale
        });
    }
    workers
}

#[tokio::test]
async fn a_floor_that_rises_over_a_crowd_lets_claims_go_on_and_no_transaction_is_longer_than_a_batch() {
    let town = Town::start().await;
    let mut numbers = 0..CROWD;
    while !numbers.is_empty() {
        let specs = numbers.by_ref().take(500).map(|number| town.spec(&format!("v1-{number}")).about(SUBJECT, 1)).collect();
        town.submit_batch(specs, false).await.ok();
    }
    let (risen, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut workers = claimers(&town, &risen, &over);
    // One that nobody can move, so that the walk is not over before claims have gone on.
    let held = town.hold_task(&format!("v1-{}", CROWD - 1)).await;
    let raising = tokio::spawn(raise_by(town.tasks(), SUBJECT, Floor::MinVersion(2)));
    let stands = "SELECT count(*) FROM subjects";
    eventually("the floor has risen", async || (town.sql::<i64>(stands).await == 1).then_some(())).await;
    risen.store(true, Ordering::SeqCst);
    for number in 0..FRESH {
        town.spec(&format!("v2-{number}")).about(SUBJECT, 2).priority(if number % 2 == 0 { 10 } else { 0 }).submit().await;
    }
    let done = "SELECT count(*) FROM ended JOIN tasks USING (queue_id, uid) WHERE state = 'COMPLETED' AND task_id LIKE 'v2-%'";
    eventually("all that stands above the floor is done", async || (town.sql::<i64>(done).await == FRESH).then_some(())).await;
    held.let_go().await;
    let raised = raising.await.unwrap().ok();
    let left = "SELECT count(*) FROM live";
    eventually("nothing is left below the floor", async || (town.sql::<i64>(left).await == 0).then_some(())).await;
    over.store(true, Ordering::Relaxed);
    while let Some(ended) = workers.join_next().await {
        assert_eq!(ended.unwrap(), Vec::<String>::new());
    }
    let canceled: i64 = town.sql("SELECT count(*) FROM ended WHERE state = 'CANCELED'").await;
    assert!(raised.canceled_count > 0 && raised.canceled_count + raised.told_count <= CROWD as i64);
    // Those who were told report a success all the same, or were canceled as they waited: each once.
    assert!(canceled >= raised.canceled_count, "{canceled} are canceled, {} were counted", raised.canceled_count);
    let completed: i64 = town
        .sql("SELECT count(*) FROM ended JOIN tasks USING (queue_id, uid) WHERE state = 'COMPLETED' AND task_id LIKE 'v1-%'")
        .await;
    assert_eq!(canceled + completed, CROWD as i64);
    let largest: i64 = town.sql("SELECT max(n) FROM (SELECT count(*) AS n FROM events GROUP BY xmin::text) e").await;
    assert!(largest <= BATCH, "a transaction changed {largest} tasks");
    town.audit().await;
}
