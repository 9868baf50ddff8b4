//! What the engine is asked, and what it answers, in the words of the domain.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use crate::domain::attempt::Attempt;
use crate::domain::names::{FairnessKey, QueueName, RequestId, SubjectId, TaskId, WorkerId};
use crate::domain::queue::{Policy, PolicyEdit};
use crate::domain::record::Task;
use crate::domain::share::{ShareEdit, SharePolicy};
use crate::domain::subject::{Floor, Raise};
use crate::domain::task::{Cause, Progress, State};
use crate::domain::time::Timestamp;

/// Names one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRef {
    pub queue: QueueName,
    pub name: TaskName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskName {
    Id(TaskId),
    Uid(Uuid),
    /// Both must be the same task's.
    Both(TaskId, Uuid),
}

impl std::fmt::Display for TaskName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TaskName::Id(id) => id.fmt(f),
            TaskName::Uid(uid) => uid.fmt(f),
            TaskName::Both(id, uid) => write!(f, "{id} ({uid})"),
        }
    }
}

/// Names one lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    pub queue: QueueName,
    pub uid: Uuid,
    pub token: i64,
}

/// The answer to a Submit.
#[derive(Clone, Debug)]
pub struct Accepted {
    pub task: Task,
    /// False: the task id was known, with the same content.
    pub created: bool,
    /// The position just before the task's first event.
    pub cursor: i64,
}

#[derive(Clone, Debug)]
pub struct ClaimCommand {
    pub queue: QueueName,
    pub worker: WorkerId,
    /// 1 to 500.
    pub max_tasks: i32,
    /// How long to wait while there is nothing; zero: don't.
    pub wait: Duration,
    /// Absent: the task's own, else the queue's.
    pub lease_duration: Option<Duration>,
    pub request_id: Option<RequestId>,
    pub reports_effect: bool,
}

/// One lease as it is handed to a worker.
#[derive(Clone, Debug)]
pub struct LeasedTask {
    /// With its payload; `task.standing` is the lease's.
    pub task: Task,
    pub token: i64,
    pub attempt: i32,
    pub attempts_left: i32,
    /// How long the lease lasts from now on, by the database's clock and what passed since on ours.
    pub remaining: Duration,
    pub deadline_remaining: Duration,
    pub expire: Timestamp,
    pub heartbeat_interval: Duration,
    /// Earlier attempts of which nobody knows whether their effect happened.
    pub unknown_attempts: Vec<Attempt>,
}

#[derive(Clone, Debug)]
pub struct HeartbeatCommand {
    pub lease: LeaseRef,
    pub span: Option<Duration>,
    pub progress: Option<Progress>,
}

/// The answer to a heartbeat: the lease is still held.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    pub remaining: Duration,
    pub deadline_remaining: Duration,
    pub expire: Timestamp,
    /// Present: the work should stop, and the lease was not extended.
    pub stop: Option<(Cause, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    pub remaining: Duration,
    pub deadline_remaining: Duration,
    pub already_applied: bool,
}

#[derive(Clone, Debug)]
pub struct Settled {
    pub task: Task,
    pub already_applied: bool,
}

/// Which tasks are meant. Empty parts ask for nothing.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    pub states: Vec<State>,
    pub kind: String,
    pub target: String,
    pub subject_id: String,
    /// Absent: every share; the empty key is a share of its own.
    pub fairness_key: Option<String>,
    pub ordering_key: String,
    pub worker_id: String,
    pub event_id: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub struct CancelTasksCommand {
    pub queue: QueueName,
    pub filter: TaskFilter,
    /// For people.
    pub reason: String,
    /// 1 to 1,000.
    pub max_tasks: i32,
    /// Only count.
    pub validate_only: bool,
}

/// What a bulk cancel, or a raised floor, met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Became CANCELED by this call.
    pub canceled: i64,
    /// Are running, and were told to stop by this call.
    pub told: i64,
    /// Have had their effect, or may have.
    pub effected: i64,
    /// Some are left that were neither canceled nor told.
    pub more: bool,
}

#[derive(Clone, Debug)]
pub struct RaiseCommand {
    pub queue: QueueName,
    pub subject: SubjectId,
    pub raise: Raise,
    /// For people.
    pub reason: String,
}

/// A floor in force, and what it met.
#[derive(Clone, Debug)]
pub struct Raised {
    pub queue: QueueName,
    pub subject: SubjectId,
    pub floor: Floor,
    pub met: Met,
}

/// A queue as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    pub name: QueueName,
    pub policy: Policy,
    /// Rises with every write.
    pub etag: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutQueueCommand {
    pub queue: QueueName,
    pub edit: PolicyEdit,
    /// What the caller thinks is stored; absent: not compared.
    pub etag: Option<String>,
    /// For people.
    pub reason: String,
}

/// A share as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    pub queue: QueueName,
    pub key: FairnessKey,
    pub policy: SharePolicy,
    /// Rises with every write.
    pub etag: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutShareCommand {
    pub queue: QueueName,
    pub key: FairnessKey,
    pub edit: ShareEdit,
    /// What the caller thinks is stored; absent: not compared.
    pub etag: Option<String>,
    /// For people.
    pub reason: String,
}

/// One page, and where the next one begins (absent: there is none).
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<String>,
}

/// Why a task is not running now.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    pub kind: ObstacleKind,
    pub text: String,
    pub blocker: Option<(TaskId, Uuid)>,
    pub until: Option<Timestamp>,
    pub ahead: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObstacleKind {
    NotYet,
    BackingOff,
    BehindKey,
    KeyHeld,
    ShareAtCap,
    QueueAtCap,
    RateLimited,
    QueuePaused,
    NoWorker,
    AheadInShare,
    Unreadable,
    Running,
    Terminal,
}
