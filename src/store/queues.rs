//! Queues and their policies.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgExecutor;

use super::pool::GATE;
use super::{Db, StoreError, Tx};
use crate::domain::budget::{Budgets, Rate};
use crate::domain::names::QueueName;
use crate::domain::queue::{OnRepair, OnUnknown, Policy, Retention};
use crate::domain::retry::RetryPolicy;
use crate::domain::time::{Timestamp, micros};

/// A row of `queues`.
#[derive(Debug)]
pub struct QueueRow {
    pub queue_id: i32,
    pub name: String,
    pub boundary: String,
    pub paused: bool,
    pub on_unknown: String,
    pub on_repair: String,
    pub max_attempts: i32,
    pub initial_backoff_us: i64,
    pub max_backoff_us: i64,
    pub multiplier: f64,
    pub jitter: f64,
    pub default_ttl_us: i64,
    pub lease_us: i64,
    pub priority_step_us: i64,
    pub deadline_margin_us: i64,
    pub payload_retention_us: Option<i64>,
    pub result_retention_us: Option<i64>,
    pub evidence_retention_us: Option<i64>,
    pub stalled: Option<Timestamp>,
    pub max_in_flight: Option<i32>,
    pub rate_per_second: Option<f64>,
    pub rate_burst: Option<i32>,
    pub max_unfinished: Option<i32>,
    pub etag: i64,
}

/// A rate of two columns, which the schema keeps together.
pub(super) fn rate(per_second: Option<f64>, burst: Option<i32>) -> Option<Rate> {
    per_second.zip(burst).map(|(per_second, burst)| Rate { per_second, burst })
}

fn span(us: i64) -> Duration {
    Duration::from_micros(us.unsigned_abs())
}

impl QueueRow {
    pub fn policy(self) -> Policy {
        Policy {
            boundary: self.boundary,
            paused: self.paused,
            // The schema's CHECKs admit nothing else than these names.
            on_unknown: OnUnknown::parse(&self.on_unknown).unwrap_or(OnUnknown::Repair),
            on_repair: OnRepair::parse(&self.on_repair).unwrap_or(OnRepair::Hold),
            retry: RetryPolicy {
                max_attempts: self.max_attempts,
                initial_backoff: span(self.initial_backoff_us),
                max_backoff: span(self.max_backoff_us),
                multiplier: self.multiplier,
                jitter: self.jitter,
            },
            default_ttl: span(self.default_ttl_us),
            lease_duration: span(self.lease_us),
            priority_step: span(self.priority_step_us),
            deadline_margin: span(self.deadline_margin_us),
            retention: Retention {
                payload: self.payload_retention_us.map(span),
                result: self.result_retention_us.map(span),
                evidence: self.evidence_retention_us.map(span),
            },
            stalled: self.stalled,
            budgets: Budgets {
                max_in_flight: self.max_in_flight,
                rate: rate(self.rate_per_second, self.rate_burst),
                max_unfinished: self.max_unfinished,
            },
        }
    }
}

/// The queue of that name; absent if nobody has named it yet.
pub async fn find_queue(at: impl PgExecutor<'_>, name: &QueueName) -> Result<Option<QueueRow>, StoreError> {
    Ok(sqlx::query_file_as!(QueueRow, "src/store/sql/queue_find.sql", name.as_str()).fetch_optional(at).await?)
}

/// Makes a queue with the defaults; false: it was there.
pub async fn create_queue(at: impl PgExecutor<'_>, name: &QueueName) -> Result<bool, StoreError> {
    Ok(sqlx::query_file!("src/store/sql/queue_create.sql", name.as_str()).execute(at).await?.rows_affected() > 0)
}

/// Holds the queue's gate alone until this transaction ends: no claim of it runs meanwhile. False: there is no such queue.
pub async fn lock_gate(tx: &mut Tx, name: &QueueName) -> Result<bool, StoreError> {
    let locked = sqlx::query_file!("src/store/sql/queue_gate.sql", GATE, name.as_str()).fetch_optional(tx.connection()).await?;
    Ok(locked.is_some())
}

