//! WorkerService's requests, in.

use std::time::Duration;

use super::enums;
use crate::api::fields::{Fields, read};
use crate::api::proto::{self as pb, complete_request::Outcome};
use crate::domain::limits::{
    CLAIM_TASKS, COMPLETE_BATCH, DEADLINE, HEARTBEAT_BATCH, ID_BYTES, LEASE_MAX, LEASE_MIN, MESSAGE_BYTES, NOTE_BYTES,
    REFERENCE_BYTES, RESULT_BYTES, WAIT,
};
use crate::domain::names::{QueueName, RequestId, WorkerId};
use crate::domain::refusal::Refusal;
use crate::domain::report::{Failure, Report, Success};
use crate::domain::task::Progress;
use crate::engine::{ClaimCommand, HeartbeatCommand, LeaseRef};

pub fn claim(request: pb::ClaimRequest) -> Result<ClaimCommand, Refusal> {
    read(|f| {
        let queue = f.name("queue", &request.queue, QueueName::parse);
        let worker = f.name("worker_id", &request.worker_id, WorkerId::parse);
        let max_tasks = f.number("max_tasks", request.max_tasks.unwrap_or(1), 1..=CLAIM_TASKS);
        let wait = f.optional_span("wait", request.wait, Duration::ZERO..=WAIT);
        let lease_duration = f.optional_span("lease_duration", request.lease_duration, LEASE_MIN..=LEASE_MAX);
        let request_id = f.optional_name("request_id", &request.request_id, RequestId::parse);
        Some(ClaimCommand {
            queue: queue?,
            worker: worker?,
            max_tasks: max_tasks?,
            wait: wait?.unwrap_or(Duration::ZERO),
            lease_duration: lease_duration?,
            request_id: request_id?,
            reports_effect: request.reports_effect,
        })
    })
}

pub fn begin_effect(request: pb::BeginEffectRequest) -> Result<(LeaseRef, String, Option<Duration>), Refusal> {
    read(|f| {
        let lease = lease_ref(f, request.lease);
        let effect_ref = f.text("effect_ref", request.effect_ref, REFERENCE_BYTES);
        let span = f.optional_span("lease_duration", request.lease_duration, LEASE_MIN..=LEASE_MAX);
        Some((lease?, effect_ref?, span?))
    })
}

/// Each item of the heartbeat, or why it can't be read.
pub fn heartbeat(request: pb::HeartbeatRequest) -> Result<Vec<Result<HeartbeatCommand, Refusal>>, Refusal> {
    let items = request.items;
    read(|f| {
        let worker = f.name("worker_id", &request.worker_id, WorkerId::parse);
        let count = f.count("items", items.len(), 1..=HEARTBEAT_BATCH);
        worker.zip(count)
    })?;
    let numbered = items.into_iter().enumerate();
    Ok(numbered.map(|(index, item)| read(|f| heartbeat_item(&mut f.item("items", index), item))).collect())
}

fn heartbeat_item(f: &mut Fields<'_>, item: pb::HeartbeatItem) -> Option<HeartbeatCommand> {
    let lease = lease_ref(f, item.lease);
    let span = f.optional_span("lease_duration", item.lease_duration, LEASE_MIN..=LEASE_MAX);
    let progress = item.progress.map_or(Some(None), |progress| progress_in(&mut f.inside("progress"), progress).map(Some));
    Some(HeartbeatCommand { lease: lease?, span: span?, progress: progress? })
}

fn progress_in(f: &mut Fields<'_>, progress: pb::Progress) -> Option<Progress> {
    let done = f.amount("done", progress.done);
    let total = f.amount("total", progress.total.unwrap_or(0));
    let note = f.prose("note", progress.note, NOTE_BYTES);
    Some(Progress { done: done?, total: total?, note: note? })
}

pub fn complete(request: pb::CompleteRequest) -> ReportRead {
    read(|f| complete_one(f, request))
}

