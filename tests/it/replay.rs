//! Replay: a new task that points at the old one, judged by today's rules; and never two of them.

mod keys;

use leasehold::api::proto as pb;
use pb::replay_result::Result as Done;
use pb::resolve_repair_request::Resolution;
use pb::{Cause, ErrorClass, RepairActionKind, RepairState, TaskState};
use tonic::Code;

use crate::town::{ACTOR, LEASE, QUEUE, REASON, SECOND, Town, id_of, micros, replayed, task_ref};

fn named(id: &str) -> pb::Replay {
    pb::Replay { new_task_id: id.into(), ..pb::Replay::default() }
}

fn plain(max_tasks: i32) -> pb::ReplayRepairsRequest {
    pb::ReplayRepairsRequest { max_tasks: Some(max_tasks), ..pb::ReplayRepairsRequest::default() }
}

/// The ids of what was replayed, and the reasons of what was refused, in order.
fn outcomes(answer: &pb::ReplayRepairsResponse) -> Vec<String> {
    let told = |result: &pb::ReplayResult| match result.result.as_ref().expect("always set") {
        Done::Replayed(new) => new.task_id.clone(),
        Done::Error(error) => error.message.clone(),
    };
    answer.results.iter().map(told).collect()
}

#[tokio::test]
async fn a_replay_is_a_new_task_from_the_old_ones_spec_that_points_at_it() {
    let town = Town::start().await;
    let subject = pb::Subject { id: "m-9".into(), version: 1, raise_floor: false };
    let spec = town.spec("a").payload(b"private").share("tenant").key("c-a").label("k", "v").priority(2).ttl(SECOND * 60);
    let spec = spec.lease(SECOND * 7).retry(1, SECOND).with(|spec| {
        (spec.target, spec.event_id, spec.content_type) = ("d-b1".into(), "evt:m-9:v1".into(), "text/plain".into());
        (spec.subjects, spec.cost) = (vec![subject.clone()], Some(3));
    });
    let old = town.broken(spec).await;
    let new = replayed(town.replay("a").await);
    assert_eq!((id_of(&new), new.state(), new.attempt), ("a~1", TaskState::Ready, 0));
    let reference = |task: &pb::Task| Some(pb::TaskRef { uid: task.uid.clone(), ..task_ref(id_of(task)) });
    assert_eq!((new.replay_of.clone(), new.replayed_by.clone()), (reference(&old), None));
    let after = town.task("a").await;
    assert_eq!((after.replayed_by.clone(), after.replay_of.clone()), (reference(&new), None));
    assert_eq!(after.repair.as_ref().unwrap().state(), RepairState::Replayed);
    assert_eq!(pb::Task { repair: old.repair.clone(), replayed_by: None, ..after }, old, "the original stays as it ended");
    // The same content, with a budget and a deadline of its queue.
    let (was, is) = (old.spec.clone().unwrap(), new.spec.clone().unwrap());
    assert_eq!((is.end, is.retry.unwrap().max_attempts), (None, None));
    assert_eq!(pb::TaskSpec { task_id: was.task_id.clone(), end: was.end, retry: was.retry, ..is }, was);
    assert_eq!(town.task_with_payload("a~1").await.spec.unwrap().payload, &b"private"[..]);
    assert!(micros(new.deadline_time.as_ref()) > micros(old.deadline_time.as_ref()));
    // Replayed is not yet repaired.
    let repair = town.repair("a").await;
    assert_eq!(
        (repair.state(), repair.replayed_by.clone(), repair.replay_state()),
        (RepairState::Replayed, reference(&new), TaskState::Ready)
    );
    assert_eq!((repair.replay_end_time, repair.resolved_by.as_str()), (None, ACTOR));
    let actions: Vec<_> = repair.actions.iter().map(|a| (a.kind(), a.reason.as_str(), a.detail.as_str())).collect();
    assert_eq!(actions, [(RepairActionKind::Replayed, REASON, "a~1")]);
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.task().replay_of, reference(&old));
    lease.complete().await.applied();
    let repair = town.repair("a").await;
    assert_eq!(repair.replay_state(), TaskState::Completed);
    assert!(repair.replay_end_time.is_some());
    town.audit().await;
}

