//! Hints that something may have changed: for claims that wait, for calls that wait for a task, for the due loop, and for other
//! servers. All of them only shorten a wait; the truth is looked up, at the latest a second later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::domain::time::Timestamp;
use crate::store::Openings;

/// A lock that goes on after a panic elsewhere: what it guards here are hints, whole after every statement.
pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
pub struct Wakes {
    tasks: Mutex<HashMap<Uuid, Weak<Notify>>>,
    due: Mutex<Option<Timestamp>>,
    due_changed: Notify,
    /// What other servers have not been told.
    untold: Mutex<News>,
    untold_changed: Notify,
    /// Among it is what has become READY.
    untold_ready: Notify,
    /// Until when another server is taken to want to hear of events.
    others_watch: Mutex<Option<Instant>>,
}

/// What one server tells the others. Hints only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    pub openings: Openings,
    /// There are new events.
    pub events: bool,
    /// Somebody there watches, and wants to hear of events for a while.
    pub watching: bool,
}

/// How long after another server said that it watches it is told of events; it says so more often than that.
const WATCHING: Duration = Duration::from_secs(30);

impl Wakes {
    /// Registers for changes of one task. Register before looking: a change in between is not missed.
    pub fn of_task(&self, uid: Uuid) -> Arc<Notify> {
        let mut tasks = held(&self.tasks);
        if let Some(notify) = tasks.get(&uid).and_then(Weak::upgrade) {
            return notify;
        }
        tasks.retain(|_, notify| notify.strong_count() > 0);
        let notify = Arc::new(Notify::new());
        tasks.insert(uid, Arc::downgrade(&notify));
        notify
    }

    pub fn tasks_changed(&self, uids: impl Iterator<Item = Uuid>) {
        let tasks = held(&self.tasks);
        if !tasks.is_empty() {
            for notify in uids.filter_map(|uid| tasks.get(&uid).and_then(Weak::upgrade)) {
                notify.notify_waiters();
            }
        }
    }

    /// Something will be due at `at`: wakes the due loop if it meant to sleep longer.
    pub fn due_at(&self, at: Timestamp) {
        let mut due = held(&self.due);
        if due.is_none_or(|planned| at < planned) {
            *due = Some(at);
            drop(due);
            self.due_changed.notify_one();
        }
    }

    /// The due loop means to sleep until `until` (absent: nothing waits for time).
    pub fn due_planned(&self, until: Option<Timestamp>) {
        *held(&self.due) = until;
    }

    pub async fn due_earlier(&self) {
        self.due_changed.notified().await;
    }

    pub fn tell_others(&self, openings: &Openings) {
        self.tell(|news| news.openings.extend(openings.iter()));
        if !openings.only_places() {
            self.untold_ready.notify_one();
        }
    }

    /// Resolves when other servers should be told of something that has become READY.
    pub async fn untold_ready(&self) {
        self.untold_ready.notified().await;
    }

    /// There are new events. Costs next to nothing while nobody watches at another server.
    pub fn tell_events(&self) {
        if held(&self.others_watch).is_some_and(|until| Instant::now() < until) {
            self.tell(|news| news.events = true);
        }
    }

    /// Somebody watches here.
    pub fn tell_watching(&self) {
        self.tell(|news| news.watching = true);
    }

    fn tell(&self, add: impl FnOnce(&mut News)) {
        let mut untold = held(&self.untold);
        add(&mut untold);
        if *untold != News::default() {
            drop(untold);
            self.untold_changed.notify_one();
        }
    }

    /// Somebody watches at another server.
    pub fn others_watch(&self) {
        *held(&self.others_watch) = Some(Instant::now() + WATCHING);
    }

    /// What other servers should be told; waits until there is something.
    pub async fn untold(&self) -> News {
        loop {
            let untold = std::mem::take(&mut *held(&self.untold));
            if untold != News::default() {
                return untold;
            }
            self.untold_changed.notified().await;
        }
    }
}
