//! Repairs: what becomes of the item that a task left for people, and of what a replay asks for. How the item is stored and listed is
//! elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::limits::ID_BYTES;
use super::names::{FairnessKey, NameError, OrderingKey, QueueName, TaskId};
use super::queue::Policy;
use super::refusal::Refusal;
use super::retry::RetryOverrides;
use super::spec::{End, Options, Start, Subject, TaskSpec};
use super::task::{Cause, Notes, State};
use super::time::Timestamp;

text_enum! {
    pub enum RepairState {
        Open = "OPEN",
        /// A new task took over. Only its own completion means repaired.
        Replayed = "REPLAYED",
        /// Given up.
        Discarded = "DISCARDED",
        /// It happened after all.
        Confirmed = "CONFIRMED",
    }
}

text_enum! {
    /// What was done with a repair.
    pub enum ActionKind {
        Assigned = "ASSIGNED",
        Replayed = "REPLAYED",
        Discarded = "DISCARDED",
        Confirmed = "CONFIRMED",
        /// A replay was refused, and the repair stayed open.
        Refused = "REFUSED",
    }
}

/// What somebody does with a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Absent parts stay as they are.
    Assign {
        owner: Option<String>,
        next_action: Option<String>,
    },
    Replay {
        uid: Uuid,
        task_id: TaskId,
    },
    Discard,
    Confirm {
        receipt_ref: String,
    },
    /// A replay was refused, in these words.
    Refuse {
        refusal: String,
    },
}

/// The part of a repair that actions change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub state: RepairState,
    pub owner: String,
    pub next_action: String,
    pub receipt_ref: String,
    pub replayed_by: Option<Uuid>,
    pub last_refusal: String,
}

/// What an action leads to; `None`: the same had been done before, and nothing changes.
pub fn act(before: &Standing, action: &Action) -> Result<Option<Standing>, Refusal> {
    let after = before.clone();
    if before.state != RepairState::Open {
        return match action {
            Action::Replay { uid, .. } if before.replayed_by == Some(*uid) => Ok(None),
            Action::Discard if before.state == RepairState::Discarded => Ok(None),
            Action::Confirm { receipt_ref } if before.receipt_ref == *receipt_ref => Ok(None),
            // It was resolved while the replay was being refused: there is nothing to keep.
            Action::Refuse { .. } => Ok(None),
            _ => Err(Refusal::RepairResolved { state: before.state }),
        };
    }
    Ok(match action {
        Action::Assign { owner, next_action } => {
            let owner = owner.clone().unwrap_or(after.owner);
            let next_action = next_action.clone().unwrap_or(after.next_action);
            Some(Standing { owner, next_action, ..before.clone() })
        }
        Action::Replay { uid, .. } => Some(Standing { state: RepairState::Replayed, replayed_by: Some(*uid), ..after }),
        Action::Discard => Some(Standing { state: RepairState::Discarded, ..after }),
        Action::Confirm { receipt_ref } => {
            Some(Standing { state: RepairState::Confirmed, receipt_ref: receipt_ref.clone(), ..after })
        }
        // Told once, however often it is tried.
        Action::Refuse { refusal } if before.last_refusal == *refusal => None,
        Action::Refuse { refusal } => Some(Standing { last_refusal: refusal.clone(), ..after }),
    })
}

impl Action {
    pub fn kind(&self) -> ActionKind {
        match self {
            Action::Assign { .. } => ActionKind::Assigned,
            Action::Replay { .. } => ActionKind::Replayed,
            Action::Discard => ActionKind::Discarded,
            Action::Confirm { .. } => ActionKind::Confirmed,
            Action::Refuse { .. } => ActionKind::Refused,
        }
    }

    /// What the record of the action shows beside who and why.
    pub fn detail(&self) -> &str {
        match self {
            Action::Assign { owner, .. } => owner.as_deref().unwrap_or_default(),
            Action::Replay { task_id, .. } => task_id.as_str(),
            Action::Discard => "",
            Action::Confirm { receipt_ref } => receipt_ref,
            Action::Refuse { refusal } => refusal,
        }
    }

    /// Whether the repair is open no more afterwards: then it holds its ordering key no more.
    pub fn resolves(&self) -> bool {
        matches!(self, Action::Replay { .. } | Action::Discard | Action::Confirm { .. })
    }
}

/// How the new task of a replay differs from the old one; absent parts are the old one's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    pub new_task_id: Option<TaskId>,
    pub payload: Option<Bytes>,
    /// Empty: the old ones.
    pub subjects: Vec<Subject>,
    pub fairness_key: Option<FairnessKey>,
    /// Present and empty: no order.
    pub ordering_key: Option<Option<OrderingKey>>,
    /// Empty: the old ones.
    pub labels: BTreeMap<String, String>,
}

