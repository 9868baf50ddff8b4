//! A task's spec, in and out.

use std::time::Duration;

use super::retry::{retry, to_retry};
use crate::api::fields::Fields;
use crate::api::proto::{self as pb, task_spec};
use crate::api::times::{to_instant, to_span};
use crate::domain::limits::{COST, DEADLINE, ID_BYTES, LEASE_MAX, LEASE_MIN, PRIORITY, REFERENCE_BYTES, SUBJECTS};
use crate::domain::names::{FairnessKey, OrderingKey, QueueName, SubjectId, TaskId};
use crate::domain::spec::{End, Options, Start, Subject, TaskSpec};

/// The database counts in microseconds: less than one of them would be nothing.
const TTL_MIN: Duration = Duration::from_micros(1);

/// What a spec is read against beside itself.
#[derive(Clone, Debug)]
pub struct Door {
    /// The most that a payload may be, in bytes.
    pub payload_bytes: usize,
    /// The call's `traceparent`, for specs that bring none.
    pub traceparent: Option<String>,
}

pub fn spec(f: &mut Fields<'_>, spec: pb::TaskSpec, door: &Door) -> Option<TaskSpec> {
    let queue = f.name("queue", &spec.queue, QueueName::parse);
    let task_id = f.name("task_id", &spec.task_id, TaskId::parse);
    let kind = f.text("kind", spec.kind, ID_BYTES);
    let payload = f.bytes("payload", spec.payload, door.payload_bytes);
    let content_type = f.text("content_type", spec.content_type, ID_BYTES);
    let target = f.text("target", spec.target, ID_BYTES);
    let event_id = f.text("event_id", spec.event_id, ID_BYTES);
    let subjects = subjects(f, spec.subjects);
    let fairness_key = f.name("fairness_key", &spec.fairness_key, FairnessKey::parse);
    let cost = f.number("cost", spec.cost.map_or(1, i64::from), 1..=i64::from(COST));
    let ordering_key = f.optional_name("ordering_key", &spec.ordering_key, OrderingKey::parse);
    let priority = f.number("priority", spec.priority, -PRIORITY..=PRIORITY);
    let labels = f.labels("labels", spec.labels);
    let start = start(f, spec.start);
    let end = end(f, spec.end);
    let retry = spec.retry.map_or(Some(None), |policy| retry(&mut f.inside("retry"), policy).map(Some));
    let lease_duration = f.optional_span("lease_duration", spec.lease_duration, LEASE_MIN..=LEASE_MAX);
    let derived_from = spec.derived_from.map_or(Some(None), |older| derived_from(&mut f.inside("derived_from"), older).map(Some));
    let trace_context = f.text("trace_context", spec.trace_context, REFERENCE_BYTES);
    Some(TaskSpec {
        queue: queue?,
        task_id: task_id?,
        kind: kind?,
        payload: payload?,
        content_type: content_type?,
        target: target?,
        event_id: event_id?,
        subjects: subjects?,
        fairness_key: fairness_key?,
        cost: i32::try_from(cost?).ok()?,
        ordering_key: ordering_key?,
        priority: priority?,
        labels: labels?,
        options: Options {
            start: start?,
            end: end?,
            retry: retry?,
            lease_duration: lease_duration?,
            derived_from: derived_from?,
            trace_context: Some(trace_context?).filter(|own| !own.is_empty()).or_else(|| door.traceparent.clone()),
            replay_of: None,
        },
    })
}