#[tokio::test]
async fn a_replay_can_change_what_was_wrong() {
    let town = Town::start().await;
    let subject = |version| pb::Subject { id: "m-9".into(), version, raise_floor: false };
    let spec = town.spec("a").payload(b"v1").share("x").key("c-a").label("k", "v1");
    town.broken(spec.with(|spec| spec.subjects = vec![subject(1)])).await;
    let changed = pb::Replay {
        new_task_id: "b".into(),
        payload: Some(b"v2".to_vec().into()),
        subjects: vec![subject(2)],
        fairness_key: Some(String::new()),
        ordering_key: Some("c-b".into()),
        labels: [("k".to_owned(), "v2".to_owned())].into(),
    };
    let new = replayed(town.replay_as("a", changed).await);
    let spec = town.task_with_payload("b").await.spec.unwrap();
    assert_eq!((id_of(&new), &spec.payload[..], spec.subjects.as_slice()), ("b", &b"v2"[..], &[subject(2)][..]));
    assert_eq!((spec.fairness_key.as_str(), spec.ordering_key.as_str(), spec.labels["k"].as_str()), ("", "c-b", "v2"));
    town.worker("w1").claim_one().await.complete().await.applied();
    town.broken(town.spec("c").payload(b"v1").key("c-c")).await;
    let emptied = pb::Replay { payload: Some(Vec::new().into()), ordering_key: Some(String::new()), ..pb::Replay::default() };
    replayed(town.replay_as("c", emptied).await);
    let spec = town.task_with_payload("c~1").await.spec.unwrap();
    assert_eq!((spec.payload.len(), spec.ordering_key.as_str()), (0, ""));
    town.worker("w1").claim_one().await.complete().await.applied();
    town.broken(town.spec("d")).await;
    let large = pb::Replay { payload: Some(vec![0; 65_537].into()), ..pb::Replay::default() };
    town.replay_as("d", large).await.refused_as(Code::InvalidArgument, "TOO_LARGE");
    town.audit().await;
}

#[tokio::test]
async fn replays_of_replays_are_counted_and_the_repair_shows_how_the_new_one_ended() {
    let town = Town::start().await;
    town.broken(town.spec("a")).await;
    for (old, new) in [("a", "a~1"), ("a~1", "a~2")] {
        assert_eq!(id_of(&replayed(town.replay(old).await)), new);
        town.worker("w1").claim_one().await.fail(ErrorClass::Permanent).await.applied();
        let repair = town.repair(old).await;
        assert_eq!((repair.replay_state(), repair.replay_cause()), (TaskState::RepairRequired, Cause::PermanentError));
    }
    assert_eq!(town.list_repairs(pb::ListRepairsRequest::default()).await, ["a~2"]);
    // A task that only looks like one is not counted on.
    town.broken(town.spec("b~7")).await;
    assert_eq!(id_of(&replayed(town.replay("b~7").await)), "b~7~1");
    town.audit().await;
}

#[tokio::test]
async fn replaying_twice_is_one_replay() {
    let town = Town::start().await;
    town.broken(town.spec("a").payload(b"private")).await;
    let first = replayed(town.replay("a").await);
    for again in [pb::Replay::default(), named("a~1"), pb::Replay { payload: Some(b"private".to_vec().into()), ..named("") }] {
        assert_eq!(replayed(town.replay_as("a", again).await), first);
    }
    // What would have been another one is refused: there is one already.
    for other in [named("b"), pb::Replay { payload: Some(b"other".to_vec().into()), ..named("") }] {
        assert_eq!(town.replay_as("a", other).await.refused_with("REPAIR_RESOLVED").says("state"), "REPLAYED");
    }
    town.discard("a").await.refused_with("REPAIR_RESOLVED");
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 2);
    town.audit().await;
}

/// Both wait in line for the same row (or the second one for the first's new id), and then go on one after the other.
async fn at_once(town: &Town, first: Resolution, second: Resolution) -> [crate::town::Answer<pb::ResolveRepairResponse>; 2] {
    let held = town.hold("SELECT FROM repairs FOR UPDATE").await;
    let racing = async {
        let mut held = held;
        held.until_a_line_of(2).await;
        held.let_go().await;
    };
    let (first, second, ()) = tokio::join!(town.resolve_at(0, "a", first), town.resolve_at(1, "a", second), racing);
    [first, second]
}

#[tokio::test]
async fn two_servers_that_replay_at_once_make_one_task() {
    let town = Town::with_servers(2).await;
    town.broken(town.spec("a")).await;
    let replay = || Resolution::Replay(pb::Replay::default());
    let [first, second] = at_once(&town, replay(), replay()).await.map(replayed);
    assert_eq!((id_of(&first), &first.uid), ("a~1", &second.uid));
    assert_eq!(town.repair("a").await.actions.len(), 1);
    assert_eq!(town.worker("w1").claim(5).await.len(), 1);
    town.audit().await;
}

