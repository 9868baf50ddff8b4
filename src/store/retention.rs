//! Retention: what has ended is erased in pages, each in a transaction of its own.

use std::time::Duration;

use uuid::Uuid;

use super::pool::RETENTION;
use super::{Db, StoreError, Tx};
use crate::domain::queue::Retention;
use crate::domain::time::Timestamp;

/// The queues that forget anything at all.
pub async fn forgetful_queues(db: &Db) -> Result<Vec<i32>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/retention_queues.sql").fetch_all(db.reads()).await?;
    Ok(rows.into_iter().map(|row| row.queue_id).collect())
}

/// What a queue keeps for how long, and the transaction's reading of the clock.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    pub now: Timestamp,
    pub retention: Retention,
}

/// Takes the queue's retention for this transaction; absent: another server has it, or there is no such queue.
pub async fn take_retention(tx: &mut Tx, queue_id: i32) -> Result<Option<Keeping>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/retention_begin.sql", RETENTION, queue_id).fetch_optional(tx.connection()).await?;
    let span = |us: i64| Duration::from_micros(us.unsigned_abs());
    Ok(row.filter(|row| row.taken).map(|row| Keeping {
        now: row.now,
        retention: Retention {
            payload: row.payload_retention_us.map(span),
            result: row.result_retention_us.map(span),
            evidence: row.evidence_retention_us.map(span),
        },
    }))
}

/// What is erased along which walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Payloads of tasks that have ended, except of those that needed repair.
    Payloads,
    Results,
    /// Payloads of tasks whose repairs were resolved.
    RepairPayloads,
}

impl Walk {
    pub const ALL: [Walk; 3] = [Walk::Payloads, Walk::Results, Walk::RepairPayloads];

    fn name(self) -> &'static str {
        match self {
            Walk::Payloads => "PAYLOAD",
            Walk::Results => "RESULT",
            Walk::RepairPayloads => "REPAIR_PAYLOAD",
        }
    }
}

#[derive(Debug)]
struct PageRow {
    ended: Timestamp,
    uid: Uuid,
    looked: i64,
    erased: i64,
}

/// Erases the next page of what ended by `cut`, and moves the walk's mark: how many ended tasks it looked at, and how much it erased.
pub async fn erase_page(
    tx: &mut Tx, queue_id: i32, walk: Walk, cut: Timestamp, limit: usize,
) -> Result<(usize, usize), StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mark = sqlx::query_file!("src/store/sql/retention_mark.sql", queue_id, walk.name()).fetch_optional(tx.connection()).await?;
    let (ended, uid) = mark.map_or((Timestamp(i64::MIN), Uuid::nil()), |mark| (mark.ended, mark.uid));
    let at = tx.connection();
    let page = match walk {
        Walk::Payloads => {
            let page =
                sqlx::query_file_as!(PageRow, "src/store/sql/retention_payloads.sql", queue_id, ended as _, uid, cut as _, limit);
            page.fetch_optional(at).await?
        }
        Walk::Results => {
            let page =
                sqlx::query_file_as!(PageRow, "src/store/sql/retention_results.sql", queue_id, ended as _, uid, cut as _, limit);
            page.fetch_optional(at).await?
        }
        Walk::RepairPayloads => {
            let page =
                sqlx::query_file_as!(PageRow, "src/store/sql/retention_repairs.sql", queue_id, ended as _, uid, cut as _, limit);
            page.fetch_optional(at).await?
        }
    };
    let Some(page) = page else { return Ok((0, 0)) };
    sqlx::query_file!("src/store/sql/retention_mark_set.sql", queue_id, walk.name(), page.ended as _, page.uid)
        .execute(tx.connection())
        .await?;
    let count = |rows: i64| usize::try_from(rows).unwrap_or(0);
    Ok((count(page.looked), count(page.erased)))
}

/// Forgets a page of tasks that ended by `cut`, with all that is known of them; how many.
pub async fn forget_page(tx: &mut Tx, queue_id: i32, cut: Timestamp, limit: usize) -> Result<usize, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = sqlx::query_file!("src/store/sql/retention_forgettable.sql", queue_id, cut as _, limit);
    let uids: Vec<Uuid> = rows.fetch_all(tx.connection()).await?.into_iter().map(|row| row.uid).collect();
    if !uids.is_empty() {
        sqlx::query_file!("src/store/sql/retention_forget.sql", queue_id, &uids).execute(tx.connection()).await?;
    }
    Ok(uids.len())
}
