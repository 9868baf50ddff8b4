//! A queue's policy, in and out.

use std::time::Duration;

use super::budget::{budgets, to_rate};
use super::clears::{Clears, Field, cleared};
use super::enums;
use super::retry::{retry, to_retry};
use crate::api::fields::{Fields, read};
use crate::api::proto as pb;
use crate::api::times::to_span;
use crate::domain::limits::{
    DEADLINE, DEADLINE_MARGIN, EVIDENCE_RETENTION, ID_BYTES, LEASE_MAX, LEASE_MIN, PRIORITY_STEP, RETENTION,
};
use crate::domain::names::QueueName;
use crate::domain::queue::{PolicyEdit, RetentionEdit, RetryEdit};
use crate::domain::refusal::Refusal;
use crate::domain::retry::{RetryOverrides, RetryPolicy};
use crate::domain::time::micros;
use crate::engine::{PutQueueCommand, Queue};

/// The database counts in microseconds: less than one of them would be nothing.
const TTL_MIN: Duration = Duration::from_micros(1);
const RETRY: &str = "retry";

fn fields(queue: &pb::Queue) -> [Field; 19] {
    let retry = queue.retry.unwrap_or_default();
    let field = |name, given| Field { name, given };
    [
        field("boundary", queue.boundary.is_some()),
        field("paused", queue.paused.is_some()),
        field("on_unknown", queue.on_unknown != 0),
        field("on_repair", queue.on_repair != 0),
        field("retry.max_attempts", retry.max_attempts.is_some()),
        field("retry.initial_backoff", retry.initial_backoff.is_some()),
        field("retry.max_backoff", retry.max_backoff.is_some()),
        field("retry.multiplier", retry.multiplier.is_some()),
        field("retry.jitter", retry.jitter.is_some()),
        field("default_ttl", queue.default_ttl.is_some()),
        field("lease_duration", queue.lease_duration.is_some()),
        field("priority_step", queue.priority_step.is_some()),
        field("deadline_margin", queue.deadline_margin.is_some()),
        field("max_in_flight", queue.max_in_flight.is_some()),
        field("rate_limit", queue.rate_limit.is_some()),
        field("max_unfinished", queue.max_unfinished.is_some()),
        field("payload_retention", queue.payload_retention.is_some()),
        field("result_retention", queue.result_retention.is_some()),
        field("evidence_retention", queue.evidence_retention.is_some()),
    ]
}

pub fn put_queue(request: pb::PutQueueRequest) -> Result<PutQueueCommand, Refusal> {
    read(|f| {
        let reason = f.reason(request.reason, false);
        let queue = f.required("queue", request.queue)?;
        let fields = fields(&queue);
        let cleared = cleared(f, &fields, request.clear_fields);
        let mut f = f.inside("queue");
        let name = f.name("name", &queue.name, QueueName::parse);
        let etag = f.text("etag", queue.etag.clone(), ID_BYTES);
        let edit = edit(&mut f, queue, cleared.as_deref().unwrap_or_default());
        cleared?;
        let etag = Some(etag?).filter(|etag| !etag.is_empty());
        Some(PutQueueCommand { queue: name?, edit: edit?, etag, reason: reason? })
    })
}

