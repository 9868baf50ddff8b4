//! What names and picks out tasks, and what a task looks like on its way out.

use std::sync::Arc;

use uuid::Uuid;

use super::spec::Door;
use super::{answers, requests};
use crate::api::proto as pb;
use crate::domain::event::Evidence;
use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::task::{CancelRequest, Cause, Ended, Lease, Live, Notes, Stage, Standing, State};
use crate::domain::time::Timestamp;
use crate::engine::{Obstacle, ObstacleKind};

const UID: &str = "0190b5a0-0000-7000-8000-000000000001";

fn paths<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Vec<String> {
    match result {
        Err(Refusal::InvalidField(bad)) => bad.into_iter().map(|field| field.path).collect(),
        other => panic!("not an INVALID_FIELD: {other:?}"),
    }
}

fn task_ref(queue: &str, task_id: &str, uid: &str) -> Option<pb::TaskRef> {
    Some(pb::TaskRef { queue: queue.into(), task_id: task_id.into(), uid: uid.into() })
}

#[test]
fn a_task_is_named_by_its_queue_and_by_its_id_its_uid_or_both() {
    let explain = |task| requests::explain(pb::ExplainRequest { task });
    assert!(explain(task_ref("q", "t", "")).is_ok());
    assert!(explain(task_ref("q", "", UID)).is_ok());
    assert_eq!(paths(explain(None)), ["task"]);
    assert_eq!(paths(explain(task_ref("", "", ""))), ["task.queue", "task.task_id"]);
    assert!(explain(task_ref("q", "t", UID)).is_ok(), "as answers give it");
    assert_eq!(paths(explain(task_ref("q", "t", "not-a-uuid"))), ["task.uid"]);
    assert_eq!(paths(explain(task_ref("q", "", "not-a-uuid"))), ["task.uid"]);
    assert!(requests::cancel(pb::CancelRequest { task: task_ref("q", "t", ""), reason: String::new() }).is_ok());
}

#[test]
fn a_look_and_its_wait_are_bounded() {
    let look = |view, states, seconds| {
        requests::get_task(pb::GetTaskRequest {
            task: task_ref("q", "t", ""),
            view,
            wait_until: Some(pb::WaitUntil { states, timeout: Some(prost_types::Duration { seconds, nanos: 0 }) }),
        })
    };
    assert!(look(2, vec![4, 4], 60).is_ok_and(|look| look.full && look.wait.is_some_and(|wait| wait.0 == [State::Leased])));
    let bad = ["view", "wait_until.states[1]", "wait_until.states[2]", "wait_until.timeout"];
    assert_eq!(paths(look(3, vec![1, 0, 99], 61)), bad);
}

#[test]
fn a_list_is_of_one_queue_and_a_page_of_at_most_1000() {
    let list = |filter, page_size| requests::list_tasks(pb::ListTasksRequest { filter, page_size, page_token: String::new() });
    let filter = pb::TaskFilter { queue: "q".into(), fairness_key: Some(String::new()), ..Default::default() };
    let (_, picked, size, _) = list(Some(filter.clone()), 0).expect("nothing is wrong with it");
    assert_eq!((picked.fairness_key.as_deref(), size), (Some(""), 100));
    assert_eq!(paths(list(Some(filter.clone()), 1_001)), ["page_size"]);
    assert_eq!(paths(list(None, -1)), ["filter", "page_size"]);
    let bad = pb::TaskFilter { queue: String::new(), states: vec![77], kind: "\0".into(), ..filter };
    assert_eq!(paths(list(Some(bad), 1)), ["filter.queue", "filter.states[0]", "filter.kind"]);
}

fn live(state: State) -> Live {
    Live {
        state,
        revision: 3,
        attempt: 1,
        charged: 1,
        max_attempts: 3,
        releases: 0,
        unknown_attempts: 0,
        token: 9,
        report: None,
        rank: 0,
        wake: None,
        deadline: Timestamp(9_000_000),
        lease: None,
        cancel: None,
        accepted: Timestamp(1_000_000),
        updated: Timestamp(2_000_000),
        first_lease: None,
        notes: Notes::default(),
    }
}

