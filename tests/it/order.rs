//! Tasks with the same ordering key run one at a time, in the order in which they were accepted, whatever happens to them.

use leasehold::api::proto::{self as pb, Cause, ErrorClass, ObstacleKind, TaskState};

use crate::town::{LEASE, Lease, SECOND, Town};

async fn one_behind_the_other(town: &Town, key: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|number| format!("{key}/{number}")).collect();
    for id in &ids {
        town.spec(id).key(key).submit().await;
    }
    ids
}

fn ids(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(Lease::id).collect()
}

#[tokio::test]
async fn behind_a_busy_key_everything_is_blocked_and_only_the_head_can_be_claimed() {
    let town = Town::start().await;
    one_behind_the_other(&town, "c-a", 4).await;
    one_behind_the_other(&town, "c-b", 2).await;
    town.submit("free").await;
    assert_eq!(
        town.states(&["c-a/0", "c-a/1", "c-a/2", "c-a/3", "c-b/0", "c-b/1"]).await,
        ["READY", "BLOCKED", "BLOCKED", "BLOCKED", "READY", "BLOCKED"]
    );
    let leases = town.worker("w1").claim(10).await;
    assert_eq!(ids(&leases), ["c-a/0", "c-b/0", "free"]);
    town.worker("w2").finds_nothing().await;
    town.audit().await;
}

#[tokio::test]
async fn each_end_of_the_head_lets_exactly_the_next_one_go() {
    let town = Town::start().await;
    let tasks = one_behind_the_other(&town, "c-a", 6).await;
    for (number, id) in tasks.iter().enumerate() {
        let leases = town.worker("w1").claim(10).await;
        assert_eq!(ids(&leases), [id]);
        let lease = &leases[0];
        let ended = match number {
            0 => lease.complete().await,
            1 => lease.skip("offline").await,
            2 => lease.stop("quiet hours").await,
            3 => lease.fail(ErrorClass::Permanent).await,
            4 => {
                town.cancel(id).await.ok();
                lease.fail(ErrorClass::Transient).await
            }
            _ => lease.complete().await,
        };
        assert!(ended.applied().task.unwrap().terminal);
        if let Some(next) = tasks.get(number + 1) {
            assert_eq!(town.history(next).await, ["SUBMITTED>BLOCKED", "UNBLOCKED>READY"]);
        }
    }
    assert_eq!(
        town.states(&["c-a/0", "c-a/1", "c-a/2", "c-a/3", "c-a/4", "c-a/5"]).await,
        ["COMPLETED", "SKIPPED", "CANCELED", "REPAIR_REQUIRED", "CANCELED", "COMPLETED"]
    );
    town.audit().await;
}

#[tokio::test]
async fn a_head_keeps_its_key_through_failure_release_expiry_and_takeover() {
    let town = Town::start().await;
    town.spec("head").key("c-a").retry(5, SECOND * 60).submit().await;
    town.spec("next").key("c-a").submit().await;
    let only_the_head = async |worker: &str| {
        let lease = town.worker(worker).claim_one().await;
        assert_eq!((lease.id(), town.task("next").await.state()), ("head", TaskState::Blocked));
        town.worker("other").finds_nothing().await;
        lease
    };
    only_the_head("w1").await.fail(ErrorClass::Transient).await.applied();
    assert_eq!(town.states(&["head", "next"]).await, ["RETRY_AT", "BLOCKED"]);
    town.worker("other").finds_nothing().await;
    town.clock.advance(SECOND * 61).await;
    only_the_head("w2").await.release_for(SECOND * 60).await.applied();
    town.worker("other").finds_nothing().await;
    town.clock.advance(SECOND * 61).await;
    only_the_head("w3").await.release().await.applied();
    let dead = only_the_head("w4").await;
    town.clock.advance(LEASE + SECOND).await;
    town.wait_for_state("head", TaskState::RetryAt).await;
    town.worker("other").finds_nothing().await;
    town.clock.advance(SECOND * 61).await;
    let last = only_the_head("w5").await;
    dead.complete().await.refused_with("LEASE_SUPERSEDED");
    assert_eq!(town.states(&["next"]).await, ["BLOCKED"]);
    last.complete().await.applied();
    let next = town.worker("w6").claim_one().await;
    assert!(next.id() == "next" && next.token() > last.token());
    town.audit().await;
}

