//! Every refusal as a client reads it: decoded again with tonic-types.

use std::collections::BTreeMap;

use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

use super::*;
use crate::domain::task::{Cause, State};
use crate::domain::time::Timestamp;

fn decoded(refusal: Refusal) -> (Status, ErrorDetails) {
    let status = status(refusal);
    let details = status.check_error_details().expect("the details can be read");
    (status, details)
}

/// Code, reason and metadata of a refusal; the domain is checked on the way.
fn told(refusal: Refusal) -> (Code, String, BTreeMap<String, String>) {
    let (status, details) = decoded(refusal);
    let info = details.error_info().expect("every error has an ErrorInfo").clone();
    assert_eq!(info.domain, "leasehold");
    (status.code(), info.reason, info.metadata.into_iter().collect())
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn every_refusal_has_its_code_its_reason_and_what_a_program_needs() {
    let noon = Timestamp(1_700_000_000_000_000);
    let state = State::Leased;
    let cases = [
        (
            Refusal::TaskTerminal { state: State::Completed },
            Code::FailedPrecondition,
            "TASK_TERMINAL",
            pairs(&[("state", "COMPLETED")]),
        ),
        (
            Refusal::TaskIdConflict { digest: "ab".into(), state, uid: Uuid::nil() },
            Code::AlreadyExists,
            "TASK_ID_CONFLICT",
            pairs(&[("digest", "ab"), ("state", "LEASED"), ("uid", "00000000-0000-0000-0000-000000000000")]),
        ),
        (
            Refusal::LeaseSuperseded { token: 3, current: 5, state },
            Code::FailedPrecondition,
            "LEASE_SUPERSEDED",
            pairs(&[("fencing_token", "3"), ("current_fencing_token", "5"), ("state", "LEASED")]),
        ),
        (
            Refusal::LeaseExpired { token: 3, since: Some(noon), state },
            Code::FailedPrecondition,
            "LEASE_EXPIRED",
            pairs(&[("fencing_token", "3"), ("expire_time", "2023-11-14T22:13:20Z"), ("state", "LEASED")]),
        ),
        (
            Refusal::TaskDeadlinePassed { deadline: noon },
            Code::FailedPrecondition,
            "TASK_DEADLINE_PASSED",
            pairs(&[("deadline_time", "2023-11-14T22:13:20Z")]),
        ),
        (
            Refusal::CancelRequested { cause: Cause::Requested, reason: "left".into() },
            Code::FailedPrecondition,
            "CANCEL_REQUESTED",
            pairs(&[("cause", "REQUESTED")]),
        ),
        (
            Refusal::SubjectStale { subject: "m-9".into(), version: 1, floor: Some(2) },
            Code::FailedPrecondition,
            "SUBJECT_STALE",
            pairs(&[("subject_id", "m-9"), ("version", "1"), ("floor", "2")]),
        ),
        (Refusal::EffectBegun { effect_ref: "e".into() }, Code::FailedPrecondition, "EFFECT_BEGUN", pairs(&[("effect_ref", "e")])),
        (Refusal::NotOffered("Watch"), Code::Unimplemented, "NOT_OFFERED", pairs(&[])),
        (Refusal::CallerDeadline, Code::DeadlineExceeded, "CALLER_DEADLINE", pairs(&[])),
    ];
    for (refusal, code, reason, metadata) in cases {
        assert_eq!(told(refusal), (code, reason.to_owned(), metadata));
    }
}

#[test]
fn bad_fields_are_all_in_the_bad_request() {
    let bad = ["spec.queue", "spec.cost"].map(|path| BadField { path: path.into(), text: "must be better".into() });
    let (status, details) = decoded(Refusal::InvalidField(bad.into()));
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(status.message(), "spec.queue must be better (and 1 more)");
    let fields = &details.bad_request().expect("a BadRequest").field_violations;
    assert_eq!(fields.iter().map(|f| f.field.as_str()).collect::<Vec<_>>(), ["spec.queue", "spec.cost"]);
    assert_eq!(fields[0].description, "must be better");
}

#[test]
fn more_bad_fields_than_trailers_can_carry_are_counted() {
    let bad = (0..1_000).map(|n| BadField { path: format!("specs[{n}].queue"), text: "must not be empty".into() }).collect();
    let (status, details) = decoded(Refusal::InvalidField(bad));
    assert!(status.details().len() < 6 * 1024, "{} bytes", status.details().len());
    let fields = &details.bad_request().expect("a BadRequest").field_violations;
    let (last, shown) = fields.split_last().expect("there are some");
    assert_eq!((last.field.as_str(), last.description.clone()), ("", format!("and {} more", 1_000 - shown.len())));
}

#[test]
fn too_large_names_the_field_and_the_limit() {
    let (status, details) = decoded(Refusal::TooLarge { path: "spec.payload".into(), limit: 65_536 });
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(details.bad_request().map(|bad| bad.field_violations[0].field.clone()), Some("spec.payload".into()));
    let info = details.error_info().expect("every error has an ErrorInfo");
    assert_eq!((info.reason.as_str(), info.metadata["limit"].as_str()), ("TOO_LARGE", "65536"));
}

#[test]
fn what_is_missing_is_a_resource() {
    let (status, details) = decoded(Refusal::NotFound { what: Missing::Task, name: "notify/t".into() });
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some("TASK_NOT_FOUND"));
    let resource = details.resource_info().expect("a ResourceInfo");
    assert_eq!((resource.resource_type.as_str(), resource.resource_name.as_str()), ("task", "notify/t"));
}

