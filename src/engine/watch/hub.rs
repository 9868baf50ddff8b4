//! Where the tail and the watchers of one server meet: who watches what, how far the log has been read, and its last events.
//!
//! The ring is one for all and bounded. A watcher costs a mark (the first position that concerns it and that it has not taken) and nothing
//! that grows, however slow it is; what has left the ring it reads from the log.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use uuid::Uuid;

use super::TaskEvent;
use super::filter::EventFilter;
use crate::domain::names::QueueName;
use crate::domain::refusal::Refusal;
use crate::engine::wake::held;
use crate::store::LogRow;

/// What the ring holds at most.
const RING_EVENTS: usize = 16_384;
const RING_BYTES: usize = 16 * 1024 * 1024;
/// Reads of the log (not by the tail) and of snapshots at once, so that they leave connections to others.
const READERS: usize = 3;
/// How long a watch waits for the tail to begin.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Hub {
    inner: Mutex<Inner>,
    /// Up to where the log is stable and delivered. Absent: the tail does not run.
    stable: watch::Sender<Option<i64>>,
    /// Who needs the tail: watches, and calls that wait for a task.
    attending: AtomicUsize,
    watchers: AtomicUsize,
    next: AtomicU64,
    /// An event may have been written, or the tail is needed.
    nudged: Notify,
    pub(super) readers: Semaphore,
}

#[derive(Default)]
struct Inner {
    queues: HashMap<i32, Watched>,
    ring: VecDeque<Arc<TaskEvent>>,
    ring_bytes: usize,
    /// Up to here events may be missing in the ring.
    floor: i64,
    /// Up to here the tail has asked who is interested.
    asked: i64,
}

type Seats = HashMap<u64, Arc<Mark>>;

/// Who watches in one queue, by what they watch.
#[derive(Default)]
struct Watched {
    name: Option<QueueName>,
    all: Seats,
    shares: HashMap<String, Seats>,
    tasks: HashMap<Uuid, Seats>,
}

/// What a watcher watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    Task(i32, Uuid),
    Share(i32, String),
    Queue(i32),
}

impl Topic {
    pub fn queue_id(&self) -> i32 {
        match self {
            Topic::Task(queue_id, _) | Topic::Share(queue_id, _) | Topic::Queue(queue_id) => *queue_id,
        }
    }

    fn holds(&self, event: &TaskEvent) -> bool {
        match self {
            Topic::Task(queue_id, uid) => *queue_id == event.queue_id && *uid == event.uid,
            Topic::Share(queue_id, key) => *queue_id == event.queue_id && *key == event.spec.fairness_key.as_str(),
            Topic::Queue(queue_id) => *queue_id == event.queue_id,
        }
    }
}

/// The first position that concerns a watcher and that it has not taken; 0: there is none.
struct Mark {
    first: AtomicI64,
    wake: Notify,
    filter: EventFilter,
}

impl Mark {
    fn set(&self, position: i64) {
        if self.first.compare_exchange(0, position, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.wake.notify_one();
        }
    }
}

/// Keeps the tail running while it lives.
pub struct Attendance(Arc<Hub>);

impl Drop for Attendance {
    fn drop(&mut self) {
        // The tail looks again by itself, and stops.
        self.0.attending.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A watcher's place. It is counted while it lives.
pub struct Seat {
    hub: Arc<Hub>,
    topic: Topic,
    number: u64,
    mark: Arc<Mark>,
    /// Only after this position is the watcher marked for what concerns it; up to there it reads the log, also what is not yet stable.
    joined: i64,
    _attendance: Attendance,
}

/// What the ring has for a watcher.
pub enum Ring {
    /// In order; `more`: where to go on, if there is more.
    Has { events: Vec<Arc<TaskEvent>>, more: Option<i64> },
    /// It may have lost some: the log has them.
    Lost,
}

impl Default for Hub {
    fn default() -> Self {
        Hub {
            inner: Mutex::default(),
            stable: watch::Sender::new(None),
            attending: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            nudged: Notify::new(),
            readers: Semaphore::new(READERS),
        }
    }
}

impl Hub {
    /// Open watches.
    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::SeqCst)
    }

