//! The schema and who may do what with it: migrations on tables with rows, side by side, from older and newer versions; and a server whose
//! role owns nothing.

use std::path::PathBuf;
use std::time::Duration;

use leasehold::api::proto::{ErrorClass, TaskState};
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::process::Command;

use crate::town::{SECOND, Town, eventually};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// A command of the binary that comes to an end by itself; whether it succeeded, and what it said.
async fn run(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env_remove("LEASEHOLD_DATABASE_URL").kill_on_drop(true);
    let output = tokio::time::timeout(crate::town::PATIENCE, command.output()).await.expect("it ends").expect("it runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn migrated(url: &str) {
    let (done, said) = run(&["migrate", "--database-url", url]).await;
    assert!(done, "{said}");
}

/// A server that looks at the schema and does not start; what it said.
async fn refused_to_serve(url: &str) -> String {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--no-migrate", "--database-url", url];
    let (done, said) = run(&serve).await;
    assert!(!done, "it came to a good end: {said}");
    said
}

/// As its owner, brings a database to an earlier version.
async fn migrate_to(version: i64, url: &str) {
    let mut owner = PgConnection::connect(url).await.expect("the database answers");
    MIGRATIONS.run_direct(Some(version), &mut owner, false).await.expect("it can be migrated");
}

fn latest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().expect("there are some")
}

/// One of everything that a server does.
async fn works(town: &Town) {
    for id in ["new head", "new tail"] {
        town.spec(id).key("new device").share("new tenant").payload(b"new").submit().await;
    }
    let worker = town.worker("w-9").reporting_effects();
    let head = worker.claim_one().await;
    assert_eq!(head.id(), "new head");
    head.heartbeat().await.ok();
    head.begin_effect("call-1").await.applied();
    head.complete().await.applied();
    let tail = worker.claim_one().await;
    assert_eq!(tail.id(), "new tail");
    tail.fail(ErrorClass::Permanent).await.applied();
    town.spec("new and canceled").start_delay(SECOND * 600).submit().await;
    town.cancel("new and canceled").await.ok();
    assert_eq!(town.states(&["new head", "new tail"]).await, ["COMPLETED", "REPAIR_REQUIRED"]);
}

#[tokio::test]
async fn a_role_with_nothing_but_the_documented_grants_runs_a_server() {
    let mut town = Town::empty().await;
    migrated(&town.database_url).await;
    let role = format!("{}_server", town.sql::<String>("SELECT current_database()::text").await);
    town.execute(format!("CREATE ROLE {role} LOGIN")).await;
    let grants = include_str!("../../docs/grants.sql").replace("leasehold_server", &role);
    let mut owner = PgConnection::connect(&town.database_url).await.expect("the owner is let in");
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(&mut owner).await.expect("the owner can grant this");

    let url = town.url_as(&role);
    town.add_server_told(&url, &["--no-migrate"]).await;
    works(&town).await;
    // What only the owner may do by itself, the role does through functions: partitions of the log, and leaps of the sequences.
    town.execute("UPDATE lineage SET timeline = 'before'").await;
    let before: i64 = town.sql("SELECT last_value FROM positions").await;
    town.submit("after a failover").await;
    assert!(town.sql::<i64>("SELECT last_value FROM positions").await > before + (1 << 20));
    let mut server = PgConnection::connect(&url).await.expect("the role is let in");
    sqlx::raw_sql("DROP TABLE events_2").execute(&mut owner).await.expect("the owner can drop it");
    let made: i32 = sqlx::query_scalar("SELECT ensure_event_partitions()").fetch_one(&mut server).await.expect("it may");
    assert_eq!(made, 1);
    for beyond in ["CREATE TABLE its_own ()", "DROP TABLE live", "ALTER TABLE tasks ADD COLUMN more text", "TRUNCATE events"] {
        let refused = sqlx::raw_sql(beyond).execute(&mut server).await.expect_err(beyond);
        let code = refused.as_database_error().and_then(|error| error.code().map(|code| code.into_owned()));
        assert_eq!(code.as_deref(), Some("42501"), "{beyond}: {refused}");
    }
    let log = town.server(0).log();
    assert!(!log.contains("permission denied") && !log.contains("42501"), "{log}");
    town.audit().await;
}

#[tokio::test]
async fn servers_and_operators_that_migrate_at_once_take_turns() {
    let mut town = Town::empty().await;
    let url = town.database_url.clone();
    let operators: Vec<_> = (0..3)
        .map(|_| {
            tokio::spawn({
                let url = url.clone();
                async move { migrated(&url).await }
            })
        })
        .collect();
    town.add_server_told(&url, &[]).await;
    town.add_server_told(&url, &[]).await;
    for operator in operators {
        operator.await.expect("it migrates");
    }
    let applied = town.sql::<i64>("SELECT count(*) FROM _sqlx_migrations WHERE success").await;
    assert_eq!(usize::try_from(applied).unwrap(), MIGRATIONS.iter().count());
    works(&town).await;
    town.spec("at the other").at(1).submit().await;
    town.audit().await;
}

