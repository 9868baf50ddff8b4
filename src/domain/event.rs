//! What the event log keeps: one event per change of state, and one per piece of evidence.

use serde::{Deserialize, Serialize};

use super::task::{Cause, ErrorClass, Outcome, Progress, Stage, State};
use super::time::Timestamp;

text_enum! {
    pub enum EventKind {
        Submitted = "SUBMITTED",
        /// Time or the key let it become SCHEDULED or READY.
        Ready = "READY",
        Unblocked = "UNBLOCKED",
        Leased = "LEASED",
        EffectBegun = "EFFECT_BEGUN",
        /// The attempt ended and another one is planned.
        RetryPlanned = "RETRY_PLANNED",
        /// The lease was handed back before the effect began.
        Released = "RELEASED",
        Ended = "ENDED",
        CancelRequested = "CANCEL_REQUESTED",
        /// Evidence only: a report from a lease that no longer counts.
        LateReport = "LATE_REPORT",
        /// Evidence only: it came apart from the state.
        Receipt = "RECEIPT",
    }
}

/// One row of the log, before the database gives it its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub kind: EventKind,
    pub revision: i64,
    /// Absent for the first event of a task.
    pub previous: Option<State>,
    pub state: State,
    pub cause: Option<Cause>,
    /// The attempt it speaks of; 0 where it speaks of none.
    pub attempt: i32,
    pub token: i64,
    pub worker: Option<String>,
    pub time: Timestamp,
    pub evidence: Evidence,
}

/// What is known beside the state. Every part is absent where it was not told or does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The stage that the attempt had reached when it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_size: Option<i64>,
    /// What a receipt proves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_kind: Option<String>,
    /// When that happened, by the clock of whoever reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occur_time: Option<Timestamp>,
    /// Why, in the words of whoever asked: of a cancel, a skip or a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether the attempt counts against the budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged: Option<bool>,
    /// Digest of the report that ended the attempt or came late: the same report again is recognised by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_time: Option<Timestamp>,
    /// The attempt's last progress, when it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl Evidence {
    pub fn is_empty(&self) -> bool {
        *self == Evidence::default()
    }
}