fn edit(f: &mut Fields<'_>, queue: pb::Queue, cleared: &[String]) -> Option<PolicyEdit> {
    let clears = Clears(cleared);
    let budgets = budgets(f, &clears, queue.max_in_flight, queue.rate_limit, queue.max_unfinished);
    let boundary = queue.boundary.map_or(Some(None), |text| f.some_text("boundary", text, ID_BYTES).map(Some));
    let on_unknown = given_choice(f, "on_unknown", queue.on_unknown, enums::on_unknown);
    let on_repair = given_choice(f, "on_repair", queue.on_repair, enums::on_repair);
    let own = retry(&mut f.inside(RETRY), queue.retry.unwrap_or_default());
    let mut span = |name, span, range| Some(f.optional_span(name, span, range)?.map(whole_micros));
    let default_ttl = span("default_ttl", queue.default_ttl, TTL_MIN..=DEADLINE);
    let lease_duration = span("lease_duration", queue.lease_duration, LEASE_MIN..=LEASE_MAX);
    let priority_step = span("priority_step", queue.priority_step, Duration::ZERO..=PRIORITY_STEP);
    let deadline_margin = span("deadline_margin", queue.deadline_margin, Duration::ZERO..=DEADLINE_MARGIN);
    let payload = span("payload_retention", queue.payload_retention, Duration::ZERO..=RETENTION);
    let result = span("result_retention", queue.result_retention, Duration::ZERO..=RETENTION);
    let evidence = span("evidence_retention", queue.evidence_retention, Duration::ZERO..=EVIDENCE_RETENTION);
    Some(PolicyEdit {
        boundary: clears.or_set("boundary", boundary?),
        paused: clears.or_set("paused", queue.paused),
        on_unknown: clears.or_set("on_unknown", on_unknown?),
        on_repair: clears.or_set("on_repair", on_repair?),
        retry: retry_edit(&clears, own?),
        default_ttl: clears.or_set("default_ttl", default_ttl?),
        lease_duration: clears.or_set("lease_duration", lease_duration?),
        priority_step: clears.or_set("priority_step", priority_step?),
        deadline_margin: clears.or_set("deadline_margin", deadline_margin?),
        budgets: budgets?,
        retention: RetentionEdit {
            payload: clears.or_set("payload_retention", payload?),
            result: clears.or_set("result_retention", result?),
            evidence: clears.or_set("evidence_retention", evidence?),
        },
    })
}

fn retry_edit(clears: &Clears<'_>, own: RetryOverrides) -> RetryEdit {
    RetryEdit {
        max_attempts: clears.or_set("retry.max_attempts", own.max_attempts),
        initial_backoff: clears.or_set("retry.initial_backoff", own.initial_backoff.map(whole_micros)),
        max_backoff: clears.or_set("retry.max_backoff", own.max_backoff.map(whole_micros)),
        multiplier: clears.or_set("retry.multiplier", own.multiplier),
        jitter: clears.or_set("retry.jitter", own.jitter),
    }
}

/// What is finer than the database keeps is cut off here, so that the answer says what is stored.
fn whole_micros(span: Duration) -> Duration {
    Duration::from_micros(micros(span).unsigned_abs())
}

/// As `choice`; UNSPECIFIED: it isn't given.
fn given_choice<T>(f: &mut Fields<'_>, name: &str, value: i32, parse: fn(i32) -> Option<T>) -> Option<Option<T>> {
    if value == 0 { Some(None) } else { f.choice(name, value, parse).map(Some) }
}

pub fn get_queue(request: pb::GetQueueRequest) -> Result<QueueName, Refusal> {
    read(|f| f.name("name", &request.name, QueueName::parse))
}

pub fn list_queues(request: pb::ListQueuesRequest) -> Result<(i32, String), Refusal> {
    read(|f| f.page(request.page_size, request.page_token))
}

/// With everything that is in force. A cap or retention that there is none of stays absent.
pub fn to_queue(queue: Queue) -> pb::Queue {
    let policy = queue.policy;
    pb::Queue {
        name: queue.name.as_str().to_owned(),
        boundary: Some(policy.boundary),
        paused: Some(policy.paused),
        on_unknown: enums::to_on_unknown(policy.on_unknown) as i32,
        on_repair: enums::to_on_repair(policy.on_repair) as i32,
        retry: Some(to_retry(whole(policy.retry))),
        default_ttl: Some(to_span(policy.default_ttl)),
        lease_duration: Some(to_span(policy.lease_duration)),
        priority_step: Some(to_span(policy.priority_step)),
        deadline_margin: Some(to_span(policy.deadline_margin)),
        max_in_flight: policy.budgets.max_in_flight.map(i32::unsigned_abs),
        rate_limit: policy.budgets.rate.map(to_rate),
        max_unfinished: policy.budgets.max_unfinished.map(i32::unsigned_abs),
        payload_retention: policy.retention.payload.map(to_span),
        result_retention: policy.retention.result.map(to_span),
        evidence_retention: policy.retention.evidence.map(to_span),
        etag: queue.etag.to_string(),
    }
}

fn whole(retry: RetryPolicy) -> RetryOverrides {
    RetryOverrides {
        max_attempts: Some(retry.max_attempts),
        initial_backoff: Some(retry.initial_backoff),
        max_backoff: Some(retry.max_backoff),
        multiplier: Some(retry.multiplier),
        jitter: Some(retry.jitter),
    }
}

#[cfg(test)]
mod tests;
