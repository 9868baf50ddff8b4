//! No stale version is claimed, begun, completed or submitted, whatever the timing: races held open, servers that die, and chance.

mod crowd;
mod game;
mod pile;

use leasehold::api::proto::{self as pb, Cause, Directive, TaskState, raise_subject_request::Floor};

use crate::town::{Answer, EDITED, Lease, PATIENCE, SECOND, Town, counts, eventually, raise_by, task_ref};
const SUBJECT: &str = "m-9";
/// A floor as RaiseSubject writes it, before its walk.
const RISES: &str = "INSERT INTO subjects (queue_id, subject_id, min_version, reason, updated, walk_due)
                     SELECT queue_id, 'm-9', 2, 'the message was edited', app_now(), app_now() + interval '30 s' FROM queues";

/// Items of one transaction.
const BATCH: i64 = 500;

async fn v1(town: &Town) -> Lease {
    town.spec("v1").about(SUBJECT, 1).submit().await;
    town.worker("w1").reporting_effects().claim_one().await
}

#[tokio::test]
async fn a_completion_that_waited_while_the_floor_rose_is_judged_by_the_new_floor() {
    let town = Town::start().await;
    let lease = v1(&town).await;
    let mut held = town.hold_task("v1").await;
    let race = async {
        held.until_waited_for().await;
        town.execute(RISES).await;
        held.let_go().await;
    };
    let (completed, ()) = tokio::join!(lease.complete(), race);
    completed.refused_with("SUBJECT_STALE");
    let task = town.task("v1").await;
    assert_eq!((task.state(), task.cause(), task.reason.as_str()), (TaskState::Canceled, Cause::Superseded, EDITED));
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (0, 0, 1));
    town.audit().await;
}

#[tokio::test]
async fn an_effect_that_waited_while_the_floor_rose_does_not_begin() {
    let town = Town::start().await;
    let lease = v1(&town).await;
    let mut held = town.hold_task("v1").await;
    let race = async {
        held.until_waited_for().await;
        town.execute(RISES).await;
        held.let_go().await;
    };
    let (begun, ()) = tokio::join!(lease.begin_effect("call-1"), race);
    begun.refused_with("SUBJECT_STALE");
    let beat = lease.heartbeat().await.ok();
    assert_eq!((beat.directive(), beat.cause()), (Directive::Cancel, Cause::Superseded));
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (0, 1, 0));
    town.audit().await;
}

#[tokio::test]
async fn an_effect_that_meets_a_cancel_or_the_end_of_its_lease_does_not_begin_either() {
    let town = Town::start().await;
    for reason in ["CANCEL_REQUESTED", "LEASE_EXPIRED"] {
        town.spec(reason).retry(3, SECOND * 60).submit().await;
        let lease = town.worker("w1").reporting_effects().claim_one().await;
        let mut held = town.hold_task(reason).await;
        let race = async {
            held.until_waited_for().await;
            if reason == "CANCEL_REQUESTED" {
                let told = "UPDATE live SET cancel_cause = 'REQUESTED', cancel_reason = '' WHERE cancel_cause IS NULL AND state = 'LEASED'";
                held.execute(told).await;
            } else {
                town.clock.advance(SECOND * 31).await;
            }
            held.let_go().await;
        };
        let (begun, ()) = tokio::join!(lease.begin_effect("call-1"), race);
        begun.refused_with(reason);
        let begun: i64 = town.sql("SELECT count(*) FROM events WHERE kind = 'EFFECT_BEGUN'").await;
        assert_eq!(begun, 0);
    }
}

#[tokio::test]
async fn a_claim_that_began_while_the_floor_rose_takes_nothing_stale() {
    let town = Town::start().await;
    town.spec("v1").about(SUBJECT, 1).submit().await;
    town.spec("v2").about(SUBJECT, 2).submit().await;
    let mut gate = town.hold_gate().await;
    gate.execute(RISES).await;
    let worker = town.worker("w1");
    let race = async {
        gate.until_waited_for().await;
        gate.let_go().await;
    };
    let (leases, ()) = tokio::join!(worker.claim(10), race);
    assert_eq!(leases.iter().map(Lease::id).collect::<Vec<_>>(), ["v2"]);
    assert_eq!(town.states(&["v1", "v2"]).await, ["READY", "LEASED"]);
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (1, 0, 0));
    town.audit().await;
}