#[tokio::test]
async fn a_server_that_may_not_migrate_refuses_a_schema_that_is_not_its_own() {
    let town = Town::empty().await;
    let url = &town.database_url;
    let older = "the database's schema is older than this version: it lacks";
    assert!(refused_to_serve(url).await.contains(older), "an empty database");
    assert_eq!(
        town.sql::<i64>("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").await,
        0,
        "it looked only"
    );
    migrate_to(1, url).await;
    let said = refused_to_serve(url).await;
    assert!(
        said.contains(&format!("{older} {} of its migrations; run `leasehold migrate`", MIGRATIONS.iter().count() - 1)),
        "{said}"
    );

    migrated(url).await;
    town.execute("UPDATE _sqlx_migrations SET checksum = '\\x00' WHERE version = 1").await;
    let said = refused_to_serve(url).await;
    assert!(said.contains("its migration 1 is not the one that this version has"), "{said}");
    let (done, said) = run(&["migrate", "--database-url", url]).await;
    assert!(!done && said.contains("its migration 1 is not the one that this version has"), "{said}");

    let later = latest() + 1;
    town.execute(format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES ({later}, 'to come', true, '', 0)"
    ))
    .await;
    let newer = format!("the database's schema is newer than this version: it has migration {later}");
    let said = refused_to_serve(url).await;
    assert!(said.contains(&newer), "{said}");
    let (done, said) = run(&["migrate", "--database-url", url]).await;
    assert!(!done && said.contains(&newer), "{said}");
}

/// The versions of which there are sample rows, with the rows.
fn samples() -> Vec<(i64, String)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let files = std::fs::read_dir(folder).expect("there are samples").map(|entry| entry.expect("a file").path());
    let sample = |path: PathBuf| {
        let version = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        (version.expect("it is named by its version"), std::fs::read_to_string(path).expect("it can be read"))
    };
    files.filter(|path| path.extension().is_some_and(|extension| extension == "sql")).map(sample).collect()
}

#[tokio::test]
async fn a_database_with_rows_of_an_earlier_version_is_migrated_and_works_on() {
    let samples = samples();
    assert!(samples.iter().any(|(version, _)| *version == 1), "the first version has rows");
    for (version, rows) in samples {
        let mut town = Town::empty().await;
        let url = town.database_url.clone();
        migrate_to(version, &url).await;
        let mut owner = PgConnection::connect(&url).await.expect("the owner is let in");
        sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut owner).await.unwrap_or_else(|error| panic!("{version}: {error}"));
        migrated(&url).await;
        // Back to the moment after the last row was written: its leases are valid, and its retries are to come.
        town.replace_clock().await;
        town.execute("UPDATE test_clock SET ahead = (SELECT max(time) FROM events) - clock_timestamp()").await;
        town.audit_database().await;
        town.add_server_told(&url, &[]).await;
        goes_on(&town).await;
        works(&town).await;
        town.audit().await;
    }
}

/// Every sample has the same tasks.
async fn goes_on(town: &Town) {
    let all = ["done", "skipped", "canceled", "broken", "retried", "asked to stop", "begun", "head", "behind", "last", "later"];
    let states = town.states(&all).await;
    let expected =
        ["COMPLETED", "SKIPPED", "CANCELED", "REPAIR_REQUIRED", "RETRY_AT", "LEASED", "LEASED", "LEASED", "BLOCKED", "BLOCKED"];
    assert_eq!(states[..10], expected);
    assert_eq!(states[10], "SCHEDULED");
    assert_eq!(town.task_with_payload("behind").await.spec.unwrap().payload.as_ref(), b"hint");
    assert!(!town.spec("done").key("device-1").payload(b"sent").try_submit().await.ok().created);
    let worker = town.worker("w-1");
    let (mut ready, mut doubts) = (Vec::new(), 0);
    for lease in worker.claim_all(2).await {
        ready.push(lease.id().to_owned());
        doubts += lease.lease.unknown_attempts.len();
        lease.complete().await.applied();
    }
    ready.sort();
    assert_eq!((ready, doubts), (vec!["doubtful".to_owned(), "ready".to_owned()], 1));
    // The leases end, the cancel takes effect, and the key goes on in its order.
    town.clock.advance(Duration::from_secs(36_001)).await;
    town.wait_for_state("asked to stop", TaskState::Canceled).await;
    eventually("what time has moved is done", async || {
        let mut done: Vec<String> = Vec::new();
        while let Some(lease) = worker.claim_within(1, SECOND).await.pop() {
            done.push(lease.id().to_owned());
            lease.complete().await.applied();
        }
        town.clock.advance(Duration::from_secs(60)).await;
        (town.states(&all[4..]).await.iter().filter(|state| **state == "COMPLETED").count() == 6).then_some(())
    })
    .await;
    let order = "SELECT string_agg(t.task_id, ' ' ORDER BY e.position) FROM events e JOIN tasks t USING (queue_id, uid)
                 WHERE t.ordering_key = 'device-1' AND e.kind = 'ENDED'";
    assert_eq!(town.sql::<String>(order).await, "done head behind last");
}

#[tokio::test]
async fn every_table_says_when_autovacuum_comes_also_the_log_s_next_partitions() {
    let town = Town::start().await;
    town.execute("SELECT setval('positions', 40000000)").await;
    town.execute("SELECT ensure_event_partitions()").await;
    let silent: Vec<String> = sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
           AND array_to_string(reloptions, ' ') NOT LIKE '%autovacuum%' IS NOT FALSE AND relname NOT IN ('_sqlx_migrations', 'test_clock')",
    )
    .fetch_all(town.database())
    .await
    .expect("the catalog can be read");
    assert_eq!(silent, [""; 0]);
    assert!(town.sql::<bool>("SELECT to_regclass('events_10') IS NOT NULL").await);
}