#[tokio::test]
async fn two_servers_that_replay_under_different_names_at_once_make_one_task() {
    let town = Town::with_servers(2).await;
    town.broken(town.spec("a")).await;
    let answers = at_once(&town, Resolution::Replay(named("b")), Resolution::Replay(named("c"))).await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.0.is_ok());
    assert_eq!((done.len(), refused.len()), (1, 1));
    refused.into_iter().for_each(|answer| assert_eq!(answer.refused_with("REPAIR_RESOLVED").says("state"), "REPLAYED"));
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 2, "nothing is left of the one that lost");
    town.audit().await;
}

#[tokio::test]
async fn of_a_replay_and_a_discard_that_meet_one_counts() {
    let town = Town::with_servers(2).await;
    town.broken(town.spec("a")).await;
    let [replay, discard] = at_once(&town, Resolution::Replay(pb::Replay::default()), Resolution::Discard(pb::Discard {})).await;
    if town.repair("a").await.state() == RepairState::Replayed {
        replayed(replay);
        assert_eq!(discard.refused_with("REPAIR_RESOLVED").says("state"), "REPLAYED");
    } else {
        discard.ok();
        assert_eq!(replay.refused_with("REPAIR_RESOLVED").says("state"), "DISCARDED");
        assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 1);
    }
    town.audit().await;
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_replay_leaves_none_or_a_whole_one() {
    let town = Town::with_servers(2).await;
    town.broken(town.spec("a")).await;
    let mut held = town.hold("SELECT FROM repairs FOR UPDATE").await;
    let dying = tokio::spawn(replay_of(town.repairs_at(1)));
    held.until_waited_for().await;
    town.server(1).signal(libc::SIGKILL);
    assert!(dying.await.unwrap().is_err());
    held.let_go().await;
    let new = replayed(town.replay("a").await);
    assert_eq!(id_of(&new), "a~1");
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 2);
    town.audit().await;
}

async fn replay_of(
    mut repairs: pb::repair_service_client::RepairServiceClient<tonic::transport::Channel>,
) -> Result<tonic::Response<pb::ResolveRepairResponse>, tonic::Status> {
    let request = pb::ResolveRepairRequest {
        task: Some(task_ref("a")),
        resolution: Some(Resolution::Replay(pb::Replay::default())),
        reason: REASON.into(),
        actor: ACTOR.into(),
    };
    repairs.resolve_repair(request).await
}

#[tokio::test]
async fn a_replay_that_is_refused_leaves_the_repair_open_with_the_reason() {
    let town = Town::start().await;
    town.broken(town.spec("a").payload(b"v1")).await;
    // The id is taken by a task that has nothing to do with it, even if it says the same.
    town.spec("a~1").payload(b"v1").submit().await;
    town.spec("other").payload(b"v2").submit().await;
    for replay in [named(""), named("other")] {
        town.replay_as("a", replay).await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
        let repair = town.repair("a").await;
        assert_eq!(repair.state(), RepairState::Open);
        assert!(repair.last_refusal.starts_with("TASK_ID_CONFLICT: "), "{}", repair.last_refusal);
        assert_eq!(repair.actions.len(), 1, "the same refusal is told once");
        assert_eq!(repair.actions[0].kind(), RepairActionKind::Refused);
    }
    let repair = town.repair("a").await;
    assert_eq!((repair.resolved_by.as_str(), repair.resolve_time, repair.replayed_by), ("", None, None));
    assert_eq!(id_of(&replayed(town.replay_as("a", named("b")).await)), "b");
    assert_eq!(town.repair("a").await.actions.len(), 2);
    town.audit().await;
}

#[tokio::test]
async fn a_replay_of_a_version_that_is_stale_by_now_is_refused_and_stays_open_until_it_is_about_the_present_one() {
    let town = Town::start().await;
    town.broken(town.spec("v1").about("m-9", 1)).await;
    town.raise("m-9", 2).await;
    for _ in 0..2 {
        let refused = town.replay("v1").await.refused_with("SUBJECT_STALE");
        assert_eq!((refused.says("subject_id"), refused.number("version"), refused.number("floor")), ("m-9", 1, 2));
    }
    let repair = town.repair("v1").await;
    assert_eq!((repair.state(), repair.replayed_by.clone()), (RepairState::Open, None));
    assert!(repair.last_refusal.starts_with("SUBJECT_STALE: "), "{}", repair.last_refusal);
    assert_eq!(town.list_repairs(pb::ListRepairsRequest::default()).await, ["v1"]);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 1, "a refused replay left a task");
    town.worker("w1").finds_nothing().await;
    let subjects = vec![pb::Subject { id: "m-9".into(), version: 2, raise_floor: false }];
    let new = replayed(town.replay_as("v1", pb::Replay { subjects: subjects.clone(), ..pb::Replay::default() }).await);
    assert_eq!(new.spec.unwrap().subjects, subjects);
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.id(), "v1~1");
    lease.complete().await.applied();
    assert_eq!(town.repair("v1").await.replay_state(), TaskState::Completed);
    town.row_held(27, "v1", None).await;
    town.audit().await;
}

