//! Many keys under everything at once: two servers, failures, releases, deaths of workers and of servers, and takeovers. Per key, effects
//! begin in the order of acceptance and never two at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::api::proto::ErrorClass;
use tokio::task::JoinSet;

use crate::town::{LEASE, Lease, SECOND, Server, Town, Worker, endurance, row_held, to_the_full, within};

const KEYS: usize = 30;
const CLAIMERS: usize = 8;

/// Tasks of each key, how often a server is killed, and for how long it goes on.
fn size() -> (usize, usize, Duration) {
    if to_the_full() { (200, 4, endurance()) } else { (12, 1, endurance()) }
}

/// What the outside world sees: which effects began, in which order, by key.
#[derive(Default)]
struct Provider {
    begun: Mutex<HashMap<String, Vec<(usize, i64)>>>,
}

impl Provider {
    /// An effect begins, under this token. An older token than the key has seen is turned away: that worker slept too long.
    fn begin(&self, lease: &Lease) -> bool {
        let (key, number) = lease.id().split_once('/').unwrap();
        let mut begun = self.begun.lock().unwrap();
        let of_key = begun.entry(key.to_owned()).or_default();
        if of_key.last().is_some_and(|(_, token)| lease.token() < *token) {
            return false;
        }
        of_key.push((number.parse().unwrap(), lease.token()));
        true
    }
}

async fn work_on(lease: Lease, provider: &Provider) {
    let chance = lease.token() % 10;
    if chance == 0 {
        // It dies.
        return;
    }
    if chance == 1 {
        // Whether it was in time is its lease's affair.
        drop(lease.release().await.0);
        return;
    }
    if lease.begin_effect("effect").await.0.is_err() {
        return;
    }
    provider.begin(&lease);
    // Its server may be killed before it answers.
    if chance <= 3 { drop(lease.fail(ErrorClass::Transient).await.0) } else { drop(lease.complete().await.0) }
}

#[tokio::test]
async fn whatever_befalls_the_tasks_of_thirty_keys_their_effects_begin_in_accepted_order_and_never_two_at_once() {
    let (tasks, kills, time) = size();
    let town = Arc::new(Town::with_servers(2).await);
    for number in 0..tasks {
        let specs = (0..KEYS).map(|key| town.spec(&format!("k-{key}/{number}")).key(&format!("k-{key}")).retry(10_000, SECOND));
        town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
    }
    let (provider, over) = (Arc::new(Provider::default()), Arc::new(AtomicBool::new(false)));
    // The second server is killed and replaced now and then.
    let (second, mut replaced): (_, Vec<Server>) = (Arc::new(Mutex::new(town.server(1).channel())), Vec::new());
    let begin = Instant::now();
    let mut claimers = JoinSet::new();
    for number in 0..CLAIMERS {
        let (town, provider, over, second) = (town.clone(), provider.clone(), over.clone(), second.clone());
        claimers.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let channel = if number % 2 == 0 { town.server(0).channel() } else { second.lock().unwrap().clone() };
                let worker = Worker::new(channel, &format!("w{number}")).reporting_effects();
                let claimed = worker.try_claim_within(2, Duration::from_millis(300)).await;
                for lease in claimed.0.unwrap_or_default() {
                    work_on(lease, &provider).await;
                }
            }
        });
    }
    let ended = "SELECT count(*) FROM ended";
    let mut done = 0;
    while done < KEYS * tasks && begin.elapsed() < time {
        // Who died is found out, backoffs pass, and who works just then is overtaken. Not before some have come to an end, or a slow machine
        // would overtake everybody for ever.
        town.clock.advance(LEASE + SECOND).await;
        let goal = done + KEYS / 3;
        within(SECOND * 3, async || {
            done = usize::try_from(town.sql::<i64>(ended).await).unwrap();
            (done >= goal).then_some(())
        })
        .await;
        if replaced.len() < kills && done > KEYS * tasks * (replaced.len() + 1) / (kills + 2) {
            replaced.last().unwrap_or(town.server(1)).signal(libc::SIGKILL);
            replaced.push(Server::start(&town.database_url, &[]).await);
            *second.lock().unwrap() = replaced[replaced.len() - 1].channel();
        }
    }
    over.store(true, Ordering::Relaxed);
    claimers.join_all().await;
    println!("{done} of {} in {:?}, {} servers killed", KEYS * tasks, begin.elapsed(), replaced.len());
    assert!(done >= KEYS);
    for (key, begun) in provider.begun.lock().unwrap().iter() {
        assert!(begun.is_sorted_by_key(|(number, _)| *number), "{key}: {begun:?}");
        assert!(begun.is_sorted_by(|a, b| a.1 < b.1), "{key}: one token began two effects: {begun:?}");
    }
    let passed = "SELECT count(*) FROM (
        SELECT t.ordering_key, l.position, lag(l.position) OVER (PARTITION BY t.ordering_key ORDER BY e.token) AS before
        FROM events e JOIN tasks t USING (queue_id, uid)
        JOIN (SELECT uid, position FROM live UNION ALL SELECT uid, position FROM ended) l USING (uid) WHERE e.kind = 'LEASED') leases
        WHERE position < before";
    assert_eq!(town.sql::<i64>(passed).await, 0, "a lease went back behind one that was accepted later");
    let together = "SELECT count(*) FROM (
        SELECT e.kind, lag(e.kind) OVER (PARTITION BY t.ordering_key ORDER BY e.position) AS before
        FROM events e JOIN tasks t USING (queue_id, uid) WHERE e.kind IN ('LEASED', 'RELEASED', 'RETRY_PLANNED', 'ENDED')) turns
        WHERE kind = 'LEASED' AND before = 'LEASED'";
    assert_eq!(town.sql::<i64>(together).await, 0, "two of one key were leased at once");
    row_held(23, &format!("{KEYS} keys of {tasks} tasks, in their order and never two at once"), None);
    town.audit().await;
}
