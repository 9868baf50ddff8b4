//! The parse door: what is refused, and under which path. What is accepted comes back as it was given.

use std::collections::BTreeMap;
use std::time::Duration;

use prost_types::{Duration as PbDuration, Timestamp as PbTimestamp};

use super::spec::{Door, to_spec};
use super::{requests, split, weave, work};
use crate::api::proto::{self as pb, complete_request::Outcome, task_spec};
use crate::domain::limits::PAYLOAD_BYTES;
use crate::domain::refusal::Refusal;
use crate::domain::report::Report;
use crate::domain::spec::{End, Start};

const UID: &str = "0190b5a0-0000-7000-8000-000000000001";
const NULS: &str = "a\0b";

fn door() -> Door {
    Door { payload_bytes: PAYLOAD_BYTES, traceparent: Some("00-call".to_owned()) }
}

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn secs(seconds: i64) -> Option<PbDuration> {
    Some(PbDuration { seconds, nanos: 0 })
}

fn good() -> pb::TaskSpec {
    pb::TaskSpec { queue: "notify".to_owned(), task_id: "t".to_owned(), ..pb::TaskSpec::default() }
}

fn lease() -> Option<pb::LeaseRef> {
    Some(pb::LeaseRef { queue: "notify".to_owned(), task_uid: UID.to_owned(), fencing_token: 7 })
}

/// The bad fields of a refusal, sorted.
fn paths<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Vec<String> {
    match result {
        Err(Refusal::InvalidField(bad)) => {
            let mut paths: Vec<_> = bad.into_iter().map(|field| field.path).collect();
            paths.sort();
            paths
        }
        other => panic!("not an INVALID_FIELD: {other:?}"),
    }
}

fn submit(change: impl FnOnce(&mut pb::TaskSpec)) -> Result<crate::domain::spec::TaskSpec, Refusal> {
    let mut spec = good();
    change(&mut spec);
    requests::submit(pb::SubmitRequest { spec: Some(spec) }, &door())
}

type Change = Box<dyn FnOnce(&mut pb::TaskSpec)>;

/// Each change makes one field bad: the one with this path.
fn each_is_told(cases: Vec<(&str, Change)>) {
    for (index, (path, change)) in cases.into_iter().enumerate() {
        assert_eq!(paths(submit(change)), [path], "case {index}");
    }
}

#[test]
fn every_bad_name_text_number_and_label_of_a_spec_is_told_by_its_path() {
    let label = |key: String, value: String| -> Change { Box::new(move |s| drop(s.labels.insert(key, value))) };
    each_is_told(vec![
        ("spec.queue", Box::new(|s| s.queue.clear())),
        ("spec.queue", Box::new(|s| s.queue = long(257))),
        ("spec.task_id", Box::new(|s| s.task_id.clear())),
        ("spec.task_id", Box::new(|s| s.task_id = NULS.into())),
        ("spec.kind", Box::new(|s| s.kind = long(257))),
        ("spec.content_type", Box::new(|s| s.content_type = NULS.into())),
        ("spec.target", Box::new(|s| s.target = NULS.into())),
        ("spec.event_id", Box::new(|s| s.event_id = long(257))),
        ("spec.fairness_key", Box::new(|s| s.fairness_key = long(257))),
        ("spec.ordering_key", Box::new(|s| s.ordering_key = NULS.into())),
        ("spec.cost", Box::new(|s| s.cost = Some(0))),
        ("spec.cost", Box::new(|s| s.cost = Some(1_001))),
        ("spec.cost", Box::new(|s| s.cost = Some(u32::MAX))),
        ("spec.priority", Box::new(|s| s.priority = 11)),
        ("spec.priority", Box::new(|s| s.priority = -11)),
        ("spec.priority", Box::new(|s| s.priority = i32::MIN)),
        ("spec.trace_context", Box::new(|s| s.trace_context = long(1_025))),
        ("spec.labels", Box::new(|s| s.labels = (0..17).map(|n| (n.to_string(), String::new())).collect())),
        ("spec.labels[\"k\"]", label("k".into(), NULS.into())),
        ("spec.labels[\"k\"]", label("k".into(), long(257))),
        ("spec.labels[\"\"]", label(String::new(), "v".into())),
        ("spec.labels[\"a\\0b\"]", label(NULS.into(), "v".into())),
        ("spec.derived_from.queue", Box::new(|s| s.derived_from = Some(pb::TaskRef { task_id: "t".into(), ..Default::default() }))),
        ("spec.derived_from.task_id", Box::new(|s| s.derived_from = Some(pb::TaskRef { queue: "q".into(), ..Default::default() }))),
        (
            "spec.derived_from.uid",
            Box::new(|s| s.derived_from = Some(pb::TaskRef { queue: "q".into(), uid: "u".into(), ..Default::default() })),
        ),
    ]);
    assert_eq!(paths(requests::submit(pb::SubmitRequest { spec: None }, &door())), ["spec"]);
}

