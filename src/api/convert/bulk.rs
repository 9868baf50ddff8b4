//! Subjects, bulk cancels and receipts, in and out.

use super::requests::{filter, task_ref};
use crate::api::fields::read;
use crate::api::proto::{self as pb, raise_subject_request};
use crate::api::times::to_instant;
use crate::domain::limits::{BULK, ID_BYTES, REFERENCE_BYTES};
use crate::domain::names::{QueueName, SubjectId, TaskId};
use crate::domain::receipt::{Receipt, Recorded};
use crate::domain::refusal::Refusal;
use crate::domain::subject::{Floor, Raise};
use crate::engine::{CancelTasksCommand, Met, RaiseCommand, Raised, TaskFilter, TaskRef};

pub fn cancel_tasks(request: pb::CancelTasksRequest) -> Result<CancelTasksCommand, Refusal> {
    read(|f| {
        let picked = f.required("filter", request.filter).and_then(|picked| {
            let parsed = filter(&mut f.inside("filter"), picked)?;
            if picks_all(&parsed.1) {
                // A slip of the pen must not empty a queue.
                f.bad("filter", "must hold more than a queue");
                return None;
            }
            Some(parsed)
        });
        let reason = f.reason(request.reason, true);
        let max_tasks = f.optional_number("max_tasks", request.max_tasks, 1..=BULK);
        let (queue, filter) = picked?;
        let max_tasks = max_tasks?.unwrap_or(BULK);
        Some(CancelTasksCommand { queue, filter, reason: reason?, max_tasks, validate_only: request.validate_only })
    })
}

fn picks_all(filter: &TaskFilter) -> bool {
    let texts = [&filter.kind, &filter.target, &filter.subject_id, &filter.ordering_key, &filter.worker_id, &filter.event_id];
    let nothing = texts.iter().all(|text| text.is_empty());
    nothing && filter.states.is_empty() && filter.fairness_key.is_none() && filter.labels.is_empty()
}

pub fn canceled(met: Met, sample: Vec<TaskId>) -> pb::CancelTasksResponse {
    pb::CancelTasksResponse {
        canceled_count: met.canceled,
        told_count: met.told,
        effected_count: met.effected,
        sample_task_ids: sample.iter().map(TaskId::to_string).collect(),
        more: met.more,
    }
}

pub fn raise_subject(request: pb::RaiseSubjectRequest) -> Result<RaiseCommand, Refusal> {
    read(|f| {
        let queue = f.name("queue", &request.queue, QueueName::parse);
        let subject = f.name("subject_id", &request.subject_id, SubjectId::parse);
        let raise = match request.floor {
            Some(raise_subject_request::Floor::MinVersion(version)) => f.amount("min_version", version).map(Raise::To),
            Some(raise_subject_request::Floor::Revoked(true)) => Some(Raise::Revoke),
            Some(raise_subject_request::Floor::Revoked(false)) => {
                f.bad("revoked", "must be true: a floor never sinks");
                None
            }
            None => {
                f.bad("min_version", "must be given, or revoked");
                None
            }
        };
        let reason = f.reason(request.reason, true);
        Some(RaiseCommand { queue: queue?, subject: subject?, raise: raise?, reason: reason? })
    })
}

pub fn raised(raised: Raised) -> pb::RaiseSubjectResponse {
    let Raised { queue, subject, floor, met } = raised;
    pb::RaiseSubjectResponse {
        subject: Some(to_floor(&queue, &subject, floor)),
        canceled_count: met.canceled,
        told_count: met.told,
        effected_count: met.effected,
        more: met.more,
    }
}

pub fn get_subject(request: pb::GetSubjectRequest) -> Result<(QueueName, SubjectId), Refusal> {
    read(|f| {
        let queue = f.name("queue", &request.queue, QueueName::parse);
        let subject = f.name("subject_id", &request.subject_id, SubjectId::parse);
        queue.zip(subject)
    })
}

pub fn to_floor(queue: &QueueName, subject: &SubjectId, floor: Floor) -> pb::SubjectFloor {
    pb::SubjectFloor {
        queue: queue.to_string(),
        subject_id: subject.to_string(),
        min_version: floor.min_version,
        revoked: floor.revoked,
        reason: floor.reason,
        update_time: Some(to_instant(floor.updated)),
    }
}

