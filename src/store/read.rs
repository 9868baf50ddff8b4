//! Reads that no decision depends on.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::Value;
use sqlx::PgExecutor;
use sqlx::types::Json;
use uuid::Uuid;

use super::rows::{EndedRow, EventRow, LiveRow, SummaryRow};
use super::{Db, StoreError, Tx};
use crate::domain::event::{Event, Evidence};
use crate::domain::names::TaskId;
use crate::domain::record::Repair;
use crate::domain::task::Notes;
use crate::domain::time::Timestamp;

/// The logs of some tasks, each in order of revision.
pub async fn events_of_tasks(
    at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<Event>>, StoreError> {
    let rows = sqlx::query_file_as!(EventRow, "src/store/sql/events_by_task.sql", queues, uids).fetch_all(at).await?;
    by_task(rows)
}

/// The last `length` events of each task's log, in order of revision.
pub async fn log_tails(tx: &mut Tx, queues: &[i32], uids: &[Uuid], length: i64) -> Result<HashMap<Uuid, Vec<Event>>, StoreError> {
    let rows =
        sqlx::query_file_as!(EventRow, "src/store/sql/events_tail.sql", queues, uids, length).fetch_all(tx.connection()).await?;
    by_task(rows)
}

fn by_task(rows: Vec<EventRow>) -> Result<HashMap<Uuid, Vec<Event>>, StoreError> {
    let mut logs: HashMap<Uuid, Vec<Event>> = HashMap::new();
    for row in rows {
        logs.entry(row.uid).or_default().push(row.event()?);
    }
    Ok(logs)
}

/// The log of one task's attempts from `first` to `last`.
pub async fn events_page(db: &Db, queue_id: i32, uid: Uuid, first: i32, last: i32) -> Result<Vec<Event>, StoreError> {
    let rows =
        sqlx::query_file_as!(EventRow, "src/store/sql/events_page.sql", queue_id, uid, first, last).fetch_all(db.reads()).await?;
    rows.into_iter().map(EventRow::event).collect()
}

/// The latest revision in each finished task's log.
pub async fn late_revisions(tx: &mut Tx, queues: &[i32], uids: &[Uuid]) -> Result<HashMap<Uuid, i64>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/late_revisions.sql", queues, uids).fetch_all(tx.connection()).await?;
    Ok(rows.into_iter().filter_map(|row| Some((row.uid, row.revision?))).collect())
}

/// Payloads that are kept still; the others are not among the answers.
pub async fn payloads_of(at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid]) -> Result<HashMap<Uuid, Bytes>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/payloads_by_uid.sql", queues, uids).fetch_all(at).await?;
    Ok(rows.into_iter().map(|row| (row.uid, Bytes::from(row.payload))).collect())
}

/// Results that are kept still.
pub async fn results_of(db: &Db, queues: &[i32], uids: &[Uuid]) -> Result<HashMap<Uuid, Bytes>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/results_by_uid.sql", queues, uids).fetch_all(db.reads()).await?;
    Ok(rows.into_iter().map(|row| (row.uid, Bytes::from(row.result))).collect())
}

pub async fn repairs_of(db: &Db, queues: &[i32], uids: &[Uuid]) -> Result<HashMap<Uuid, Repair>, StoreError> {
    let rows = sqlx::query_file_as!(SummaryRow, "src/store/sql/repairs_by_uid.sql", queues, uids).fetch_all(db.reads()).await?;
    rows.into_iter().map(|row| Ok((row.uid, row.repair()?))).collect()
}

/// Which tasks a list is of; absent parts ask for nothing.
#[derive(Clone, Debug)]
pub struct ListFilter {
    pub queue_id: i32,
    /// The page goes on below this uid.
    pub below: Uuid,
    pub states: Vec<String>,
    pub kind: Option<String>,
    pub target: Option<String>,
    pub event_id: Option<String>,
    pub fairness_key: Option<String>,
    pub ordering_key: Option<String>,
    pub worker: Option<String>,
    pub labels: Option<Value>,
    pub subject_id: Option<String>,
    pub limit: i64,
}

/// Unfinished and finished tasks of one snapshot, each list by uid, the newest first, and at most `limit` long.
pub async fn list(db: &Db, f: &ListFilter) -> Result<(Vec<LiveRow>, Vec<EndedRow>), StoreError> {
    let mut tx = db.begin_read().await?;
    let listed = list_within(&mut tx, f).await?;
    tx.commit().await?;
    Ok(listed)
}

