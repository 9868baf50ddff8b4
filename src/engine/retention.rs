//! Retention: erases what tasks leave behind once its time is over. Small transactions, one page of one queue each, and never of a task that
//! is unfinished or whose repair is open.

use std::time::Duration;

use super::{Engine, refusal_of, timed};
use crate::domain::limits::BATCH;
use crate::domain::refusal::Refusal;
use crate::domain::time::Timestamp;
use crate::store::{self, StoreError, Walk};

/// What ended less than this ago is left alone even if nothing is kept: the clock that a transaction ends a task by is read before its
/// commit, so something that ended earlier may still appear behind the walk's mark.
const SETTLED: Duration = Duration::from_secs(30);

const _: () = assert!(SETTLED.as_secs() > 2 * super::TRANSACTION.as_secs(), "no transaction is that late");

impl Engine {
    /// Erases one page of everything that is due in each queue that forgets; whether there may be more at once.
    pub async fn erase(&self) -> Result<bool, Refusal> {
        let queues = timed(store::forgetful_queues(self.db())).await.map_err(|error| refusal_of(&error))?;
        let mut more = false;
        for queue_id in queues {
            match timed(erase_once(self, queue_id)).await {
                Ok(full) => more |= full,
                // Somebody holds a row, or was faster: the next round finds it.
                Err(StoreError::Locked(_) | StoreError::Conflict(_)) => {}
                Err(error) => return Err(refusal_of(&error)),
            }
        }
        Ok(more)
    }

    /// Drops the log's partitions in which nothing is left.
    pub async fn drop_partitions(&self) -> Result<(), Refusal> {
        let dropped = timed(store::drop_partitions(self.db())).await.map_err(|error| refusal_of(&error))?;
        if dropped > 0 {
            tracing::info!(dropped, "dropped partitions of the event log that held nothing any more");
        }
        Ok(())
    }
}

/// One transaction; whether a page was full.
async fn erase_once(engine: &Engine, queue_id: i32) -> Result<bool, StoreError> {
    let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
    let mut tx = engine.db().begin().await?;
    let Some(kept) = store::take_retention(&mut tx, queue_id).await? else { return Ok(false) };
    let cut = |retention: Duration| -> Timestamp { kept.now.minus(retention.max(SETTLED)) };
    let mut full = false;
    let mut erased = 0;
    // Tasks first: what is forgotten as a whole need not be erased in parts.
    let mut forgotten = 0;
    if let Some(retention) = kept.retention.evidence {
        forgotten = store::forget_page(&mut tx, queue_id, cut(retention), limit).await?;
        full |= forgotten >= BATCH;
    }
    for walk in Walk::ALL {
        let retention = match walk {
            Walk::Payloads | Walk::RepairPayloads => kept.retention.payload,
            Walk::Results => kept.retention.result,
        };
        let Some(retention) = retention else { continue };
        let (looked, gone) = store::erase_page(&mut tx, queue_id, walk, cut(retention), limit).await?;
        full |= looked >= limit;
        erased += gone;
    }
    tx.commit().await?;
    if forgotten > 0 || erased > 0 {
        tracing::debug!(queue_id, forgotten, erased, "retention erased");
    }
    Ok(full)
}