#[tokio::test]
async fn canceling_blocked_ones_in_the_middle_leaves_the_others_in_order() {
    let town = Town::start().await;
    one_behind_the_other(&town, "c-a", 6).await;
    for id in ["c-a/2", "c-a/1", "c-a/4"] {
        assert_eq!(town.cancel(id).await.ok().task.unwrap().state(), TaskState::Canceled);
    }
    assert_eq!(town.states(&["c-a/0", "c-a/3", "c-a/5"]).await, ["READY", "BLOCKED", "BLOCKED"]);
    for id in ["c-a/0", "c-a/3", "c-a/5"] {
        let leases = town.worker("w1").claim(10).await;
        assert_eq!(ids(&leases), [id]);
        leases[0].complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn canceling_a_waiting_head_lets_the_next_one_go() {
    let town = Town::start().await;
    town.spec("later").key("c-a").start_delay(SECOND * 600).submit().await;
    town.spec("second").key("c-a").start_delay(SECOND * 900).submit().await;
    town.spec("third").key("c-a").submit().await;
    assert_eq!(town.states(&["later", "second", "third"]).await, ["SCHEDULED", "BLOCKED", "BLOCKED"]);
    town.cancel("later").await.ok();
    // Its own start is still ahead, and it keeps the third one waiting.
    assert_eq!(town.states(&["second", "third"]).await, ["SCHEDULED", "BLOCKED"]);
    town.cancel("second").await.ok();
    assert_eq!(town.states(&["third"]).await, ["READY"]);
    assert_eq!(town.worker("w1").claim_one().await.id(), "third");
    town.audit().await;
}

#[tokio::test]
async fn a_blocked_task_whose_start_passed_is_ready_when_its_key_comes_free() {
    let town = Town::start().await;
    town.submit("elsewhere").await;
    town.spec("head").key("c-a").submit().await;
    town.spec("next").key("c-a").start_delay(SECOND * 60).submit().await;
    town.clock.advance(SECOND * 61).await;
    let leases = town.worker("w1").for_a_lease_of(LEASE * 10).claim(5).await;
    assert_eq!(ids(&leases), ["elsewhere", "head"]);
    assert_eq!(town.states(&["next"]).await, ["BLOCKED"]);
    leases[1].complete().await.applied();
    assert_eq!(town.states(&["next"]).await, ["READY"]);
    town.audit().await;
}

#[tokio::test]
async fn a_head_that_time_ends_lets_the_next_one_go() {
    let town = Town::start().await;
    town.spec("dies").key("c-a").retry(1, SECOND).submit().await;
    town.spec("overdue too").key("c-a").ttl(SECOND * 20).submit().await;
    town.spec("canceled").key("c-a").submit().await;
    town.spec("lives").key("c-a").submit().await;
    town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND).await;
    let canceled = town.worker("w2").claim_one().await;
    assert_eq!(canceled.id(), "canceled");
    assert_eq!(town.states(&["dies", "overdue too"]).await, ["REPAIR_REQUIRED", "REPAIR_REQUIRED"]);
    town.cancel("canceled").await.ok();
    town.clock.advance(LEASE + SECOND).await;
    assert_eq!(town.worker("w3").claim_one().await.id(), "lives");
    assert_eq!(town.states(&["canceled"]).await, ["CANCELED"]);
    town.audit().await;
}

#[tokio::test]
async fn where_the_queue_says_hold_an_open_repair_keeps_the_key() {
    let town = Town::start().await;
    town.policy("on_repair = 'HOLD'").await;
    town.spec("broken").key("c-a").submit().await;
    town.spec("behind").key("c-a").submit().await;
    town.spec("elsewhere").key("c-b").submit().await;
    let broken = town.worker("w1").claim_one().await;
    broken.fail(ErrorClass::Permanent).await.applied();
    town.spec("after").key("c-a").submit().await;
    assert_eq!(town.states(&["broken", "behind", "after"]).await, ["REPAIR_REQUIRED", "BLOCKED", "BLOCKED"]);
    assert_eq!(ids(&town.worker("w1").claim(5).await), ["elsewhere"]);
    let obstacle = town.explain("behind").await.remove(0);
    assert_eq!((obstacle.kind(), obstacle.blocker.unwrap().task_id.as_str()), (ObstacleKind::KeyHeld, "broken"));
    // Canceling one that waits behind it lets nothing past it.
    town.cancel("behind").await.ok();
    assert_eq!(town.states(&["after"]).await, ["BLOCKED"]);
    town.worker("w1").finds_nothing().await;
    town.audit().await;
}

#[tokio::test]
async fn a_batch_is_accepted_in_its_order_and_its_keys_run_in_that_order() {
    let town = Town::start().await;
    let specs = (0..30).map(|number| town.spec(&format!("m-{number}")).key(&format!("c-{}", number % 3)));
    let answers = town.submit_batch(specs.collect(), false).await.ok();
    let tasks: Vec<pb::Task> = answers.into_iter().map(|answer| answer.ok().task.unwrap()).collect();
    let states: Vec<TaskState> = tasks.iter().map(pb::Task::state).collect();
    assert_eq!(states, [vec![TaskState::Ready; 3], vec![TaskState::Blocked; 27]].concat());
    for round in 0..10 {
        let leases = town.worker("w1").claim(30).await;
        assert_eq!(ids(&leases), [round * 3, round * 3 + 1, round * 3 + 2].map(|number| format!("m-{number}")));
        for lease in &leases {
            lease.complete().await.applied();
        }
    }
    town.audit().await;
}

#[tokio::test]
async fn a_release_returns_to_its_old_rank_and_a_retry_joins_the_back() {
    let town = Town::start().await;
    for id in ["a", "b", "c"] {
        town.spec(id).retry(3, SECOND).submit().await;
    }
    let worker = town.worker("w1");
    let a = worker.claim_one().await;
    a.release().await.applied();
    let a = worker.claim_one().await;
    assert_eq!(a.id(), "a");
    a.fail(ErrorClass::Transient).await.applied();
    town.clock.advance(SECOND * 2).await;
    town.wait_for_state("a", TaskState::Ready).await;
    assert_eq!(ids(&worker.claim(3).await), ["b", "c", "a"]);
    town.audit().await;
}

#[tokio::test]
async fn priority_is_a_head_start_in_time_and_not_a_class() {
    let town = Town::start().await;
    town.submit("plain").await;
    town.spec("urgent").priority(2).submit().await;
    town.spec("whenever").priority(-1).submit().await;
    // Two steps are two minutes: what has waited longer than that goes first.
    town.clock.advance(SECOND * 121).await;
    town.spec("urgent too late").priority(2).submit().await;
    town.submit("last").await;
    assert_eq!(ids(&town.worker("w1").claim(5).await), ["urgent", "plain", "urgent too late", "whenever", "last"]);
    town.audit().await;
}

#[tokio::test]
async fn two_that_end_their_keys_head_and_cancel_its_successor_at_once_leave_no_key_free() {
    let town = Town::start().await;
    for round in 0..10 {
        let key = format!("c-{round}");
        one_behind_the_other(&town, &key, 3).await;
        let head = town.worker("w1").claim_one().await;
        let next = format!("{key}/1");
        let (completed, canceled) = tokio::join!(head.complete(), town.cancel(&next));
        completed.applied();
        assert_eq!(canceled.ok().task.unwrap().cause(), Cause::Requested);
        let last = town.worker("w2").claim_one().await;
        assert_eq!(last.id(), format!("{key}/2"));
        last.complete().await.applied();
    }
    town.audit().await;
}
