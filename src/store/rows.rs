//! Rows as the statements return them, and what the domain makes of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use crate::domain::event::{Event, EventKind, Evidence};
use crate::domain::names::{FairnessKey, OrderingKey, QueueName, SubjectId, TaskId};
use crate::domain::record::Repair;
use crate::domain::repair::RepairState;
use crate::domain::spec::{Digest, Options, Subject, TaskSpec};
use crate::domain::task::{CancelRequest, Cause, Ended, Lease, Live, Notes, Stage, State};
use crate::domain::time::{Timestamp, micros};

/// A stored text or number that the domain does not know: written by a newer version, or by hand.
fn strange(column: &str) -> StoreError {
    StoreError::Data(sqlx::Error::Decode(format!("column {column} holds something that this version does not know").into()))
}

pub(super) fn known<T>(column: &str, parsed: Option<T>) -> Result<T, StoreError> {
    parsed.ok_or_else(|| strange(column))
}

fn span(us: i64) -> Duration {
    Duration::from_micros(us.unsigned_abs())
}

/// A row of `tasks`.
#[derive(Debug)]
pub struct SpecRow {
    pub queue_id: i32,
    pub uid: Uuid,
    pub task_id: String,
    pub kind: String,
    pub content_type: String,
    pub target: String,
    pub event_id: String,
    pub fairness_key: String,
    pub ordering_key: String,
    pub cost: i32,
    pub priority: i16,
    pub subjects: Option<Json<Vec<(String, i64)>>>,
    pub labels: Option<Json<std::collections::BTreeMap<String, String>>>,
    pub options: Option<Json<Options>>,
    pub digest: Vec<u8>,
}

impl SpecRow {
    /// What the task is about.
    pub fn subjects(&self) -> Result<Vec<Subject>, StoreError> {
        let subject = |(id, version): &(String, i64)| {
            Ok(Subject { id: known("subjects", SubjectId::parse(id).ok())?, version: *version, raise_floor: false })
        };
        self.subjects.as_ref().map_or(Ok(Vec::new()), |subjects| subjects.0.iter().map(subject).collect())
    }

    pub fn spec(self, queue: &QueueName) -> Result<(Arc<TaskSpec>, Digest), StoreError> {
        let subjects = self.subjects()?;
        let spec = TaskSpec {
            queue: queue.clone(),
            task_id: known("task_id", TaskId::parse(&self.task_id).ok())?,
            kind: self.kind,
            payload: Bytes::new(),
            content_type: self.content_type,
            target: self.target,
            event_id: self.event_id,
            subjects,
            fairness_key: known("fairness_key", FairnessKey::parse(&self.fairness_key).ok())?,
            cost: self.cost,
            ordering_key: match self.ordering_key.as_str() {
                "" => None,
                key => Some(known("ordering_key", OrderingKey::parse(key).ok())?),
            },
            priority: i32::from(self.priority),
            labels: self.labels.map(|labels| labels.0).unwrap_or_default(),
            options: self.options.map(|options| options.0).unwrap_or_default(),
        };
        let digest = Digest(self.digest.try_into().map_err(|_| strange("digest"))?);
        Ok((Arc::new(spec), digest))
    }
}

/// A row of `live`.
#[derive(Clone, Debug)]
pub struct LiveRow {
    pub queue_id: i32,
    pub uid: Uuid,
    pub share_id: i32,
    pub key_id: Option<i64>,
    pub position: i64,
    pub state: String,
    pub revision: i64,
    pub attempt: i32,
    pub charged: i32,
    pub max_attempts: i32,
    pub releases: i32,
    pub unknown_attempts: i32,
    pub token: i64,
    pub report: Option<i64>,
    pub rank: i64,
    pub cost: i32,
    pub size: i32,
    pub wake: Option<Timestamp>,
    pub deadline: Timestamp,
    pub worker: Option<String>,
    pub lease_begin: Option<Timestamp>,
    pub lease_expire: Option<Timestamp>,
    pub lease_us: Option<i64>,
    pub stage: Option<String>,
    pub effect_ref: Option<String>,
    pub effect_begun: Option<Timestamp>,
    pub reports_effect: Option<bool>,
    pub heartbeat: Option<Timestamp>,
    pub call_id: Option<Uuid>,
    pub claim_id: Option<Uuid>,
    pub cancel_cause: Option<String>,
    pub cancel_reason: Option<String>,
    pub accepted: Timestamp,
    pub updated: Timestamp,
    pub first_lease: Option<Timestamp>,
    pub notes: Option<Json<Notes>>,
}

