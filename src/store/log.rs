//! The log as watchers read it: by position, by queue and by task.
//!
//! Which of what is visible may be passed on is `domain/frontier.rs`'s; that it is durable, `barrier`'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::types::Json;
use uuid::Uuid;

use super::read::{ListFilter, list_within};
use super::rows::{EndedRow, EventRow, LiveRow};
use super::{Db, StoreError};
use crate::domain::event::{Event, Evidence};
use crate::domain::time::Timestamp;

/// A row of `events`, with its place.
#[derive(Debug)]
pub struct LogRow {
    pub position: i64,
    pub queue_id: i32,
    pub uid: Uuid,
    pub revision: i64,
    pub time: Timestamp,
    pub kind: String,
    pub previous_state: Option<String>,
    pub state: String,
    pub cause: Option<String>,
    pub attempt: i32,
    pub token: i64,
    pub worker: Option<String>,
    pub evidence: Option<Json<Evidence>>,
}

impl LogRow {
    pub fn event(self) -> Result<Event, StoreError> {
        let LogRow { uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence, .. } = self;
        EventRow { uid, revision, time, kind, previous_state, state, cause, attempt, token, worker, evidence }.event()
    }
}

/// The position of the last event that is visible.
pub async fn log_end(db: &Db) -> Result<i64, StoreError> {
    Ok(sqlx::query_file!("src/store/sql/log_end.sql").fetch_one(db.reads()).await?.position)
}

/// The transactions that have drawn a position and are not over.
pub async fn log_holders(db: &Db) -> Result<BTreeSet<String>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/log_holders.sql").fetch_all(db.reads()).await?;
    Ok(rows.into_iter().map(|row| row.holder).collect())
}

/// What is visible after a position, in order.
pub async fn log_read(db: &Db, after: i64, limit: i64) -> Result<Vec<LogRow>, StoreError> {
    Ok(sqlx::query_file_as!(LogRow, "src/store/sql/log_read.sql", after, limit).fetch_all(db.reads()).await?)
}

/// A queue's events after one position and up to another, in order.
pub async fn log_of_queue(db: &Db, queue_id: i32, after: i64, upto: i64, limit: i64) -> Result<Vec<LogRow>, StoreError> {
    Ok(sqlx::query_file_as!(LogRow, "src/store/sql/log_of_queue.sql", queue_id, after, upto, limit).fetch_all(db.reads()).await?)
}

/// A task's events after a revision, in order.
pub async fn log_of_task(db: &Db, queue_id: i32, uid: Uuid, revision: i64, limit: i64) -> Result<Vec<LogRow>, StoreError> {
    Ok(sqlx::query_file_as!(LogRow, "src/store/sql/log_of_task.sql", queue_id, uid, revision, limit).fetch_all(db.reads()).await?)
}

/// The position of a task's last event; absent: none of its events is kept.
pub async fn log_task_end(db: &Db, queue_id: i32, uid: Uuid) -> Result<Option<i64>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/log_task_end.sql", queue_id, uid).fetch_optional(db.reads()).await?;
    Ok(row.map(|row| row.position))
}

/// Names an event, and how far back in its task's log its attempt is looked for.
#[derive(Clone, Copy, Debug)]
pub struct AttemptAt {
    pub queue_id: i32,
    pub uid: Uuid,
    pub attempt: i32,
    pub revision: i64,
    pub depth: i64,
}

/// For each of these events (by its index) the events of its attempt up to it, in order of revision.
pub async fn log_attempts(db: &Db, of: &[AttemptAt]) -> Result<HashMap<usize, Vec<Event>>, StoreError> {
    let rows = sqlx::query_file!(
        "src/store/sql/log_attempts.sql",
        &of.iter().map(|one| one.queue_id).collect::<Vec<_>>(),
        &of.iter().map(|one| one.uid).collect::<Vec<_>>(),
        &of.iter().map(|one| one.attempt).collect::<Vec<_>>(),
        &of.iter().map(|one| one.revision).collect::<Vec<_>>(),
        &of.iter().map(|one| one.depth).collect::<Vec<_>>(),
    );
    let mut logs: HashMap<usize, Vec<Event>> = HashMap::new();
    for row in rows.fetch_all(db.reads()).await? {
        let event = EventRow {
            uid: row.uid,
            revision: row.revision,
            time: row.time,
            kind: row.kind,
            previous_state: row.previous_state,
            state: row.state,
            cause: row.cause,
            attempt: row.attempt,
            token: row.token,
            worker: row.worker,
            evidence: row.evidence,
        };
        logs.entry(usize::try_from(row.ord - 1).unwrap_or_default()).or_default().push(event.event()?);
    }
    Ok(logs)
}

/// Which part of a queue's log there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Every event of the queue after this position is kept still.
    pub after: i64,
    /// The last position that was ever drawn.
    pub last: i64,
}

/// From where on a queue's log is whole. Whoever has read a page of it asks afterwards: what was erased meanwhile shows.
pub async fn log_kept(db: &Db, queue_id: i32) -> Result<Kept, StoreError> {
    let row = sqlx::query_file!("src/store/sql/log_kept.sql", queue_id).fetch_one(db.reads()).await?;
    Ok(Kept { after: row.kept_after, last: row.last })
}

/// A page of tasks as they stand in one snapshot.
pub struct SnapshotPage {
    pub live: Vec<LiveRow>,
    pub ended: Vec<EndedRow>,
    /// Those of them that have events after the position that was asked about, and where the last one of each stands.
    pub changed: BTreeMap<Uuid, i64>,
}

/// A page as `list` gives it, and what changed in it after a position.
pub async fn snapshot_page(db: &Db, filter: &ListFilter, after: i64) -> Result<SnapshotPage, StoreError> {
    let mut tx = db.begin_read().await?;
    let (live, ended) = list_within(&mut tx, filter).await?;
    let uids: Vec<Uuid> = live.iter().map(|row| row.uid).chain(ended.iter().map(|row| row.uid)).collect();
    let rows = sqlx::query_file!("src/store/sql/log_changed.sql", filter.queue_id, &uids, after).fetch_all(tx.connection()).await?;
    tx.commit().await?;
    let changed = rows.into_iter().map(|row| (row.uid, row.position)).collect();
    Ok(SnapshotPage { live, ended, changed })
}
