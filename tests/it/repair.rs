//! What can't go on is left to people, with all that is known and all that is not; and they settle it once.

mod keys;

use leasehold::api::proto as pb;
use leasehold::store::{self, Db, Pools};
use pb::{Cause, ErrorClass, Outcome, RepairActionKind, RepairState, Stage, TaskState};
use tonic::Code;

use crate::town::{ACTOR, Answer, LEASE, QUEUE, REASON, SECOND, Town, id_of_repair, micros, task_ref};

fn owned_by(owner: &str) -> pb::ListRepairsRequest {
    pb::ListRepairsRequest { owner: Some(owner.into()), ..pb::ListRepairsRequest::default() }
}

fn picked_by(filter: pb::TaskFilter) -> pb::ListRepairsRequest {
    pb::ListRepairsRequest { filter: Some(filter), ..pb::ListRepairsRequest::default() }
}

/// Row 10 of the failure matrix.
#[tokio::test]
async fn used_up_attempts_leave_an_item_that_tells_the_known_from_the_unknown() {
    let town = Town::start().await;
    let subject = pb::Subject { id: "m-9".into(), version: 1, raise_floor: false };
    let spec = town.spec("t").retry(3, SECOND).share("tenant").payload(b"private").with(|spec| {
        spec.target = "d-b1".into();
        spec.event_id = "evt:m-9:v1".into();
        spec.subjects = vec![subject.clone()];
    });
    let accepted = spec.submit().await;
    let worker = town.worker("w1").reporting_effects();
    worker.claim_one().await.fail(ErrorClass::Transient).await.applied();
    let first_error = town.task("t").await.last_error.unwrap();
    town.clock.advance(SECOND * 2).await;
    worker.claim_one().await.begin_effect("provider-request-7").await.applied();
    town.clock.advance(LEASE + SECOND * 2).await;
    worker.claim_one().await.fail(ErrorClass::Transient).await.applied();
    let task = town.task("t").await;
    assert_eq!((task.state(), task.cause(), task.attempt), (TaskState::RepairRequired, Cause::AttemptsExhausted, 3));
    town.clock.advance(SECOND * 3_600).await;
    worker.finds_nothing().await;

    let repair = town.repair("t").await;
    assert_eq!(repair.task, Some(pb::TaskRef { uid: accepted.uid, ..task_ref("t") }));
    assert_eq!((repair.state(), repair.cause()), (RepairState::Open, Cause::AttemptsExhausted));
    assert_eq!((repair.known_attempt_count, repair.unknown_attempt_count), (2, 1));
    let known: Vec<_> = repair.known_attempts.iter().map(|attempt| (attempt.number, attempt.outcome())).collect();
    assert_eq!(known, [(1, Outcome::Failed), (3, Outcome::Failed)]);
    let unknown: Vec<_> = repair.unknown_attempts.iter().map(|attempt| (attempt.number, attempt.effect_ref.as_str())).collect();
    assert_eq!(unknown, [(2, "provider-request-7")]);
    assert_eq!((repair.stage(), repair.last_error.clone()), (Stage::Claimed, task.last_error.clone()));
    assert_eq!(repair.first_error_time, first_error.error_time);
    assert_eq!(repair.last_error_time, task.last_error.unwrap().error_time);
    assert_eq!((repair.create_time, repair.resolve_time), (task.end_time, None));
    assert_eq!((repair.kind.as_str(), repair.target.as_str(), repair.event_id.as_str()), ("push", "d-b1", "evt:m-9:v1"));
    assert_eq!((repair.subjects, repair.fairness_key.as_str()), (vec![subject], "tenant"));
    assert_eq!((repair.owner.as_str(), repair.next_action.as_str(), repair.actions.len()), ("", "", 0));
    // Nothing that a listing shows is private.
    let request = pb::ListRepairsRequest {
        filter: Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() }),
        ..pb::ListRepairsRequest::default()
    };
    let page = Answer::from(town.repairs().list_repairs(request).await).ok();
    assert_eq!(page.repairs.len(), 1);
    assert!(!format!("{page:?}").contains("private"));
    assert_eq!(page.repairs[0].unknown_attempts, []);
    town.audit().await;
    town.row_held(10, "t", None).await;
}