impl LiveRow {
    pub fn live(&self) -> Result<Live, StoreError> {
        let lease = match (&self.worker, self.lease_begin, self.lease_expire, self.call_id) {
            (Some(worker), Some(begin), Some(expire), Some(call)) => Some(Lease {
                worker: worker.clone(),
                begin,
                expire,
                span: span(self.lease_us.unwrap_or_default()),
                stage: known("stage", self.stage.as_deref().and_then(Stage::parse))?,
                effect_ref: self.effect_ref.clone(),
                effect_begun: self.effect_begun,
                reports_effect: self.reports_effect.unwrap_or_default(),
                heartbeat: self.heartbeat,
                call,
                claim: self.claim_id,
            }),
            _ => None,
        };
        let cancel = match &self.cancel_cause {
            Some(cause) => Some(CancelRequest {
                cause: known("cancel_cause", Cause::parse(cause))?,
                reason: self.cancel_reason.clone().unwrap_or_default(),
            }),
            None => None,
        };
        Ok(Live {
            state: known("state", State::parse(&self.state))?,
            revision: self.revision,
            attempt: self.attempt,
            charged: self.charged,
            max_attempts: self.max_attempts,
            releases: self.releases,
            unknown_attempts: self.unknown_attempts,
            token: self.token,
            report: self.report,
            rank: self.rank,
            wake: self.wake,
            deadline: self.deadline,
            lease,
            cancel,
            accepted: self.accepted,
            updated: self.updated,
            first_lease: self.first_lease,
            notes: self.notes.clone().map(|notes| notes.0).unwrap_or_default(),
        })
    }
}

/// A row of `ended`.
#[derive(Clone, Debug)]
pub struct EndedRow {
    pub queue_id: i32,
    pub uid: Uuid,
    pub key_id: Option<i64>,
    pub position: i64,
    pub state: String,
    pub cause: Option<String>,
    pub reason: String,
    pub revision: i64,
    pub attempt: i32,
    pub charged: i32,
    pub max_attempts: i32,
    pub unknown_attempts: i32,
    pub token: i64,
    pub report: Option<i64>,
    pub boundary: String,
    pub accepted: Timestamp,
    pub ended: Timestamp,
    pub deadline: Timestamp,
    pub first_lease: Option<Timestamp>,
    pub stage: Option<String>,
    pub worker: Option<String>,
    pub evidence: Option<Json<Evidence>>,
    pub notes: Option<Json<Notes>>,
}

impl EndedRow {
    pub fn ended(self) -> Result<Ended, StoreError> {
        Ok(Ended {
            state: known("state", State::parse(&self.state))?,
            cause: self.cause.as_deref().map(|cause| known("cause", Cause::parse(cause))).transpose()?,
            reason: self.reason,
            revision: self.revision,
            attempt: self.attempt,
            charged: self.charged,
            max_attempts: self.max_attempts,
            unknown_attempts: self.unknown_attempts,
            token: self.token,
            report: self.report,
            boundary: self.boundary,
            accepted: self.accepted,
            ended: self.ended,
            deadline: self.deadline,
            first_lease: self.first_lease,
            stage: self.stage.as_deref().map(|stage| known("stage", Stage::parse(stage))).transpose()?,
            worker: self.worker,
            evidence: self.evidence.map(|evidence| evidence.0).unwrap_or_default(),
            notes: self.notes.map(|notes| notes.0).unwrap_or_default(),
        })
    }
}

/// A row of `events`.
#[derive(Debug)]
pub struct EventRow {
    pub uid: Uuid,
    pub revision: i64,
    pub time: Timestamp,
    pub kind: String,
    pub previous_state: Option<String>,
    pub state: String,
    pub cause: Option<String>,
    pub attempt: i32,
    pub token: i64,
    pub worker: Option<String>,
    pub evidence: Option<Json<Evidence>>,
}

impl EventRow {
    pub fn event(self) -> Result<Event, StoreError> {
        Ok(Event {
            kind: known("kind", EventKind::parse(&self.kind))?,
            revision: self.revision,
            previous: self.previous_state.as_deref().map(|state| known("previous_state", State::parse(state))).transpose()?,
            state: known("state", State::parse(&self.state))?,
            cause: self.cause.as_deref().map(|cause| known("cause", Cause::parse(cause))).transpose()?,
            attempt: self.attempt,
            token: self.token,
            worker: self.worker,
            time: self.time,
            evidence: self.evidence.map(|evidence| evidence.0).unwrap_or_default(),
        })
    }
}

/// A row of `repairs`, in short.
#[derive(Debug)]
pub struct SummaryRow {
    pub uid: Uuid,
    pub state: String,
    pub owner: String,
    pub next_action: String,
    pub replayed_by: Option<Uuid>,
    pub replay_id: Option<String>,
}

impl SummaryRow {
    pub fn repair(self) -> Result<Repair, StoreError> {
        Ok(Repair {
            state: known("repairs.state", RepairState::parse(&self.state))?,
            owner: self.owner,
            next_action: self.next_action,
            replayed_by: self.replayed_by.map(|uid| (self.replay_id, uid)),
        })
    }
}

/// The documents of a spec, as they are stored: absent instead of empty.
pub(super) fn documents(spec: &TaskSpec) -> (Option<Value>, Option<Value>, Option<Value>) {
    let subjects: Vec<_> = spec.subjects.iter().map(|s| (s.id.as_str(), s.version)).collect();
    (
        (!subjects.is_empty()).then(|| serde_json::json!(subjects)),
        (!spec.labels.is_empty()).then(|| serde_json::json!(spec.labels)),
        (spec.options != Options::default()).then(|| serde_json::json!(spec.options)),
    )
}

pub(super) fn lease_us(lease: &Lease) -> i64 {
    micros(lease.span)
}
