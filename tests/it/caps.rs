//! How many tasks of a queue or a share are leased at a time: never more than may be, as the database sees it, and never fewer for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::api::proto::{ObstacleKind, TaskState};
use tokio::task::JoinSet;

use crate::town::{LEASE, Lease, PATIENCE, QUEUE, SECOND, Town, endurance, eventually, to_the_full};

fn ids(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(Lease::id).collect()
}

/// Claimers of both servers complete what they can get until so many are done, or time is over.
async fn work(town: &Arc<Town>, claimers: usize, count: usize, time: Duration) -> usize {
    let done = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..claimers {
        let (worker, done) = (town.worker_at(number % 2, &format!("w{number}")), done.clone());
        workers.spawn(async move {
            while done.load(Ordering::Relaxed) < count && begin.elapsed() < time {
                for lease in worker.claim_within(1 + i32::try_from(number % 3).unwrap(), SECOND * 2).await {
                    if number % 5 == 0 {
                        lease.release().await.applied();
                    } else {
                        lease.complete().await.applied();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    workers.join_all().await;
    done.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_queue_s_cap_of_2_and_a_share_s_cap_of_1_hold_under_32_claimers_of_2_servers_whose_commits_are_late() {
    let town = Arc::new(Town::with_servers(2).await);
    town.put_queue(|queue| queue.max_in_flight = Some(2)).await;
    town.put_share("u-a", |share| share.max_in_flight = Some(1)).await;
    let (rounds, time) = if to_the_full() { (10_000, endurance()) } else { (3_000, SECOND * 15) };
    for share in ["u-a", "u-b", "u-c"] {
        town.backlog(share, rounds / 3 + 1).await;
    }
    town.judge_caps_at_late_commits(4).await;
    let begin = Instant::now();
    let done = work(&town, 32, rounds, time).await;
    let leases = town.dispatches().await.len();
    println!("{leases} leases, {done} of {rounds} tasks done in {:?}", begin.elapsed());
    assert!(leases > 30, "only {leases} leases");
    let served = "SELECT count(DISTINCT t.fairness_key) FROM ended JOIN tasks t USING (queue_id, uid)";
    assert_eq!(town.sql::<i64>(served).await, 3, "everybody has a turn");
    town.audit().await;
}

#[tokio::test]
async fn a_cap_of_1_on_each_of_100_shares_and_of_20_on_their_queue_hold_at_every_commit_and_all_is_done() {
    let town = Arc::new(Town::with_servers(2).await);
    town.put_queue(|queue| queue.max_in_flight = Some(20)).await;
    for number in 0..100 {
        town.put_share(&format!("u-{number}"), |share| share.max_in_flight = Some(1)).await;
        town.backlog(&format!("u-{number}"), 3).await;
    }
    town.judge_caps_at_late_commits(3).await;
    assert!(work(&town, 24, 300, PATIENCE * 2).await >= 300);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM live").await, 0);
    town.audit().await;
}

#[tokio::test]
async fn a_share_at_its_cap_is_parked_and_costs_the_others_nothing_however_long_its_backlog() {
    let town = Town::start().await;
    town.put_share("capped", |share| share.max_in_flight = Some(1)).await;
    town.backlog("capped", 300).await;
    town.backlog("free", 6).await;
    let worker = town.worker("w1");
    let first = worker.claim(4).await;
    assert_eq!(ids(&first), ["capped/0", "free/0", "free/1", "free/2"]);
    assert_eq!(ids(&worker.claim(2).await), ["free/3", "free/4"]);
    assert_eq!(town.explain("capped/7").await.remove(0).kind(), ObstacleKind::ShareAtCap);
    assert_eq!(ids(&worker.claim(5).await), ["free/5"]);
    worker.finds_nothing().await;
    assert!(town.parked("capped").await);
    // More work for it changes nothing; the end of its lease does.
    town.spec("capped/more").share("capped").submit().await;
    assert!(town.parked("capped").await);
    first[0].fail(leasehold::api::proto::ErrorClass::Transient).await.applied();
    assert!(!town.parked("capped").await);
    assert_eq!(ids(&worker.claim(9).await), ["capped/1"]);
    town.audit().await;
}

#[tokio::test]
async fn a_share_that_stays_at_its_cap_is_parked_while_the_others_go_on() {
    let town = Town::start().await;
    town.put_share("capped", |share| share.max_in_flight = Some(1)).await;
    town.backlog("capped", 3).await;
    let worker = town.worker("w1");
    let first = worker.claim_one().await;
    eventually("it is parked", async || {
        town.spec(&format!("free-{}", fastrand::u64(..))).share("free").submit().await;
        worker.claim_one().await.complete().await.applied();
        town.parked("capped").await.then_some(())
    })
    .await;
    first.complete().await.applied();
    assert_eq!(worker.claim_one().await.id(), "capped/1");
    town.audit().await;
}

#[tokio::test]
async fn whoever_waits_gets_the_place_that_comes_free_also_on_another_server() {
    let town = Town::with_servers(2).await;
    town.put_queue(|queue| queue.max_in_flight = Some(3)).await;
    town.put_share("u-a", |share| share.max_in_flight = Some(1)).await;
    town.backlog("u-a", 30).await;
    let mut lease = town.worker("w1").claim_one().await;
    for number in 1..20 {
        let waits = town.worker_at(number % 2, "w2");
        let waiting = tokio::spawn(async move { waits.claim_one().await });
        eventually("the share is parked", async || town.parked("u-a").await.then_some(())).await;
        lease.complete().await.applied();
        lease = waiting.await.unwrap();
        assert_eq!(lease.id(), format!("u-a/{number}"));
    }
    town.audit().await;
}

#[tokio::test]
async fn zero_lets_nothing_run_until_it_is_raised_and_then_at_once() {
    let town = Town::with_servers(2).await;
    for (number, share) in [true, false].into_iter().enumerate() {
        let set = async |cap: Option<u32>| {
            if share {
                town.put_share("u-a", |share| share.max_in_flight = cap).await;
            } else {
                town.put_queue(|queue| queue.max_in_flight = cap).await;
            }
        };
        set(Some(0)).await;
        let id = format!("t-{number}");
        town.spec(&id).share("u-a").submit().await;
        town.worker_at(0, "w1").finds_nothing().await;
        let kind = if share { ObstacleKind::ShareAtCap } else { ObstacleKind::QueueAtCap };
        assert_eq!(town.explain(&id).await.remove(0).kind(), kind);
        let waits = town.worker_at(1, "w2");
        let waiting = tokio::spawn(async move { waits.claim_one().await });
        set(Some(1)).await;
        let lease = waiting.await.unwrap();
        assert_eq!(lease.id(), id);
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn a_lease_that_has_run_out_takes_its_place_until_it_is_ended() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.max_in_flight = Some(1)).await;
    town.submit("dead").await;
    town.submit("next").await;
    town.worker("w1").claim_one().await;
    let row = town.hold_task("dead").await;
    town.clock.advance(LEASE + SECOND).await;
    town.worker("w2").finds_nothing().await;
    row.let_go().await;
    assert_eq!(town.worker("w2").claim_one().await.id(), "next");
    town.audit().await;
}

#[tokio::test]
async fn a_share_of_which_a_lease_is_being_ended_is_not_parked_meanwhile() {
    let town = Town::with_servers(2).await;
    town.put_share("u-a", |share| share.max_in_flight = Some(1)).await;
    town.backlog("u-a", 3).await;
    let lease = town.worker("w1").claim_one().await;
    // The one who ends it has done everything but to write its events.
    town.execute(
        "CREATE FUNCTION stand() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1, 1); RETURN NEW; END $$",
    )
    .await;
    town.execute("CREATE TRIGGER stand BEFORE INSERT ON events FOR EACH ROW WHEN (NEW.kind = 'ENDED') EXECUTE FUNCTION stand()")
        .await;
    let mut log = town.hold("SELECT pg_advisory_xact_lock(1, 1)").await;
    let ending = tokio::spawn(async move { lease.complete().await });
    log.until_waited_for_patiently().await;
    town.worker_at(1, "w2").finds_nothing().await;
    assert!(!town.parked("u-a").await);
    log.let_go().await;
    ending.await.unwrap().applied();
    assert_eq!(town.worker_at(1, "w2").claim_one().await.id(), "u-a/1");
    town.audit().await;
}

#[tokio::test]
async fn a_lease_that_ends_while_its_share_is_being_parked_wakes_it() {
    let town = Town::with_servers(2).await;
    town.put_share("u-a", |share| share.max_in_flight = Some(1)).await;
    town.backlog("u-a", 9).await;
    // Who parks it stands before its commit until we let it go.
    town.execute(
        "CREATE FUNCTION stand() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1, 2); RETURN NULL; END $$",
    )
    .await;
    town.execute(
        "CREATE CONSTRAINT TRIGGER stand AFTER UPDATE ON shares DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
         WHEN (NEW.parked AND NOT OLD.parked) EXECUTE FUNCTION stand()",
    )
    .await;
    let mut seen = 0;
    for number in 0..4 {
        let lease = town.worker("w1").claim_one().await;
        assert_eq!(lease.id(), format!("u-a/{number}"));
        let mut parking = town.hold("SELECT pg_advisory_xact_lock(1, 2)").await;
        let waits = town.worker_at(1, "w2");
        let waiting = tokio::spawn(async move { waits.claim_one().await });
        parking.until_waited_for().await;
        let ending = tokio::spawn(async move { lease.complete().await });
        let blocked = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                                                                  AND query LIKE '-- write_ended%')";
        // Or it came between two tries of the one who parks.
        let met = async || (town.sql::<bool>(blocked).await || ending.is_finished()).then_some(!ending.is_finished());
        seen += usize::from(eventually("who ends it waits for who parks it", met).await);
        parking.let_go().await;
        ending.await.unwrap().applied();
        let next = waiting.await.unwrap();
        assert_eq!(next.id(), format!("u-a/{}", number + 1));
        next.release().await.applied();
    }
    assert!(seen > 0, "they never met");
    town.audit().await;
}

#[tokio::test]
async fn no_claim_straddles_a_change_of_a_cap() {
    let town = Town::start().await;
    town.backlog("u-a", 3).await;
    // A claim that is under way holds the gate as we do.
    let gate = format!("SELECT pg_advisory_xact_lock_shared(7234, queue_id) FROM queues WHERE name = '{QUEUE}'");
    let mut claim = town.hold(&gate).await;
    let mut admin = town.admin();
    let share = leasehold::api::proto::Share {
        queue: QUEUE.into(),
        fairness_key: "u-a".into(),
        max_in_flight: Some(1),
        ..leasehold::api::proto::Share::default()
    };
    let request = leasehold::api::proto::PutShareRequest { share: Some(share), ..Default::default() };
    let put = tokio::spawn(async move { admin.put_share(request).await });
    claim.until_waited_for().await;
    assert!(!put.is_finished());
    claim.let_go().await;
    put.await.unwrap().unwrap();
    assert_eq!(town.worker("w1").claim(3).await.len(), 1);
    town.audit().await;
}

#[tokio::test]
async fn a_pause_holds_everything_back_and_its_end_lets_it_go_at_once() {
    let town = Town::with_servers(2).await;
    for share in ["u-a", "u-b"] {
        town.backlog(share, 2).await;
    }
    town.put_queue(|queue| queue.paused = Some(true)).await;
    town.worker_at(1, "w1").finds_nothing().await;
    assert_eq!(town.explain("u-a/0").await.remove(0).kind(), ObstacleKind::QueuePaused);
    let waits = town.worker_at(1, "w2");
    let waiting = tokio::spawn(async move { waits.claim_one().await });
    town.put_queue(|queue| queue.paused = Some(false)).await;
    assert_eq!(waiting.await.unwrap().task().state(), TaskState::Leased);
    town.audit().await;
}