#[tokio::test]
async fn a_claim_that_finds_a_task_held_takes_nothing_stale_in_its_place() {
    let town = Town::start().await;
    // Of two shares, so that it allots, and does so twice where somebody holds what it wanted.
    town.spec("v1").about(SUBJECT, 1).share("a").submit().await;
    town.spec("held").share("a").submit().await;
    town.spec("free").share("b").submit().await;
    town.execute(RISES).await;
    let held = town.hold_task("held").await;
    let leases = town.worker("w1").claim(3).await;
    held.take_back().await;
    assert_eq!(leases.iter().map(Lease::id).collect::<Vec<_>>(), ["free"]);
    assert_eq!(town.states(&["v1", "held"]).await, ["READY", "READY"]);
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (1, 0, 0));
    town.audit().await;
}

#[tokio::test]
async fn a_claim_that_is_repeated_after_the_floor_rose_is_not_given_its_stale_lease_again() {
    let town = Town::start().await;
    town.spec("v1").about(SUBJECT, 1).submit().await;
    town.spec("v2").about(SUBJECT, 2).submit().await;
    let worker = town.worker("w1").with_request_id("r-1");
    assert_eq!(worker.claim(2).await.len(), 2);
    assert_eq!(worker.claim(2).await.len(), 2, "while nothing has changed, it is given both again");
    assert_eq!(counts(&town.raise(SUBJECT, 2).await), (0, 1, 0));
    assert_eq!(worker.claim(2).await.iter().map(Lease::id).collect::<Vec<_>>(), ["v2"]);
    town.clock.advance(SECOND * 31).await;
    town.wait_for_state("v1", TaskState::Canceled).await;
    town.audit().await;
}

#[tokio::test]
async fn a_floor_waits_for_claims_that_are_under_way_and_tells_those_who_got_something() {
    let town = Town::start().await;
    // Two shares, so that a claim compares them under a lock that can be held.
    town.spec("v1").share("a").about(SUBJECT, 1).submit().await;
    town.spec("other").share("b").submit().await;
    town.worker("w0").claim_one().await.release().await.applied();
    let mut held = town.hold("SELECT FROM dispatch FOR UPDATE").await;
    let worker = town.worker("w1");
    let race = async {
        held.until_waited_for().await;
        let raising = tokio::spawn(raise_by(town.tasks(), SUBJECT, Floor::MinVersion(2)));
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7234 AND mode = 'ExclusiveLock' AND NOT granted";
        eventually("the floor waits for the gate", async || (town.sql::<i64>(waits).await > 0).then_some(())).await;
        held.let_go().await;
        raising.await.unwrap().ok()
    };
    let (leases, raised) = tokio::join!(worker.claim_within(2, PATIENCE), race);
    assert!(leases.iter().any(|lease| lease.id() == "v1"), "the claim was first");
    assert_eq!(counts(&raised), (0, 1, 0));
    town.audit().await;
}

#[tokio::test]
async fn a_submit_that_waited_while_the_floor_rose_is_refused() {
    let town = Town::start().await;
    town.submit("first").await;
    let mut gate = town.hold_gate().await;
    gate.execute(RISES).await;
    let race = async {
        gate.until_waited_for().await;
        gate.let_go().await;
    };
    let (submitted, ()) = tokio::join!(town.spec("v1").about(SUBJECT, 1).try_submit(), race);
    submitted.refused_with("SUBJECT_STALE");
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 1);
    town.raise(SUBJECT, 2).await;
    town.audit().await;
}

#[tokio::test]
async fn a_floor_waits_for_submits_that_are_under_way_and_cancels_what_they_brought() {
    let town = Town::start().await;
    town.submit("first").await;
    town.worker("w0").claim_one().await;
    // The share sleeps once a claim has looked in vain, beside another one; waking it is a Submit's last lock.
    town.execute("UPDATE shares SET ready = false").await;
    let mut held = town.hold("SELECT FROM shares FOR SHARE").await;
    let race = async {
        held.until_waited_for().await;
        let raising = tokio::spawn(raise_by(town.tasks(), SUBJECT, Floor::MinVersion(2)));
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7234 AND mode = 'ExclusiveLock' AND NOT granted";
        eventually("the floor waits for the gate", async || (town.sql::<i64>(waits).await > 0).then_some(())).await;
        held.let_go().await;
        raising.await.unwrap().ok()
    };
    let (submitted, raised) = tokio::join!(town.spec("v1").about(SUBJECT, 1).try_submit(), race);
    assert!(submitted.ok().created);
    assert_eq!(counts(&raised), (1, 0, 0));
    town.audit().await;
}

