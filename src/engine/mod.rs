//! The verbs: one file each. A verb gathers calls into batches, lets `domain` decide, lets `store` write, and answers.
//!
//! What is deliberately not here: SQL (`store`), rules (`domain`), proto and Status (`api`), timers (`loops`).

mod admission;
mod batcher;
mod cancel_tasks;
mod claim;
mod delivery;
mod explain;
mod idle;
mod inspect;
mod memory;
mod queues;
mod receipts;
mod refused;
mod repair;
mod retention;
mod shares;
mod stats;
mod stuck;
mod subjects;
mod submit;
mod successor;
mod sweep;
mod transition;
mod wake;
mod watch;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::refusal::Refusal;
use crate::store::{Db, Openings, StoreError};

pub use crate::store::{By, Ear};
pub use delivery::{Delivery, Leases};
pub use idle::IdleWalk;
pub use repair::{ListRepairsCommand, RepairInFull, ReplayRepairsCommand, Replayed, Resolution};
pub use retention::{Erased, Erasure};
pub use stats::{Stats, StatsCommand};
pub use sweep::Sweep;
pub use watch::{Begin, Sight, TailPlace, TaskEvent, WatchCommand, Watched, Watcher};
pub use words::*;

use admission::Admission;
use batcher::Batcher;
use cancel_tasks::Stride;
use claim::{Dispatchers, Full, Lows, Marks, Unread};
use memory::Memory;
use queues::Queues;
use refused::Refused;
use stats::Samples;
use subjects::LeftOff;
use submit::Submission;
use sweep::Aside;
use transition::{Item, Outcome};
use wake::Wakes;

/// What an engine may do, beside the limits that nobody can change.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest payload, in bytes.
    pub payload_limit: usize,
    /// Transactions under way at once, at most, per kind of batch.
    pub lanes: usize,
    /// Watches that may be open at once.
    pub watchers: usize,
    /// How old a connection may grow; a watch that is older ends, so that it is resumed on another one. Absent: as old as it likes.
    pub connection_age: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            payload_limit: crate::domain::limits::PAYLOAD_BYTES,
            lanes: 2,
            watchers: crate::domain::limits::WATCHERS,
            connection_age: None,
        }
    }
}

/// The whole service without its edges. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    db: Db,
    settings: Settings,
    queues: Queues,
    wakes: Wakes,
    dispatchers: Dispatchers,
    marks: Marks,
    lows: Arc<Lows>,
    full: Full,
    stride: Stride,
    left_off: LeftOff,
    unread: Unread,
    aside: Aside,
    admission: Admission,
    refused: Refused,
    memory: Memory,
    samples: Samples,
    submissions: Batcher<Submission, Result<Accepted, Refusal>>,
    /// Reports and cancels.
    transitions: Batcher<Item, Result<Outcome, Refusal>>,
    /// Heartbeats and BeginEffect in a lane of their own: a worker must not lose its lease behind a flood of reports.
    holds: Batcher<Item, Result<Outcome, Refusal>>,
    /// What time alone moves: a lost lease must not be found later for a flood of reports.
    ticks: Batcher<Item, Result<Outcome, Refusal>>,
    /// Who must know that what it read is on disk.
    barriers: Batcher<(), Result<(), Refusal>>,
    hub: Arc<watch::Hub>,
    drain: CancellationToken,
    /// Claims under way and leases on their way back: a server that ends before them leaves leases that nobody holds.
    unsettled: TaskTracker,
    healthy: AtomicBool,
}

/// How long one transaction may take as a whole before its callers are told that the database is away. Longer than any statement may.
const TRANSACTION: Duration = Duration::from_secs(8);

