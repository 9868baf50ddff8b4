//! A pile of stale tasks: a floor has risen over very many of one share, and what is good goes on, between them and behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::api::proto::raise_subject_request::Floor;

use super::{BATCH, RISES, SUBJECT};
use crate::town::{LEASE, SECOND, Town, eventually, raise_by, to_the_full, within};

const WAIT: &str = "SELECT count(*) FROM live WHERE state = 'READY'";

/// How many tasks lie in the pile; as many as were asked for if the run is told to take its time.
fn pile() -> usize {
    if to_the_full() { 100_000 } else { 20_000 }
}

/// Half the pile, the task `inside`, and the other half, all of one share.
async fn fill(town: &Town, share: &str) {
    for half in 0..2 {
        for part in (0..pile() / 2).collect::<Vec<_>>().chunks(500) {
            let specs = part.iter().map(|number| town.spec(&format!("v1-{half}-{number}")).share(share).about(SUBJECT, 1));
            town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
        }
        if half == 0 {
            town.spec("inside").share(share).about(SUBJECT, 2).submit().await;
        }
    }
}

/// What is leased while all of the pile lies there; `others`: so many tasks of another share take turns with it.
async fn goes_on_beside_a_pile(others: usize) {
    let town = Town::start().await;
    fill(&town, "pile").await;
    town.execute(RISES).await;
    town.backlog("other", others).await;
    town.spec("behind").share("pile").about(SUBJECT, 2).submit().await;
    let worker = town.worker("w1").for_a_lease_of(SECOND * 600);
    let mut leases = worker.claim_all(2 + others).await;
    let mut ids: Vec<&str> = leases.iter().map(|lease| lease.id()).filter(|id| !id.starts_with("other")).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["behind", "inside"]);
    assert_eq!(town.sql::<i64>(WAIT).await, pile() as i64, "nobody has taken the pile away meanwhile");
    // What is given back stands in the middle of the pile again, which was looked at before; and what has a head start, in front of it.
    let place = leases.iter().position(|lease| lease.id() == "inside").unwrap();
    leases.swap_remove(place).release().await.applied();
    town.spec("first").share("pile").about(SUBJECT, 2).priority(10).submit().await;
    let mut again: Vec<String> = worker.claim_all(2).await.iter().map(|lease| lease.id().to_owned()).collect();
    again.sort_unstable();
    assert_eq!(again, ["first", "inside"]);
    worker.finds_nothing().await;
    assert_eq!(town.sql::<i64>(WAIT).await, pile() as i64);
    // The walk comes, and leaves nothing.
    town.clock.advance(LEASE + SECOND).await;
    let gone = within(SECOND * 900, async || (town.sql::<i64>(WAIT).await == 0).then_some(())).await;
    assert!(gone.is_some(), "the pile is still there");
    let canceled: i64 = town.sql("SELECT count(*) FROM ended WHERE state = 'CANCELED' AND cause = 'SUPERSEDED'").await;
    assert_eq!(canceled, pile() as i64);
    let walks = "SELECT count(*) FROM subjects WHERE walk_due IS NOT NULL";
    eventually("nothing is left to walk over", async || (town.sql::<i64>(walks).await == 0).then_some(())).await;
    town.submit("after").await;
    assert_eq!(worker.claim_one().await.id(), "after");
    town.audit().await;
}

#[tokio::test]
async fn what_is_good_in_a_pile_of_stale_tasks_and_behind_it_is_leased_before_anybody_has_taken_the_pile_away() {
    goes_on_beside_a_pile(0).await;
}

#[tokio::test]
async fn what_is_good_in_a_pile_and_behind_it_has_its_turn_beside_other_shares() {
    goes_on_beside_a_pile(20).await;
}

