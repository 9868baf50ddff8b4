//! Submit, Complete, Cancel and deadlines meet on few ordering keys, from two servers: nobody deadlocks, and no key is forgotten.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::ErrorClass;
use pb::task_service_client::TaskServiceClient;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::town::{Answer, QUEUE, Town, Worker, endurance, eventually, span, task_ref};

const SERVERS: usize = 2;
/// Calls that are answered, one way or the other, before the storm is over; fewer where the machine does not get to them in time.
const OPERATIONS: usize = 10_000;
const OPERATIONS_MIN: usize = 100;
const KEYS: usize = 6;
const PRODUCERS: usize = 6;
const WORKERS: usize = 8;
const CANCELERS: usize = 4;
/// More unfinished tasks than that, and producers wait.
const UNFINISHED: i64 = 150;
const LEASE: Duration = Duration::from_secs(1);
/// What a call may be refused for when others were faster.
const FAIR: [&str; 5] = ["LEASE_EXPIRED", "LEASE_SUPERSEDED", "TASK_TERMINAL", "TASK_DEADLINE_PASSED", "CANCEL_REQUESTED"];

#[derive(Default)]
struct Storm {
    operations: AtomicUsize,
    crowded: AtomicBool,
    /// The time is over.
    ebbs: AtomicBool,
    over: AtomicBool,
    /// Ids that may be canceled.
    recent: Mutex<Vec<String>>,
    /// Refusals that nobody should see.
    unfair: Mutex<Vec<String>>,
}

impl Storm {
    fn rages(&self) -> bool {
        !self.ebbs.load(Ordering::Relaxed) && self.operations.load(Ordering::Relaxed) < OPERATIONS
    }

    fn count<T>(&self, call: &str, answer: Answer<T>) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let Err(status) = answer.0 else { return };
        let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
        if status.code() != Code::FailedPrecondition || !FAIR.contains(&reason.as_str()) {
            self.unfair.lock().unwrap().push(format!("{call}: {status:?}"));
        }
    }

    async fn submit(self: Arc<Storm>, channel: Channel, client: usize) {
        let short = pb::RetryPolicy {
            max_attempts: Some(4),
            initial_backoff: Some(span(Duration::from_millis(20))),
            max_backoff: Some(span(Duration::from_millis(20))),
            ..Default::default()
        };
        for number in 0.. {
            while self.crowded.load(Ordering::Relaxed) && self.rages() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !self.rages() {
                return;
            }
            let id = format!("m-{client}-{number}");
            let ttl = fastrand::bool().then(|| pb::task_spec::End::Ttl(span(Duration::from_millis(fastrand::u64(5..300)))));
            let spec = pb::TaskSpec {
                queue: QUEUE.into(),
                task_id: id.clone(),
                ordering_key: format!("key-{}", fastrand::usize(..KEYS)),
                lease_duration: Some(span(LEASE)),
                retry: Some(short),
                end: ttl,
                ..Default::default()
            };
            let answer = TaskServiceClient::new(channel.clone()).submit(pb::SubmitRequest { spec: Some(spec) }).await;
            self.count("Submit", answer.into());
            let mut recent = self.recent.lock().unwrap();
            recent.push(id);
            if recent.len() > 100 {
                recent.swap_remove(fastrand::usize(..100));
            }
        }
    }

    async fn cancel(self: Arc<Storm>, channel: Channel) {
        while self.rages() {
            let id = {
                let mut recent = self.recent.lock().unwrap();
                if recent.is_empty() {
                    None
                } else {
                    let at = fastrand::usize(..recent.len());
                    Some(recent.swap_remove(at))
                }
            };
            let Some(id) = id else {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            let request = pb::CancelRequest { task: Some(task_ref(&id)), reason: "recalled".into() };
            self.count("Cancel", TaskServiceClient::new(channel.clone()).cancel(request).await.into());
        }
    }

    async fn work(self: Arc<Storm>, worker: Worker) {
        while !self.over.load(Ordering::Relaxed) {
            for lease in worker.claim_within(4, Duration::from_millis(200)).await {
                let answer = match fastrand::u8(..100) {
                    // It is lost, while there are others to work on.
                    0..2 if self.rages() => continue,
                    2..20 => lease.fail(ErrorClass::Transient).await,
                    20..30 => lease.release().await,
                    30..40 => lease.skip("no point now").await,
                    _ => lease.complete().await,
                };
                self.count("Complete", answer);
            }
        }
    }
}

