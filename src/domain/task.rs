//! The life of a task. This file has the words; `step` (in `task/step.rs`) is the one table of what may become of a task, and
//! everything that changes one goes through it.

mod step;
mod step_receipt;
mod step_report;
#[cfg(test)]
mod step_tests;
mod step_time;
#[cfg(test)]
mod worlds_tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::event::{Event, Evidence};
use super::queue::Policy;
use super::receipt::Receipt;
use super::report::Report;
use super::retry::RetryPolicy;
use super::time::Timestamp;

pub use step::{accept, head_start, step};

text_enum! {
    pub enum State {
        Scheduled = "SCHEDULED",
        Blocked = "BLOCKED",
        Ready = "READY",
        Leased = "LEASED",
        RetryAt = "RETRY_AT",
        Completed = "COMPLETED",
        Skipped = "SKIPPED",
        Canceled = "CANCELED",
        RepairRequired = "REPAIR_REQUIRED",
    }
}

impl State {
    /// Terminal states are final. Derived, never stored.
    pub fn terminal(self) -> bool {
        matches!(self, State::Completed | State::Skipped | State::Canceled | State::RepairRequired)
    }
}

text_enum! {
    pub enum Stage {
        Claimed = "CLAIMED",
        EffectBegun = "EFFECT_BEGUN",
    }
}

text_enum! {
    pub enum Outcome {
        Succeeded = "SUCCEEDED",
        Failed = "FAILED",
        Skipped = "SKIPPED",
        Canceled = "CANCELED",
        Released = "RELEASED",
        Expired = "EXPIRED",
    }
}

text_enum! {
    pub enum ErrorClass {
        Transient = "TRANSIENT",
        Permanent = "PERMANENT",
        Unknown = "UNKNOWN",
    }
}

text_enum! {
    pub enum Cause {
        Requested = "REQUESTED",
        Superseded = "SUPERSEDED",
        Revoked = "REVOKED",
        Worker = "WORKER",
        PermanentError = "PERMANENT_ERROR",
        OutcomeUnknown = "OUTCOME_UNKNOWN",
        AttemptsExhausted = "ATTEMPTS_EXHAUSTED",
        DeadlinePassed = "DEADLINE_PASSED",
        /// Its row can't be read or moved.
        Stuck = "STUCK",
    }
}

/// An unfinished task: everything about it that changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    pub state: State,
    pub revision: i64,
    /// Number of the latest attempt; 0 before the first. Never used again.
    pub attempt: i32,
    /// Attempts that count against `max_attempts`.
    pub charged: i32,
    pub max_attempts: i32,
    /// Releases so far; the first twenty are not charged.
    pub releases: i32,
    pub unknown_attempts: i32,
    /// The latest lease's fencing token; 0 before the first lease.
    pub token: i64,
    /// Digest of the report that ended the latest lease, if a report did.
    pub report: Option<i64>,
    /// Place in the share: the instant at which it became READY, in microseconds, less its head start.
    pub rank: i64,
    /// When it starts (SCHEDULED, BLOCKED) or is tried again (RETRY_AT); absent: it need not wait for a time.
    pub wake: Option<Timestamp>,
    pub deadline: Timestamp,
    /// Present exactly while LEASED.
    pub lease: Option<Lease>,
    pub cancel: Option<CancelRequest>,
    pub accepted: Timestamp,
    pub updated: Timestamp,
    pub first_lease: Option<Timestamp>,
    pub notes: Notes,
}

/// A valid or run-out lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub worker: String,
    pub begin: Timestamp,
    /// From this instant on the lease can be neither used nor extended.
    pub expire: Timestamp,
    /// How long a heartbeat extends it, unless the heartbeat says otherwise.
    pub span: Duration,
    pub stage: Stage,
    pub effect_ref: Option<String>,
    pub effect_begun: Option<Timestamp>,
    /// The worker promised to call BeginEffect before it acts.
    pub reports_effect: bool,
    pub heartbeat: Option<Timestamp>,
    /// The Claim call to which the lease was handed: only that call may give it back.
    pub call: Uuid,
    /// Names the Claim's `request_id`, if it had one.
    pub claim: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CancelRequest {
    pub cause: Cause,
    pub reason: String,
}

/// What people read and no decision depends on. Stored as one document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// When the first error was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<Timestamp>,
}