pub fn record_receipt(request: pb::RecordReceiptRequest) -> Result<(TaskRef, Receipt), Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let kind = f.some_text("kind", request.kind, ID_BYTES);
        let receipt_ref = f.some_text("receipt_ref", request.receipt_ref, REFERENCE_BYTES);
        let effect_ref = f.text("effect_ref", request.effect_ref, REFERENCE_BYTES);
        let occurred = request.occur_time.map_or(Some(None), |at| f.instant("occur_time", at).map(Some));
        let receipt = Receipt { kind: kind?, receipt_ref: receipt_ref?, effect_ref: effect_ref?, occurred: occurred? };
        Some((task?, receipt))
    })
}

pub fn to_receipt(kept: Recorded) -> pb::Receipt {
    pb::Receipt {
        kind: kept.receipt.kind,
        receipt_ref: kept.receipt.receipt_ref,
        effect_ref: kept.receipt.effect_ref,
        occur_time: kept.receipt.occurred.map(to_instant),
        record_time: Some(to_instant(kept.recorded)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Vec<String> {
        match result {
            Err(Refusal::InvalidField(bad)) => bad.into_iter().map(|field| field.path).collect(),
            other => panic!("not an INVALID_FIELD: {other:?}"),
        }
    }

    #[test]
    fn a_bulk_cancel_says_what_it_means_why_and_how_many() {
        let whole_queue = pb::TaskFilter { queue: "q".into(), ..Default::default() };
        let request = |filter| pb::CancelTasksRequest { filter, reason: "left".into(), ..Default::default() };
        assert_eq!(paths(cancel_tasks(pb::CancelTasksRequest::default())), ["filter", "reason"]);
        assert_eq!(paths(cancel_tasks(request(Some(whole_queue.clone())))), ["filter"]);
        let none_is_all = pb::TaskFilter { fairness_key: Some(String::new()), ..whole_queue.clone() };
        assert_eq!(cancel_tasks(request(Some(none_is_all))).unwrap().max_tasks, BULK);
        for bad in [0, -1, BULK + 1] {
            let some = pb::TaskFilter { kind: "k".into(), ..whole_queue.clone() };
            let asked = pb::CancelTasksRequest { max_tasks: Some(bad), ..request(Some(some)) };
            assert_eq!(paths(cancel_tasks(asked)), ["max_tasks"]);
        }
    }

    #[test]
    fn a_floor_is_a_version_or_revoked_and_has_a_reason() {
        assert_eq!(paths(raise_subject(pb::RaiseSubjectRequest::default())), ["queue", "subject_id", "min_version", "reason"]);
        let request = |floor| pb::RaiseSubjectRequest {
            queue: "q".into(),
            subject_id: "m-9".into(),
            floor: Some(floor),
            reason: "edited".into(),
        };
        assert_eq!(paths(raise_subject(request(raise_subject_request::Floor::Revoked(false)))), ["revoked"]);
        assert_eq!(paths(raise_subject(request(raise_subject_request::Floor::MinVersion(-1)))), ["min_version"]);
        let read = |floor| raise_subject(request(floor)).unwrap().raise;
        assert_eq!(read(raise_subject_request::Floor::MinVersion(0)), Raise::To(0));
        assert_eq!(read(raise_subject_request::Floor::Revoked(true)), Raise::Revoke);
        assert_eq!(paths(get_subject(pb::GetSubjectRequest::default())), ["queue", "subject_id"]);
    }

    #[test]
    fn everything_that_is_wrong_with_a_receipt_is_told_at_once() {
        let receipt = pb::RecordReceiptRequest {
            effect_ref: "x".repeat(REFERENCE_BYTES + 1),
            occur_time: Some(prost_types::Timestamp { seconds: 0, nanos: -1 }),
            ..Default::default()
        };
        assert_eq!(paths(record_receipt(receipt)), ["task", "kind", "receipt_ref", "effect_ref", "occur_time"]);
    }
}