pub fn subjects(f: &mut Fields<'_>, subjects: Vec<pb::Subject>) -> Option<Vec<Subject>> {
    f.count("subjects", subjects.len(), 0..=SUBJECTS)?;
    let mut parsed: Vec<Subject> = Vec::with_capacity(subjects.len());
    let mut whole = true;
    for (index, subject) in subjects.into_iter().enumerate() {
        let mut f = f.item("subjects", index);
        let id = f.name("id", &subject.id, SubjectId::parse);
        let version = f.amount("version", subject.version);
        match id.zip(version) {
            Some((id, _)) if parsed.iter().any(|other| other.id == id) => f.bad("id", "must not be named twice"),
            Some((id, version)) => {
                parsed.push(Subject { id, version, raise_floor: subject.raise_floor });
                continue;
            }
            None => {}
        }
        whole = false;
    }
    whole.then_some(parsed)
}

fn start(f: &mut Fields<'_>, start: Option<task_spec::Start>) -> Option<Option<Start>> {
    Some(Some(match start {
        None => return Some(None),
        Some(task_spec::Start::NotBeforeTime(at)) => Start::At(f.instant("not_before_time", at)?),
        // A start beyond the latest deadline could never be.
        Some(task_spec::Start::StartDelay(delay)) => Start::After(f.span("start_delay", delay, Duration::ZERO..=DEADLINE)?),
    }))
}

/// Whether an instant lies too far ahead, only the database can tell.
fn end(f: &mut Fields<'_>, end: Option<task_spec::End>) -> Option<Option<End>> {
    Some(Some(match end {
        None => return Some(None),
        Some(task_spec::End::DeadlineTime(at)) => End::At(f.instant("deadline_time", at)?),
        Some(task_spec::End::Ttl(ttl)) => End::Within(f.span("ttl", ttl, TTL_MIN..=DEADLINE)?),
    }))
}

/// Kept as it is told: the older task need not exist any more, so that both of its names may be given.
fn derived_from(f: &mut Fields<'_>, older: pb::TaskRef) -> Option<[String; 3]> {
    let queue = f.some_text("queue", older.queue, ID_BYTES);
    if older.task_id.is_empty() && older.uid.is_empty() {
        f.bad("task_id", "must be given, or uid");
        return None;
    }
    let uid = if older.uid.is_empty() { Some(older.uid) } else { f.uuid("uid", &older.uid).map(|uid| uid.to_string()) };
    let task_id = f.text("task_id", older.task_id, ID_BYTES);
    Some([queue?, task_id?, uid?])
}

/// The spec as it was submitted; its payload only in FULL view.
pub fn to_spec(spec: TaskSpec, full: bool) -> pb::TaskSpec {
    let options = spec.options;
    pb::TaskSpec {
        queue: spec.queue.as_str().to_owned(),
        task_id: spec.task_id.as_str().to_owned(),
        kind: spec.kind,
        payload: if full { spec.payload } else { bytes::Bytes::new() },
        content_type: spec.content_type,
        target: spec.target,
        event_id: spec.event_id,
        subjects: spec.subjects.into_iter().map(to_subject).collect(),
        fairness_key: spec.fairness_key.as_str().to_owned(),
        cost: Some(spec.cost.unsigned_abs()),
        ordering_key: spec.ordering_key.map_or_else(String::new, |key| key.as_str().to_owned()),
        priority: spec.priority,
        labels: spec.labels,
        start: options.start.map(|start| match start {
            Start::At(at) => task_spec::Start::NotBeforeTime(to_instant(at)),
            Start::After(delay) => task_spec::Start::StartDelay(to_span(delay)),
        }),
        end: options.end.map(|end| match end {
            End::At(at) => task_spec::End::DeadlineTime(to_instant(at)),
            End::Within(ttl) => task_spec::End::Ttl(to_span(ttl)),
        }),
        retry: options.retry.map(to_retry),
        lease_duration: options.lease_duration.map(to_span),
        derived_from: options.derived_from.map(|[queue, task_id, uid]| pb::TaskRef { queue, task_id, uid }),
        trace_context: options.trace_context.unwrap_or_default(),
    }
}

pub fn to_subject(subject: Subject) -> pb::Subject {
    pb::Subject { id: subject.id.as_str().to_owned(), version: subject.version, raise_floor: false }
}
