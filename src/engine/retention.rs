//! Retention: erases what tasks leave behind once its time is over. Small transactions, one page of one queue each, and never of a task that
//! is unfinished or whose repair is open.

use std::time::Duration;

use super::{Engine, refusal_of, timed};
use crate::domain::refusal::Refusal;
use crate::store::{self, StoreError, Walk};

/// What ended less than this ago is left alone even if nothing is kept: the clock that a transaction ends a task by is read before its
/// commit, so something that ended earlier may still appear behind the walk's mark.
const SETTLED: Duration = Duration::from_secs(30);

const _: () = assert!(SETTLED.as_secs() > 2 * super::TRANSACTION.as_secs(), "no transaction is that late");

/// How many tasks one transaction erases: so few that a claim beside it waits for little, in the processors and at the disk.
const PAGE: usize = 50;

/// Something that a queue forgets: tasks as a whole, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct Erasure {
    queue_id: i32,
    /// Absent: all that is known of a task, and its id.
    part: Option<Walk>,
}

/// How much there was to erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    Nothing,
    Some,
    /// There may be more.
    Page,
}

impl Engine {
    /// All that queues forget. Whole tasks first: what is forgotten need not be erased in parts.
    pub async fn erasures(&self) -> Result<Vec<Erasure>, Refusal> {
        let queues = timed(store::forgetful_queues(self.db())).await.map_err(|error| refusal_of(&error))?;
        let parts = || std::iter::once(None).chain(Walk::ALL.map(Some));
        Ok(queues.into_iter().flat_map(|queue_id| parts().map(move |part| Erasure { queue_id, part })).collect())
    }

    /// Erases one page.
    pub async fn erase(&self, erasure: Erasure) -> Result<Erased, Refusal> {
        match timed(erase_once(self, erasure)).await {
            // Somebody holds a row, or was faster: the next round finds it.
            Err(StoreError::Locked(_) | StoreError::Conflict(_)) => Ok(Erased::Page),
            Ok(erased) => Ok(erased),
            Err(error) => Err(refusal_of(&error)),
        }
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

/// One transaction. Where another server has the queue, that one goes on.
async fn erase_once(engine: &Engine, Erasure { queue_id, part }: Erasure) -> Result<Erased, StoreError> {
    let mut tx = engine.db().begin().await?;
    let Some(kept) = store::take_retention(&mut tx, queue_id).await? else { return Ok(Erased::Nothing) };
    let retention = match part {
        None => kept.retention.evidence,
        Some(Walk::Payloads | Walk::RepairPayloads) => kept.retention.payload,
        Some(Walk::Results) => kept.retention.result,
    };
    let Some(retention) = retention else { return Ok(Erased::Nothing) };
    let cut = kept.now.minus(retention.max(SETTLED));
    let (looked, erased) = match part {
        None => {
            let forgotten = store::forget_page(&mut tx, queue_id, cut, PAGE).await?;
            (forgotten, forgotten)
        }
        Some(walk) => store::erase_page(&mut tx, queue_id, walk, cut, PAGE).await?,
    };
    tx.commit().await?;
    if erased > 0 {
        tracing::debug!(queue_id, ?part, erased, "retention erased");
    }
    Ok(match looked {
        0 => Erased::Nothing,
        some if some < PAGE => Erased::Some,
        _ => Erased::Page,
    })
}
