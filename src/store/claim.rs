//! Statements of the claim transaction.

use sqlx::types::Json;
use uuid::Uuid;

use super::dispatch::Spot;
use super::rows::LiveRow;
use super::{Db, StoreError, Tx};
use crate::domain::task::Notes;
use crate::domain::time::Timestamp;

/// Makes calls that repeat one `request_id` take turns until this transaction ends.
pub async fn lock_claims(tx: &mut Tx, claims: &[Uuid]) -> Result<(), StoreError> {
    let ids: Vec<i64> = claims.iter().map(|claim| claim.as_u64_pair().0.cast_signed()).collect();
    sqlx::query_file!("src/store/sql/claim_lock_ids.sql", &ids).execute(tx.connection()).await?;
    Ok(())
}

/// Leases of earlier calls with these claim ids, locked; some may have run out. To be called after `lock_claims`.
pub async fn claimed_before(tx: &mut Tx, claims: &[Uuid]) -> Result<Vec<LiveRow>, StoreError> {
    Ok(sqlx::query_file_as!(LiveRow, "src/store/sql/claimed_before.sql", claims).fetch_all(tx.connection()).await?)
}

/// Makes the calls (in the order of `uids`) the holders of leases that they are answered with again.
pub async fn restamp(tx: &mut Tx, queue_id: i32, uids: &[Uuid], calls: &[Uuid]) -> Result<(), StoreError> {
    let queues = vec![queue_id; uids.len()];
    sqlx::query_file!("src/store/sql/claim_restamp.sql", &queues, uids, calls).execute(tx.connection()).await?;
    Ok(())
}

/// What a claim goes by before it picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing can be leased: the queue is paused, or no share may have READY tasks.
    Nothing,
    /// One share is awake, and neither it nor the queue has a budget.
    Lone(i32),
    /// Shares have to be compared, or budgets counted, under the dispatch lock.
    Contested,
}

/// Looks at the queue and its first two shares. The gate keeps the policies as they are until the claim ends.
pub async fn outlook(tx: &mut Tx, queue_id: i32) -> Result<Outlook, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/claim_shares.sql", queue_id).fetch_all(tx.connection()).await?;
    let Some(queue) = rows.first().filter(|queue| !queue.paused) else { return Ok(Outlook::Nothing) };
    let awake: Vec<(i32, bool)> = rows.iter().filter_map(|r| r.share_id.zip(r.share_bounded)).collect();
    Ok(match awake.as_slice() {
        [] if !queue.parked => Outlook::Nothing,
        [(only, false)] if !queue.parked && !queue.bounded => Outlook::Lone(*only),
        _ => Outlook::Contested,
    })
}

/// Locks up to `limit` READY tasks of a share from a place in its line on, the next ones first; passes over what others hold, and over
/// `overdue`.
pub async fn pick(tx: &mut Tx, share_id: i32, from: Spot, overdue: &[Uuid], limit: i64) -> Result<Vec<LiveRow>, StoreError> {
    Ok(sqlx::query_file_as!(LiveRow, "src/store/sql/claim_pick.sql", share_id, overdue, limit, from.0, from.1)
        .fetch_all(tx.connection())
        .await?)
}

/// Of some places in shares' lines (queue, share, place): the queue and rank of the first READY task in front of it, where there is one
/// that is not among the `unread`.
pub async fn in_front(db: &Db, places: &[(i32, i32, Spot)], unread: &[Uuid]) -> Result<Vec<(i32, i64)>, StoreError> {
    let (queues, shares): (Vec<i32>, Vec<i32>) = places.iter().map(|(queue_id, share_id, _)| (*queue_id, *share_id)).unzip();
    let (ranks, positions): (Vec<i64>, Vec<i64>) = places.iter().map(|(_, _, spot)| *spot).unzip();
    let rows =
        sqlx::query_file!("src/store/sql/claim_in_front.sql", &queues, &shares, &ranks, &positions, unread).fetch_all(db.reads());
    Ok(rows.await?.into_iter().map(|row| (row.queue_id, row.rank)).collect())
}

/// Returns once everything that committed before it is on disk.
pub async fn barrier(db: &Db) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/barrier.sql").fetch_one(db.reads()).await?;
    Ok(())
}