fn shown(standing: Standing, full: bool) -> pb::Task {
    let spec = pb::TaskSpec { queue: "q".into(), task_id: "t".into(), payload: vec![1].into(), ..Default::default() };
    let door = Door { payload_bytes: 10, traceparent: None };
    let spec = requests::submit(pb::SubmitRequest { spec: Some(spec) }, &door).expect("nothing is wrong with it");
    let (uid, digest) = (Uuid::try_parse(UID).unwrap_or_default(), spec.digest());
    let result = Some(vec![2].into());
    answers::task(Task { uid, spec: Arc::new(spec), digest, position: 1, standing, result, repair: None }, full)
}

#[test]
fn a_leased_task_shows_its_lease_and_why_it_should_stop() {
    let lease = Lease {
        worker: "w".into(),
        begin: Timestamp(0),
        expire: Timestamp(3_000_000),
        span: std::time::Duration::from_secs(3),
        stage: Stage::EffectBegun,
        effect_ref: None,
        effect_begun: None,
        reports_effect: true,
        heartbeat: None,
        call: Uuid::nil(),
        claim: None,
    };
    let cancel = CancelRequest { cause: Cause::Revoked, reason: "left".into() };
    let task = shown(Standing::Live(Live { lease: Some(lease), cancel: Some(cancel), ..live(State::Leased) }), false);
    assert_eq!((task.state(), task.stage(), task.cause()), (pb::TaskState::Leased, pb::Stage::EffectBegun, pb::Cause::Revoked));
    assert_eq!((task.worker_id.as_str(), task.reason.as_str(), task.cancel_requested), ("w", "left", true));
    assert_eq!(task.lease_expire_time.map(|at| at.seconds), Some(3));
    assert!(!task.terminal && task.end_time.is_none() && task.next_attempt_time.is_none() && task.boundary.is_empty());
    assert!(task.result.is_empty() && task.spec.is_some_and(|spec| spec.payload.is_empty()), "BASIC has no bytes");
}

#[test]
fn only_what_becomes_ready_by_time_has_a_next_attempt_time() {
    for (state, expected) in [(State::Scheduled, true), (State::RetryAt, true), (State::Blocked, false)] {
        let task = shown(Standing::Live(Live { wake: Some(Timestamp(5)), ..live(state) }), false);
        assert_eq!(task.next_attempt_time.is_some(), expected, "{state:?}");
        assert_eq!((task.stage, task.worker_id.as_str()), (0, ""));
    }
}

#[test]
fn only_a_completion_shows_what_it_published() {
    let ended = |state: State, boundary: &str| Ended {
        state,
        cause: (state == State::Canceled).then_some(Cause::Requested),
        reason: String::new(),
        revision: 5,
        attempt: 1,
        charged: 1,
        max_attempts: 3,
        unknown_attempts: 0,
        token: 9,
        report: Some(1),
        boundary: boundary.into(),
        accepted: Timestamp(0),
        ended: Timestamp(4_000_000),
        deadline: Timestamp(9_000_000),
        first_lease: Some(Timestamp(1)),
        stage: Some(Stage::EffectBegun),
        worker: Some("w".into()),
        evidence: Evidence { receipt_ref: Some("r-1".into()), result_size: Some(0), ..Evidence::default() },
        notes: Notes::default(),
    };
    let done = shown(Standing::Ended(ended(State::Completed, "provider_accepted")), true);
    assert!(done.terminal && done.end_time == done.update_time && done.end_time.is_some());
    assert_eq!((done.receipt_ref.as_str(), done.result_size, done.boundary.as_str()), ("r-1", Some(0), "provider_accepted"));
    assert_eq!((done.stage, done.worker_id.as_str(), done.result.len()), (0, "", 1));
    assert_eq!(done.spec.map(|spec| spec.payload.len()), Some(1), "FULL has its bytes");
    let canceled = shown(Standing::Ended(ended(State::Canceled, "")), false);
    assert_eq!((canceled.receipt_ref.as_str(), canceled.result_size, canceled.cause()), ("", None, pb::Cause::Requested));
}

#[test]
fn an_obstacle_names_its_blocker_in_full() {
    let blocker = (crate::domain::names::TaskId::parse("t0").expect("a name"), Uuid::nil());
    let kind = ObstacleKind::BehindKey;
    let obstacle = Obstacle { kind, text: String::new(), blocker: Some(blocker), until: None, ahead: Some(4) };
    let shown = answers::obstacle(obstacle, &QueueName::parse("q").expect("a name"));
    assert_eq!((shown.kind(), shown.ahead), (pb::ObstacleKind::BehindKey, Some(4)));
    assert_eq!(shown.blocker.map(|task| (task.queue, task.task_id)), Some(("q".into(), "t0".into())));
}
