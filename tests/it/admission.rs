//! How many unfinished tasks a queue or a share may have: exact whoever submits, and whoever is refused leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::api::proto as pb;
use pb::TaskState;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::town::{Answer, QUEUE, Refused, SECOND, Town, eventually, row_held};

const FULL: &str = "QUEUE_FULL";

/// How long a refusal says to stay away; it says so to programs of every kind.
#[track_caller]
fn retry_of_a_call(refused: &Refused) -> Duration {
    let delay = retry_after(refused);
    let pushback = refused.status.metadata().get("grpc-retry-pushback-ms").expect("what clients' own retries go by");
    assert_eq!(pushback.to_str().unwrap().parse::<u128>().unwrap(), delay.as_millis());
    delay
}

/// The same of an item, which has no trailers.
#[track_caller]
fn retry_after(refused: &Refused) -> Duration {
    let details = refused.status.get_error_details();
    let delay = details.retry_info().and_then(|info| info.retry_delay).expect("a RetryInfo");
    assert_eq!(details.quota_failure().expect("a QuotaFailure").violations.len(), 1);
    assert!(delay > Duration::ZERO && delay <= SECOND * 10, "{delay:?}");
    delay
}

async fn limited(town: &Town, limit: u32) {
    town.put_queue(|queue| queue.max_unfinished = Some(limit)).await;
}

#[tokio::test]
async fn of_64_clients_against_a_limit_of_5_never_6_are_in_and_all_come_in_when_they_come_back_as_told() {
    const CLIENTS: usize = 64;
    let town = Arc::new(Town::with_servers(2).await);
    limited(&town, 5).await;
    let (refused, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (town, refused) = (town.clone(), refused.clone());
        clients.spawn(async move {
            loop {
                let id = format!("t-{client}");
                match town.spec(&id).at(client % 2).try_submit().await {
                    Answer(Ok(accepted)) => return assert!(accepted.created),
                    answer => {
                        let told = answer.refused_as(Code::ResourceExhausted, FULL);
                        assert_eq!(told.number("limit"), 5);
                        refused.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(retry_of_a_call(&told)).await;
                    }
                }
            }
        });
    }
    let mut others = JoinSet::new();
    for number in 0..2 {
        let (worker, done) = (town.worker_at(number, &format!("w{number}")), done.clone());
        others.spawn(async move {
            while !done.load(Ordering::Relaxed) {
                for lease in worker.claim_within(3, Duration::from_millis(500)).await {
                    lease.complete().await.applied();
                }
            }
        });
    }
    let (watched, watcher_done) = (town.clone(), done.clone());
    others.spawn(async move {
        while !watcher_done.load(Ordering::Relaxed) {
            let unfinished = watched.sql::<i64>("SELECT count(*) FROM live").await;
            assert!(unfinished <= 5, "{unfinished} are in");
        }
    });
    clients.join_all().await;
    done.store(true, Ordering::Relaxed);
    others.join_all().await;
    assert!(refused.load(Ordering::Relaxed) > 0);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, CLIENTS as i64, "a refused call left a task");
    row_held(13, &format!("{CLIENTS} came in, never 6 at once, after {} refusals", refused.load(Ordering::Relaxed)), None);
    town.audit().await;
}

#[tokio::test]
async fn whoever_is_refused_leaves_nothing_behind_and_a_place_that_comes_free_is_taken_within_the_hint_s_time() {
    let town = Town::start().await;
    limited(&town, 2).await;
    town.submit("a").await;
    town.submit("b").await;
    for _ in 0..3 {
        let refused = town.spec("c").share("new").key("k").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
        retry_of_a_call(&refused);
    }
    let left = "SELECT (SELECT count(*) FROM tasks) + (SELECT count(*) FROM events) + (SELECT count(*) FROM live) * 10
                       + (SELECT count(*) FROM ordering_keys) * 100 + (SELECT count(*) FROM shares WHERE fairness_key = 'new') * 100";
    assert_eq!(town.sql::<i64>(left).await, 24);
    let refused = town.spec("c").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    town.worker("w1").claim_one().await.complete().await.applied();
    tokio::time::sleep(retry_of_a_call(&refused)).await;
    town.submit("c").await;
    town.spec("d").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    town.audit().await;
}

#[tokio::test]
async fn a_known_id_takes_no_room_and_is_answered_when_there_is_none() {
    let town = Town::with_servers(2).await;
    limited(&town, 1).await;
    let first = town.submit("a").await;
    town.spec("b").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    for server in [0, 1, 0] {
        let again = town.spec("a").at(server).try_submit().await.ok();
        assert!(!again.created && again.task.unwrap().uid == first.uid);
        town.spec("a").payload(b"other").at(server).try_submit().await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
        town.spec("b").at(server).try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    }
    // Also after it ended, in a batch, and when nothing at all is accepted.
    town.worker("w1").claim_one().await.complete().await.applied();
    limited(&town, 0).await;
    let answers = town.submit_batch(vec![town.spec("b"), town.spec("a"), town.spec("a")], false).await.ok();
    let mut answers = answers.into_iter();
    answers.next().unwrap().refused_as(Code::ResourceExhausted, FULL);
    for answer in answers {
        assert_eq!(answer.ok().task.unwrap().state(), TaskState::Completed);
    }
    town.audit().await;
}

