//! Many clients want the same thing at the same moment, from two servers.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::task_service_client::TaskServiceClient;
use tokio::task::JoinSet;
use tonic::Code;

use crate::town::{Answer, SECOND, Town, endurance};

const SERVERS: usize = 2;
const CLIENTS: usize = 64;
/// Ids that everybody submits at once, one after the other.
const IDS: usize = 20;
/// Leases that the claimers wrest from each other, and the tasks that they are of: far fewer than claimers.
const LEASES: usize = 10_000;
/// What was wrested when their time is over is judged, if it is this much.
const LEASES_MIN: usize = 100;
const BATONS: usize = 24;

/// Sends the same id from all clients at once, with the payload that each of them chooses.
async fn submit_at_once(town: &Town, id: &str, payload: fn(usize) -> &'static [u8]) -> Vec<(usize, Answer<pb::SubmitResponse>)> {
    let start = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    let mut calls = JoinSet::new();
    for client in 0..CLIENTS {
        let spec = town.spec(id).payload(payload(client)).spec;
        let (mut tasks, start) = (TaskServiceClient::new(town.server(client % SERVERS).channel()), start.clone());
        calls.spawn(async move {
            start.wait().await;
            (client, tasks.submit(pb::SubmitRequest { spec: Some(spec) }).await.into())
        });
    }
    calls.join_all().await
}

#[tokio::test]
async fn an_id_submitted_by_64_clients_at_once_is_one_task_that_one_of_them_created() {
    let town = Town::with_servers(SERVERS).await;
    for number in 0..IDS {
        let answers = submit_at_once(&town, &format!("m-{number}"), |_| b"the same").await;
        let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer.ok()).collect();
        assert_eq!(answers.iter().filter(|answer| answer.created).count(), 1);
        let uids: BTreeSet<&str> = answers.iter().map(|answer| answer.task.as_ref().unwrap().uid.as_str()).collect();
        assert_eq!(uids.len(), 1);
    }
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM events").await, i64::try_from(IDS).unwrap());
    town.audit().await;
}

#[tokio::test]
async fn an_id_submitted_with_two_contents_at_once_is_one_of_them_and_the_other_is_told() {
    let town = Town::with_servers(SERVERS).await;
    for number in 0..IDS {
        let id = format!("m-{number}");
        let answers = submit_at_once(&town, &id, |client| if (client / SERVERS).is_multiple_of(2) { b"v1" } else { b"v2" }).await;
        let winner = town.task_with_payload(&id).await;
        let digest: String = town.sql(format!("SELECT encode(digest, 'hex') FROM tasks WHERE task_id = '{id}'")).await;
        let mut created = 0;
        for (client, answer) in answers {
            let ours: &[u8] = if (client / SERVERS).is_multiple_of(2) { b"v1" } else { b"v2" };
            if ours == winner.spec.as_ref().unwrap().payload {
                let answer = answer.ok();
                created += usize::from(answer.created);
                assert_eq!(answer.task.unwrap().uid, winner.uid);
            } else {
                let refused = answer.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
                assert_eq!((refused.says("digest"), refused.says("uid"), refused.says("state")), (&*digest, &*winner.uid, "READY"));
            }
        }
        assert_eq!(created, 1);
    }
    town.audit().await;
}

/// What 64 claimers share.
struct Relay {
    left: AtomicUsize,
    /// By task: whether somebody holds it, as far as the claimers know.
    held: HashMap<String, AtomicBool>,
    /// Every lease that reached a claimer, by task and token.
    seen: Mutex<Vec<(String, i64)>>,
}

#[tokio::test]
async fn claimers_of_two_servers_who_wrest_few_tasks_from_each_other_never_hold_one_together() {
    let town = Town::with_servers(SERVERS).await;
    let ids: Vec<String> = (0..BATONS).map(|number| format!("baton-{number}")).collect();
    for id in &ids {
        // Twenty releases are free; the budget is for the others.
        town.spec(id).retry(10_000, SECOND).submit().await;
    }
    let held = ids.iter().map(|id| (id.clone(), AtomicBool::new(false))).collect();
    let relay = Arc::new(Relay { left: AtomicUsize::new(LEASES), held, seen: Mutex::default() });
    let mut claimers = JoinSet::new();
    let (begin, time) = (Instant::now(), endurance());
    for client in 0..CLIENTS {
        let (relay, worker) = (relay.clone(), town.worker_at(client % SERVERS, &format!("w{client}")));
        claimers.spawn(async move {
            while relay.left.load(Ordering::Relaxed) > 0 && begin.elapsed() < time {
                for lease in worker.claim_within(1, Duration::from_secs(1)).await {
                    let held = &relay.held[lease.id()];
                    assert!(!held.swap(true, Ordering::SeqCst), "{} is held twice", lease.id());
                    relay.seen.lock().unwrap().push((lease.id().to_owned(), lease.token()));
                    let _ = relay.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                    held.store(false, Ordering::SeqCst);
                    lease.release().await.applied();
                }
            }
        });
    }
    claimers.join_all().await;
    let seen = std::mem::take(&mut *relay.seen.lock().unwrap());
    println!("{} leases in {:?}", seen.len(), begin.elapsed());
    leases_followed_each_other(&town, seen).await;
    town.audit().await;
}

/// By the log: a lease begins only after the one before it has ended, tokens rise, and the leases that were reported on are those that
/// claimers were given. (The others came when their call's time was over, and were given back by the server.)
async fn leases_followed_each_other(town: &Town, mut seen: Vec<(String, i64)>) {
    let query =
        "SELECT task_id, e.token, coalesce(before, ''), coalesce(e.token > last_token, true), coalesce(reported, false) FROM (
                     SELECT uid, position, kind, token, lag(kind) OVER task AS before, lag(token) OVER task AS last_token,
                            lead(evidence ->> 'report' IS NOT NULL) OVER task AS reported
                     FROM events WINDOW task AS (PARTITION BY uid ORDER BY position)) e
                 JOIN tasks USING (uid) WHERE e.kind = 'LEASED' ORDER BY e.position";
    let logged = sqlx::query_as(query).fetch_all(town.database()).await;
    let logged: Vec<(String, i64, String, bool, bool)> = logged.expect("the log can be read");
    assert!(logged.len() >= LEASES_MIN, "only {} leases", logged.len());
    for (id, token, before, rises, _) in &logged {
        assert!(before == "SUBMITTED" || before == "RELEASED", "{id}: the lease {token} came after {before}");
        assert!(rises, "{id}: the token {token} did not rise");
    }
    let reported = logged.into_iter().filter(|(.., reported)| *reported);
    let mut reported: Vec<(String, i64)> = reported.map(|(id, token, ..)| (id, token)).collect();
    reported.sort();
    seen.sort();
    assert_eq!(seen, reported);
}
