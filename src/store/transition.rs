//! Locks and look-ups of the transition transaction.

use std::collections::{BTreeSet, HashSet};

use bytes::Bytes;
use sqlx::PgExecutor;
use sqlx::types::Json;
use uuid::Uuid;

use super::rows::{EndedRow, LiveRow, SpecRow};
use super::{Db, StoreError, Tx};
use crate::domain::event::Evidence;
use crate::domain::spec::Options;
use crate::domain::task::Notes;
use crate::domain::time::Timestamp;

/// Locks unfinished tasks in the one order; those that are not unfinished any more are left out.
pub async fn lock_live(tx: &mut Tx, queues: &[i32], uids: &[Uuid]) -> Result<Vec<LiveRow>, StoreError> {
    Ok(sqlx::query_file_as!(LiveRow, "src/store/sql/lock_live.sql", queues, uids).fetch_all(tx.connection()).await?)
}

/// Locks finished tasks, to keep late evidence on them.
pub async fn lock_tasks(tx: &mut Tx, uids: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/lock_tasks.sql", uids).fetch_all(tx.connection()).await?;
    Ok(())
}

pub async fn live_by_uid(at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid]) -> Result<Vec<LiveRow>, StoreError> {
    Ok(sqlx::query_file_as!(LiveRow, "src/store/sql/live_by_uid.sql", queues, uids).fetch_all(at).await?)
}

pub async fn ended_by_uid(at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid]) -> Result<Vec<EndedRow>, StoreError> {
    Ok(sqlx::query_file_as!(EndedRow, "src/store/sql/ended_by_uid.sql", queues, uids).fetch_all(at).await?)
}

pub async fn specs_by_uid(at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid]) -> Result<Vec<SpecRow>, StoreError> {
    Ok(sqlx::query_file_as!(SpecRow, "src/store/sql/specs_by_uid.sql", queues, uids).fetch_all(at).await?)
}

/// What was asked of tasks of a queue, with their payloads. Absent: erased.
pub async fn specs_in_full(tx: &mut Tx, queue_id: i32, uids: &[Uuid]) -> Result<Vec<(SpecRow, Option<Bytes>)>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/specs_in_full.sql", queue_id, uids).fetch_all(tx.connection()).await?;
    let whole = rows.into_iter().map(|row| {
        let spec = SpecRow {
            queue_id: row.queue_id,
            uid: row.uid,
            task_id: row.task_id,
            kind: row.kind,
            content_type: row.content_type,
            target: row.target,
            event_id: row.event_id,
            fairness_key: row.fairness_key,
            ordering_key: row.ordering_key,
            cost: row.cost,
            priority: row.priority,
            subjects: row.subjects,
            labels: row.labels,
            options: row.options,
            digest: row.digest,
        };
        (spec, row.payload.map(Bytes::from))
    });
    Ok(whole.collect())
}

pub async fn specs_by_id(at: impl PgExecutor<'_>, queues: &[i32], ids: &[String]) -> Result<Vec<SpecRow>, StoreError> {
    Ok(sqlx::query_file_as!(SpecRow, "src/store/sql/specs_by_id.sql", queues, ids).fetch_all(at).await?)
}

/// Which of these unfinished tasks somebody else holds right now.
pub async fn held_by_others(db: &Db, tasks: &[(i32, Uuid)]) -> Result<BTreeSet<Uuid>, StoreError> {
    let (queues, uids): (Vec<i32>, Vec<Uuid>) = tasks.iter().copied().unzip();
    let mut tx = db.begin().await?;
    let free = sqlx::query_file!("src/store/sql/probe_live.sql", &queues, &uids).fetch_all(tx.connection()).await?;
    let there = live_by_uid(tx.connection(), &queues, &uids).await?;
    tx.commit().await?;
    let free: HashSet<Uuid> = free.into_iter().map(|row| row.uid).collect();
    Ok(there.into_iter().map(|row| row.uid).filter(|uid| !free.contains(uid)).collect())
}
