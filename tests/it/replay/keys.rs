//! Where a replay stands among the others of its key.

use leasehold::api::proto as pb;
use pb::{ErrorClass, TaskState};

use crate::town::{Town, replayed};

#[tokio::test]
async fn in_a_held_key_a_replay_takes_the_old_ones_place() {
    let town = Town::start().await;
    town.policy("on_repair = 'HOLD'").await;
    town.broken(town.spec("broken").key("c-a")).await;
    for id in ["next", "last"] {
        town.spec(id).key("c-a").submit().await;
    }
    let new = replayed(town.replay("broken").await);
    assert_eq!(new.state(), TaskState::Ready);
    assert_eq!(town.states(&["next", "last"]).await, ["BLOCKED", "BLOCKED"]);
    // Its place lasts through failure and another repair.
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.id(), "broken~1");
    lease.fail(ErrorClass::Permanent).await.applied();
    assert_eq!(town.states(&["next", "last"]).await, ["BLOCKED", "BLOCKED"]);
    assert!(town.repair("broken~1").await.holds_key);
    replayed(town.replay("broken~1").await);
    for id in ["broken~2", "next", "last"] {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), id);
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn a_replay_with_another_key_lets_the_held_one_go() {
    for key in ["", "c-b"] {
        let town = Town::start().await;
        town.policy("on_repair = 'HOLD'").await;
        town.broken(town.spec("broken").key("c-a")).await;
        town.spec("next").key("c-a").submit().await;
        let elsewhere = pb::Replay { ordering_key: Some(key.into()), ..pb::Replay::default() };
        assert_eq!(replayed(town.replay_as("broken", elsewhere).await).state(), TaskState::Ready);
        assert_eq!(town.states(&["next"]).await, ["READY"]);
        town.audit().await;
    }
}

#[tokio::test]
async fn where_keys_go_on_a_replay_stands_at_their_end() {
    let town = Town::start().await;
    town.broken(town.spec("broken").key("c-a")).await;
    town.spec("next").key("c-a").submit().await;
    assert_eq!(replayed(town.replay("broken").await).state(), TaskState::Blocked);
    for id in ["next", "broken~1"] {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), id);
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn a_replay_takes_its_place_before_those_that_wait_behind_one_that_was_let_go() {
    let town = Town::start().await;
    for id in ["first", "second"] {
        town.broken(town.spec(id).key("c-a")).await;
    }
    town.spec("running").key("c-a").submit().await;
    let running = town.worker("w1").claim_one().await;
    town.spec("behind").key("c-a").submit().await;
    town.policy("on_repair = 'HOLD'").await;
    // One runs that came later: the replays wait for it, in their own order, and the others wait for them.
    for id in ["second", "first"] {
        assert_eq!(replayed(town.replay(id).await).state(), TaskState::Blocked);
    }
    running.complete().await.applied();
    for id in ["first~1", "second~1", "behind"] {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), id);
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn a_replay_behind_an_older_repair_of_its_key_waits_for_it() {
    let town = Town::start().await;
    for id in ["first", "second"] {
        town.broken(town.spec(id).key("c-a")).await;
    }
    town.policy("on_repair = 'HOLD'").await;
    assert_eq!(replayed(town.replay("second").await).state(), TaskState::Blocked);
    town.discard("first").await.ok();
    assert_eq!(town.worker("w1").claim_one().await.id(), "second~1");
    town.audit().await;
}