/// A report and the lease that it ends, or why it can't be read.
pub type ReportRead = Result<(LeaseRef, Report), Refusal>;

pub fn complete_batch(request: pb::CompleteBatchRequest) -> Result<Vec<ReportRead>, Refusal> {
    let requests = request.requests;
    read(|f| f.count("requests", requests.len(), 1..=COMPLETE_BATCH))?;
    let numbered = requests.into_iter().enumerate();
    Ok(numbered.map(|(index, one)| read(|f| complete_one(&mut f.item("requests", index), one))).collect())
}

fn complete_one(f: &mut Fields<'_>, request: pb::CompleteRequest) -> Option<(LeaseRef, Report)> {
    let lease = lease_ref(f, request.lease);
    let report = f.required("outcome", request.outcome).and_then(|outcome| report(f, outcome));
    lease.zip(report)
}

fn report(f: &mut Fields<'_>, outcome: Outcome) -> Option<Report> {
    Some(match outcome {
        Outcome::Succeeded(success) => Report::Succeeded(succeeded(&mut f.inside("succeeded"), success)?),
        Outcome::Failed(failure) => Report::Failed(failed(&mut f.inside("failed"), failure)?),
        Outcome::Skipped(skipped) => Report::Skipped { reason: f.inside("skipped").reason(skipped.reason, true)? },
        Outcome::Canceled(canceled) => Report::Canceled { reason: f.inside("canceled").reason(canceled.reason, false)? },
        Outcome::Released(released) => {
            let mut f = f.inside("released");
            let delay = f.optional_span("delay", released.delay, Duration::ZERO..=DEADLINE);
            let reason = f.reason(released.reason, false);
            Report::Released { delay: delay?.unwrap_or(Duration::ZERO), reason: reason? }
        }
    })
}

fn succeeded(f: &mut Fields<'_>, success: pb::Succeeded) -> Option<Success> {
    let receipt_ref = f.text("receipt_ref", success.receipt_ref, REFERENCE_BYTES);
    let effect_ref = f.text("effect_ref", success.effect_ref, REFERENCE_BYTES);
    let result_ref = f.text("result_ref", success.result_ref, REFERENCE_BYTES);
    let result_digest = f.text("result_digest", success.result_digest, ID_BYTES);
    let result_size = success.result_size.map_or(Some(None), |size| f.amount("result_size", size).map(Some));
    let result = f.bytes("result", success.result, RESULT_BYTES);
    Some(Success {
        receipt_ref: receipt_ref?,
        effect_ref: effect_ref?,
        result_ref: result_ref?,
        result_digest: result_digest?,
        result_size: result_size?,
        result: result?,
    })
}

fn failed(f: &mut Fields<'_>, failure: pb::Failed) -> Option<Failure> {
    let class = f.choice("error_class", failure.error_class, enums::error_class);
    let code = f.some_text("code", failure.code, ID_BYTES);
    let message = f.prose("message", failure.message, MESSAGE_BYTES);
    let effect_ref = f.text("effect_ref", failure.effect_ref, REFERENCE_BYTES);
    let retry_after = f.optional_span("retry_after", failure.retry_after, Duration::ZERO..=DEADLINE);
    Some(Failure {
        class: class?,
        code: code?,
        message: message?,
        effect_ref: effect_ref?,
        retry_after: retry_after?.unwrap_or(Duration::ZERO),
    })
}

/// The field `lease`.
fn lease_ref(f: &mut Fields<'_>, lease: Option<pb::LeaseRef>) -> Option<LeaseRef> {
    let lease = f.required("lease", lease)?;
    let mut f = f.inside("lease");
    let queue = f.name("queue", &lease.queue, QueueName::parse);
    let uid = f.uuid("task_uid", &lease.task_uid);
    let token = f.number("fencing_token", lease.fencing_token, 1..=i64::MAX);
    Some(LeaseRef { queue: queue?, uid: uid?, token: token? })
}
