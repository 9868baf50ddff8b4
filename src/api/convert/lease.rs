//! Leases and what workers are told of them, out.

use super::answers::{attempt, task};
use super::enums::to_cause;
use crate::api::proto as pb;
use crate::api::times::{to_instant, to_span};
use crate::engine::{Begun, Held, LeasedTask};

/// A lease, with the task's payload.
pub fn lease(lease: LeasedTask) -> pb::Lease {
    let queue = lease.task.spec.queue.as_str().to_owned();
    let shown = task(lease.task, true);
    pb::Lease {
        lease_ref: Some(pb::LeaseRef { queue, task_uid: shown.uid.clone(), fencing_token: lease.token }),
        trace_context: shown.spec.as_ref().map_or_else(String::new, |spec| spec.trace_context.clone()),
        task: Some(shown),
        attempt: lease.attempt,
        attempts_left: lease.attempts_left,
        remaining: Some(to_span(lease.remaining)),
        deadline_remaining: Some(to_span(lease.deadline_remaining)),
        expire_time: Some(to_instant(lease.expire)),
        heartbeat_interval: Some(to_span(lease.heartbeat_interval)),
        unknown_attempts: lease.unknown_attempts.into_iter().map(attempt).collect(),
    }
}

pub fn held(held: Held) -> pb::LeaseHeld {
    let (directive, cause, reason) = match held.stop {
        None => (pb::Directive::Continue, pb::Cause::Unspecified, String::new()),
        Some((cause, reason)) => (pb::Directive::Cancel, to_cause(cause), reason),
    };
    pb::LeaseHeld {
        remaining: Some(to_span(held.remaining)),
        deadline_remaining: Some(to_span(held.deadline_remaining)),
        expire_time: Some(to_instant(held.expire)),
        directive: directive as i32,
        cause: cause as i32,
        reason,
    }
}

pub fn begun(begun: Begun) -> pb::BeginEffectResponse {
    pb::BeginEffectResponse {
        remaining: Some(to_span(begun.remaining)),
        deadline_remaining: Some(to_span(begun.deadline_remaining)),
        already_applied: begun.already_applied,
    }
}
