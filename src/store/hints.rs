//! Hints between servers (NOTIFY), and upkeep that no decision depends on.

use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use super::pool::connect_options;
use super::{Db, StoreError};

const CHANNEL: &str = "leasehold_ready";
/// Postgres refuses payloads of 8,000 bytes and more; what does not fit is found by the poll.
const QUEUES: usize = 600;

/// How long the ear's connection may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);

/// Beside the numbers of queues. A server that doesn't know a word passes it over.
const EVENTS: &str = "events";
const WATCHING: &str = "watching";

/// Says to the other servers that these queues have new READY tasks, that there are new events, that somebody watches here.
/// False: no other server listens.
pub async fn tell_others(
    db: &Db, server: Uuid, queues: impl Iterator<Item = i32>, events: bool, watching: bool,
) -> Result<bool, StoreError> {
    let words = [events.then_some(EVENTS), watching.then_some(WATCHING)].into_iter().flatten();
    let text = words.fold(server.to_string(), |text, word| format!("{text} {word}"));
    let text = queues.take(QUEUES).fold(text, |text, queue_id| format!("{text} {queue_id}"));
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
    /// They have new READY tasks.
    pub queues: Vec<i32>,
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
                number => heard.queues.extend(number.parse::<i32>()),
            }
        }
        Ok(Some(heard))
    }
}
