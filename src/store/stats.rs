//! Counts for people who operate queues. All statements of one count share a snapshot, so its figures belong together.

use std::time::Duration;

use super::{Db, StoreError, Tx};
use crate::domain::time::Timestamp;

/// A count under way.
pub struct Count {
    tx: Tx,
    queue_id: i32,
    pub now: Timestamp,
    pub virtual_time: f64,
    /// The number of the latest event.
    pub position: i64,
}

/// Unfinished tasks of one share in one state.
pub struct LiveCount {
    pub share_id: i32,
    pub state: String,
    pub count: i64,
    pub oldest: Timestamp,
    /// The highest cost among them.
    pub cost: i32,
    /// Leases that have ended and are not yet recovered.
    pub expired: i64,
}

pub struct ShareRow {
    pub share_id: i32,
    pub fairness_key: String,
    pub weight: f64,
    pub tag: f64,
}

/// One event of the window.
pub struct Recent {
    pub fairness_key: String,
    pub cost: i32,
    pub kind: String,
    pub state: String,
    pub error_class: Option<String>,
    /// Of first leases.
    pub since_acceptance: Option<Duration>,
    /// Of ends of attempts.
    pub since_lease: Option<Duration>,
}

fn span(us: Option<i64>) -> Option<Duration> {
    us.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)))
}

impl Count {
    pub async fn begin(db: &Db, queue_id: i32) -> Result<Count, StoreError> {
        let mut tx = db.begin_read().await?;
        let row = sqlx::query_file!("src/store/sql/stats_begin.sql", queue_id).fetch_one(tx.connection()).await?;
        Ok(Count { tx, queue_id, now: row.now, virtual_time: row.virtual_time, position: row.position })
    }

    pub async fn live(&mut self) -> Result<Vec<LiveCount>, StoreError> {
        let rows = sqlx::query_file_as!(LiveCount, "src/store/sql/stats_live.sql", self.queue_id, self.now as _);
        Ok(rows.fetch_all(self.tx.connection()).await?)
    }

    pub async fn shares(&mut self, ids: &[i32]) -> Result<Vec<ShareRow>, StoreError> {
        let rows = sqlx::query_file_as!(ShareRow, "src/store/sql/stats_shares.sql", ids);
        Ok(rows.fetch_all(self.tx.connection()).await?)
    }

    /// By share and target, of at most `limit` unfinished tasks.
    pub async fn targets(&mut self, limit: i64) -> Result<Vec<(i32, String, i64)>, StoreError> {
        let rows =
            sqlx::query_file!("src/store/sql/stats_targets.sql", self.queue_id, limit).fetch_all(self.tx.connection()).await?;
        Ok(rows.into_iter().map(|row| (row.share_id, row.target, row.count)).collect())
    }

    /// Finished tasks by state, and all of them under no name; no count goes beyond `limit`.
    pub async fn ended(&mut self, limit: i64) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = sqlx::query_file!("src/store/sql/stats_ended.sql", self.queue_id, limit).fetch_all(self.tx.connection()).await?;
        Ok(rows.into_iter().map(|row| (row.state, row.count)).collect())
    }

    /// Open repairs by fairness key and cause.
    pub async fn repairs(&mut self, limit: i64) -> Result<Vec<(String, String, i64)>, StoreError> {
        let rows =
            sqlx::query_file!("src/store/sql/stats_repairs.sql", self.queue_id, limit).fetch_all(self.tx.connection()).await?;
        Ok(rows.into_iter().map(|row| (row.fairness_key, row.cause, row.count)).collect())
    }

    /// When the first event after `position` happened; absent: there is none.
    pub async fn first_after(&mut self, position: i64) -> Result<Option<Timestamp>, StoreError> {
        let row = sqlx::query_file!("src/store/sql/stats_since.sql", position).fetch_optional(self.tx.connection()).await?;
        Ok(row.map(|row| row.time))
    }

    /// The queue's events after both.
    pub async fn window(&mut self, position: i64, since: Timestamp) -> Result<Vec<Recent>, StoreError> {
        let rows = sqlx::query_file!("src/store/sql/stats_window.sql", self.queue_id, position, since as _);
        let rows = rows.fetch_all(self.tx.connection()).await?;
        let recent = rows.into_iter().map(|row| Recent {
            fairness_key: row.fairness_key,
            cost: row.cost,
            kind: row.kind,
            state: row.state,
            error_class: row.error_class,
            since_acceptance: span(row.since_acceptance_us),
            since_lease: span(row.since_lease_us),
        });
        Ok(recent.collect())
    }

    pub async fn end(self) -> Result<(), StoreError> {
        self.tx.commit().await
    }
}