/// `list`, in a read transaction that has more to read.
pub(super) async fn list_within(tx: &mut Tx, f: &ListFilter) -> Result<(Vec<LiveRow>, Vec<EndedRow>), StoreError> {
    let live = list_live(tx, f, false).await?;
    let ended = sqlx::query_file_as!(
        EndedRow,
        "src/store/sql/list_ended.sql",
        f.queue_id,
        f.below,
        &f.states,
        f.kind,
        f.target,
        f.event_id,
        f.fairness_key,
        f.ordering_key,
        f.worker,
        f.labels,
        f.subject_id,
        f.limit
    );
    let ended = ended.fetch_all(tx.connection()).await?;
    Ok((live, ended))
}

/// The unfinished tasks of such a list that were not told to stop yet.
pub async fn list_untold(db: &Db, f: &ListFilter) -> Result<Vec<LiveRow>, StoreError> {
    let mut tx = db.begin_read().await?;
    let rows = list_live(&mut tx, f, true).await?;
    tx.commit().await?;
    Ok(rows)
}

async fn list_live(tx: &mut Tx, f: &ListFilter, untold: bool) -> Result<Vec<LiveRow>, StoreError> {
    let rows = sqlx::query_file_as!(
        LiveRow,
        "src/store/sql/list_live.sql",
        f.queue_id,
        f.below,
        &f.states,
        f.kind,
        f.target,
        f.event_id,
        f.fairness_key,
        f.ordering_key,
        f.worker,
        f.labels,
        f.subject_id,
        f.limit,
        untold
    );
    Ok(rows.fetch_all(tx.connection()).await?)
}

/// A task that time alone has moved.
#[derive(Clone, Copy, Debug)]
pub struct DueTask {
    pub queue_id: i32,
    pub uid: Uuid,
    /// When its lease ends, if it is leased.
    pub lease_expire: Option<Timestamp>,
}

/// What time alone does.
pub struct DueLook {
    /// The database's clock.
    pub now: Timestamp,
    /// The next moment at which time alone changes a task; absent: none waits for time.
    pub due: Option<Timestamp>,
    /// What it has moved by now, the longest overdue first.
    pub tasks: Vec<DueTask>,
}

/// At most `limit` tasks, as if those set aside were not there: nobody waits for them.
pub async fn look_at_due(db: &Db, aside: &[Uuid], limit: i64) -> Result<DueLook, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/due_look.sql", aside, limit).fetch_all(db.reads()).await?;
    let (now, due) = rows.first().map(|row| (row.now, row.due)).ok_or_else(StoreError::silent)?;
    let tasks = rows
        .into_iter()
        .filter_map(|row| Some(DueTask { queue_id: row.queue_id?, uid: row.uid?, lease_expire: row.lease_expire }))
        .collect();
    Ok(DueLook { now, due, tasks })
}

/// How many READY tasks of the share go before this place; counted up to 10,000.
pub async fn ahead_in_share(db: &Db, row: &LiveRow) -> Result<i64, StoreError> {
    let found = sqlx::query_file!("src/store/sql/explain_ahead.sql", row.share_id, row.rank, row.position);
    Ok(found.fetch_one(db.reads()).await?.ahead)
}

/// Who keeps an ordering key, and how many BLOCKED tasks of it stand before a position.
pub struct KeyHead {
    pub task_id: Option<TaskId>,
    pub uid: Uuid,
    pub state: String,
    pub ahead: i64,
}

pub async fn key_head(db: &Db, key_id: i64, position: i64) -> Result<Option<KeyHead>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/explain_head.sql", key_id, position).fetch_optional(db.reads()).await?;
    Ok(row.map(|row| KeyHead { task_id: TaskId::parse(&row.task_id).ok(), uid: row.uid, state: row.state, ahead: row.ahead }))
}

/// The open repair that holds an ordering key against a position, if one does.
pub async fn key_hold(db: &Db, key_id: i64, position: i64) -> Result<Option<(String, Uuid)>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/explain_hold.sql", key_id, position).fetch_optional(db.reads()).await?;
    Ok(row.map(|row| (row.task_id, row.uid)))
}