/// Row 11 of the failure matrix.
#[tokio::test]
async fn a_deadline_that_passes_while_waiting_running_or_backing_off_leaves_an_item() {
    let town = Town::start().await;
    town.spec("runs").ttl(SECOND * 20).submit().await;
    let running = town.worker("w1").claim_one().await;
    town.spec("backs off").ttl(SECOND * 20).retry(9, SECOND * 15).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.spec("waits").ttl(SECOND * 20).start_delay(SECOND * 30).submit().await;
    town.clock.advance(SECOND * 21).await;
    for id in ["runs", "backs off", "waits"] {
        let task = town.wait_for_state(id, TaskState::RepairRequired).await;
        assert_eq!((task.cause(), task.next_attempt_time), (Cause::DeadlinePassed, None), "{id}");
        let repair = town.repair(id).await;
        assert_eq!((repair.state(), repair.cause()), (RepairState::Open, Cause::DeadlinePassed));
        assert_eq!(repair.last_error.is_some(), id != "waits");
    }
    running.complete().await.refused_with("TASK_TERMINAL");
    // A retry that could not begin in time is not planned at all.
    town.spec("too late").ttl(SECOND * 20).retry(9, SECOND * 30).submit().await;
    let failed = town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied().task.unwrap();
    assert_eq!((failed.state(), failed.cause()), (TaskState::RepairRequired, Cause::DeadlinePassed));
    town.audit().await;
    for id in ["waits", "runs", "backs off"] {
        town.row_held(11, id, None).await;
    }
}

#[tokio::test]
async fn whoever_looks_after_a_repair_and_what_is_next_is_told_wherever_it_is_seen() {
    let town = Town::start().await;
    for id in ["a", "b"] {
        town.broken(town.spec(id)).await;
    }
    let assigned = town.assign("a", "ann", "ask the provider").await.ok().repair.unwrap();
    assert_eq!((assigned.owner.as_str(), assigned.next_action.as_str()), ("ann", "ask the provider"));
    let summary = town.task("a").await.repair.unwrap();
    assert_eq!((summary.state(), summary.owner.as_str()), (RepairState::Open, "ann"));
    assert_eq!(summary.next_action, "ask the provider");
    assert_eq!(town.list_repairs(owned_by("ann")).await, ["a"]);
    assert_eq!(town.list_repairs(owned_by("")).await, ["b"]);
    // What an assignment doesn't name stays.
    let partly = pb::AssignRepairRequest {
        task: Some(task_ref("a")),
        owner: Some("bob".into()),
        reason: "on leave".into(),
        ..Default::default()
    };
    let repair = Answer::from(town.repairs().assign_repair(partly).await).ok().repair.unwrap();
    assert_eq!(
        (repair.owner.as_str(), repair.next_action.as_str(), repair.reason.as_str()),
        ("bob", "ask the provider", "on leave")
    );
    let actions = town.repair("a").await.actions;
    let told: Vec<_> = actions.iter().map(|a| (a.kind(), a.actor.as_str(), a.reason.as_str(), a.detail.as_str())).collect();
    let assigned = RepairActionKind::Assigned;
    assert_eq!(told, [(assigned, ACTOR, REASON, "ann"), (assigned, "", "on leave", "bob")]);
    let nothing = pb::AssignRepairRequest { task: Some(task_ref("a")), reason: "why".into(), ..Default::default() };
    Answer::from(town.repairs().assign_repair(nothing).await).refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let unsaid = pb::AssignRepairRequest { task: Some(task_ref("a")), owner: Some("x".into()), ..Default::default() };
    Answer::from(town.repairs().assign_repair(unsaid).await).refused_as(Code::InvalidArgument, "INVALID_FIELD");
    town.discard("a").await.ok();
    let refused = town.assign("a", "ann", "").await.refused_with("REPAIR_RESOLVED");
    assert_eq!(refused.says("state"), "DISCARDED");
    town.audit().await;
}

