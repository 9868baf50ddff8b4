//! What a PutQueue may say, and the paths of what it may not.

use super::*;
use crate::domain::limits::CLEAR_FIELDS;
use crate::domain::queue::{Edit, OnRepair, OnUnknown, Policy};

fn put(queue: pb::Queue, clear: &[&str]) -> Result<PutQueueCommand, Refusal> {
    let clear_fields = clear.iter().map(|name| (*name).to_owned()).collect();
    put_queue(pb::PutQueueRequest { queue: Some(queue), clear_fields, reason: "a test".to_owned() })
}

fn named() -> pb::Queue {
    pb::Queue { name: "q".to_owned(), ..pb::Queue::default() }
}

/// What is wrong, by path.
fn bad(result: Result<PutQueueCommand, Refusal>) -> Vec<String> {
    match result {
        Err(Refusal::InvalidField(bad)) => bad.into_iter().map(|field| field.path).collect(),
        other => panic!("{other:?}"),
    }
}

fn span(seconds: i64, nanos: i32) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos })
}

/// A queue with every field that the server acts on.
fn told() -> pb::Queue {
    pb::Queue {
        boundary: Some("provider_accepted".to_owned()),
        paused: Some(true),
        on_unknown: pb::OnUnknown::Repair as i32,
        on_repair: pb::OnRepair::Hold as i32,
        retry: Some(pb::RetryPolicy {
            max_attempts: Some(7),
            initial_backoff: span(2, 0),
            max_backoff: span(9, 0),
            multiplier: Some(3.0),
            jitter: Some(0.5),
        }),
        default_ttl: span(11, 0),
        lease_duration: span(12, 0),
        priority_step: span(13, 0),
        deadline_margin: span(14, 0),
        payload_retention: span(15, 0),
        result_retention: span(16, 0),
        evidence_retention: span(17, 0),
        max_in_flight: Some(15),
        rate_limit: Some(pb::RateLimit { per_second: 16.5, burst: Some(17) }),
        max_unfinished: Some(18),
        ..named()
    }
}

#[test]
fn what_is_told_comes_back_from_the_policy_that_it_makes() {
    let command = put(told(), &[]).unwrap();
    assert_eq!((command.queue.as_str(), command.etag, command.reason.as_str()), ("q", None, "a test"));
    let policy = Policy::default().edited(&command.edit).unwrap();
    assert_eq!((policy.on_unknown, policy.on_repair), (OnUnknown::Repair, OnRepair::Hold));
    let shown = to_queue(Queue { name: command.queue, policy, etag: 8 });
    assert_eq!(shown, pb::Queue { etag: "8".to_owned(), ..told() });
}

#[test]
fn a_queue_of_which_nothing_is_told_changes_nothing() {
    assert_eq!(put(named(), &[]).unwrap().edit, PolicyEdit::default());
    let empty_retry = pb::Queue { retry: Some(pb::RetryPolicy::default()), ..named() };
    assert_eq!(put(empty_retry, &[]).unwrap().edit, PolicyEdit::default());
}

#[test]
fn every_offered_field_can_be_cleared_by_its_name_and_retry_as_a_whole() {
    let offered: Vec<&str> = fields(&named()).iter().map(|field| field.name).collect();
    let configured = Policy::default().edited(&put(told(), &[]).unwrap().edit).unwrap();
    let one_by_one = put(named(), &offered).unwrap().edit;
    assert_eq!(configured.clone().edited(&one_by_one), Ok(Policy::default()));
    let whole: Vec<&str> = offered.into_iter().filter(|name| !name.starts_with("retry.")).chain(["retry"]).collect();
    assert_eq!(put(named(), &whole).unwrap().edit, one_by_one);
    let jitter = put(named(), &["retry.jitter"]).unwrap().edit;
    assert_eq!(configured.edited(&jitter).map(|policy| (policy.retry.jitter, policy.retry.multiplier)), Ok((1.0, 3.0)));
}

