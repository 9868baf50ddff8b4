//! Rows turned into columns: a set statement takes one array per column.

use sqlx::types::Json;
use uuid::Uuid;

use super::rows::lease_us;
use crate::domain::event::{Event, Evidence};
use crate::domain::task::{Ended, Live, Notes};
use crate::domain::time::Timestamp;

/// Where a task lives: the parts of its row that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub queue_id: i32,
    pub uid: Uuid,
    pub share_id: i32,
    pub key_id: Option<i64>,
    pub position: i64,
}

fn stored_notes(notes: &Notes) -> Option<Json<Notes>> {
    (*notes != Notes::default()).then(|| Json(notes.clone()))
}

fn stored_evidence(evidence: &Evidence) -> Option<Json<Evidence>> {
    (!evidence.is_empty()).then(|| Json(evidence.clone()))
}

/// Declares a struct of columns.
macro_rules! columns {
    ($name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        #[derive(Default)]
        pub(super) struct $name { $(pub(super) $field: Vec<$type>),+ }
    };
}

columns!(LiveColumns {
    queue_id: i32,
    uid: Uuid,
    state: &'static str,
    revision: i64,
    attempt: i32,
    charged: i32,
    releases: i32,
    unknown_attempts: i32,
    token: i64,
    report: Option<i64>,
    rank: i64,
    wake: Option<Timestamp>,
    due: Timestamp,
    worker: Option<String>,
    lease_begin: Option<Timestamp>,
    lease_expire: Option<Timestamp>,
    lease_us: Option<i64>,
    stage: Option<&'static str>,
    effect_ref: Option<String>,
    effect_begun: Option<Timestamp>,
    reports_effect: Option<bool>,
    heartbeat: Option<Timestamp>,
    call_id: Option<Uuid>,
    claim_id: Option<Uuid>,
    cancel_cause: Option<&'static str>,
    cancel_reason: Option<String>,
    updated: Timestamp,
    first_lease: Option<Timestamp>,
    notes: Option<Json<Notes>>,
});

impl LiveColumns {
    pub(super) fn push(&mut self, place: &Place, live: &Live) {
        let lease = live.lease.as_ref();
        self.queue_id.push(place.queue_id);
        self.uid.push(place.uid);
        self.state.push(live.state.as_str());
        self.revision.push(live.revision);
        self.attempt.push(live.attempt);
        self.charged.push(live.charged);
        self.releases.push(live.releases);
        self.unknown_attempts.push(live.unknown_attempts);
        self.token.push(live.token);
        self.report.push(live.report);
        self.rank.push(live.rank);
        self.wake.push(live.wake);
        self.due.push(live.due());
        self.worker.push(lease.map(|l| l.worker.clone()));
        self.lease_begin.push(lease.map(|l| l.begin));
        self.lease_expire.push(lease.map(|l| l.expire));
        self.lease_us.push(lease.map(lease_us));
        self.stage.push(lease.map(|l| l.stage.as_str()));
        self.effect_ref.push(lease.and_then(|l| l.effect_ref.clone()));
        self.effect_begun.push(lease.and_then(|l| l.effect_begun));
        self.reports_effect.push(lease.map(|l| l.reports_effect));
        self.heartbeat.push(lease.and_then(|l| l.heartbeat));
        self.call_id.push(lease.map(|l| l.call));
        self.claim_id.push(lease.and_then(|l| l.claim));
        self.cancel_cause.push(live.cancel.as_ref().map(|c| c.cause.as_str()));
        self.cancel_reason.push(live.cancel.as_ref().map(|c| c.reason.clone()));
        self.updated.push(live.updated);
        self.first_lease.push(live.first_lease);
        self.notes.push(stored_notes(&live.notes));
    }
}

columns!(EndedColumns {
    queue_id: i32,
    uid: Uuid,
    key_id: Option<i64>,
    position: i64,
    state: &'static str,
    cause: Option<&'static str>,
    reason: String,
    revision: i64,
    attempt: i32,
    charged: i32,
    max_attempts: i32,
    unknown_attempts: i32,
    token: i64,
    report: Option<i64>,
    boundary: String,
    accepted: Timestamp,
    ended: Timestamp,
    deadline: Timestamp,
    first_lease: Option<Timestamp>,
    stage: Option<&'static str>,
    worker: Option<String>,
    evidence: Option<Json<Evidence>>,
    notes: Option<Json<Notes>>,
});

impl EndedColumns {
    pub(super) fn push(&mut self, place: &Place, ended: &Ended) {
        self.queue_id.push(place.queue_id);
        self.uid.push(place.uid);
        self.key_id.push(place.key_id);
        self.position.push(place.position);
        self.state.push(ended.state.as_str());
        self.cause.push(ended.cause.map(|cause| cause.as_str()));
        self.reason.push(ended.reason.clone());
        self.revision.push(ended.revision);
        self.attempt.push(ended.attempt);
        self.charged.push(ended.charged);
        self.max_attempts.push(ended.max_attempts);
        self.unknown_attempts.push(ended.unknown_attempts);
        self.token.push(ended.token);
        self.report.push(ended.report);
        self.boundary.push(ended.boundary.clone());
        self.accepted.push(ended.accepted);
        self.ended.push(ended.ended);
        self.deadline.push(ended.deadline);
        self.first_lease.push(ended.first_lease);
        self.stage.push(ended.stage.map(|stage| stage.as_str()));
        self.worker.push(ended.worker.clone());
        self.evidence.push(stored_evidence(&ended.evidence));
        self.notes.push(stored_notes(&ended.notes));
    }
}

columns!(EventColumns {
    queue_id: i32,
    uid: Uuid,
    revision: i64,
    time: Timestamp,
    kind: &'static str,
    previous_state: Option<&'static str>,
    state: &'static str,
    cause: Option<&'static str>,
    attempt: i32,
    token: i64,
    worker: Option<String>,
    evidence: Option<Json<Evidence>>,
});

impl EventColumns {
    pub(super) fn push(&mut self, queue_id: i32, uid: Uuid, event: &Event) {
        self.queue_id.push(queue_id);
        self.uid.push(uid);
        self.revision.push(event.revision);
        self.time.push(event.time);
        self.kind.push(event.kind.as_str());
        self.previous_state.push(event.previous.map(|state| state.as_str()));
        self.state.push(event.state.as_str());
        self.cause.push(event.cause.map(|cause| cause.as_str()));
        self.attempt.push(event.attempt);
        self.token.push(event.token);
        self.worker.push(event.worker.clone());
        self.evidence.push(stored_evidence(&event.evidence));
    }
}