#[tokio::test]
async fn repairs_are_listed_by_what_is_asked_for_the_oldest_first_and_page_by_page() {
    let town = Town::start().await;
    for number in 0..5 {
        let spec = town.spec(&format!("r-{number}")).share(if number < 2 { "x" } else { "y" }).label("n", &number.to_string());
        let subject = pb::Subject { id: format!("m-{}", number % 2), version: 1, raise_floor: false };
        town.broken(spec.with(|spec| spec.subjects = vec![subject])).await;
        town.clock.advance(SECOND * 60).await;
    }
    town.spec("late").ttl(SECOND).start_delay(SECOND * 5).submit().await;
    town.clock.advance(SECOND * 2).await;
    town.wait_for_state("late", TaskState::RepairRequired).await;
    let all = ["r-0", "r-1", "r-2", "r-3", "r-4", "late"];
    assert_eq!(town.list_repairs(pb::ListRepairsRequest::default()).await, all);
    let default = pb::ListRepairsRequest::default;
    let causes = |cause: Cause| pb::ListRepairsRequest { causes: vec![cause as i32], ..default() };
    assert_eq!(town.list_repairs(causes(Cause::DeadlinePassed)).await, ["late"]);
    assert_eq!(town.list_repairs(causes(Cause::PermanentError)).await, all[..5]);
    let filter = pb::TaskFilter::default;
    assert_eq!(town.list_repairs(picked_by(pb::TaskFilter { subject_id: "m-1".into(), ..filter() })).await, ["r-1", "r-3"]);
    assert_eq!(town.list_repairs(picked_by(pb::TaskFilter { fairness_key: Some("x".into()), ..filter() })).await, ["r-0", "r-1"]);
    let labels = [("n".to_owned(), "4".to_owned())].into();
    assert_eq!(town.list_repairs(picked_by(pb::TaskFilter { labels, ..filter() })).await, ["r-4"]);
    let aged = pb::ListRepairsRequest { min_age: Some(crate::town::span(SECOND * 200)), ..default() };
    assert_eq!(town.list_repairs(aged).await, ["r-0", "r-1"]);
    // Pages: none twice and none left out, also when one in between is resolved.
    let mut told = Vec::new();
    let queue = || Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
    let mut page_token = String::new();
    loop {
        let request = pb::ListRepairsRequest { filter: queue(), page_size: 2, page_token: page_token.clone(), ..default() };
        let page = Answer::from(town.repairs().list_repairs(request).await).ok();
        told.extend(page.repairs.iter().map(|repair| id_of_repair(repair).to_owned()));
        if told.len() == 2 {
            town.discard("r-1").await.ok();
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(told, all);
    let states =
        |states: &[RepairState]| pb::ListRepairsRequest { states: states.iter().map(|&s| s as i32).collect(), ..default() };
    assert_eq!(town.list_repairs(states(&[RepairState::Discarded])).await, ["r-1"]);
    assert_eq!(town.list_repairs(states(&[RepairState::Discarded, RepairState::Open])).await, all);
    assert_eq!(town.list_repairs(pb::ListRepairsRequest::default()).await, ["r-0", "r-2", "r-3", "r-4", "late"]);
    // What can't be is said.
    let leased = pb::ListRepairsRequest {
        filter: Some(pb::TaskFilter { states: vec![TaskState::Leased as i32], ..queue().unwrap() }),
        ..default()
    };
    Answer::from(town.repairs().list_repairs(leased).await).refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let bad = pb::ListRepairsRequest { filter: queue(), page_token: "7".into(), ..default() };
    Answer::from(town.repairs().list_repairs(bad).await).refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let elsewhere = pb::ListRepairsRequest { filter: Some(pb::TaskFilter { queue: "nobody's".into(), ..filter() }), ..default() };
    Answer::from(town.repairs().list_repairs(elsewhere).await).refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    town.audit().await;
}

#[tokio::test]
async fn what_never_needed_repair_has_none() {
    let town = Town::start().await;
    town.submit("t").await;
    town.look_up_repair("t").await.refused_as(Code::NotFound, "REPAIR_NOT_FOUND");
    town.look_up_repair("nobody").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    town.discard("t").await.refused_as(Code::NotFound, "REPAIR_NOT_FOUND");
    town.worker("w1").claim_one().await.complete().await.applied();
    town.look_up_repair("t").await.refused_as(Code::NotFound, "REPAIR_NOT_FOUND");
    town.audit().await;
}

#[tokio::test]
async fn a_repair_is_settled_once_and_its_task_stays_as_it_ended() {
    let town = Town::start().await;
    for id in ["given up", "happened"] {
        town.broken(town.spec(id)).await;
    }
    let ended = town.task("given up").await;
    let discarded = town.discard("given up").await.ok();
    assert_eq!(discarded.replayed_task, None);
    let repair = discarded.repair.unwrap();
    assert_eq!((repair.state(), repair.resolved_by.as_str(), repair.reason.as_str()), (RepairState::Discarded, ACTOR, REASON));
    assert!(micros(repair.resolve_time.as_ref()) >= micros(repair.create_time.as_ref()));
    // Again is fine, and changes nothing; something else is not.
    assert_eq!(town.discard("given up").await.ok().repair.unwrap(), repair);
    for other in [town.confirm("given up", "receipt-7").await, town.replay("given up").await] {
        assert_eq!(other.refused_with("REPAIR_RESOLVED").says("state"), "DISCARDED");
    }
    let confirmed = town.confirm("happened", "receipt-7").await.ok().repair.unwrap();
    assert_eq!((confirmed.state(), confirmed.receipt_ref.as_str()), (RepairState::Confirmed, "receipt-7"));
    assert_eq!(town.confirm("happened", "receipt-7").await.ok().repair.unwrap(), confirmed);
    town.confirm("happened", "receipt-8").await.refused_with("REPAIR_RESOLVED");
    town.confirm("happened", "").await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let after = town.task("given up").await;
    assert_eq!(after.repair.as_ref().unwrap().state(), RepairState::Discarded);
    assert_eq!(pb::Task { repair: ended.repair.clone(), ..after }, ended);
    assert_eq!(town.repair("happened").await.actions[0].detail, "receipt-7");
    town.audit().await;
}

#[tokio::test]
async fn an_unknown_outcome_is_settled_by_the_receipt_that_was_found() {
    let town = Town::start().await;
    town.policy("on_unknown = 'REPAIR'").await;
    town.submit("t").await;
    let lease = town.worker("w1").reporting_effects().claim_one().await;
    lease.begin_effect("provider-request-7").await.applied();
    town.clock.advance(LEASE + SECOND).await;
    town.wait_for_state("t", TaskState::RepairRequired).await;
    let repair = town.repair("t").await;
    assert_eq!((repair.cause(), repair.stage()), (Cause::OutcomeUnknown, Stage::EffectBegun));
    assert_eq!(repair.unknown_attempts[0].effect_ref, "provider-request-7");
    town.confirm("t", "receipt-7").await.ok();
    let task = town.task("t").await;
    assert_eq!((task.state(), task.boundary.as_str(), task.receipt_ref.as_str()), (TaskState::RepairRequired, "", ""));
    assert_eq!(task.repair.unwrap().state(), RepairState::Confirmed);
    assert_eq!(town.repair("t").await.receipt_ref, "receipt-7");
    town.audit().await;
}

/// Row 24 of the failure matrix.
#[tokio::test]
async fn a_poisonous_row_becomes_an_item_and_its_neighbours_move_in_the_same_sweep() {
    let town = Town::start().await;
    for id in ["before", "leased", "after"] {
        town.spec(id).retry(3, SECOND * 60).submit().await;
    }
    for (id, key) in [("head", "c-a"), ("behind", "c-a"), ("healthy head", "c-b"), ("poisoned behind", "c-b"), ("last", "c-b")] {
        town.spec(id).key(key).retry(3, SECOND * 60).submit().await;
    }
    town.worker("w1").claim_all(5).await;
    for id in ["leased", "head", "poisoned behind"] {
        let poison = format!("UPDATE live SET notes = '7' WHERE uid = (SELECT uid FROM tasks WHERE task_id = '{id}')");
        assert_eq!(town.execute(poison).await, 1);
    }
    town.clock.advance(LEASE + SECOND).await;
    for id in ["before", "after", "healthy head"] {
        town.wait_for_state(id, TaskState::RetryAt).await;
    }
    for id in ["leased", "head", "poisoned behind"] {
        let task = town.wait_for_state(id, TaskState::RepairRequired).await;
        assert_eq!(task.cause(), Cause::Stuck, "{id}");
        let repair = town.repair(id).await;
        assert_eq!((repair.state(), repair.cause()), (RepairState::Open, Cause::Stuck));
        assert_eq!(repair.unknown_attempt_count, i32::from(id != "poisoned behind"));
    }
    // Its key goes on, and it can be replayed.
    assert_eq!(town.states(&["behind", "last"]).await, ["READY", "BLOCKED"]);
    crate::town::replayed(town.replay("leased").await);
    let mut ready: Vec<String> = town.worker("w1").claim_all(2).await.iter().map(|lease| lease.id().to_owned()).collect();
    ready.sort();
    assert_eq!(ready, ["behind", "leased~1"]);
    town.audit_database().await;
    town.row_held(24, "leased", None).await;
}

#[tokio::test]
async fn what_nobody_can_move_hides_nothing_that_is_due_after_it() {
    let town = Town::start().await;
    for (id, minutes) in [("set aside", 1), ("next", 2), ("last", 3)] {
        town.spec(id).start_delay(SECOND * 60 * minutes).submit().await;
    }
    let db = Db::open(&town.database_url, Pools::default()).unwrap();
    let due_without = async |ids: &[&str]| {
        let mut aside = Vec::new();
        for id in ids {
            aside.push(town.task(id).await.uid.parse().unwrap());
        }
        store::look_at_due(&db, &aside, 10).await.unwrap().due.map(|due| due.0)
    };
    let planned = async |id| Some(micros(town.task(id).await.next_attempt_time.as_ref()));
    assert_eq!(due_without(&[]).await, planned("set aside").await);
    assert_eq!(due_without(&["set aside"]).await, planned("next").await);
    assert_eq!(due_without(&["next", "set aside"]).await, planned("last").await);
    assert_eq!(due_without(&["next", "last", "set aside"]).await, None);
}