impl Notes {
    pub(super) fn failed(&mut self, error: LastError) {
        self.first_error = self.first_error.or(Some(error.time));
        self.last_error = Some(error);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Progress {
    pub done: i64,
    pub total: i64,
    pub note: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastError {
    pub class: ErrorClass,
    pub code: String,
    pub message: String,
    pub stage: Stage,
    pub time: Timestamp,
}

/// A finished task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    pub state: State,
    pub cause: Option<Cause>,
    pub reason: String,
    pub revision: i64,
    pub attempt: i32,
    pub charged: i32,
    pub max_attempts: i32,
    pub unknown_attempts: i32,
    pub token: i64,
    pub report: Option<i64>,
    /// What the completion proves; empty unless COMPLETED.
    pub boundary: String,
    pub accepted: Timestamp,
    pub ended: Timestamp,
    pub deadline: Timestamp,
    pub first_lease: Option<Timestamp>,
    /// The stage that the last attempt had reached, and who ran it; absent if there was none, or if it did not end the task.
    pub stage: Option<Stage>,
    pub worker: Option<String>,
    /// Of the report that ended it, where one did.
    pub evidence: Evidence,
    pub notes: Notes,
}

/// Where a task stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    Live(Live),
    Ended(Ended),
}

impl Standing {
    pub fn state(&self) -> State {
        match self {
            Standing::Live(live) => live.state,
            Standing::Ended(ended) => ended.state,
        }
    }

    pub fn token(&self) -> i64 {
        match self {
            Standing::Live(live) => live.token,
            Standing::Ended(ended) => ended.token,
        }
    }

    pub fn report(&self) -> Option<i64> {
        match self {
            Standing::Live(live) => live.report,
            Standing::Ended(ended) => ended.report,
        }
    }

    pub fn attempt(&self) -> i32 {
        match self {
            Standing::Live(live) => live.attempt,
            Standing::Ended(ended) => ended.attempt,
        }
    }

    pub fn revision(&self) -> i64 {
        match self {
            Standing::Live(live) => live.revision,
            Standing::Ended(ended) => ended.revision,
        }
    }

    pub(super) fn revision_mut(&mut self) -> &mut i64 {
        match self {
            Standing::Live(live) => &mut live.revision,
            Standing::Ended(ended) => &mut ended.revision,
        }
    }
}

impl Live {
    /// The next instant at which time alone changes this task. Never absent: at the latest it is the deadline.
    pub fn due(&self) -> Timestamp {
        let next = match self.state {
            State::Leased => self.lease.as_ref().map(|lease| lease.expire),
            State::Scheduled | State::RetryAt => self.wake,
            _ => None,
        };
        next.map_or(self.deadline, |at| at.min(self.deadline))
    }
}

/// What is asked of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Claim(Grant),
    /// Extends the lease by `span` (absent: by the lease's own).
    Heartbeat {
        token: i64,
        span: Option<Duration>,
        progress: Option<Progress>,
    },
    BeginEffect {
        token: i64,
        effect_ref: String,
        span: Option<Duration>,
    },
    Report {
        token: i64,
        report: Report,
    },
    /// The caller of a Claim went away before it had its answer.
    GiveBack {
        token: i64,
        call: Uuid,
    },
    Cancel {
        cause: Cause,
        reason: String,
    },
    /// Evidence that came apart from the state; changes nothing else.
    Record(Receipt),
    /// The ordering key came free.
    Unblock,
    /// Time has passed; nothing else is asked.
    Tick,
}

/// A lease about to be handed out.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    pub token: i64,
    pub worker: String,
    pub span: Duration,
    pub reports_effect: bool,
    pub call: Uuid,
    pub claim: Option<Uuid>,
}

/// What `step` must know beside the task itself.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    pub now: Timestamp,
    pub policy: &'a Policy,
    /// The queue's retry policy with the task's own wishes applied.
    pub retry: RetryPolicy,
    /// Microseconds of head start that the task's priority gives it; negative for a task that steps back.
    pub head_start: i64,
    /// Where one of the task's subjects is stale: why.
    pub stale: Option<&'a Stale>,
    /// What is on record of the command's token, where that is not simply the running lease.
    pub past: Option<&'a PastAttempt>,
    /// The receipts that the task has, where the command records one.
    pub receipts: &'a [Receipt],
    /// Drawn anew for each decision, in [0, 1).
    pub chance: f64,
}

/// A floor has been raised above the version that the task hangs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    pub cause: Cause,
    pub subject: String,
    pub version: i64,
    /// Absent: the subject is revoked.
    pub floor: Option<i64>,
    pub reason: String,
}

/// An attempt that is over, as the log knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PastAttempt {
    pub number: i32,
    /// Digest of the report that ended it, if one did.
    pub report: Option<i64>,
    /// Digests of the late reports already kept.
    pub late: Vec<i64>,
}

/// What becomes of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub after: Standing,
    /// In the order in which they happened; empty: nothing that the log should know.
    pub events: Vec<Event>,
    /// Whether `after` has to be written. A refusal can write too.
    pub changed: bool,
    pub reply: Result<Reply, super::refusal::Refusal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Applied,
    /// The same thing had been applied before.
    AlreadyApplied,
    /// The lease is still held but was not extended: the work should stop.
    Stop {
        cause: Cause,
        reason: String,
    },
}
