//! A task as a whole: what was asked, where it stands, and who looks after it.

use std::sync::Arc;

use uuid::Uuid;

use super::repair::RepairState;
use super::spec::{Digest, TaskSpec};
use super::task::Standing;

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub uid: Uuid,
    /// Without its payload, unless that was asked for.
    pub spec: Arc<TaskSpec>,
    pub digest: Digest,
    /// Order of acceptance within its queue; of a replay that took its place in a held key, the old task's.
    pub position: i64,
    pub standing: Standing,
    /// The result's bytes, where they were asked for and are kept.
    pub result: Option<bytes::Bytes>,
    pub repair: Option<Repair>,
}

/// The open item that a task left for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    pub state: RepairState,
    pub owner: String,
    pub next_action: String,
    /// The new task's id (absent: it has been forgotten) and uid.
    pub replayed_by: Option<(Option<String>, Uuid)>,
}

impl Task {
    /// Whether the payload was erased. Only of a task that was read with its payload: what is missing shows by the digest.
    pub fn payload_erased(&self) -> bool {
        self.standing.state().terminal() && self.spec.payload.is_empty() && self.spec.digest() != self.digest
    }
}
