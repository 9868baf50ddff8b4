//! Watch: a watcher shows tasks as they stand, then every event once, in order per task, from a cursor that any server understands.
//!
//! `tail` reads the log's end once for all, `hub` is where it meets the watchers, `history` and `snapshot` read for one of them. What may be
//! passed on, and when, is `domain/frontier.rs`'s.

mod event;
mod filter;
mod history;
mod hub;
mod place;
mod snapshot;
mod tail;
mod watcher;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::transition::no_task;
use super::{Engine, TaskFilter, TaskRef, refusal_of, timed};
use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::store;

pub use event::TaskEvent;
pub use hub::Hub;
pub use tail::TailPlace;
pub use watcher::Watcher;

use filter::EventFilter;
use hub::Topic;
use snapshot::Snapshot;

/// What to watch.
#[derive(Clone, Debug)]
pub enum Watched {
    Task(TaskRef),
    Tasks(QueueName, TaskFilter),
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With the tasks as they stand.
    Snapshot,
    /// With the next event.
    Now,
    /// With the first event after this position.
    After(i64),
}

#[derive(Clone, Debug)]
pub struct WatchCommand {
    pub watched: Watched,
    pub begin: Begin,
    /// End once the task has. Only with one task.
    pub until_terminal: bool,
    /// How long the watch may be silent.
    pub bookmark_interval: Duration,
}

/// One thing that a watcher is shown. Cursors: everything up to this position was delivered.
#[derive(Debug)]
pub enum Sight {
    Task(Box<Task>),
    /// The snapshot is complete.
    SnapshotDone(i64),
    Event(Arc<TaskEvent>),
    /// Nothing happened.
    Bookmark(i64),
}

impl Engine {
    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    /// How many watches are open on this server.
    pub fn watchers(&self) -> usize {
        self.hub().watchers()
    }

    /// Opens a watch. What happens after this returned is seen.
    pub async fn watch(&self, command: WatchCommand) -> Result<Watcher, Refusal> {
        tokio::select! {
            biased;
            () = self.0.drain.cancelled() => Err(Refusal::Draining),
            opened = self.open_watch(command) => opened,
        }
    }

    async fn open_watch(&self, command: WatchCommand) -> Result<Watcher, Refusal> {
        let (queue, found) = match &command.watched {
            Watched::Task(task) => (task.queue.clone(), Some(self.find(task).await?.1)),
            Watched::Tasks(queue, _) => (queue.clone(), None),
        };
        let queue_id = match &command.watched {
            Watched::Task(task) => self.known_queue(&queue).await.map_err(|refusal| no_task(refusal, task))?,
            Watched::Tasks(..) => self.known_queue(&queue).await?,
        };
        let (topic, filter, picked) = match command.watched {
            Watched::Tasks(_, picked) => {
                let topic = match &picked.fairness_key {
                    Some(key) => Topic::Share(queue_id, key.clone()),
                    None => Topic::Queue(queue_id),
                };
                (topic, EventFilter::of(&picked), picked)
            }
            Watched::Task(_) => {
                let uid = found.as_ref().map(|task| task.uid).unwrap_or_default();
                (Topic::Task(queue_id, uid), EventFilter::all(), TaskFilter::default())
            }
        };
        // Before the position is found out: what happens in between is marked.
        let seat = self.hub().join(&queue, topic, filter, self.0.settings.watchers)?;
        let begin = self.beginning(queue_id, command.begin).await?;
        let mut watcher = Watcher::new(self, seat, queue.clone(), begin, command.bookmark_interval, command.until_terminal);
        match (command.begin, found) {
            (Begin::Snapshot, None) => watcher.show(Snapshot::new(queue_id, queue, picked, begin)),
            (Begin::Snapshot, Some(_)) => self.show_task(&mut watcher, queue_id, queue, begin).await?,
            (_, Some(task)) if command.until_terminal && task.standing.state().terminal() => {
                let last = timed(store::log_task_end(self.db(), queue_id, task.uid)).await.map_err(|error| refusal_of(&error))?;
                if last.is_none_or(|last| last <= begin) {
                    watcher.end();
                }
            }
            _ => {}
        }
        Ok(watcher)
    }

    /// The position after which events are delivered.
    async fn beginning(&self, queue_id: i32, begin: Begin) -> Result<i64, Refusal> {
        match begin {
            Begin::Snapshot => self.hub().stable_at(0).await,
            Begin::Now => {
                let end = timed(store::log_end(self.db())).await.map_err(|error| refusal_of(&error))?;
                self.hub().stable_at(end).await
            }
            Begin::After(position) => {
                let kept = timed(store::log_kept(self.db(), queue_id)).await.map_err(|error| refusal_of(&error))?;
                if position < kept.after {
                    return Err(Refusal::CursorExpired { oldest: kept.after });
                }
                if position > kept.last {
                    return Err(Refusal::field("after_cursor", "is of a position that this log has not reached"));
                }
                self.hub().stable_at(0).await?;
                Ok(position)
            }
        }
    }

    /// The snapshot of a single task, which stands at once.
    async fn show_task(&self, watcher: &mut Watcher, queue_id: i32, queue: QueueName, begin: i64) -> Result<(), Refusal> {
        let uid = watcher.task().unwrap_or_default();
        let name = super::TaskName::Uid(uid);
        let task = self.find(&TaskRef { queue: queue.clone(), name }).await?.1;
        self.durable().await?;
        let mut snapshot = Snapshot::new(queue_id, queue, TaskFilter::default(), begin);
        // Of events up to this revision none follows, wherever they stand; a few of them may not be stable yet.
        snapshot.shown.add(uid, task.standing.revision(), i64::MAX);
        snapshot.ready = VecDeque::from([task]);
        snapshot.complete = true;
        watcher.show(snapshot);
        Ok(())
    }

    pub(super) fn draining(&self) -> &tokio_util::sync::CancellationToken {
        &self.0.drain
    }

    /// Returns once everything that has committed is on disk.
    pub(super) async fn durable(&self) -> Result<(), Refusal> {
        super::transition::only(self.0.barriers.call(vec![()]).await?)
    }
}