#[tokio::test]
async fn an_id_too_long_for_a_number_needs_a_name() {
    let town = Town::start().await;
    let long = "x".repeat(256);
    town.broken(town.spec(&long)).await;
    town.replay(&long).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    assert!(town.repair(&long).await.last_refusal.contains("new_task_id"));
    replayed(town.replay_as(&long, named("short")).await);
    town.audit().await;
}

#[tokio::test]
async fn what_a_filter_picks_is_replayed_the_oldest_first_and_a_rehearsal_changes_nothing() {
    let town = Town::start().await;
    for number in 0..5 {
        town.broken(town.spec(&format!("r-{number}")).share(if number < 4 { "x" } else { "y" })).await;
        town.clock.advance(SECOND).await;
    }
    town.submit("r-1~1").await;
    let filter = pb::TaskFilter { fairness_key: Some("x".into()), ..pb::TaskFilter::default() };
    let asked = |max_tasks| pb::ReplayRepairsRequest { filter: Some(filter.clone()), ..plain(max_tasks) };
    let before = town.sql::<i64>("SELECT count(*) FROM tasks").await;
    let rehearsed = town.replay_all(pb::ReplayRepairsRequest { validate_only: true, ..asked(3) }).await;
    assert_eq!((rehearsed.replayed_count, rehearsed.refused_count, rehearsed.more), (2, 1, true));
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, before);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM repair_actions").await, 0);
    let Some(Done::Replayed(new)) = &rehearsed.results[0].result else { panic!("it would have been replayed") };
    assert_eq!((new.task_id.as_str(), new.uid.as_str()), ("r-0~1", ""));

    let done = town.replay_all(asked(3)).await;
    assert_eq!((done.replayed_count, done.refused_count, done.more), (2, 1, true));
    let old: Vec<_> = done.results.iter().map(|result| result.task.as_ref().unwrap().task_id.as_str()).collect();
    assert_eq!(old, ["r-0", "r-1", "r-2"]);
    assert_eq!(outcomes(&done)[0], "r-0~1");
    assert_eq!(town.repair("r-1").await.state(), RepairState::Open);
    // What was refused is tried again, but never in the way of what was not.
    let done = town.replay_all(asked(1)).await;
    assert_eq!((outcomes(&done), done.more), (vec!["r-3~1".to_owned()], false));
    let done = town.replay_all(asked(5)).await;
    assert_eq!((done.replayed_count, done.refused_count, done.more), (0, 1, false));
    assert_eq!(town.list_repairs(pb::ListRepairsRequest::default()).await, ["r-1", "r-4"]);
    town.audit().await;
}

#[tokio::test]
async fn the_starts_of_many_replays_are_spread_and_survive_the_server() {
    let mut town = Town::start().await;
    for number in 0..4 {
        town.broken(town.spec(&format!("r-{number}")).ttl(SECOND * 3_600)).await;
    }
    let done = town.replay_all(pb::ReplayRepairsRequest { rate: Some(0.1), ..plain(100) }).await;
    assert_eq!(done.replayed_count, 4);
    town.server_mut(0).kill();
    town.restart_server(0).await;
    assert_eq!(town.states(&["r-0~1", "r-1~1", "r-3~1"]).await, ["READY", "SCHEDULED", "SCHEDULED"]);
    let start = |task: &pb::Task| micros(task.next_attempt_time.as_ref()) - micros(task.create_time.as_ref());
    let last = town.task("r-3~1").await;
    assert_eq!(start(&last), 30_000_000);
    assert_eq!(micros(last.deadline_time.as_ref()) - micros(last.next_attempt_time.as_ref()), 86_400_000_000);
    for id in ["r-0~1", "r-1~1", "r-2~1", "r-3~1"] {
        let lease = town.worker("w1").for_a_lease_of(LEASE * 10).claim_one().await;
        assert_eq!(lease.id(), id);
        town.worker("w1").finds_nothing().await;
        town.clock.advance(SECOND * 10).await;
    }
    let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
    for (rate, max_tasks) in [(0.0, 1), (f64::NAN, 1), (-1.0, 1), (0.0001, 1_000), (1.0, 0), (1.0, 1_001)] {
        let request =
            pb::ReplayRepairsRequest { rate: Some(rate), filter: filter.clone(), reason: REASON.into(), ..plain(max_tasks) };
        let refused = crate::town::Answer::from(town.repairs().replay_repairs(request).await);
        refused.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    town.audit().await;
}
