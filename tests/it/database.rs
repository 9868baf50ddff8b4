//! The database goes away and comes back under load; the server stays, says so meanwhile, and goes on by itself.

use std::time::{Duration, Instant};

use leasehold::api::server::SERVICES;
use leasehold::embedded::{Cluster, Options};
use leasehold::store::{Db, Pools};
use sqlx::Connection as _;
use tonic::Code;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt as _;

use crate::load::{Faults, Load};
use crate::town::{Answer, Recovery, Town, eventually, new_folder, row_held};

/// How long the server may take to work again once the database does.
const RECOVERY: Duration = Duration::from_secs(10);
/// Longer than the outage, however slow the machine is.
const LONG_LEASE: Duration = Duration::from_secs(600);
/// How often all connections are cut.
const CUTS: usize = 10;
const DATABASE_DIES: Faults = Faults { servers: false, database: true };

/// A Postgres that this test may stop.
pub async fn own_cluster() -> (Options, Cluster) {
    let data_dir = new_folder("cluster").await.join("pg");
    let options = Options { data_dir, bin_dir: None, durable: true, settings: Vec::new() };
    let cluster = start(&options).await;
    leasehold::store::create_database(&cluster.url("postgres"), "leasehold").await.expect("a database");
    (options, cluster)
}

pub async fn start(options: &Options) -> Cluster {
    let options = options.clone();
    let started = tokio::task::spawn_blocking(move || Cluster::start(&options)).await.expect("it does not panic");
    started.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused_for_now<T>(answer: Answer<T>) {
    let refused = answer.refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    let retry = refused.status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some_and(|delay| !delay.is_zero()), "no RetryInfo: {:?}", refused.status);
}

/// The database ends as `end` says, is away for a while, and comes back.
async fn an_outage(end: fn(&mut Cluster)) {
    let (options, mut cluster) = own_cluster().await;
    let town = Town::on(cluster.url("leasehold")).await;
    let server = town.server(0);
    town.spec("held").queue("other").submit().await;
    let held = town.worker("w1").on_queue("other").for_a_lease_of(LONG_LEASE).claim_one().await;
    let load = Load::start(vec![server.channel()], DATABASE_DIES);
    load.until_answered(100).await;

    let before = load.failures();
    let ending = tokio::task::spawn_blocking(move || {
        end(&mut cluster);
        cluster
    });
    drop(ending.await.expect("it does not panic"));
    refused_for_now(town.spec("during").queue("other").try_submit().await);
    refused_for_now(town.spec("anew").queue("never seen").try_submit().await);
    refused_for_now(town.worker("w2").on_queue("other").try_claim(1).await);
    refused_for_now(town.worker("w2").on_queue("never seen").try_claim(1).await);
    refused_for_now(held.heartbeat().await);
    refused_for_now(held.begin_effect("effect-1").await);
    refused_for_now(held.complete().await);
    refused_for_now(town.look_up("m-0-0-0").await);
    refused_for_now(town.cancel("m-0-0-0").await);
    server.until_it_does_not_serve().await;
    for service in SERVICES {
        assert_eq!(server.health(service).await.expect("health answers"), ServingStatus::NotServing, "{service}");
    }
    assert_eq!(server.http_status("/livez").await, Some(200));
    assert!(load.failures() > before, "nobody called meanwhile");

    let cluster = start(&options).await;
    let back = Instant::now();
    server.until_it_serves().await;
    let accepted = town.spec("during").queue("other").try_submit().await.ok();
    load.until_answered(20).await;
    let took = back.elapsed();
    assert!(took < RECOVERY, "it took {took:?} to recover");
    assert!(accepted.created, "the Submit that was refused has left a task");
    assert!(!town.spec("during").queue("other").try_submit().await.ok().created, "it was accepted twice");
    held.begin_effect("effect-1").await.applied();
    held.complete().await.applied();
    town.worker("w2").on_queue("other").claim_one().await.complete().await.applied();
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks JOIN queues USING (queue_id) WHERE name = 'other'").await, 2);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks WHERE task_id = 'anew'").await, 0);
    load.settle(&town).await;
    let recovery = Some(Recovery { took, budget: RECOVERY });
    row_held(2, "`during` was refused, and accepted once afterwards", recovery);
    row_held(18, "Postgres ended and was started under load", recovery);
    town.audit().await;
    drop(town);
    drop(cluster);
}