    pub fn attended(&self) -> bool {
        self.attending.load(Ordering::SeqCst) > 0
    }

    /// An event may have been written. Costs one load while nobody watches.
    pub fn nudge(&self) {
        if self.attended() {
            self.nudged.notify_one();
        }
    }

    pub async fn nudged(&self) {
        self.nudged.notified().await;
    }

    pub fn attend(self: &Arc<Self>) -> Attendance {
        if self.attending.fetch_add(1, Ordering::SeqCst) == 0 {
            self.nudged.notify_one();
        }
        Attendance(self.clone())
    }

    pub fn stable(&self) -> i64 {
        self.stable.borrow().unwrap_or(0)
    }

    /// Waits until the log is stable up to `position`, at least; the stable position then.
    pub async fn stable_at(&self, position: i64) -> Result<i64, Refusal> {
        let mut stable = self.stable.subscribe();
        let reached = stable.wait_for(|stable| stable.is_some_and(|stable| stable >= position));
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(Ok(stable)) => Ok(stable.unwrap_or(position)),
            _ => Err(Refusal::DatabaseUnavailable),
        }
    }

    /// A place for one more watcher, at most `limit` of them. `queue`: the name of the topic's queue.
    pub fn join(self: &Arc<Self>, queue: &QueueName, topic: Topic, filter: EventFilter, limit: usize) -> Result<Seat, Refusal> {
        if self.watchers.fetch_add(1, Ordering::SeqCst) >= limit {
            self.watchers.fetch_sub(1, Ordering::SeqCst);
            return Err(Refusal::Overloaded);
        }
        let attendance = self.attend();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mark = Arc::new(Mark { first: AtomicI64::new(0), wake: Notify::new(), filter });
        let mut inner = held(&self.inner);
        let joined = inner.asked.max(self.stable());
        inner.seats(queue, &topic).insert(number, mark.clone());
        drop(inner);
        Ok(Seat { hub: self.clone(), topic, number, mark, joined, _attendance: attendance })
    }

    /// The tail begins (or begins anew) after this position.
    pub(super) fn begin(&self, stable: i64) {
        let mut inner = held(&self.inner);
        inner.ring = VecDeque::new();
        inner.ring_bytes = 0;
        inner.floor = stable;
        inner.asked = stable;
        self.stable.send_replace(Some(stable));
    }

    /// Nobody needs the tail any more; returns whether that is still so.
    pub(super) fn end(&self) -> bool {
        let mut inner = held(&self.inner);
        if self.attended() {
            return false;
        }
        inner.ring = VecDeque::new();
        inner.ring_bytes = 0;
        self.stable.send_replace(None);
        true
    }

    /// Those events of a stretch of the log in which anybody may be interested, and the names of their queues. Who joins from here on reads
    /// the stretch in the log.
    pub(super) fn interesting(&self, mut rows: Vec<LogRow>) -> (Vec<LogRow>, HashMap<i32, QueueName>) {
        let mut inner = held(&self.inner);
        inner.asked = rows.last().map_or(inner.asked, |row| row.position.max(inner.asked));
        let mut names = HashMap::new();
        rows.retain(|row| {
            let Some(watched) = inner.queues.get(&row.queue_id) else { return false };
            let wanted = !watched.all.is_empty() || !watched.shares.is_empty() || watched.tasks.contains_key(&row.uid);
            if let (true, Some(name)) = (wanted, &watched.name) {
                names.entry(row.queue_id).or_insert_with(|| name.clone());
            }
            wanted
        });
        (rows, names)
    }

    /// Passes events on to whom they concern; then the log is stable up to `stable`.
    pub(super) fn pass(&self, events: Vec<Arc<TaskEvent>>, stable: i64) {
        let mut inner = held(&self.inner);
        for event in events {
            if !inner.mark(&event) {
                continue;
            }
            inner.ring_bytes += event.weight();
            inner.ring.push_back(event);
            while inner.ring.len() > RING_EVENTS || inner.ring_bytes > RING_BYTES {
                let Some(oldest) = inner.ring.pop_front() else { break };
                inner.ring_bytes -= oldest.weight();
                inner.floor = oldest.position;
            }
        }
        // After the marks: who reads this and finds itself unmarked has missed nothing up to here.
        self.stable.send_replace(Some(stable));
    }
}

