//! Tasks whose rows a server can't read, written by hand or by a version that knows more: the others of their share and key go on as they
//! would, and people are told.

use leasehold::api::proto::{ObstacleKind, TaskState};

use crate::town::{Lease, Town};

fn ids(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(Lease::id).collect()
}

fn of(id: &str) -> String {
    format!("uid = (SELECT uid FROM tasks WHERE task_id = '{id}')")
}

/// Ways to make a row that can't be read, and to put it right.
const WAYS: [(&str, &str, &str, &str); 4] = [
    ("live", "notes", "'7'", "NULL"),
    ("tasks", "options", "'{\"retry\": 7}'", "NULL"),
    ("tasks", "labels", "'[1]'", "NULL"),
    ("tasks", "subjects", "'{\"m-9\": 1}'", "NULL"),
];

/// The others of the share are leased, the poisoned one stays READY, is told, and is leased once it was put right.
async fn is_passed_over(town: &mut Town, (table, column, poison, cure): (&str, &str, &str, &str), others: &[&str], count: i32) {
    assert_eq!(town.execute(format!("UPDATE {table} SET {column} = {poison} WHERE {}", of("bad"))).await, 1);
    // One that has never heard of these tasks: what passed through a server is remembered.
    town.restart_server(0).await;
    let worker = town.worker("w1");
    let mut leases = worker.claim_within(count, crate::town::PATIENCE).await;
    while leases.len() < others.len() {
        leases.extend(worker.claim_within(count, crate::town::PATIENCE).await);
    }
    let mut got = ids(&leases);
    got.sort_unstable();
    assert_eq!(got, others, "{table}.{column}");
    worker.finds_nothing().await;
    let state: String = town.sql(format!("SELECT state FROM live WHERE {}", of("bad"))).await;
    assert_eq!(state, "READY");
    let obstacles = town.explain("bad").await;
    assert_eq!(obstacles.iter().map(|obstacle| obstacle.kind()).collect::<Vec<_>>(), [ObstacleKind::Unreadable]);
    let uid: String = town.sql("SELECT uid::text FROM tasks WHERE task_id = 'bad'").await;
    let log = town.server(0).log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(!told.is_empty() && told.iter().all(|line| line.contains(&uid)), "{told:?}");
    for lease in leases {
        lease.complete().await.applied();
    }
    town.execute(format!("UPDATE {table} SET {column} = {cure} WHERE {}", of("bad"))).await;
    town.restart_server(0).await;
    let cured = town.worker("w1").claim_one().await;
    assert_eq!(cured.id(), "bad");
    cured.complete().await.applied();
}

#[tokio::test]
async fn a_ready_task_that_cannot_be_read_is_passed_over_by_claims_of_its_share() {
    for way in WAYS {
        let mut town = Town::start().await;
        for id in ["bad", "next", "other"] {
            town.submit(id).await;
        }
        is_passed_over(&mut town, way, &["next", "other"], 10).await;
        town.audit().await;
    }
}

#[tokio::test]
async fn one_at_a_time_and_beside_other_shares_it_is_passed_over_too() {
    let mut town = Town::start().await;
    for (id, share) in [("bad", "a"), ("next", "a"), ("other", "b")] {
        town.spec(id).share(share).submit().await;
    }
    is_passed_over(&mut town, WAYS[1], &["next", "other"], 1).await;
    town.audit().await;
}

#[tokio::test]
async fn the_head_of_a_key_that_cannot_be_read_keeps_its_key_and_nobody_else_s() {
    let mut town = Town::start().await;
    for (id, key) in [("bad", "k"), ("behind", "k"), ("next", "other")] {
        town.spec(id).key(key).submit().await;
    }
    town.submit("other").await;
    is_passed_over(&mut town, WAYS[0], &["next", "other"], 10).await;
    let behind = town.worker("w1").claim_one().await;
    assert_eq!(behind.id(), "behind");
    behind.complete().await.applied();
    assert_eq!(town.task("behind").await.state(), TaskState::Completed);
    town.audit().await;
}

#[tokio::test]
async fn many_that_cannot_be_read_are_passed_over_together() {
    let mut town = Town::start().await;
    let specs = (0..120).map(|number| town.spec(&format!("bad-{number}"))).collect();
    town.submit_batch(specs, false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
    town.submit("good").await;
    assert_eq!(
        town.execute("UPDATE live SET notes = '7' WHERE uid IN (SELECT uid FROM tasks WHERE task_id LIKE 'bad%')").await,
        120
    );
    town.restart_server(0).await;
    assert_eq!(town.worker("w1").claim_one().await.id(), "good");
    town.execute("UPDATE live SET notes = NULL").await;
    town.audit_database().await;
}