#[test]
fn a_full_share_says_when_to_come_back_in_both_languages() {
    let retry_after = Duration::from_millis(1_500);
    let (status, details) = decoded(Refusal::ShareFull { limit: 10, retry_after });
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(details.retry_info().and_then(|info| info.retry_delay), Some(retry_after));
    assert_eq!(details.quota_failure().map(|quota| quota.violations[0].subject.clone()), Some("share:max_unfinished".into()));
    assert_eq!(status.metadata().get(PUSHBACK).and_then(|ms| ms.to_str().ok()), Some("1500"));
}

#[test]
fn what_is_unavailable_may_be_tried_again() {
    for (refusal, reason) in [
        (Refusal::DatabaseUnavailable, "DATABASE_UNAVAILABLE"),
        (Refusal::Overloaded, "OVERLOADED"),
        (Refusal::Draining, "DRAINING"),
        (Refusal::WatchDrained { last: None }, "DRAINING"),
        (Refusal::WatchAged { last: None }, "DRAINING"),
    ] {
        let (status, details) = decoded(refusal);
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some(reason));
        assert!(details.retry_info().is_some_and(|info| info.retry_delay.is_some()));
        assert_eq!(status.metadata().get(PUSHBACK).is_some(), reason == "OVERLOADED");
    }
}

#[test]
fn a_watch_that_ends_says_where_to_go_on() {
    for (refusal, code, reason, key) in [
        (Refusal::WatchDrained { last: Some(7) }, Code::Unavailable, "DRAINING", "last_cursor"),
        (Refusal::WatchAged { last: Some(7) }, Code::Unavailable, "DRAINING", "last_cursor"),
        (Refusal::WatcherTooSlow { last: 7 }, Code::ResourceExhausted, "WATCHER_TOO_SLOW", "last_cursor"),
        (Refusal::CursorExpired { oldest: 7 }, Code::OutOfRange, "CURSOR_EXPIRED", "oldest_cursor"),
    ] {
        let (status, details) = decoded(refusal);
        let info = details.error_info().expect("every error has an ErrorInfo");
        assert_eq!((status.code(), info.reason.as_str(), info.metadata[key].as_str()), (code, reason, "c1-7"));
    }
}

#[test]
fn a_bug_tells_nothing_of_what_it_is() {
    let (status, details) = decoded(Refusal::Bug("table live, column rank".into()));
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("live"));
    assert_eq!(details.error_info().map(|info| (info.reason.as_str(), info.metadata.len())), Some(("BUG", 0)));
}

#[test]
fn an_item_of_a_batch_is_told_the_same_as_a_call() {
    let refusal = Refusal::QueueFull { limit: 3, retry_after: Duration::from_secs(1) };
    let call = status(refusal.clone());
    let item = item_error(refusal);
    assert_eq!((item.code, item.message.as_str()), (call.code() as i32, call.message()));
    let decoded = pb::Status::decode(call.details()).expect("a google.rpc.Status");
    assert_eq!(decoded.details, item.details);
}
