//! One watch: hands out what there is to see, one thing at a time, as its client takes it.
//!
//! It is asked for the next thing only when there is room for it, so a client that never reads costs nothing that grows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::hub::{Ring, Seat, Topic};
use super::place::Place;
use super::snapshot::{Shown, Snapshot};
use super::{Sight, TaskEvent, history};
use crate::domain::catch_up::Pace;
use crate::domain::names::QueueName;
use crate::domain::refusal::Refusal;
use crate::engine::{Engine, refusal_of, timed};

/// Events taken from the ring at once.
const HANDFUL: usize = 64;
/// For how long reads of the log may fail before the watch ends.
const OUTAGE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(250);

pub struct Watcher {
    engine: Engine,
    seat: Seat,
    queue: QueueName,
    snapshot: Option<Box<Snapshot>>,
    shown: Shown,
    ready: VecDeque<Arc<TaskEvent>>,
    /// Everything up to here was handed out.
    seen: i64,
    place: Place,
    /// Up to this revision a task's log has been read.
    revision: i64,
    pace: Pace,
    opened: Instant,
    /// When the connection that it came by is old; the watches of a connection don't all end at once.
    ages: Option<Instant>,
    /// When it was last handed something.
    spoke: Instant,
    bookmark_interval: Duration,
    until_terminal: bool,
    /// The snapshot showed that the task has ended.
    ends_with_snapshot: bool,
    over: bool,
}

