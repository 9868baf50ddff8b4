//! Keys that wait for repairs, where the queue says so, and how a resolution lets them go.

use leasehold::api::proto as pb;
use pb::repair_service_client::RepairServiceClient;
use pb::resolve_repair_request::Resolution;
use pb::{ErrorClass, ObstacleKind, RepairState, TaskState};

use crate::town::{Answer, QUEUE, REASON, Town, task_ref};

/// The queue holds a key for an open repair, and two tasks wait behind it.
async fn a_held_key(town: &Town) {
    town.policy("on_repair = 'HOLD'").await;
    town.broken(town.spec("broken").key("c-a")).await;
    for id in ["next", "last"] {
        town.spec(id).key("c-a").submit().await;
    }
    assert_eq!(town.states(&["next", "last"]).await, ["BLOCKED", "BLOCKED"]);
    assert!(town.repair("broken").await.holds_key);
}

#[tokio::test]
async fn a_resolved_repair_holds_its_key_no_more() {
    for way in ["discard", "confirm"] {
        let town = Town::start().await;
        a_held_key(&town).await;
        match way {
            "discard" => town.discard("broken").await.ok(),
            _ => town.confirm("broken", "receipt-7").await.ok(),
        };
        assert_eq!(town.states(&["next", "last"]).await, ["READY", "BLOCKED"]);
        assert!(!town.repair("broken").await.holds_key);
        for id in ["next", "last"] {
            let lease = town.worker("w1").claim_one().await;
            assert_eq!(lease.id(), id);
            lease.complete().await.applied();
        }
        town.audit().await;
    }
}

#[tokio::test]
async fn a_workers_wait_ends_when_a_resolution_lets_its_task_go() {
    let town = Town::with_servers(2).await;
    a_held_key(&town).await;
    let worker = town.worker("w1");
    let waiting = tokio::spawn(async move { worker.claim_one().await });
    let waits = async || (!town.explain("next").await.iter().any(|one| one.kind() == ObstacleKind::NoWorker)).then_some(());
    crate::town::eventually("the worker stands in line", waits).await;
    town.resolve_at(1, "broken", Resolution::Discard(pb::Discard {})).await.ok();
    assert_eq!(waiting.await.unwrap().id(), "next");
    town.audit().await;
}

#[tokio::test]
async fn of_two_resolutions_that_meet_one_counts_and_the_other_is_told() {
    for (key, round) in [("", 0), ("c-a", 1)] {
        let town = Town::with_servers(2).await;
        town.policy("on_repair = 'HOLD'").await;
        town.broken(town.spec("t").key(key)).await;
        let row = "SELECT FROM repairs FOR UPDATE";
        let key_row = "SELECT FROM ordering_keys FOR UPDATE";
        let held = town.hold(if key.is_empty() { row } else { key_row }).await;
        let racing = async {
            let mut held = held;
            held.until_a_line_of(2).await;
            held.let_go().await;
        };
        let confirm = Resolution::Confirm(pb::Confirm { receipt_ref: "receipt-7".into() });
        let (discarded, confirmed, ()) = tokio::join!(town.discard("t"), town.resolve_at(1, "t", confirm), racing);
        let state = town.repair("t").await.state();
        if state == RepairState::Discarded {
            discarded.ok();
            assert_eq!(confirmed.refused_with("REPAIR_RESOLVED").says("state"), "DISCARDED");
        } else {
            assert_eq!((state, confirmed.ok().repair.unwrap().state()), (RepairState::Confirmed, RepairState::Confirmed));
            assert_eq!(discarded.refused_with("REPAIR_RESOLVED").says("state"), "CONFIRMED");
        }
        assert_eq!(town.repair("t").await.actions.len(), 1, "round {round}");
        town.audit().await;
    }
}