#[tokio::test]
async fn overdue_tasks_that_nobody_has_ended_yet_hide_nothing_behind_them_however_many_they_are() {
    let town = Town::start().await;
    for part in (0..pile() / 4).collect::<Vec<_>>().chunks(500) {
        let specs = part.iter().map(|number| town.spec(&format!("late-{number}")).ttl(SECOND * 60));
        town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
    }
    town.submit("behind").await;
    let worker = town.worker("w1").for_a_lease_of(SECOND * 600);
    // The due loop does not see them.
    town.execute("ALTER TABLE live DROP CONSTRAINT live_due_is_the_next_moment").await;
    town.execute("UPDATE live SET due = 'infinity'").await;
    town.clock.advance(SECOND * 61).await;
    assert_eq!(worker.claim_one().await.id(), "behind");
    assert_eq!(town.sql::<i64>(WAIT).await, (pile() / 4) as i64);
    worker.finds_nothing().await;
    town.execute("UPDATE live SET due = deadline WHERE state = 'READY'").await;
    let repairs = "SELECT count(*) FROM ended WHERE state = 'REPAIR_REQUIRED' AND cause = 'DEADLINE_PASSED'";
    eventually("they are left to people", async || (town.sql::<i64>(repairs).await == (pile() / 4) as i64).then_some(())).await;
    town.audit().await;
}

/// How long the longest transaction of the town's servers has been open, as far as it is seen, and in which statement it was then.
async fn watch_transactions(town: Arc<Town>, over: Arc<AtomicBool>) -> (f64, String) {
    let open = "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8, left(query, 80) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'leasehold' AND state <> 'idle' AND xact_start IS NOT NULL
                ORDER BY xact_start LIMIT 1";
    let mut longest = (0.0_f64, String::new());
    let mut looks = tokio::time::interval(Duration::from_millis(10));
    while !over.load(Ordering::Relaxed) {
        looks.tick().await;
        let now: Option<(f64, String)> = sqlx::query_as(open).fetch_optional(town.database()).await.expect("it can be seen");
        longest = now.filter(|now| now.0 > longest.0).unwrap_or(longest);
    }
    longest
}

fn summary(times: &mut [Duration]) -> String {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    format!("{} times, p50 {:?}, p99 {:?}, longest {:?}", times.len(), at(50), at(99), at(100))
}

#[tokio::test]
async fn while_a_floor_that_rose_is_walked_over_a_pile_new_tasks_are_leased_in_its_share_and_beside_it_and_none_of_them_is_stale() {
    let town = Arc::new(Town::start().await);
    let begin = Instant::now();
    fill(&town, "pile").await;
    println!("{} tasks in {:?}", pile(), begin.elapsed());
    let over = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(watch_transactions(town.clone(), over.clone()));
    let begin = Instant::now();
    let raising = tokio::spawn(raise_by(town.tasks(), SUBJECT, Floor::MinVersion(2)));
    let stands = "SELECT count(*) FROM subjects";
    eventually("the floor has risen", async || (town.sql::<i64>(stands).await == 1).then_some(())).await;
    let worker = town.worker("w1");
    let mut times: HashMap<&str, Vec<Duration>> = HashMap::new();
    // "inside" is not stale, and whoever comes second.
    let (mut number, mut remains) = (0, pile() as i64);
    let mut first_answer = Duration::ZERO;
    while remains > 1 || number < 4 {
        assert!(begin.elapsed() < SECOND * 900, "{remains} are still there");
        let share = if number % 2 == 0 { "pile" } else { "other" };
        town.spec(&format!("v2-{number}")).share(share).about(SUBJECT, 2).submit().await;
        let sent = Instant::now();
        let lease = worker.claim_one().await;
        if number == 0 {
            first_answer = begin.elapsed();
        }
        times.entry(share).or_default().push(sent.elapsed());
        assert!(!lease.id().starts_with("v1-"), "{} was leased", lease.id());
        lease.complete().await.applied();
        number += 1;
        remains = town.sql(WAIT).await;
    }
    let gone = begin.elapsed();
    over.store(true, Ordering::Relaxed);
    let longest = watching.await.unwrap();
    drop(raising.await.unwrap().ok());
    println!("gone after {gone:?}, first lease after {first_answer:?}, longest transaction {:.3} s in {:?}", longest.0, longest.1);
    for (share, times) in &mut times {
        println!("a new task of {share}, from its acceptance to its lease: {}", summary(times));
    }
    let canceled: i64 = town.sql("SELECT count(*) FROM ended WHERE state = 'CANCELED'").await;
    assert_eq!(canceled, pile() as i64);
    let largest: i64 = town.sql("SELECT max(n) FROM (SELECT count(*) AS n FROM events GROUP BY xmin::text) e").await;
    assert!(largest <= BATCH, "a transaction changed {largest} tasks");
    town.audit().await;
}
