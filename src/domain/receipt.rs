//! Receipts: evidence that comes apart from a task's state, and never changes it.

use super::time::Timestamp;

/// What somebody outside has seen of a task's effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What it proves, e.g. `device_received`.
    pub kind: String,
    /// Its own id; with `kind` unique within the task.
    pub receipt_ref: String,
    /// The outside call that it answers; empty: not told.
    pub effect_ref: String,
    /// By the reporter's clock; absent: not told.
    pub occurred: Option<Timestamp>,
}

impl Receipt {
    /// Whether both are the same receipt: told again it is recorded once, whatever else is told with it.
    pub fn same(&self, other: &Receipt) -> bool {
        self.kind == other.kind && self.receipt_ref == other.receipt_ref
    }
}

/// A receipt as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub receipt: Receipt,
    pub recorded: Timestamp,
}
