//! Shares and their policies.

use super::queues::rate;
use super::{Db, StoreError, Tx};
use crate::domain::budget::{Bucket, Budgets};
use crate::domain::fairness::Allowance;
use crate::domain::names::FairnessKey;
use crate::domain::share::SharePolicy;
use crate::domain::time::Timestamp;

/// What PutShare and ListShares see of a row of `shares`.
#[derive(Debug)]
pub struct SharePolicyRow {
    pub share_id: i32,
    pub fairness_key: String,
    pub weight: f64,
    pub max_in_flight: Option<i32>,
    pub rate_per_second: Option<f64>,
    pub rate_burst: Option<i32>,
    pub max_unfinished: Option<i32>,
    pub etag: i64,
}

impl SharePolicyRow {
    pub fn policy(&self) -> SharePolicy {
        SharePolicy {
            weight: self.weight,
            budgets: Budgets {
                max_in_flight: self.max_in_flight,
                rate: rate(self.rate_per_second, self.rate_burst),
                max_unfinished: self.max_unfinished,
            },
        }
    }
}

/// Makes a share with the defaults; false: it was there.
pub async fn create_share(tx: &mut Tx, queue_id: i32, key: &FairnessKey) -> Result<bool, StoreError> {
    let made = sqlx::query_file!("src/store/sql/share_create.sql", queue_id, key.as_str()).execute(tx.connection()).await?;
    Ok(made.rows_affected() > 0)
}

/// The share with this key, locked to be changed.
pub async fn find_share(tx: &mut Tx, queue_id: i32, key: &FairnessKey) -> Result<Option<SharePolicyRow>, StoreError> {
    Ok(sqlx::query_file_as!(SharePolicyRow, "src/store/sql/share_find.sql", queue_id, key.as_str())
        .fetch_optional(tx.connection())
        .await?)
}

/// Writes a share's policy. To be called with its queue's gate held alone.
pub async fn write_share(tx: &mut Tx, queue_id: i32, share_id: i32, policy: &SharePolicy, etag: i64) -> Result<(), StoreError> {
    let budgets = &policy.budgets;
    sqlx::query_file!(
        "src/store/sql/share_write.sql",
        queue_id,
        share_id,
        policy.weight,
        budgets.max_in_flight,
        budgets.rate.map(|rate| rate.per_second),
        budgets.rate.map(|rate| rate.burst),
        budgets.max_unfinished,
        etag,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Up to `limit` shares by key, from behind `after` on (absent: from the first).
pub async fn page_of_shares(db: &Db, queue_id: i32, after: Option<&str>, limit: i64) -> Result<Vec<SharePolicyRow>, StoreError> {
    Ok(sqlx::query_file_as!(SharePolicyRow, "src/store/sql/shares_page.sql", queue_id, after, limit).fetch_all(db.reads()).await?)
}

/// What budgets leave to a share.
pub struct Allowances {
    pub now: Timestamp,
    pub queue: Allowance,
    pub share: Allowance,
}

/// What budgets leave to a share and its queue right now; absent: there is no such share.
pub async fn allowances(db: &Db, queue_id: i32, share_id: i32) -> Result<Option<Allowances>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/explain_budgets.sql", queue_id, share_id).fetch_optional(db.reads()).await?;
    Ok(row.map(|r| {
        let bucket = |rate: Option<_>, level| rate.map(|rate| Bucket::at(rate, level, r.now));
        Allowances {
            now: r.now,
            queue: Allowance {
                places: places(r.max_in_flight, r.leased),
                bucket: bucket(rate(r.rate_per_second, r.rate_burst), r.rate_level.zip(r.rate_at)),
            },
            share: Allowance {
                places: places(r.share_max_in_flight, r.share_leased),
                bucket: bucket(rate(r.share_rate_per_second, r.share_rate_burst), r.share_rate_level.zip(r.share_rate_at)),
            },
        }
    }))
}

/// The places that are free under a cap.
pub(super) fn places(cap: Option<i32>, leased: i64) -> Option<usize> {
    cap.map(|cap| usize::try_from(i64::from(cap) - leased).unwrap_or(0))
}