#[tokio::test]
async fn a_resolution_that_meets_the_keys_next_submit_leaves_the_key_free() {
    let town = Town::with_servers(2).await;
    town.policy("on_repair = 'HOLD'").await;
    town.broken(town.spec("broken").key("c-a")).await;
    let held = town.hold("SELECT FROM ordering_keys FOR UPDATE").await;
    let racing = async {
        let mut held = held;
        held.until_a_line_of(2).await;
        held.let_go().await;
    };
    let discard = town.resolve_at(1, "broken", Resolution::Discard(pb::Discard {}));
    let (submitted, discarded, ()) = tokio::join!(town.spec("next").key("c-a").try_submit(), discard, racing);
    submitted.ok();
    discarded.ok();
    // Whoever was first: it was READY from the start, or the resolution let it go.
    assert_eq!(town.states(&["next"]).await, ["READY"]);
    assert_eq!(town.worker("w1").claim_one().await.id(), "next");
    town.audit().await;
}

/// Sets the policy as an operator does, who is answered when it is in force.
async fn put_on_repair(town: &Town, on_repair: pb::OnRepair) {
    let mut admin = pb::admin_service_client::AdminServiceClient::new(town.server(0).channel());
    let queue = pb::Queue { name: QUEUE.into(), on_repair: on_repair as i32, ..pb::Queue::default() };
    let request = pb::PutQueueRequest { queue: Some(queue), reason: REASON.into(), ..pb::PutQueueRequest::default() };
    Answer::from(admin.put_queue(request).await).ok();
}

#[tokio::test]
async fn a_change_of_what_a_repair_means_leaves_no_key_stuck() {
    let town = Town::start().await;
    // To CONTINUE while a key is held: it goes on, and what comes after it is not held again.
    put_on_repair(&town, pb::OnRepair::Hold).await;
    a_held_key(&town).await;
    put_on_repair(&town, pb::OnRepair::Continue).await;
    town.wait_for_state("next", TaskState::Ready).await;
    assert!(!town.repair("broken").await.holds_key);
    // Back to HOLD while one of the key runs: it runs on, and those behind it wait for the repair.
    let running = town.worker("w1").claim_one().await;
    put_on_repair(&town, pb::OnRepair::Hold).await;
    running.complete().await.applied();
    assert_eq!(town.states(&["last"]).await, ["BLOCKED"]);
    town.worker("w1").finds_nothing().await;
    assert!(town.repair("broken").await.holds_key);
    town.discard("broken").await.ok();
    assert_eq!(town.states(&["last"]).await, ["READY"]);
    // Resolved under CONTINUE what was opened under HOLD: nothing waits for it any more either.
    let last = town.worker("w1").claim_one().await;
    last.fail(ErrorClass::Permanent).await.applied();
    town.spec("behind").key("c-a").submit().await;
    assert_eq!(town.states(&["behind"]).await, ["BLOCKED"]);
    let held = town.hold("SELECT FROM ordering_keys FOR UPDATE").await;
    let racing = async {
        let mut held = held;
        held.until_waited_for().await;
        town.execute(format!("UPDATE queues SET on_repair = 'CONTINUE' WHERE name = '{QUEUE}'")).await;
        held.let_go().await;
    };
    let (resolved, ()) = tokio::join!(town.discard("last"), racing);
    resolved.ok();
    assert_eq!(town.states(&["behind"]).await, ["READY"]);
    town.audit().await;
}

#[tokio::test]
async fn two_repairs_of_one_key_hold_it_until_both_are_resolved() {
    let town = Town::start().await;
    for id in ["first", "second"] {
        town.broken(town.spec(id).key("c-a")).await;
    }
    town.policy("on_repair = 'HOLD'").await;
    town.spec("next").key("c-a").submit().await;
    let mut repairs = RepairServiceClient::new(town.server(0).channel());
    let discard = |id: &str| pb::ResolveRepairRequest {
        task: Some(task_ref(id)),
        resolution: Some(Resolution::Discard(pb::Discard {})),
        reason: REASON.into(),
        actor: String::new(),
    };
    Answer::from(repairs.resolve_repair(discard("second")).await).ok();
    assert_eq!(town.states(&["next"]).await, ["BLOCKED"]);
    Answer::from(repairs.resolve_repair(discard("first")).await).ok();
    assert_eq!(town.states(&["next"]).await, ["READY"]);
    town.audit().await;
}
