//! A session that holds an old snapshot keeps Postgres from clearing away what is dead: claims begin behind it, and overlook nothing for it.

use sqlx::{Connection as _, PgConnection};

use crate::town::{Lease, QUEUE, SECOND, Town, eventually, row_held};

/// Begins a transaction that sees the database as it is now, as long as it is open.
async fn snapshot(town: &Town) -> PgConnection {
    let mut session = PgConnection::connect(&town.database_url).await.expect("a connection");
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM queues";
    sqlx::raw_sql(begin).execute(&mut session).await.expect("a snapshot");
    session
}

/// So many tasks go through, some leased at once by each claim. Returns the buffers visited in the index of READY tasks.
async fn go_through(town: &Town, name: &str, tasks: usize, at_once: usize, leased: &mut i64) -> i64 {
    let before = visited(town, *leased).await;
    for ten in 0..tasks / 10 {
        let specs = (0..10).map(|number| town.spec(&format!("{name}/{ten}/{number}")));
        town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
        for _ in 0..10 / at_once {
            for lease in town.worker("w").claim_all(at_once).await {
                lease.complete().await.applied();
            }
        }
        *leased += 10;
    }
    visited(town, *leased).await - before
}

/// Sessions tell of their statistics late: waits until all leases and all ends of them are among what is told.
async fn visited(town: &Town, leased: i64) -> i64 {
    let told = "SELECT n_tup_upd >= $1 AND n_tup_del >= $1 FROM pg_stat_user_tables WHERE relname = 'live'";
    eventually("the statistics are told", async || {
        sqlx::query_scalar::<_, bool>(told).bind(leased).fetch_one(town.database()).await.expect("an answer").then_some(())
    })
    .await;
    let visited =
        "SELECT (idx_blks_hit + idx_blks_read)::bigint FROM pg_statio_user_indexes WHERE indexrelname = 'live_ready_by_share'";
    town.sql::<i64>(visited).await
}

#[tokio::test]
async fn under_an_old_snapshot_a_claim_visits_no_more_for_all_that_went_through_since() {
    let town = Town::start().await;
    let mut leased = 0;
    go_through(&town, "first", 100, 1, &mut leased).await;
    let snapshot = snapshot(&town).await;
    let small = go_through(&town, "small", 100, 1, &mut leased).await;
    go_through(&town, "many", 3_000, 10, &mut leased).await;
    let after = go_through(&town, "after", 100, 1, &mut leased).await;
    println!("{small} buffers for the first 100 tasks under a snapshot, {after} for another 100 after 3,000");
    // The index is a level higher, and the loop that looks in front of the place where claims begin walks what is dead each second. A claim
    // that did would visit twenty times as many as the first ones.
    assert!(after <= 6 * small, "{small} buffers became {after}");
    row_held(28, &format!("{small} buffers for 100 tasks, {after} after 3,000 more"), None);
    snapshot.close().await.expect("it was open all the time");
    town.audit().await;
}

/// Claims have come to the end of the line; the first task of it is leased still.
async fn first_of_a_line_that_has_gone_on(town: &Town) -> Lease {
    for number in 0..20 {
        town.submit(&format!("t-{number}")).await;
    }
    let mut leases = town.worker("w").claim_all(20).await.into_iter();
    let first = leases.next().expect("a lease");
    assert_eq!(first.id(), "t-0");
    for lease in leases {
        lease.complete().await.applied();
    }
    town.submit("later").await;
    town.worker("w").claim_one().await.complete().await.applied();
    first
}

#[tokio::test]
async fn what_becomes_ready_in_front_of_the_place_where_claims_begin_is_claimed_first() {
    let town = Town::start().await;
    let first = first_of_a_line_that_has_gone_on(&town).await;
    town.submit("last").await;
    first.release().await.applied();
    assert_eq!(town.worker("w").claim_one().await.id(), "t-0", "it is at its old rank again");
    town.put_queue(|queue| queue.priority_step = Some(crate::town::span(60 * SECOND))).await;
    town.spec("urgent").priority(9).submit().await;
    assert_eq!(town.worker("w").claim_one().await.id(), "urgent");
    assert_eq!(town.worker("w").claim_one().await.id(), "last");
    town.audit().await;
}

#[tokio::test]
async fn what_becomes_ready_in_front_of_it_at_another_server_or_by_a_strangers_hand_is_found() {
    let town = Town::with_servers(2).await;
    let first = first_of_a_line_that_has_gone_on(&town).await;
    let other = town.worker_at(1, "other");
    town.submit("of-the-other").await;
    other.claim_within(1, crate::town::PATIENCE).await.remove(0).complete().await.applied();
    first.release().await.applied();
    let lease = other.claim_within(1, crate::town::PATIENCE).await.remove(0);
    assert_eq!(lease.id(), "t-0");
    lease.complete().await.applied();
    // Nobody tells of this one.
    town.submit("held").await;
    let held = town.worker("w").claim_one().await;
    let queue = format!("(SELECT queue_id FROM queues WHERE name = '{QUEUE}')");
    held.release().await.applied();
    let nobody = town.hold(&format!("SELECT FROM live WHERE queue_id = {queue} FOR UPDATE")).await;
    town.submit("after").await;
    let after = town.worker("w").claim_one().await;
    assert_eq!(after.id(), "after", "the other one is held");
    after.complete().await.applied();
    town.submit("after-that").await;
    town.worker("w").claim_one().await.complete().await.applied();
    nobody.let_go().await;
    assert_eq!(town.worker("w").claim_within(1, crate::town::PATIENCE).await.remove(0).id(), "held");
    town.audit().await;
}
