//! Hints between servers (NOTIFY), and upkeep that no decision depends on.

use std::collections::BTreeMap;

use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use super::pool::connect_options;
use super::{Db, StoreError};

const CHANNEL: &str = "leasehold_ready";
/// Postgres refuses payloads of 8,000 bytes and more; what does not fit is found by the poll.
const QUEUES: usize = 230;

/// How long the ear's connection may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// Beside the queues. A server that doesn't know a word passes it over.
const EVENTS: &str = "events";
const WATCHING: &str = "watching";

/// Queues in which a claim may find something that it did not find before, and the lowest rank of what has become READY there
/// (`i64::MAX`: only a place came free).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openings(BTreeMap<i32, i64>);

impl Openings {
    pub fn add(&mut self, queue_id: i32, rank: i64) {
        let lowest = self.0.entry(queue_id).or_insert(rank);
        *lowest = rank.min(*lowest);
    }

    /// Only a place came free.
    pub fn add_place(&mut self, queue_id: i32) {
        self.add(queue_id, i64::MAX);
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, i64)> {
        self.0.iter().map(|(queue_id, rank)| (*queue_id, *rank))
    }

    /// Nothing has become READY: only places came free.
    pub fn only_places(&self) -> bool {
        self.0.values().all(|rank| *rank == i64::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Extend<(i32, i64)> for Openings {
    fn extend<I: IntoIterator<Item = (i32, i64)>>(&mut self, openings: I) {
        openings.into_iter().for_each(|(queue_id, rank)| self.add(queue_id, rank));
    }
}

impl FromIterator<(i32, i64)> for Openings {
    fn from_iter<I: IntoIterator<Item = (i32, i64)>>(openings: I) -> Self {
        let mut all = Openings::default();
        all.extend(openings);
        all
    }
}

/// Says to the other servers where claims may find something new, that there are new events, that somebody watches here.
/// False: no other server listens.
pub async fn tell_others(db: &Db, server: Uuid, openings: &Openings, events: bool, watching: bool) -> Result<bool, StoreError> {
    let words = [events.then_some(EVENTS), watching.then_some(WATCHING)].into_iter().flatten();
    let text = words.fold(server.to_string(), |text, word| format!("{text} {word}"));
    let text = openings.iter().take(QUEUES).fold(text, |text, (queue_id, rank)| format!("{text} {queue_id}:{rank}"));
    Ok(sqlx::query_file!("src/store/sql/others_tell.sql", text).fetch_optional(db.reads()).await?.is_some())
}

/// Makes the log's next partitions.
pub async fn ensure_partitions(db: &Db) -> Result<i32, StoreError> {
    Ok(sqlx::query_file!("src/store/sql/partitions_ensure.sql").fetch_one(db.reads()).await?.made)
}

/// What another server said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub from: Uuid,
    pub openings: Openings,
    /// There are new events.
    pub events: bool,
    /// Somebody watches there.
    pub watching: bool,
}

/// Drops the log's partitions that hold nothing any more; how many.
pub async fn drop_partitions(db: &Db) -> Result<i32, StoreError> {
    Ok(sqlx::query_file!("src/store/sql/partitions_drop.sql").fetch_one(db.reads()).await?.dropped)
}

/// A connection of its own that hears what other servers say.
pub struct Ear(PgListener);

impl Ear {
    pub async fn open(url: &str) -> Result<Ear, StoreError> {
        let options = connect_options(url, "leasehold-listener")?;
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect_with(options).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(CHANNEL).await?;
        Ok(Ear(listener))
    }

    /// Whether the connection still answers. One that went silent would be listened to for ever.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        match tokio::time::timeout(PATIENCE, self.0.listen(CHANNEL)).await {
            Ok(listens) => Ok(listens?),
            Err(_) => Err(StoreError::silent()),
        }
    }

    /// What was said; absent: the connection was lost and made anew, so something may have been missed.
    pub async fn next(&mut self) -> Result<Option<Heard>, StoreError> {
        let Some(notification) = self.0.try_recv().await? else { return Ok(None) };
        let mut words = notification.payload().split(' ');
        let from = words.next().and_then(|word| Uuid::parse_str(word).ok()).unwrap_or_default();
        let mut heard = Heard { from, ..Heard::default() };
        for word in words {
            match word {
                EVENTS => heard.events = true,
                WATCHING => heard.watching = true,
                opening => heard.openings.extend(self::opening(opening)),
            }
        }
        Ok(Some(heard))
    }
}

/// A queue and a rank; absent: a word that this version does not know. An older server says the queue alone: anything may be READY there.
fn opening(word: &str) -> Option<(i32, i64)> {
    match word.split_once(':') {
        Some((queue_id, rank)) => Some((queue_id.parse().ok()?, rank.parse().ok()?)),
        None => Some((word.parse().ok()?, i64::MIN)),
    }
}