#[tokio::test]
async fn a_share_s_limit_is_its_own_and_a_batch_is_answered_one_by_one_or_not_accepted_at_all() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.max_unfinished = Some(6)).await;
    town.put_share("u-a", |share| share.max_unfinished = Some(2)).await;
    let spec = |id: &str, share: &str| town.spec(id).share(share);
    let all = vec![spec("a/0", "u-a"), spec("b/0", "u-b"), spec("a/1", "u-a"), spec("a/2", "u-a"), spec("b/1", "u-b")];
    let refused = town.submit_batch(all.clone(), true).await.refused_as(Code::ResourceExhausted, "SHARE_FULL");
    assert_eq!(refused.number("limit"), 2);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 0, "an atomic batch left something");
    let answers = town.submit_batch(all, false).await.ok();
    for (number, answer) in answers.into_iter().enumerate() {
        if number == 3 {
            retry_after(&answer.refused_as(Code::ResourceExhausted, "SHARE_FULL"));
        } else {
            assert!(answer.ok().created);
        }
    }
    // Two more go into the queue, wherever they belong.
    let more = (0..4).map(|number| spec(&format!("c/{number}"), "u-c")).collect();
    let accepted: Vec<bool> = town.submit_batch(more, false).await.ok().into_iter().map(|answer| answer.0.is_ok()).collect();
    assert_eq!(accepted, [true, true, false, false]);
    town.audit().await;
}

#[tokio::test]
async fn every_unfinished_state_takes_a_place_and_every_end_gives_one_back() {
    let town = Town::start().await;
    limited(&town, 5).await;
    town.put_share("s", |share| share.max_unfinished = Some(5)).await;
    let spec = |id: &str| town.spec(id).share("s");
    spec("leased").submit().await;
    town.worker("w1").claim_one().await;
    spec("backing off").retry(3, SECOND * 60).submit().await;
    town.worker("w1").claim_one().await.fail(pb::ErrorClass::Transient).await.applied();
    spec("later").start_delay(SECOND * 60).submit().await;
    spec("head").key("k").submit().await;
    spec("behind").key("k").submit().await;
    let full = async |id: &str| drop(spec(id).try_submit().await.refused_as(Code::ResourceExhausted, FULL));
    full("x").await;
    for (number, id) in ["later", "behind", "backing off"].into_iter().enumerate() {
        town.cancel(id).await.ok();
        let next = format!("next-{number}");
        eventually("the freed place is taken", async || spec(&next).try_submit().await.0.ok()).await;
        full("x").await;
    }
    town.audit().await;
}

#[tokio::test]
async fn a_limit_that_is_set_while_a_submit_is_under_way_counts_that_one_too() {
    let town = Town::start().await;
    town.spec("first").share("held").submit().await;
    let mut share = town.hold("SELECT FROM shares WHERE fairness_key = 'held' FOR UPDATE").await;
    let spec = town.spec("under way").share("held").spec;
    let mut tasks = town.tasks();
    let under_way = tokio::spawn(async move { tasks.submit(pb::SubmitRequest { spec: Some(spec) }).await });
    share.until_waited_for().await;
    let mut admin = town.admin();
    let queue = pb::Queue { name: QUEUE.into(), max_unfinished: Some(2), ..pb::Queue::default() };
    let put = pb::PutQueueRequest { queue: Some(queue), ..pb::PutQueueRequest::default() };
    let put = tokio::spawn(async move { admin.put_queue(put).await });
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 7235 AND NOT granted
                                                      AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))";
    eventually("the change waits for it", async || town.sql::<bool>(waits).await.then_some(())).await;
    assert!(!put.is_finished());
    share.let_go().await;
    under_way.await.unwrap().unwrap();
    put.await.unwrap().unwrap();
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM live").await, 2);
    town.spec("one too many").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    town.audit().await;
}

#[tokio::test]
async fn what_has_no_limit_keeps_no_count_and_a_limit_that_is_cleared_is_gone() {
    let town = Town::start().await;
    town.backlog("u-a", 20).await;
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM rooms").await, 0);
    limited(&town, 3).await;
    town.spec("x").try_submit().await.refused_as(Code::ResourceExhausted, FULL);
    let queue = pb::Queue { name: QUEUE.into(), ..pb::Queue::default() };
    let clear = pb::PutQueueRequest { queue: Some(queue), clear_fields: vec!["max_unfinished".into()], reason: String::new() };
    let stored = Answer::from(town.admin().put_queue(clear).await).ok().queue.unwrap();
    assert_eq!(stored.max_unfinished, None);
    town.submit("x").await;
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM rooms").await, 0);
    town.audit().await;
}