#[test]
fn a_field_is_not_both_given_and_cleared_and_every_name_is_known() {
    let retry = pb::RetryPolicy { jitter: Some(0.0), ..pb::RetryPolicy::default() };
    let queue = pb::Queue { paused: Some(false), on_repair: pb::OnRepair::Hold as i32, retry: Some(retry), ..named() };
    let names = ["paused", "retry.multiplier", "on_repair", "retry", "retry.jitter", "name", "etag", "retry.", "", "queue.paused"];
    let expected = [0, 2, 3, 4, 5, 6, 7, 8, 9].map(|index| format!("clear_fields[{index}]"));
    assert_eq!(bad(put(queue, &names)), expected);
    assert_eq!(bad(put(named(), &["paused"; CLEAR_FIELDS + 1])), ["clear_fields"]);
}

#[test]
fn all_bad_fields_are_told_at_once() {
    let retry = pb::RetryPolicy {
        max_attempts: Some(0),
        initial_backoff: span(86_401, 0),
        max_backoff: span(7 * 86_400, 1),
        multiplier: Some(100.5),
        jitter: Some(f64::NAN),
    };
    let queue = pb::Queue {
        name: String::new(),
        boundary: Some("x".repeat(ID_BYTES + 1)),
        on_unknown: 99,
        on_repair: -1,
        retry: Some(retry),
        default_ttl: span(0, 999),
        lease_duration: span(0, 999_999_999),
        priority_step: span(-1, 0),
        deadline_margin: span(86_400, 1),
        max_in_flight: Some(1_000_001),
        rate_limit: Some(pb::RateLimit { per_second: -1.0, burst: Some(0) }),
        max_unfinished: Some(1_000_000_001),
        ..pb::Queue::default()
    };
    let mut paths =
        bad(put_queue(pb::PutQueueRequest { queue: Some(queue), clear_fields: vec!["x".to_owned()], reason: String::new() }));
    paths.sort();
    let mut expected = [
        "clear_fields[0]",
        "queue.name",
        "queue.boundary",
        "queue.on_unknown",
        "queue.on_repair",
        "queue.retry.max_attempts",
        "queue.retry.initial_backoff",
        "queue.retry.max_backoff",
        "queue.retry.multiplier",
        "queue.retry.jitter",
        "queue.default_ttl",
        "queue.lease_duration",
        "queue.priority_step",
        "queue.deadline_margin",
        "queue.max_in_flight",
        "queue.rate_limit.per_second",
        "queue.rate_limit.burst",
        "queue.max_unfinished",
    ];
    expected.sort_unstable();
    assert_eq!(paths, expected);
    let nothing = put_queue(pb::PutQueueRequest::default());
    assert_eq!(bad(nothing), ["queue"]);
    assert_eq!(bad(put(pb::Queue { boundary: Some(String::new()), ..named() }, &[])), ["queue.boundary"]);
}

#[test]
fn the_edges_of_the_ranges_are_inside() {
    let most = pb::Queue {
        boundary: Some("x".repeat(ID_BYTES)),
        retry: Some(pb::RetryPolicy {
            max_attempts: Some(10_000),
            initial_backoff: span(86_400, 0),
            max_backoff: span(7 * 86_400, 0),
            multiplier: Some(100.0),
            jitter: Some(1.0),
        }),
        default_ttl: span(366 * 86_400, 0),
        lease_duration: span(12 * 3600, 0),
        priority_step: span(86_400, 0),
        deadline_margin: span(86_400, 0),
        max_in_flight: Some(1_000_000),
        rate_limit: Some(pb::RateLimit { per_second: 1e6, burst: Some(1_000_000) }),
        max_unfinished: Some(1_000_000_000),
        ..named()
    };
    assert!(put(most, &[]).is_ok());
    let least = pb::Queue {
        retry: Some(pb::RetryPolicy {
            max_attempts: Some(1),
            initial_backoff: span(0, 0),
            max_backoff: span(0, 0),
            multiplier: Some(1.0),
            jitter: Some(0.0),
        }),
        default_ttl: span(0, 1_999),
        lease_duration: span(1, 0),
        priority_step: span(0, 0),
        deadline_margin: span(0, 0),
        max_in_flight: Some(0),
        rate_limit: Some(pb::RateLimit { per_second: 0.0, burst: Some(1) }),
        max_unfinished: Some(0),
        ..named()
    };
    // Whole microseconds, as they are stored.
    assert_eq!(put(least, &[]).unwrap().edit.default_ttl, Edit::Set(Duration::from_micros(1)));
}
