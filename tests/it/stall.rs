//! A task that kills its workers is used up by its budget; a fleet that falls silent together is not the tasks' fault.

use leasehold::api::proto as pb;
use pb::{Cause, Outcome, TaskState};

use crate::town::{LEASE, Lease, SECOND, Town, eventually};

/// Submits so many tasks, and two workers lease half of them each.
async fn a_busy_fleet(town: &Town, count: usize, max_attempts: i32) -> Vec<Lease> {
    for number in 0..count {
        town.spec(&format!("t-{number}")).retry(max_attempts, SECOND).submit().await;
    }
    a_fleet_leases(town, count).await
}

async fn a_fleet_leases(town: &Town, count: usize) -> Vec<Lease> {
    let mut leases = town.worker("w1").claim_all(count / 2).await;
    leases.extend(town.worker("w2").claim_all(count - count / 2).await);
    leases
}

async fn until_nothing_is_leased(town: &Town) {
    let leased = "SELECT count(*) FROM live WHERE state = 'LEASED'";
    eventually("the leases have ended", async || (town.sql::<i64>(leased).await == 0).then_some(())).await;
}

async fn last_attempt(town: &Town, id: &str) -> pb::Attempt {
    town.attempts(id).await.pop().expect("it was tried")
}

#[tokio::test]
async fn a_fleet_that_stalls_is_not_charged_to_its_tasks() {
    let town = Town::start().await;
    a_busy_fleet(&town, 10, 1).await;
    town.clock.advance(LEASE + SECOND).await;
    until_nothing_is_leased(&town).await;
    for number in 0..10 {
        let id = format!("t-{number}");
        let task = town.task(&id).await;
        // One attempt is all they have, and they have it still.
        assert!([TaskState::RetryAt, TaskState::Ready].contains(&task.state()), "{id}: {:?}", task.state());
        assert_eq!((task.attempt, task.attempts_charged, task.unknown_attempts), (1, 0, 1));
        let attempt = last_attempt(&town, &id).await;
        assert_eq!((attempt.outcome(), attempt.charged), (Outcome::Expired, false));
    }
    town.clock.advance(SECOND * 2).await;
    for lease in a_fleet_leases(&town, 10).await {
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn leases_that_end_one_after_the_other_in_one_stall_are_all_excused() {
    let town = Town::start().await;
    let leases = a_busy_fleet(&town, 16, 1).await;
    // They were last heard of at different moments; then the network breaks.
    for lease in leases.iter().skip(8) {
        town.clock.advance(SECOND).await;
        lease.heartbeat().await.ok();
    }
    // The first eight end together, the others one after the other behind them.
    for left in (0..=8).rev() {
        town.clock.advance(if left == 8 { LEASE - SECOND * 8 } else { SECOND }).await;
        let leased = "SELECT count(*) FROM live WHERE state = 'LEASED'";
        eventually("they end", async || (town.sql::<i64>(leased).await <= left).then_some(())).await;
    }
    until_nothing_is_leased(&town).await;
    for lease in &leases {
        assert!(!last_attempt(&town, lease.id()).await.charged, "{}", lease.id());
    }
    town.audit().await;
}

#[tokio::test]
async fn where_the_others_are_heard_of_a_lost_lease_is_charged() {
    let town = Town::start().await;
    let leases = a_busy_fleet(&town, 20, 1).await;
    // Ten of them live.
    town.clock.advance(SECOND * 20).await;
    for lease in leases.iter().filter(|lease| lease.token() % 2 == 0) {
        lease.heartbeat().await.ok();
    }
    town.clock.advance(SECOND * 11).await;
    let leased = "SELECT count(*) FROM live WHERE state = 'LEASED'";
    eventually("half of them end", async || (town.sql::<i64>(leased).await == 10).then_some(())).await;
    for lease in leases.iter().filter(|lease| lease.token() % 2 == 1) {
        assert_eq!(town.task(lease.id()).await.cause(), Cause::AttemptsExhausted);
        assert!(last_attempt(&town, lease.id()).await.charged);
    }
    town.audit().await;
}

#[tokio::test]
async fn one_worker_that_dies_is_no_fleet_whatever_it_held() {
    let town = Town::start().await;
    for number in 0..10 {
        town.spec(&format!("t-{number}")).retry(1, SECOND).submit().await;
    }
    town.worker("w1").claim_all(10).await;
    town.clock.advance(LEASE + SECOND).await;
    until_nothing_is_leased(&town).await;
    for number in 0..10 {
        assert_eq!(town.task(&format!("t-{number}")).await.cause(), Cause::AttemptsExhausted);
    }
    town.audit().await;
}

#[tokio::test]
async fn a_task_whose_leases_end_without_a_word_again_and_again_goes_to_repair_by_its_budget() {
    let town = Town::start().await;
    // Others work beside it, and are heard of.
    town.spec("poison").retry(3, SECOND).submit().await;
    for round in 1..=3 {
        let poisoned = town.worker("w1").claim_one().await;
        assert_eq!((poisoned.id(), poisoned.attempt()), ("poison", round));
        town.clock.advance(SECOND * 20).await;
        for number in 0..9 {
            town.spec(&format!("t-{round}-{number}")).submit().await;
        }
        let others = a_fleet_leases(&town, 9).await;
        town.clock.advance(SECOND * 11).await;
        let settled = async || (town.task("poison").await.state() != TaskState::Leased).then_some(());
        eventually("its lease ends", settled).await;
        for lease in &others {
            lease.complete().await.applied();
        }
        town.clock.advance(SECOND * 2).await;
    }
    let task = town.wait_for_state("poison", TaskState::RepairRequired).await;
    assert_eq!((task.cause(), task.attempt, task.attempts_charged), (Cause::AttemptsExhausted, 3, 3));
    assert_eq!(town.repair("poison").await.unknown_attempt_count, 3);
    town.audit().await;
}

#[tokio::test]
async fn a_stall_is_not_free_for_ever() {
    let town = Town::start().await;
    a_busy_fleet(&town, 8, 1).await;
    for stall in 1..=6 {
        town.clock.advance(LEASE + SECOND).await;
        until_nothing_is_leased(&town).await;
        if stall < 6 {
            town.clock.advance(SECOND * 2).await;
            a_fleet_leases(&town, 8).await;
        }
    }
    for number in 0..8 {
        let task = town.task(&format!("t-{number}")).await;
        assert_eq!((task.state(), task.cause()), (TaskState::RepairRequired, Cause::AttemptsExhausted));
        assert_eq!((task.attempt, task.attempts_charged), (6, 1));
    }
    town.audit().await;
}