/// The id of a replay that nobody named: `a` is replayed by `a~1`, and that by `a~2`. Refused where it would be too long.
pub fn replay_id(old: &TaskSpec) -> Result<TaskId, Refusal> {
    let id = old.task_id.as_str();
    let numbered = id.rsplit_once('~').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?)));
    let next = match numbered {
        // Only of a replay is the number ours; another task may be called what it likes.
        Some((stem, number)) if old.options.replay_of.is_some() => format!("{stem}~{}", u64::from(number) + 1),
        _ => format!("{id}~1"),
    };
    TaskId::parse(&next).map_err(|error| match error {
        NameError::TooLong => {
            Refusal::field("replay.new_task_id", format!("must be given: the default would be longer than {ID_BYTES} bytes"))
        }
        other => Refusal::field("replay.new_task_id", other.to_string()),
    })
}

/// The spec of a replay: the old one's, with a budget and a deadline of its queue anew. `old` has its payload. `delay`: how much later
/// than at once it starts; its deadline counts from there.
pub fn replay_spec(old: &TaskSpec, uid: Uuid, changes: &Changes, policy: &Policy, delay: Duration) -> Result<TaskSpec, Refusal> {
    let task_id = match &changes.new_task_id {
        Some(id) => id.clone(),
        None => replay_id(old)?,
    };
    let retry = old.options.retry.map(|own| RetryOverrides { max_attempts: None, ..own });
    let delayed = !delay.is_zero();
    Ok(TaskSpec {
        task_id,
        payload: changes.payload.clone().unwrap_or_else(|| old.payload.clone()),
        subjects: if changes.subjects.is_empty() { old.subjects.clone() } else { changes.subjects.clone() },
        fairness_key: changes.fairness_key.clone().unwrap_or_else(|| old.fairness_key.clone()),
        ordering_key: changes.ordering_key.clone().unwrap_or_else(|| old.ordering_key.clone()),
        labels: if changes.labels.is_empty() { old.labels.clone() } else { changes.labels.clone() },
        options: Options {
            start: delayed.then_some(Start::After(delay)),
            end: delayed.then(|| End::Within(delay.saturating_add(policy.default_ttl))),
            retry: retry.filter(|own| *own != RetryOverrides::default()),
            replay_of: Some(Box::new([old.task_id.as_str().to_owned(), uid.to_string()])),
            ..old.options.clone()
        },
        ..old.clone()
    })
}

/// How late the `number`-th (from 0) of several replays starts, at `rate` per second; absent: all at once.
pub fn spread(number: usize, rate: Option<f64>) -> Duration {
    let number = f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    rate.map_or(Duration::ZERO, |rate| Duration::try_from_secs_f64(number / rate).unwrap_or(Duration::MAX))
}

/// A repair as people see it, without the task's attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    pub queue: QueueName,
    pub task_id: TaskId,
    pub uid: Uuid,
    pub standing: Standing,
    pub cause: Cause,
    pub kind: String,
    pub target: String,
    pub event_id: String,
    pub subjects: Vec<Subject>,
    pub fairness_key: FairnessKey,
    pub ordering_key: Option<OrderingKey>,
    /// Its ordering key is held for it.
    pub holds_key: bool,
    pub attempts: i32,
    pub unknown_attempts: i32,
    /// With the last error, and when the first one was.
    pub notes: Notes,
    pub opened: Timestamp,
    pub updated: Timestamp,
    pub resolved: Option<Timestamp>,
    pub resolved_by: String,
    /// Given with the last action.
    pub reason: String,
    pub replay: Option<Replay>,
}

/// The task that a repair was replayed by, and how it stands. Without a state it has been forgotten.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub task_id: Option<TaskId>,
    pub uid: Uuid,
    pub state: Option<State>,
    pub cause: Option<Cause>,
    pub ended: Option<Timestamp>,
}

/// Who did what with a repair, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acted {
    pub kind: ActionKind,
    pub time: Timestamp,
    pub actor: String,
    pub reason: String,
    pub detail: String,
}

impl Repair {
    /// Bytes that it takes in an answer. Generous, as a task's weight is.
    pub fn weight(&self) -> usize {
        let texts = [&self.kind, &self.target, &self.event_id, &self.resolved_by, &self.reason, &self.standing.owner];
        let more = [&self.standing.next_action, &self.standing.receipt_ref, &self.standing.last_refusal];
        let texts: usize = texts.into_iter().chain(more).map(String::len).sum();
        let subjects: usize = self.subjects.iter().map(|subject| subject.id.as_str().len() + 16).sum();
        let error = self.notes.last_error.as_ref().map_or(0, |error| error.message.len() + error.code.len());
        // Names and keys are at most five of them.
        texts + subjects + error + 5 * ID_BYTES + 512
    }
}

#[cfg(test)]
mod tests;