#[tokio::test]
async fn a_server_outlives_its_postgres_being_stopped_and_started() {
    an_outage(Cluster::stop).await;
}

#[tokio::test]
async fn a_server_outlives_its_postgres_being_killed_and_started() {
    an_outage(Cluster::kill).await;
}

#[tokio::test]
async fn a_server_goes_on_when_all_its_connections_are_cut_under_load() {
    let town = Town::start().await;
    let load = Load::start(vec![town.server(0).channel()], DATABASE_DIES);
    let (mut cut, mut longest) = (0, Duration::ZERO);
    for _ in 0..CUTS {
        load.until_answered(30).await;
        cut += town
            .sql::<i64>(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE 'leasehold%'",
            )
            .await;
        let begin = Instant::now();
        load.until_answered(30).await;
        longest = longest.max(begin.elapsed());
        assert!(longest < RECOVERY, "it took {longest:?} to recover");
    }
    assert!(cut >= 10, "only {cut} connections were cut");
    // A call between two transactions is not hurt; one under way is told.
    assert!(load.failures() > 0, "no call was under way when the connections were cut");
    load.settle(&town).await;
    town.server(0).until_it_serves().await;
    // Other servers are heard again too: the listener has a connection of its own.
    let ears =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leasehold-listener'";
    eventually("the listener is back", async || (town.sql::<i64>(ears).await == 1).then_some(())).await;
    let recovery = Recovery { took: longest, budget: RECOVERY };
    row_held(18, &format!("{cut} backends terminated under load"), Some(recovery));
    town.audit().await;
}

/// So long that nothing is flushed unless somebody asks for it.
const LAZY: [(&str, &str); 3] = [("wal_writer_delay", "10000"), ("wal_writer_flush_after", "100000"), ("autovacuum", "off")];

#[tokio::test]
async fn a_barrier_makes_durable_what_was_committed_before_it_without_waiting_for_the_disk() {
    let data_dir = new_folder("cluster").await.join("pg");
    let settings = LAZY.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let options = Options { data_dir, bin_dir: None, durable: true, settings };
    let cluster = start(&options).await;
    leasehold::store::create_database(&cluster.url("postgres"), "leasehold").await.expect("a database");
    let url = cluster.url("leasehold");
    let db = Db::open(&url, Pools::default()).expect("a URL");
    let mut session = sqlx::PgConnection::connect(&url).await.expect("the database answers");
    sqlx::raw_sql("CREATE TABLE t (n int); SET synchronous_commit = off").execute(&mut session).await.expect("a table");
    let flushed = "SELECT pg_current_wal_flush_lsn() >= $1::text::pg_lsn";
    let mut behind = 0;
    for n in 0..20 {
        sqlx::query("INSERT INTO t VALUES ($1)").bind(n).execute(&mut session).await.expect("a commit");
        let end: String =
            sqlx::query_scalar("SELECT pg_current_wal_insert_lsn()::text").fetch_one(&mut session).await.expect("a position");
        let before: bool = sqlx::query_scalar(flushed).bind(&end).fetch_one(&mut session).await.expect("an answer");
        behind += usize::from(!before);
        leasehold::store::barrier(&db).await.expect("a barrier");
        assert!(sqlx::query_scalar::<_, bool>(flushed).bind(&end).fetch_one(&mut session).await.expect("an answer"), "round {n}");
    }
    assert!(behind > 0, "every commit was on disk before the barrier: nothing was tried");
}