#[tokio::test]
async fn tasks_without_subjects_are_submitted_and_completed_whoever_holds_the_gate() {
    let town = Town::start().await;
    town.submit("running").await;
    let lease = town.worker("w1").claim_one().await;
    let gate = town.hold_gate().await;
    town.submit("new").await;
    lease.complete().await.applied();
    gate.let_go().await;
    town.audit().await;
}

/// More than a walk looks at in one statement, so that it tells those who run before it cancels what waits.
const PAGES: i64 = 1_100;

#[tokio::test]
async fn a_walk_whose_server_died_is_finished_by_another_and_nothing_stale_is_leased_meanwhile() {
    let town = Town::with_servers(2).await;
    town.spec("running").about(SUBJECT, 1).submit().await;
    let running = town.worker_at(1, "w1").for_a_lease_of(SECOND * 600).claim_one().await;
    for page in 0..PAGES / 100 {
        let specs = (0..100).map(|number| town.spec(&format!("v1-{page}-{number}")).about(SUBJECT, 1)).collect();
        town.submit_batch(specs, false).await.ok();
    }
    // The walk of server 0 stands before this one.
    let mut held = town.hold_task("running").await;
    let raising = tokio::spawn(raise_by(town.tasks_at(0), SUBJECT, Floor::MinVersion(2)));
    held.until_waited_for().await;
    town.server(0).signal(libc::SIGKILL);
    raising.await.unwrap().0.expect_err("its server was killed");
    held.let_go().await;
    let waits = "SELECT count(*) FROM live WHERE state = 'READY'";
    assert_eq!(town.sql::<i64>(waits).await, PAGES);
    town.spec("fresh").at(1).about(SUBJECT, 2).submit().await;
    let fresh = town.worker_at(1, "w2").claim_one().await;
    assert_eq!(fresh.id(), "fresh");
    fresh.complete().await.applied();
    running.begin_effect("call-1").await.refused_with("SUBJECT_STALE");
    assert_eq!(town.sql::<i64>(waits).await, PAGES);
    // Whoever began it has had its time.
    town.clock.advance(SECOND * 31).await;
    eventually("the walk is finished", async || (town.sql::<i64>(waits).await == 0).then_some(())).await;
    let canceled: i64 = town.sql("SELECT count(*) FROM ended WHERE state = 'CANCELED' AND cause = 'SUPERSEDED'").await;
    assert_eq!(canceled, PAGES);
    let walks = "SELECT count(*) FROM subjects WHERE walk_due IS NOT NULL";
    eventually("nothing is left to walk over", async || (town.sql::<i64>(walks).await == 0).then_some(())).await;
    let request = pb::GetTaskRequest { task: Some(task_ref("running")), ..Default::default() };
    let running = Answer::from(town.tasks_at(1).get_task(request).await).ok().task.unwrap();
    assert_eq!((running.state(), running.cancel_requested, running.cause()), (TaskState::Leased, true, Cause::Superseded));
    town.audit_database().await;
}

#[tokio::test]
async fn one_row_that_somebody_holds_stops_no_walk_and_is_the_loops() {
    let town = Town::start().await;
    for id in ["a", "held", "z"] {
        town.spec(id).about(SUBJECT, 1).submit().await;
    }
    let held = town.hold_task("held").await;
    let raised = town.raise(SUBJECT, 2).await;
    assert_eq!((counts(&raised), raised.more), ((2, 0, 0), true));
    assert_eq!(town.states(&["a", "held", "z"]).await, ["CANCELED", "READY", "CANCELED"]);
    held.let_go().await;
    town.wait_for_state("held", TaskState::Canceled).await;
    town.audit_database().await;
}
