//! Servers come and go; what they were told stays.

use leasehold::api::proto::{ErrorClass, GetTaskRequest, ObstacleKind, TaskState};

use crate::town::{Answer, SECOND, Town, eventually, task_ref};

#[tokio::test]
async fn a_server_that_is_told_to_stop_ends_its_long_polls_empty_and_goes() {
    let mut town = Town::start().await;
    town.submit("running").await;
    let lease = town.worker("w1").claim_one().await;
    let waiting = {
        let worker = town.worker("w2");
        tokio::spawn(async move { worker.claim_within(1, SECOND * 60).await })
    };
    // A paused queue's task stays where it is, and Explain says whether anybody waits for it.
    town.policy("paused = true").await;
    town.submit("ready").await;
    let waits = async || (!town.explain("ready").await.iter().any(|one| one.kind() == ObstacleKind::NoWorker)).then_some(());
    eventually("the worker stands in line", waits).await;
    let status = town.server_mut(0).stop().await;
    assert!(status.success(), "{status}");
    assert!(waiting.await.unwrap().is_empty());
    // What it had leased goes on elsewhere.
    town.policy("paused = false").await;
    town.add_server().await;
    let lease = lease.at(&town.worker_at(1, "w1"));
    lease.complete().await.applied();
    assert_eq!(town.worker_at(1, "w1").claim_one().await.id(), "ready");
}

#[tokio::test]
async fn when_a_server_is_killed_another_one_serves_everything_that_it_had() {
    let mut town = Town::with_servers(2).await;
    for id in ["fails", "succeeds", "waits"] {
        town.spec(id).at(1).retry(3, SECOND).submit().await;
    }
    let leases = town.worker_at(1, "w1").claim_all(2).await;
    town.server_mut(1).kill();
    let other = town.worker("w1");
    leases[0].at(&other).fail(ErrorClass::Transient).await.applied();
    leases[1].at(&other).complete().await.applied();
    assert_eq!(other.claim_one().await.id(), "waits");
    town.clock.advance(SECOND * 2).await;
    assert_eq!(other.claim_one().await.id(), "fails");
    town.audit().await;
}

#[tokio::test]
async fn a_worker_that_waits_at_one_server_gets_what_is_submitted_at_the_other() {
    let town = Town::with_servers(2).await;
    for round in 0..5 {
        let id = format!("t-{round}");
        let waiting = {
            let worker = town.worker_at(0, "w1");
            tokio::spawn(async move { worker.claim_one().await })
        };
        town.spec(&id).at(1).submit().await;
        let lease = waiting.await.unwrap();
        assert_eq!(lease.id(), id);
        lease.complete().await.applied();
        // The other server sees it too.
        let task = town.tasks_at(1).get_task(GetTaskRequest { task: Some(task_ref(&id)), ..GetTaskRequest::default() }).await;
        assert_eq!(Answer::from(task).ok().task.unwrap().state(), TaskState::Completed);
    }
    town.audit().await;
}

#[tokio::test]
async fn what_time_moves_is_moved_once_however_many_servers_look() {
    let town = Town::with_servers(3).await;
    for number in 0..30 {
        town.spec(&format!("t-{number}")).retry(3, SECOND * 60).submit().await;
    }
    town.worker("w1").claim_all(30).await;
    for _ in 0..2 {
        town.clock.advance(SECOND * 61).await;
        let due = "SELECT NOT EXISTS (SELECT FROM live WHERE due <= app_now())";
        eventually("all is moved", async || town.sql::<bool>(due).await.then_some(())).await;
    }
    for number in 0..30 {
        let told = town.history(&format!("t-{number}")).await;
        assert_eq!(told, ["SUBMITTED>READY", "LEASED>LEASED", "RETRY_PLANNED>RETRY_AT", "READY>READY"]);
    }
    town.row_held(32, "t-0", None).await;
    town.audit().await;
}