impl Engine {
    /// Starts the batchers. To be called inside a tokio runtime; makes no connection yet.
    pub fn start(db: Db, settings: Settings) -> Engine {
        Engine(Arc::new_cyclic(|inner: &std::sync::Weak<Inner>| {
            let lanes = settings.lanes;
            let transitions = |kind, inner: std::sync::Weak<Inner>| {
                Batcher::start(kind, lanes, move |load| {
                    let inner = inner.clone();
                    async move {
                        if let Some(inner) = inner.upgrade() {
                            transition::run(&Engine(inner), load).await;
                        }
                    }
                })
            };
            let submitter = inner.clone();
            let flusher = db.clone();
            Inner {
                queues: Queues::default(),
                wakes: Wakes::default(),
                dispatchers: Dispatchers::default(),
                marks: Marks::default(),
                lows: Arc::default(),
                full: Full::default(),
                stride: Stride::default(),
                left_off: LeftOff::default(),
                unread: Unread::default(),
                aside: Aside::default(),
                admission: Admission::default(),
                refused: Refused::default(),
                memory: Memory::default(),
                samples: Samples::default(),
                submissions: Batcher::start("submit", lanes, move |load| {
                    let inner = submitter.clone();
                    async move {
                        if let Some(inner) = inner.upgrade() {
                            submit::run(&Engine(inner), load.take()).await;
                        }
                    }
                }),
                transitions: transitions("transition", inner.clone()),
                holds: transitions("hold", inner.clone()),
                ticks: transitions("tick", inner.clone()),
                barriers: Batcher::start("barrier", 1, move |load: batcher::Load<(), _>| {
                    let db = flusher.clone();
                    async move {
                        // Taken first: a barrier is for what was committed before it began.
                        let tickets = load.take();
                        let done = timed(crate::store::barrier(&db)).await.map_err(|error| refusal_of(&error));
                        tickets.into_iter().for_each(|ticket| ticket.answer(vec![done.clone()]));
                    }
                }),
                hub: Arc::default(),
                drain: CancellationToken::new(),
                unsettled: TaskTracker::new(),
                healthy: AtomicBool::new(false),
                db,
                settings,
            }
        }))
    }

    pub fn payload_limit(&self) -> usize {
        self.0.settings.payload_limit
    }

    pub fn connection_age(&self) -> Option<Duration> {
        self.0.settings.connection_age
    }

    /// No new claims from now on; those that wait end empty.
    pub fn drain(&self) {
        self.0.drain.cancel();
    }

    /// After a drain: resolves when no claim is under way any more and no lease is on its way back.
    pub async fn settled(&self) {
        self.0.unsettled.close();
        self.0.unsettled.wait().await;
    }

    /// Whether the database answered when it was last asked.
    pub fn healthy(&self) -> bool {
        self.0.healthy.load(Ordering::Relaxed)
    }

    /// Asks the database whether it is there, and remembers the answer.
    pub async fn check_health(&self, patience: Duration) -> bool {
        let answer = tokio::time::timeout(patience, crate::store::ping(&self.0.db)).await;
        let healthy = matches!(answer, Ok(Ok(())));
        if !healthy {
            // Whatever waits in the pools may have gone silent as well, and each would cost a caller its time.
            self.0.db.forget_idle();
        }
        self.0.healthy.store(healthy, Ordering::Relaxed);
        healthy
    }

    pub fn db(&self) -> &Db {
        &self.0.db
    }

    /// Tells this server's claims where they may find something new.
    fn opened(&self, openings: &Openings) {
        if !openings.is_empty() {
            // First: who is woken looks from there on.
            self.0.lows.lower(openings);
            openings.iter().for_each(|(queue_id, _)| self.0.dispatchers.nudge(queue_id));
        }
    }

    /// After a commit: wakes whoever may care.
    fn committed(&self, aftermath: Aftermath) {
        let wakes = &self.0.wakes;
        wakes.tasks_changed(aftermath.changed.into_iter());
        if let Some(due) = aftermath.due {
            wakes.due_at(due);
        }
        self.opened(&aftermath.openings);
        wakes.tell_others(&aftermath.openings);
        wakes.tell_events();
        self.0.hub.nudge();
    }
}

/// Whom a commit concerns.
#[derive(Default)]
struct Aftermath {
    changed: Vec<uuid::Uuid>,
    /// The earliest moment at which time alone changes one of the tasks.
    due: Option<crate::domain::time::Timestamp>,
    openings: Openings,
}

/// What a caller is told of a failed transaction, and what the log says.
fn refusal_of(error: &StoreError) -> Refusal {
    match error {
        StoreError::Unavailable(_) => {
            tracing::warn!(error = %error.describe(), "the database does not answer");
            Refusal::DatabaseUnavailable
        }
        // Somebody holds the row, or races for it, for longer than we may wait: try again later.
        StoreError::Conflict(_) | StoreError::Locked(_) => {
            tracing::warn!(error = %error.describe(), "gave up on a held row");
            Refusal::DatabaseUnavailable
        }
        StoreError::Data(_) | StoreError::Bug(_) => Refusal::Bug(error.describe()),
    }
}

/// Runs one transaction, or some reads that belong together, within their time.
async fn timed<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(TRANSACTION, work).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::silent()),
    }
}
