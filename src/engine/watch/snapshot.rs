//! The tasks as they stand, before their events: page by page, each in a short transaction of its own.
//!
//! The cursor that follows a snapshot was stable before its first page, so no event is missed; what the pages show already is remembered,
//! for those tasks only that changed meanwhile, until the events have passed.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::engine::{Engine, TaskFilter, inspect, refusal_of, timed};
use crate::store::{self, StoreError};

/// Tasks in one page: what a watcher holds whose client reads nothing.
const PAGE: i32 = 100;
/// Tasks that may change while a snapshot is read. With more the watch is refused: it would have to remember them all.
const CHANGED: usize = 200_000;

/// A snapshot that is being read.
pub struct Snapshot {
    queue_id: i32,
    queue: QueueName,
    filter: TaskFilter,
    below: Uuid,
    /// The position that events follow after.
    begin: i64,
    pub ready: VecDeque<Task>,
    pub complete: bool,
    pub shown: Shown,
}

/// What a snapshot has shown of tasks that have events after its cursor.
#[derive(Default)]
pub struct Shown {
    revisions: HashMap<Uuid, i64>,
    /// No event that was shown stands after this position.
    upto: i64,
}

impl Shown {
    pub fn add(&mut self, uid: Uuid, revision: i64, position: i64) {
        self.revisions.insert(uid, revision);
        self.upto = self.upto.max(position);
    }

    /// Whether the snapshot has told of this event already.
    pub fn covers(&self, uid: Uuid, revision: i64) -> bool {
        self.revisions.get(&uid).is_some_and(|shown| revision <= *shown)
    }

    /// Forgets everything once it can't be asked for any more.
    pub fn passed(&mut self, position: i64) {
        if position >= self.upto && !self.revisions.is_empty() {
            self.revisions = HashMap::new();
        }
    }
}

impl Snapshot {
    pub fn new(queue_id: i32, queue: QueueName, filter: TaskFilter, begin: i64) -> Snapshot {
        let below = Uuid::max();
        Snapshot { queue_id, queue, filter, below, begin, ready: VecDeque::new(), complete: false, shown: Shown::default() }
    }

    /// Reads the next page. What it shows is on disk when this returns.
    pub async fn read(&mut self, engine: &Engine) -> Result<(), Refusal> {
        let filter = inspect::list_filter(self.queue_id, self.filter.clone(), self.below, i64::from(PAGE) + 1);
        let read = async {
            let page = store::snapshot_page(engine.db(), &filter, self.begin).await?;
            let wanted = usize::try_from(PAGE).unwrap_or(1);
            let (tasks, more) = inspect::page(engine.db(), &self.queue, page.live, page.ended, wanted).await?;
            Ok::<_, StoreError>((tasks, more, page.changed))
        };
        let (tasks, more, changed) = timed(read).await.map_err(|error| refusal_of(&error))?;
        engine.durable().await?;
        for task in &tasks {
            if let Some(&position) = changed.get(&task.uid) {
                self.shown.add(task.uid, task.standing.revision(), position);
            }
        }
        if self.shown.revisions.len() > CHANGED {
            return Err(Refusal::Overloaded);
        }
        match tasks.last().filter(|_| more) {
            Some(last) => self.below = last.uid,
            None => self.complete = true,
        }
        self.ready = tasks.into();
        Ok(())
    }
}
