//! A queue's policy: what its tasks inherit, and what its completion proves. How it is changed is in `queue/edit.rs`.

mod edit;

use std::time::Duration;

use super::budget::Budgets;
use super::retry::{RetryOverrides, RetryPolicy};
use super::time::Timestamp;

pub use edit::{Edit, PolicyEdit, RetentionEdit, RetryEdit};

text_enum! {
    /// What becomes of a task whose attempt's outcome is unknown.
    pub enum OnUnknown {
        /// The next lease is told of the unknown attempt.
        Retry = "RETRY",
        /// People look first.
        Repair = "REPAIR",
    }
}

text_enum! {
    /// What becomes of an ordering key whose head went to repair.
    pub enum OnRepair {
        /// The next task of the key goes on.
        Continue = "CONTINUE",
        /// The key is held until the repair is resolved.
        Hold = "HOLD",
    }
}

/// The policy of a queue. What a queue that nobody configured has is [`Policy::default`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What a completion proves, e.g. `provider_accepted`; `worker_reported` while nobody said.
    pub boundary: String,
    pub paused: bool,
    pub on_unknown: OnUnknown,
    pub on_repair: OnRepair,
    pub retry: RetryPolicy,
    /// How long a task has from its acceptance to its deadline, when its spec says nothing.
    pub default_ttl: Duration,
    pub lease_duration: Duration,
    /// How much of a head start one step of priority is.
    pub priority_step: Duration,
    /// How long before the deadline a retry must be able to begin, to be planned at all.
    pub deadline_margin: Duration,
    pub budgets: Budgets,
    pub retention: Retention,
    /// The latest moment at which the queue's fleet was found stalled (`domain/stall.rs`). Nobody sets it; decisions go by it.
    pub stalled: Option<Timestamp>,
}

/// How long what a task leaves behind is kept after its end; absent: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    pub payload: Option<Duration>,
    pub result: Option<Duration>,
    /// Everything, the task id included.
    pub evidence: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            boundary: "worker_reported".to_owned(),
            paused: false,
            on_unknown: OnUnknown::Retry,
            on_repair: OnRepair::Continue,
            retry: RetryPolicy::default(),
            default_ttl: Duration::from_secs(86_400),
            lease_duration: Duration::from_secs(30),
            priority_step: Duration::from_secs(60),
            deadline_margin: Duration::ZERO,
            budgets: Budgets::default(),
            retention: Retention::default(),
            stalled: None,
        }
    }
}

impl Policy {
    /// How a task with these wishes of its own is tried again.
    pub fn retry_of(&self, own: &RetryOverrides) -> RetryPolicy {
        self.retry.with(own)
    }
}
