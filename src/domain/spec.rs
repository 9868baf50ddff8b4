//! What a caller asks for: a task's spec, already parsed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::names::{FairnessKey, OrderingKey, QueueName, SubjectId, TaskId};
use super::queue::Policy;
use super::retry::RetryOverrides;
use super::time::Timestamp;

/// One intention to do something.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    pub queue: QueueName,
    pub task_id: TaskId,
    pub kind: String,
    pub payload: Bytes,
    pub content_type: String,
    pub target: String,
    pub event_id: String,
    pub subjects: Vec<Subject>,
    pub fairness_key: FairnessKey,
    /// 1 to 1,000.
    pub cost: i32,
    pub ordering_key: Option<OrderingKey>,
    /// −10 to 10; each step is one `priority_step` of head start.
    pub priority: i32,
    pub labels: BTreeMap<String, String>,
    pub options: Options,
}

/// What a task is about, and which version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub id: SubjectId,
    pub version: i64,
    /// The task's Submit raises the subject's floor to `version`. Neither content nor kept: it is done once.
    pub raise_floor: bool,
}

/// The parts of a spec that few tasks have, and that no query looks for. Stored as one document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryOverrides>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration: Option<Duration>,
    /// Queue, task id and uid (each may be empty) of the task that this one follows from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<[String; 3]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_context: Option<String>,
    /// Task id and uid of the task (of the same queue) that this one replays. Nobody can ask for it: a replay sets it. Boxed: few
    /// have one, and every task carries the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<Box<[String; 2]>>,
}

/// When a task may be claimed for the first time; absent: at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    At(Timestamp),
    After(Duration),
}

/// When a task must have ended; absent: the queue's `default_ttl` after its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    At(Timestamp),
    Within(Duration),
}

/// SHA-256 over what makes two Submits of one task id the same: kind, payload, content type, subjects, target, fairness key and
/// ordering key. Anything else may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TaskSpec {
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            // The length first, so that no two lists of parts run together into the same bytes.
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(self.kind.as_bytes());
        part(&self.payload);
        part(self.content_type.as_bytes());
        part(self.target.as_bytes());
        part(self.fairness_key.as_str().as_bytes());
        part(self.ordering_key.as_ref().map_or("", |k| k.as_str()).as_bytes());
        for subject in &self.subjects {
            part(subject.id.as_str().as_bytes());
            part(&subject.version.to_be_bytes());
        }
        Digest(hash.finalize().into())
    }

    /// Bytes that a task takes in an answer, beside its payload. Generous: it only has to keep answers below what clients accept.
    pub fn weight(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        let names = self.queue.as_str().len() * 2 + self.task_id.as_str().len() * 2 + self.kind.len() + self.content_type.len();
        let keys = self.fairness_key.as_str().len() + self.ordering_key.as_ref().map_or(0, |key| key.as_str().len());
        let subjects: usize = self.subjects.iter().map(|subject| subject.id.as_str().len() + 16).sum();
        labels + names + keys + subjects + self.target.len() + self.event_id.len() + 1_024
    }

    /// The instant before which the task must not start, if it is not to start at once.
    pub fn starts_at(&self, now: Timestamp) -> Option<Timestamp> {
        let start = match self.options.start? {
            Start::At(at) => at,
            Start::After(delay) => now.plus(delay),
        };
        (start > now).then_some(start)
    }

    pub fn deadline(&self, policy: &Policy, now: Timestamp) -> Timestamp {
        match self.options.end {
            Some(End::At(at)) => at,
            Some(End::Within(ttl)) => now.plus(ttl),
            None => now.plus(policy.default_ttl),
        }
    }

    pub fn retry(&self) -> RetryOverrides {
        self.options.retry.unwrap_or_default()
    }
}

/// The longest prefix of `text` that fits into `bytes` and does not cut a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn spec(kind: &str, content_type: &str) -> TaskSpec {
        TaskSpec {
            queue: QueueName::parse("q").unwrap(),
            task_id: TaskId::parse("t").unwrap(),
            kind: kind.into(),
            payload: Bytes::new(),
            content_type: content_type.into(),
            target: String::new(),
            event_id: String::new(),
            subjects: Vec::new(),
            fairness_key: FairnessKey::parse("").unwrap(),
            cost: 1,
            ordering_key: None,
            priority: 0,
            labels: BTreeMap::new(),
            options: Options::default(),
        }
    }

    #[test]
    fn parts_of_the_content_do_not_run_into_each_other() {
        assert_ne!(spec("ab", "").digest(), spec("a", "b").digest());
        assert_eq!(spec("a", "b").digest(), spec("a", "b").digest());
    }

    #[test]
    fn labels_and_priority_are_not_content() {
        let mut other = spec("a", "b");
        other.priority = 3;
        other.labels.insert("k".into(), "v".into());
        assert_eq!(other.digest(), spec("a", "b").digest());
    }

    #[test]
    fn a_start_in_the_past_is_no_start() {
        let mut task = spec("a", "b");
        task.options.start = Some(Start::At(Timestamp(5)));
        assert_eq!(task.starts_at(Timestamp(5)), None);
        assert_eq!(task.starts_at(Timestamp(4)), Some(Timestamp(5)));
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("aé", 300), "aé");
    }
}