impl Inner {
    fn seats(&mut self, queue: &QueueName, topic: &Topic) -> &mut Seats {
        let watched = self.queues.entry(topic.queue_id()).or_default();
        watched.name.get_or_insert_with(|| queue.clone());
        match topic {
            Topic::Task(_, uid) => watched.tasks.entry(*uid).or_default(),
            Topic::Share(_, key) => watched.shares.entry(key.clone()).or_default(),
            Topic::Queue(_) => &mut watched.all,
        }
    }

    fn leave(&mut self, topic: &Topic, number: u64) {
        let Some(watched) = self.queues.get_mut(&topic.queue_id()) else { return };
        match topic {
            Topic::Queue(_) => drop(watched.all.remove(&number)),
            Topic::Share(_, key) => leave_from(&mut watched.shares, key, number),
            Topic::Task(_, uid) => leave_from(&mut watched.tasks, uid, number),
        }
        if watched.all.is_empty() && watched.shares.is_empty() && watched.tasks.is_empty() {
            self.queues.remove(&topic.queue_id());
        }
        if self.queues.is_empty() {
            self.queues.shrink_to_fit();
        }
    }

    /// Marks those whom the event concerns; whether there are any.
    fn mark(&self, event: &TaskEvent) -> bool {
        let Some(watched) = self.queues.get(&event.queue_id) else { return false };
        let share = watched.shares.get(event.spec.fairness_key.as_str());
        let task = watched.tasks.get(&event.uid);
        let seats = watched.all.values().chain(share.into_iter().flat_map(HashMap::values));
        let mut any = false;
        for mark in seats.chain(task.into_iter().flat_map(HashMap::values)) {
            if mark.filter.passes(&event.spec, &event.event) {
                mark.set(event.position);
                any = true;
            }
        }
        any
    }
}

fn leave_from<K: std::hash::Hash + Eq>(topics: &mut HashMap<K, Seats>, key: &K, number: u64) {
    if let Some(seats) = topics.get_mut(key) {
        seats.remove(&number);
        if seats.is_empty() {
            topics.remove(key);
        }
    }
}

impl Seat {
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    pub fn filter(&self) -> &EventFilter {
        &self.mark.filter
    }

    /// Takes the mark: the first position that concerns this watcher and that it has not taken, if there is one. To be called after
    /// `Hub::stable`: without a mark nothing up to there was missed.
    pub fn take_mark(&self) -> Option<i64> {
        Some(self.mark.first.swap(0, Ordering::SeqCst)).filter(|first| *first > 0)
    }

    /// Resolves when the mark was set.
    pub async fn marked(&self) {
        self.mark.wake.notified().await;
    }

    /// What the ring has for this watcher from a position on, at most `limit` events.
    pub fn ring_from(&self, from: i64, limit: usize) -> Ring {
        let inner = held(&self.hub.inner);
        if from <= inner.floor || from <= self.joined {
            return Ring::Lost;
        }
        let begin = inner.ring.partition_point(|event| event.position < from);
        let mut events = Vec::new();
        for event in inner.ring.range(begin..) {
            if !self.topic.holds(event) || !self.mark.filter.passes(&event.spec, &event.event) {
                continue;
            }
            if events.len() == limit {
                return Ring::Has { events, more: Some(event.position) };
            }
            events.push(event.clone());
        }
        Ring::Has { events, more: None }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        held(&self.hub.inner).leave(&self.topic, self.number);
        self.hub.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}
