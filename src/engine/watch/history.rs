//! The log read for one watcher: what was before it came, and what has left the ring.

use std::sync::Arc;

use super::event::{self, TaskEvent};
use super::filter::EventFilter;
use super::hub::Topic;
use crate::domain::names::QueueName;
use crate::engine::Engine;
use crate::store::{self, StoreError};

/// Events in one page: what a watcher holds whose client reads nothing.
const PAGE: i64 = 100;
/// Positions that one page walks at most: a queue's events lie between those of all others.
const STRETCH: i64 = 20_000;

/// A page of a watcher's part of the log.
pub struct Page {
    /// In order.
    pub events: Vec<Arc<TaskEvent>>,
    /// Everything up to here has been looked at.
    pub upto: i64,
    /// Of a task's log: everything up to this revision has been.
    pub revision: i64,
    /// Events after this position are kept still.
    pub kept_after: i64,
}

/// What stands after `after` and up to `stable`, the beginning of it. `revision`: up to where a task's log has been read by an earlier page.
pub async fn page(
    engine: &Engine, queue: &QueueName, topic: &Topic, filter: &EventFilter, after: i64, revision: i64, stable: i64,
) -> Result<Page, StoreError> {
    let db = engine.db();
    let queue_id = topic.queue_id();
    let (mut rows, mut upto, mut read) = match topic {
        Topic::Task(_, uid) => {
            let rows = store::log_of_task(db, queue_id, *uid, revision, PAGE).await?;
            let full = i64::try_from(rows.len()) == Ok(PAGE);
            let last = rows.last().map_or((after, revision), |row| (row.position, row.revision));
            (rows, if full { last.0.clamp(after, stable) } else { stable }, last.1)
        }
        Topic::Share(..) | Topic::Queue(_) => {
            let end = stable.min(after.saturating_add(STRETCH));
            let rows = store::log_of_queue(db, queue_id, after, end, PAGE).await?;
            let full = i64::try_from(rows.len()) == Ok(PAGE);
            let upto = rows.last().filter(|_| full).map_or(end, |row| row.position);
            (rows, upto, revision)
        }
    };
    if rows.iter().any(|row| row.position > stable) {
        // The tail will bring it; then its revision is looked for again.
        read = rows.iter().filter(|row| row.position <= stable).map(|row| row.revision).max().unwrap_or(revision);
        upto = stable;
    }
    rows.retain(|row| row.position > after && row.position <= stable);
    let events = event::events(db, rows, |_| Some(queue), filter).await?;
    let kept = store::log_kept(db, queue_id).await?;
    Ok(Page { events, upto, revision: read, kept_after: kept.after })
}
