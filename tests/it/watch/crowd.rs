//! Writers and watchers by chance, and whether what the watchers saw is the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::api::proto as pb;
use pb::ErrorClass;
use pb::watch_response::Item;
use sqlx::{Connection as _, PgConnection};
use tonic::transport::Channel;

use super::position;
use crate::town::{QUEUE, Seen, Town, Watch, Worker};

/// A client that does at random what clients do, and repeats what failed.
pub async fn work(channels: Vec<Channel>, writer: usize, rounds: usize, stop: Arc<AtomicBool>) {
    let chance = || fastrand::usize(..100);
    for round in 0..rounds {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let channel = channels[fastrand::usize(..channels.len())].clone();
        let mut tasks = pb::task_service_client::TaskServiceClient::new(channel.clone());
        let key = if chance() < 40 { format!("k-{}", fastrand::usize(..4)) } else { String::new() };
        let retry = pb::RetryPolicy {
            max_attempts: Some(3),
            initial_backoff: Some(crate::town::span(std::time::Duration::ZERO)),
            ..pb::RetryPolicy::default()
        };
        let spec = pb::TaskSpec {
            queue: QUEUE.into(),
            task_id: format!("t-{writer}-{round}"),
            fairness_key: format!("s-{}", fastrand::usize(..3)),
            ordering_key: key,
            retry: Some(retry),
            ..pb::TaskSpec::default()
        };
        drop(tasks.submit(pb::SubmitRequest { spec: Some(spec) }).await);
        let Ok(leases) = Worker::new(channel, &format!("w-{writer}")).try_claim(2).await.0 else { continue };
        for lease in leases {
            drop(match chance() {
                0..60 => lease.complete().await.0,
                60..75 => lease.fail(ErrorClass::Transient).await.0,
                75..85 => lease.release().await.0,
                85..90 => lease.skip("no point").await.0,
                _ => lease.fail(ErrorClass::Permanent).await.0,
            });
        }
    }
}

/// Draws positions and takes them back, again and again.
pub async fn roll_back(url: String, stop: Arc<AtomicBool>) {
    let mut stranger = PgConnection::connect(&url).await.expect("a connection");
    while !stop.load(Ordering::Relaxed) {
        let draw = "BEGIN; SELECT nextval('positions') FROM generate_series(1, 1 + (random() * 3)::int); ROLLBACK";
        sqlx::raw_sql(draw).execute(&mut stranger).await.expect("it can draw");
        tokio::task::yield_now().await;
    }
}

/// What one watch delivered after a cursor.
pub struct Stretch {
    pub after: i64,
    pub seen: Vec<Seen>,
}

/// Watches the queue with breaks: now here, now there, from its last cursor or from any earlier one.
pub async fn follow(channels: Vec<Channel>, begin: String, stop: Arc<AtomicBool>) -> Vec<Stretch> {
    let (mut stretches, mut cursors) = (Vec::new(), vec![begin]);
    while !stop.load(Ordering::Relaxed) {
        let cursor =
            if fastrand::bool() { cursors[cursors.len() - 1].clone() } else { cursors[fastrand::usize(..cursors.len())].clone() };
        let channel = channels[fastrand::usize(..channels.len())].clone();
        let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
        let request = pb::WatchRequest {
            filter,
            after_cursor: cursor.clone(),
            bookmark_interval: Some(crate::town::span(crate::town::SECOND)),
            ..pb::WatchRequest::default()
        };
        let Ok(stream) = pb::task_service_client::TaskServiceClient::new(channel).watch(request).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let mut watch = Watch::of(stream.into_inner());
        let mut stretch = Stretch { after: position(&cursor), seen: Vec::new() };
        for _ in 0..fastrand::usize(1..400) {
            match watch.try_next().await {
                Ok(Some(Item::Event(event))) => stretch.seen.push(Seen::from(&event)),
                Ok(Some(Item::Bookmark(_))) if stop.load(Ordering::Relaxed) => break,
                Ok(Some(Item::Bookmark(_))) => {}
                Ok(other) => panic!("{other:?}"),
                Err(_) => break,
            }
            cursors.push(watch.cursor.clone());
        }
        stretches.push(stretch);
    }
    stretches
}

/// The log as it stands in the table: what is delivered after a cursor must be this, from there on.
pub async fn log(town: &Town) -> Vec<(i64, Seen)> {
    let query =
        "SELECT e.position, t.task_id, e.revision, e.kind || '>' || e.state FROM events e JOIN tasks t USING (queue_id, uid)
                 ORDER BY position";
    let rows: Vec<(i64, String, i64, String)> =
        sqlx::query_as(query).fetch_all(town.database()).await.expect("the log can be read");
    rows.into_iter().map(|(position, id, revision, what)| (position, Seen { id, revision, what })).collect()
}

pub fn agree(log: &[(i64, Seen)], stretches: &[Stretch]) {
    for stretch in stretches {
        let begin = log.partition_point(|(position, _)| *position <= stretch.after);
        let told = log[begin..].iter().map(|(_, seen)| seen).take(stretch.seen.len());
        let wrong = stretch.seen.iter().zip(told.clone()).position(|(seen, told)| seen != told);
        let at = wrong.unwrap_or_default();
        assert!(
            wrong.is_none() && told.count() == stretch.seen.len(),
            "after {}: {:?} in place of {:?}",
            stretch.after,
            stretch.seen[at],
            log[begin + at]
        );
    }
}