#[test]
fn every_bad_span_instant_and_retry_of_a_spec_is_told_by_its_path() {
    let retry = |change: fn(&mut pb::RetryPolicy)| -> Change {
        Box::new(move |s| {
            let mut policy = pb::RetryPolicy::default();
            change(&mut policy);
            s.retry = Some(policy);
        })
    };
    let start = |start: task_spec::Start| -> Change { Box::new(move |s| s.start = Some(start)) };
    let end = |end: task_spec::End| -> Change { Box::new(move |s| s.end = Some(end)) };
    each_is_told(vec![
        ("spec.lease_duration", Box::new(|s| s.lease_duration = Some(PbDuration { seconds: 0, nanos: 999_999_999 }))),
        ("spec.lease_duration", Box::new(|s| s.lease_duration = secs(12 * 3_600 + 1))),
        ("spec.start_delay", start(task_spec::Start::StartDelay(PbDuration { seconds: -1, nanos: 0 }))),
        ("spec.start_delay", start(task_spec::Start::StartDelay(PbDuration { seconds: 1, nanos: -1 }))),
        ("spec.start_delay", start(task_spec::Start::StartDelay(PbDuration { seconds: i64::MAX, nanos: 0 }))),
        ("spec.not_before_time", start(task_spec::Start::NotBeforeTime(PbTimestamp { seconds: 0, nanos: -1 }))),
        ("spec.deadline_time", end(task_spec::End::DeadlineTime(PbTimestamp { seconds: i64::MAX, nanos: 0 }))),
        ("spec.deadline_time", end(task_spec::End::DeadlineTime(PbTimestamp { seconds: -62_135_596_801, nanos: 0 }))),
        ("spec.ttl", end(task_spec::End::Ttl(PbDuration { seconds: 0, nanos: 0 }))),
        ("spec.ttl", end(task_spec::End::Ttl(PbDuration { seconds: 366 * 86_400, nanos: 1 }))),
        ("spec.ttl", end(task_spec::End::Ttl(PbDuration { seconds: 1, nanos: 1_000_000_000 }))),
        ("spec.retry.max_attempts", retry(|r| r.max_attempts = Some(0))),
        ("spec.retry.max_attempts", retry(|r| r.max_attempts = Some(10_001))),
        ("spec.retry.multiplier", retry(|r| r.multiplier = Some(0.99))),
        ("spec.retry.multiplier", retry(|r| r.multiplier = Some(f64::NAN))),
        ("spec.retry.multiplier", retry(|r| r.multiplier = Some(f64::INFINITY))),
        ("spec.retry.jitter", retry(|r| r.jitter = Some(1.01))),
        ("spec.retry.jitter", retry(|r| r.jitter = Some(f64::NAN))),
        ("spec.retry.initial_backoff", retry(|r| r.initial_backoff = secs(-1))),
        ("spec.retry.initial_backoff", retry(|r| r.initial_backoff = secs(86_400 + 1))),
        ("spec.retry.max_backoff", retry(|r| (r.initial_backoff, r.max_backoff) = (secs(2), secs(1)))),
    ]);
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_a_payload_that_is_too_large_with_it() {
    let bad = submit(|s| {
        s.queue.clear();
        s.subjects = vec![
            pb::Subject { id: "m-9".into(), version: 1, raise_floor: false },
            pb::Subject { id: "m-9".into(), version: 2, raise_floor: false },
            pb::Subject { id: String::new(), version: -1, raise_floor: true },
        ];
        s.payload = vec![0; PAYLOAD_BYTES + 1].into();
        s.cost = Some(0);
    });
    assert_eq!(
        paths(bad),
        ["spec.cost", "spec.payload", "spec.queue", "spec.subjects[1].id", "spec.subjects[2].id", "spec.subjects[2].version"]
    );
}

#[test]
fn a_payload_alone_is_too_large_and_its_bytes_are_free() {
    let large = submit(|s| s.payload = vec![0; PAYLOAD_BYTES + 1].into());
    assert_eq!(large, Err(Refusal::TooLarge { path: "spec.payload".into(), limit: PAYLOAD_BYTES }));
    assert!(submit(|s| s.payload = vec![0; PAYLOAD_BYTES].into()).is_ok());
}

#[test]
fn nine_subjects_are_too_many_and_raise_floor_is_read_but_no_content() {
    let subject = |n: i64| pb::Subject { id: format!("m-{n}"), version: n, raise_floor: false };
    assert_eq!(paths(submit(|s| s.subjects = (0..9).map(subject).collect())), ["spec.subjects"]);
    let plain = submit(|s| s.subjects = vec![subject(1)]).unwrap();
    let raising = submit(|s| s.subjects = vec![pb::Subject { raise_floor: true, ..subject(1) }]).unwrap();
    assert!(raising.subjects[0].raise_floor && !plain.subjects[0].raise_floor);
    assert_eq!(raising.digest(), plain.digest());
}

#[test]
fn a_spec_at_its_limits_is_read_and_written_back_as_it_was_given() {
    let full = pb::TaskSpec {
        kind: long(256),
        payload: vec![0, 1, 2].into(),
        subjects: vec![pb::Subject { id: "m-9".into(), version: i64::MAX, raise_floor: false }],
        fairness_key: "u-b".into(),
        cost: Some(1_000),
        ordering_key: "k".into(),
        priority: -10,
        labels: BTreeMap::from([(long(64), long(256)), ("empty".into(), String::new())]),
        start: Some(task_spec::Start::NotBeforeTime(PbTimestamp { seconds: -1, nanos: 1_000 })),
        end: Some(task_spec::End::Ttl(PbDuration { seconds: 366 * 86_400, nanos: 0 })),
        retry: Some(pb::RetryPolicy {
            max_attempts: Some(10_000),
            initial_backoff: secs(0),
            max_backoff: secs(7 * 86_400),
            multiplier: Some(100.0),
            jitter: Some(0.0),
        }),
        lease_duration: secs(12 * 3_600),
        derived_from: Some(pb::TaskRef { queue: "q".into(), task_id: "t0".into(), uid: UID.into() }),
        trace_context: "00-own".into(),
        ..good()
    };
    let given = full.clone();
    let parsed = submit(move |s| *s = given).expect("nothing is wrong with it");
    assert_eq!(parsed.options.start, Some(Start::At(crate::domain::time::Timestamp(-999_999))));
    assert_eq!(parsed.options.end, Some(End::Within(Duration::from_secs(366 * 86_400))));
    assert_eq!(to_spec(parsed.clone(), true), full);
    assert!(to_spec(parsed, false).payload.is_empty());
}

#[test]
fn what_is_absent_has_its_default_and_the_calls_own_trace() {
    let spec = submit(|_| {}).expect("nothing is wrong with it");
    assert_eq!((spec.cost, spec.priority, spec.ordering_key, spec.fairness_key.as_str()), (1, 0, None, ""));
    assert_eq!(spec.options.trace_context.as_deref(), Some("00-call"));
    assert!(spec.options.retry.is_none() && spec.options.start.is_none() && spec.options.end.is_none());
}

fn batch(specs: Vec<pb::TaskSpec>, atomic: bool) -> Result<Vec<Result<crate::domain::spec::TaskSpec, Refusal>>, Refusal> {
    requests::submit_batch(pb::SubmitBatchRequest { specs, atomic }, &door())
}

#[test]
fn a_bad_spec_of_a_batch_is_its_own_error_unless_the_batch_is_atomic() {
    let bad = pb::TaskSpec { queue: String::new(), ..good() };
    let worse = pb::TaskSpec { task_id: long(257), ..good() };
    let mut results = batch(vec![good(), bad.clone(), good(), worse.clone()], false).expect("the batch is fine");
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(paths(results.swap_remove(1)), ["specs[1].queue"]);
    assert_eq!(paths(batch(vec![good(), bad, good(), worse], true)), ["specs[1].queue", "specs[3].task_id"]);
    let large = pb::TaskSpec { payload: vec![0; PAYLOAD_BYTES + 1].into(), ..good() };
    let refused = batch(vec![good(), large], true);
    assert!(matches!(refused, Err(Refusal::TooLarge { path, .. }) if path == "specs[1].payload"));
}

#[test]
fn a_batch_has_1_to_1000_items() {
    for atomic in [false, true] {
        assert_eq!(paths(batch(Vec::new(), atomic)), ["specs"]);
        assert_eq!(paths(batch(vec![good(); 1_001], atomic)), ["specs"]);
        assert_eq!(batch(vec![good(); 1_000], atomic).map(|specs| specs.len()), Ok(1_000));
    }
    let heartbeat = |items| work::heartbeat(pb::HeartbeatRequest { worker_id: "w".into(), items });
    assert_eq!(paths(heartbeat(Vec::new())), ["items"]);
    assert_eq!(paths(heartbeat(vec![pb::HeartbeatItem::default(); 1_001])), ["items"]);
    let complete = |requests| work::complete_batch(pb::CompleteBatchRequest { requests });
    assert_eq!(paths(complete(Vec::new())), ["requests"]);
    assert_eq!(paths(complete(vec![pb::CompleteRequest::default(); 1_001])), ["requests"]);
}

#[test]
fn answers_are_put_back_between_the_items_that_never_reached_the_engine() {
    let items = vec![Ok('a'), Err(Refusal::Draining), Ok('b'), Ok('c')];
    let (good, refused) = split(items);
    assert_eq!(good, ['a', 'b', 'c']);
    let woven: Vec<_> = weave(refused, vec![Ok(1), Err(Refusal::Overloaded)]).collect();
    assert_eq!(woven[..3], [Ok(1), Err(Refusal::Draining), Err(Refusal::Overloaded)]);
    assert!(matches!(woven[3], Err(Refusal::Bug(_))));
}

#[test]
fn a_claim_is_bounded() {
    let claim = |change: fn(&mut pb::ClaimRequest)| {
        let mut request = pb::ClaimRequest { queue: "q".into(), worker_id: "w".into(), ..Default::default() };
        change(&mut request);
        work::claim(request)
    };
    let plain = claim(|_| {}).expect("nothing is wrong with it");
    assert_eq!((plain.max_tasks, plain.wait, plain.lease_duration, plain.request_id), (1, Duration::ZERO, None, None));
    assert_eq!(claim(|c| c.wait = secs(60)).map(|c| c.wait), Ok(Duration::from_secs(60)));
    assert_eq!(paths(claim(|c| c.wait = Some(PbDuration { seconds: 60, nanos: 1 }))), ["wait"]);
    assert_eq!(paths(claim(|c| c.wait = secs(-1))), ["wait"]);
    assert_eq!(paths(claim(|c| c.max_tasks = Some(0))), ["max_tasks"]);
    assert_eq!(paths(claim(|c| c.max_tasks = Some(501))), ["max_tasks"]);
    assert_eq!(paths(claim(|c| c.lease_duration = secs(0))), ["lease_duration"]);
    assert_eq!(paths(claim(|c| c.request_id = long(257))), ["request_id"]);
    assert_eq!(paths(work::claim(pb::ClaimRequest::default())), ["queue", "worker_id"]);
}

#[test]
fn a_bad_item_of_a_heartbeat_is_its_own_error() {
    let item = pb::HeartbeatItem { lease: lease(), ..Default::default() };
    let progress = |done, total, note: &str| pb::HeartbeatItem {
        progress: Some(pb::Progress { done, total, note: note.into() }),
        ..item.clone()
    };
    let odd = pb::LeaseRef { task_uid: "x".into(), fencing_token: 0, ..lease().expect("there is one") };
    let items = vec![
        item.clone(),
        pb::HeartbeatItem { lease: Some(odd), lease_duration: secs(0), progress: None },
        pb::HeartbeatItem::default(),
        progress(-1, Some(-1), NULS),
        progress(1, None, &long(300)),
    ];
    let mut results = work::heartbeat(pb::HeartbeatRequest { worker_id: "w".into(), items }).expect("the call is fine");
    let note = results.pop().and_then(Result::ok).and_then(|command| command.progress).map(|progress| progress.note.len());
    assert_eq!(note, Some(256), "a long note is cut");
    let progress_paths = ["items[3].progress.done", "items[3].progress.note", "items[3].progress.total"];
    assert_eq!(paths(results.pop().expect("the fourth")), progress_paths);
    assert_eq!(paths(results.pop().expect("the third")), ["items[2].lease"]);
    let lease_paths = ["items[1].lease.fencing_token", "items[1].lease.task_uid", "items[1].lease_duration"];
    assert_eq!(paths(results.pop().expect("the second")), lease_paths);
    assert!(results.pop().is_some_and(|first| first.is_ok()));
    assert_eq!(paths(work::heartbeat(pb::HeartbeatRequest::default())), ["items", "worker_id"]);
}

#[test]
fn a_report_says_how_the_attempt_ended_and_why() {
    let complete = |outcome| work::complete(pb::CompleteRequest { lease: lease(), outcome: Some(outcome) });
    let failed = |change: fn(&mut pb::Failed)| {
        let mut failure = pb::Failed { error_class: 1, code: "c".into(), ..Default::default() };
        change(&mut failure);
        complete(Outcome::Failed(failure))
    };
    assert_eq!(paths(work::complete(pb::CompleteRequest::default())), ["lease", "outcome"]);
    assert_eq!(paths(failed(|f| f.error_class = 0)), ["failed.error_class"]);
    assert_eq!(paths(failed(|f| f.error_class = 9)), ["failed.error_class"]);
    assert_eq!(paths(failed(|f| f.code.clear())), ["failed.code"]);
    assert_eq!(paths(failed(|f| f.retry_after = secs(-1))), ["failed.retry_after"]);
    assert_eq!(paths(failed(|f| f.message = NULS.into())), ["failed.message"]);
    let Ok((_, Report::Failed(failure))) = failed(|f| f.message = "é".repeat(4_000)) else { panic!("it is fine") };
    assert_eq!(failure.message.len(), 4_096, "a long message is cut");
    assert_eq!(paths(complete(Outcome::Skipped(pb::Skipped::default()))), ["skipped.reason"]);
    assert!(complete(Outcome::Canceled(pb::Canceled::default())).is_ok());
    assert!(complete(Outcome::Released(pb::Released::default())).is_ok());
    let released = pb::Released { delay: secs(-1), ..Default::default() };
    assert_eq!(paths(complete(Outcome::Released(released))), ["released.delay"]);
    let success = pb::Succeeded { receipt_ref: long(1_025), result_size: Some(-1), ..Default::default() };
    assert_eq!(paths(complete(Outcome::Succeeded(success))), ["succeeded.receipt_ref", "succeeded.result_size"]);
    let large = pb::Succeeded { result: vec![0; 16 * 1024 + 1].into(), ..Default::default() };
    assert!(matches!(complete(Outcome::Succeeded(large)), Err(Refusal::TooLarge { path, .. }) if path == "succeeded.result"));
}

#[test]
fn of_millions_of_bad_values_only_the_first_are_told() {
    let filter = pb::TaskFilter { queue: "q".into(), states: vec![99; 1_000_000], ..Default::default() };
    let request = pb::ListTasksRequest { filter: Some(filter), ..Default::default() };
    let told = paths(requests::list_tasks(request));
    assert_eq!(told.len(), 100);
    assert!(told.iter().any(|path| path == "filter.states[99]"));
}