/// Resolves when the time has come.
async fn old(ages: Option<Instant>) {
    match ages {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Watcher {
    pub(super) fn new(
        engine: &Engine, seat: Seat, queue: QueueName, begin: i64, bookmark_interval: Duration, until_terminal: bool,
    ) -> Watcher {
        let now = Instant::now();
        let ages = engine.connection_age().and_then(|age| now.checked_add(age.mul_f64(1.0 + 0.2 * fastrand::f64())));
        Watcher {
            engine: engine.clone(),
            seat,
            queue,
            snapshot: None,
            shown: Shown::default(),
            ready: VecDeque::new(),
            seen: begin,
            place: Place::after(begin),
            revision: 0,
            pace: Pace::default(),
            opened: now,
            ages,
            spoke: now,
            bookmark_interval,
            until_terminal,
            ends_with_snapshot: false,
            over: false,
        }
    }

    /// Begins with this snapshot.
    pub(super) fn show(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(Box::new(snapshot));
    }

    /// Nothing follows.
    pub(super) fn end(&mut self) {
        self.over = true;
    }

    /// The task that it watches, if it is one.
    pub(super) fn task(&self) -> Option<Uuid> {
        match self.seat.topic() {
            Topic::Task(_, uid) => Some(*uid),
            _ => None,
        }
    }

    /// The next thing to see; waits for it. Absent: the watch is over. Nothing follows a refusal.
    pub async fn next(&mut self) -> Option<Result<Sight, Refusal>> {
        if self.over {
            return None;
        }
        let drain = self.engine.draining().clone();
        // A snapshot that takes longer would never come to its end.
        let aged = old(self.ages.filter(|_| self.snapshot.is_none()));
        let sight = tokio::select! {
            biased;
            () = drain.cancelled() => Err(Refusal::WatchDrained { last: None }),
            () = aged => Err(Refusal::WatchAged { last: None }),
            sight = self.look() => sight,
        };
        // Within a snapshot there is nothing to go on after.
        let last = self.snapshot.is_none().then_some(self.seen);
        let sight = match sight {
            Err(Refusal::WatchDrained { .. }) => Err(Refusal::WatchDrained { last }),
            Err(Refusal::WatchAged { .. }) => Err(Refusal::WatchAged { last }),
            other => other,
        };
        self.spoke = Instant::now();
        self.over |= sight.is_err();
        match sight {
            Ok(None) => None,
            Ok(Some(sight)) => Some(Ok(sight)),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    async fn look(&mut self) -> Result<Option<Sight>, Refusal> {
        loop {
            if self.snapshot.is_some() {
                if let Some(sight) = Box::pin(self.next_of_snapshot()).await? {
                    return Ok(Some(sight));
                }
                continue;
            }
            while let Some(event) = self.ready.pop_front() {
                self.seen = event.position;
                let known = self.shown.covers(event.uid, event.event.revision);
                self.shown.passed(event.position);
                if !known {
                    self.over = self.until_terminal && event.event.state.terminal();
                    return Ok(Some(Sight::Event(event)));
                }
            }
            let more = self.take().await?;
            if self.ready.is_empty() {
                self.seen = self.seen.max(self.place.taken());
                self.shown.passed(self.seen);
                // Also within a long stretch of the log that holds nothing for this watcher.
                if self.spoke.elapsed() >= self.bookmark_interval {
                    return Ok(Some(Sight::Bookmark(self.seen)));
                }
                if !more {
                    self.wait().await;
                }
            }
        }
    }

    async fn next_of_snapshot(&mut self) -> Result<Option<Sight>, Refusal> {
        let Some(snapshot) = &mut self.snapshot else { return Ok(None) };
        if let Some(task) = snapshot.ready.pop_front() {
            self.ends_with_snapshot |= self.until_terminal && task.standing.state().terminal();
            return Ok(Some(Sight::Task(Box::new(task))));
        }
        if !snapshot.complete {
            let engine = self.engine.clone();
            let _reader = engine.hub().readers.acquire().await.map_err(|_| Refusal::Draining)?;
            snapshot.read(&engine).await?;
            return Ok(None);
        }
        self.shown = std::mem::take(&mut snapshot.shown);
        self.snapshot = None;
        self.over = self.ends_with_snapshot;
        Ok(Some(Sight::SnapshotDone(self.seen)))
    }

    /// Takes what there is, up to the stable position; whether there may be more at once.
    async fn take(&mut self) -> Result<bool, Refusal> {
        let stable = self.engine.hub().stable();
        let Some(from) = self.place.next(stable, self.seat.take_mark()) else {
            self.pace.caught_up();
            return Ok(false);
        };
        match self.seat.ring_from(from, HANDFUL) {
            Ring::Has { events, more } => {
                self.place.ring_had(events.last().map(|event| event.position), more);
                self.ready.extend(events);
                self.pace.caught_up();
            }
            Ring::Lost if from > stable => {
                // The tail was at it when this watcher came, and passes it over: the log has it as soon as it is stable.
                self.place.not_yet(from);
                let stable = self.engine.hub().stable_at(from);
                if let Ok(reached) = tokio::time::timeout_at(self.spoke + self.bookmark_interval, stable).await {
                    reached?;
                }
            }
            Ring::Lost => Box::pin(self.take_from_log(from - 1, stable)).await?,
        }
        Ok(true)
    }

    async fn take_from_log(&mut self, after: i64, stable: i64) -> Result<(), Refusal> {
        let begin = Instant::now();
        let engine = self.engine.clone();
        let page = loop {
            let reader = engine.hub().readers.acquire().await.map_err(|_| Refusal::Draining)?;
            let (topic, filter) = (self.seat.topic(), self.seat.filter());
            match timed(history::page(&engine, &self.queue, topic, filter, after, self.revision, stable)).await {
                Ok(page) => break page,
                Err(error) if begin.elapsed() > OUTAGE => return Err(refusal_of(&error)),
                Err(_) => {}
            }
            drop(reader);
            tokio::time::sleep(RETRY).await;
        };
        // What retention took out of this page before it was read is lost to this watcher.
        let behind = stable - page.upto;
        if page.kept_after > after || self.pace.too_slow(self.opened.elapsed(), behind) {
            return Err(Refusal::WatcherTooSlow { last: self.seen });
        }
        self.revision = page.revision;
        self.place.log_had(page.upto);
        self.ready.extend(page.events);
        Ok(())
    }

    /// Waits until there may be something, or until it is time for a bookmark.
    async fn wait(&self) {
        drop(tokio::time::timeout_at(self.spoke + self.bookmark_interval, self.seat.marked()).await);
    }
}