#[tokio::test]
async fn thousands_of_calls_on_six_keys_of_two_servers_leave_no_key_behind() {
    let town = Town::with_servers(SERVERS).await;
    let storm = Arc::new(Storm::default());
    let mut clients = JoinSet::new();
    let channel = |client: usize| town.server(client % SERVERS).channel();
    for client in 0..PRODUCERS {
        clients.spawn(storm.clone().submit(channel(client), client));
    }
    for client in 0..CANCELERS {
        clients.spawn(storm.clone().cancel(channel(client)));
    }
    for client in 0..WORKERS {
        clients.spawn(storm.clone().work(town.worker_at(client % SERVERS, &format!("w{client}"))));
    }
    let mut looks = 0;
    let (begin, time) = (Instant::now(), endurance());
    while storm.rages() {
        let unfinished: i64 = town.sql("SELECT count(*) FROM live").await;
        storm.crowded.store(unfinished > UNFINISHED, Ordering::Relaxed);
        storm.ebbs.store(begin.elapsed() > time, Ordering::Relaxed);
        looks += 1;
        if looks % 50 == 0 {
            // What must hold holds at every moment, not only at the end.
            town.audit_database().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let operations = storm.operations.load(Ordering::Relaxed);
    println!("{operations} calls in {:?}", begin.elapsed());
    assert!(operations >= OPERATIONS_MIN, "only {operations} calls in {time:?}");
    eventually("everything accepted ends", async || (town.sql::<i64>("SELECT count(*) FROM live").await == 0).then_some(())).await;
    storm.over.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let unfair = std::mem::take(&mut *storm.unfair.lock().unwrap());
    assert!(unfair.is_empty(), "{} unfair refusals, first:\n{}", unfair.len(), unfair[..unfair.len().min(5)].join("\n"));
    all_of_it_happened(&town).await;
    keys_kept_their_order(&town).await;
    town.audit().await;
}

/// The storm was one: tasks ended in all ways, and many waited behind others.
async fn all_of_it_happened(town: &Town) {
    for (what, query) in [
        ("completed", "SELECT count(*) FROM ended WHERE state = 'COMPLETED'"),
        ("canceled", "SELECT count(*) FROM ended WHERE state = 'CANCELED'"),
        ("too late", "SELECT count(*) FROM ended WHERE cause = 'DEADLINE_PASSED'"),
        ("told to stop", "SELECT count(*) FROM events WHERE kind = 'CANCEL_REQUESTED'"),
        ("blocked", "SELECT count(*) FROM events WHERE kind = 'SUBMITTED' AND state = 'BLOCKED'"),
    ] {
        assert!(town.sql::<i64>(query).await > 0, "no task was {what}");
    }
}

/// A key's tasks were leased in the order in which they were accepted, each after the end of the one before it.
async fn keys_kept_their_order(town: &Town) {
    let query = "SELECT count(*) FROM (
                     SELECT leased, max(ended) OVER (PARTITION BY ordering_key ORDER BY accepted ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                     FROM (SELECT t.ordering_key, min(e.position) AS accepted, min(e.position) FILTER (WHERE e.kind = 'LEASED') AS leased,
                                  max(e.position) FILTER (WHERE e.kind = 'ENDED') AS ended
                           FROM events e JOIN tasks t USING (queue_id, uid) GROUP BY t.queue_id, t.uid, t.ordering_key) task) pair
                 WHERE leased < before";
    assert_eq!(town.sql::<i64>(query).await, 0, "a task was leased before an older one of its key had ended");
}