/// Writes a queue's policy. To be called with its gate held alone.
pub async fn write_policy(tx: &mut Tx, queue_id: i32, policy: &Policy, etag: i64) -> Result<(), StoreError> {
    let retry = &policy.retry;
    sqlx::query_file!(
        "src/store/sql/queue_write.sql",
        queue_id,
        policy.boundary,
        policy.paused,
        policy.on_unknown.as_str(),
        policy.on_repair.as_str(),
        retry.max_attempts,
        micros(retry.initial_backoff),
        micros(retry.max_backoff),
        retry.multiplier,
        retry.jitter,
        micros(policy.default_ttl),
        micros(policy.lease_duration),
        micros(policy.priority_step),
        micros(policy.deadline_margin),
        policy.budgets.max_in_flight,
        policy.budgets.rate.map(|rate| rate.per_second),
        policy.budgets.rate.map(|rate| rate.burst),
        policy.budgets.max_unfinished,
        etag,
        policy.retention.payload.map(micros),
        policy.retention.result.map(micros),
        policy.retention.evidence.map(micros),
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Up to `limit` queues by name, from behind `after` on (empty: from the first).
pub async fn page_of_queues(db: &Db, after: &str, limit: i64) -> Result<Vec<QueueRow>, StoreError> {
    Ok(sqlx::query_file_as!(QueueRow, "src/store/sql/queues_page.sql", after, limit).fetch_all(db.reads()).await?)
}

/// What a transaction knows once it holds all its locks.
pub struct Moment {
    /// Its one reading of the clock.
    pub now: Timestamp,
    /// The policies of its queues.
    pub policies: Policies,
    /// The numbers that it asked for, rising.
    pub drawn: Vec<i64>,
}

/// Policies by queue, with the queue's name.
pub type Policies = HashMap<i32, (QueueName, Policy)>;

/// Numbers that a transaction hands out.
pub enum Draw {
    Nothing,
    /// Fencing tokens, in the order in which they will be handed out.
    Tokens(usize),
    /// Places in the order of acceptance.
    Positions(usize),
}

/// To be called after the last lock. CONFLICT where the database is another one than it was: the numbers have leapt by then, and the
/// transaction, which has ended, can start over.
pub async fn moment(tx: &mut Tx, queues: &[i32], draw: Draw) -> Result<Moment, StoreError> {
    let (sequence, count) = match draw {
        Draw::Nothing => ("positions", 0),
        Draw::Tokens(count) => ("fencing_tokens", count),
        Draw::Positions(count) => ("positions", count),
    };
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    let rows = sqlx::query_file!("src/store/sql/moment.sql", queues, sequence, count).fetch_all(tx.connection()).await?;
    if rows.iter().any(|row| !row.same_database) {
        return Err(tx.follow_lineage().await?);
    }
    let (mut now, mut drawn) = (None, Vec::new());
    let mut policies = HashMap::with_capacity(queues.len());
    for r in rows {
        (now, drawn) = (Some(r.now), r.drawn);
        let Some(queue_id) = r.queue_id else { continue };
        let row = QueueRow {
            queue_id,
            name: r.name.unwrap_or_default(),
            boundary: r.boundary.unwrap_or_default(),
            paused: r.paused.unwrap_or_default(),
            on_unknown: r.on_unknown.unwrap_or_default(),
            on_repair: r.on_repair.unwrap_or_default(),
            max_attempts: r.max_attempts.unwrap_or_default(),
            initial_backoff_us: r.initial_backoff_us.unwrap_or_default(),
            max_backoff_us: r.max_backoff_us.unwrap_or_default(),
            multiplier: r.multiplier.unwrap_or_default(),
            jitter: r.jitter.unwrap_or_default(),
            default_ttl_us: r.default_ttl_us.unwrap_or_default(),
            lease_us: r.lease_us.unwrap_or_default(),
            priority_step_us: r.priority_step_us.unwrap_or_default(),
            deadline_margin_us: r.deadline_margin_us.unwrap_or_default(),
            payload_retention_us: r.payload_retention_us,
            result_retention_us: r.result_retention_us,
            evidence_retention_us: r.evidence_retention_us,
            stalled: r.stalled,
            max_in_flight: r.max_in_flight,
            rate_per_second: r.rate_per_second,
            rate_burst: r.rate_burst,
            max_unfinished: r.max_unfinished,
            etag: r.etag.unwrap_or_default(),
        };
        let name = QueueName::parse(&row.name).map_err(|e| StoreError::Data(sqlx::Error::Decode(e.into())))?;
        policies.insert(queue_id, (name, row.policy()));
    }
    let now = now.ok_or(StoreError::Bug(sqlx::Error::RowNotFound))?;
    Ok(Moment { now, policies, drawn })
}

#[cfg(test)]
mod tests;
