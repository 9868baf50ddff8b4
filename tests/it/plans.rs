//! The plans of the statements that every claim, submit and report runs: by key, whatever statistics say, and no dearer for a thousand
//! shares that may not run.

use std::path::Path;

use leasehold::api::proto as pb;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::town::{Answer, QUEUE, Town, eventually};

/// What these statements are named after.
const HOT: &[&str] = &[
    "claim_",
    "claimed_",
    "dispatch_",
    "shares_lock",
    "shares_hold",
    "shares_wake",
    "shares_sleep",
    "shares_park",
    "shares_unpark",
    "submit_",
    "keys_find",
    "keys_lock",
    "key_places",
    "lock_live",
    "live_by_uid",
    "ended_by_uid",
    "specs_by",
    "write_",
    "rooms_lock",
    "rooms_count",
    "rooms_make",
    "rooms_write",
    "lock_tasks",
    "results_by_uid",
    "receipts_by_uid",
    "late_revisions",
    "log_of_task",
    "log_attempts",
    "log_task_end",
    "events_",
    "keys_idle_lock",
    "keys_remove",
    "shares_idle_lock",
    "shares_remove",
    "stuck_",
    "retention_forget",
    "retention_payloads",
    "retention_results",
    "stats_targets",
    "stats_repairs",
    "explain_",
    "probe_live",
    "moment",
    "payloads_by_uid",
    "specs_in_full",
];
/// As the write path's sessions are set (`store/pool.rs`).
const SESSION: &str = "SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_generic_plan";

fn statement(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql").join(format!("{name}.sql"));
    std::fs::read_to_string(path).expect("the statement has a file")
}

fn hot_statements() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/sql");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".sql").map(str::to_owned));
    let mut hot: Vec<String> = names.filter(|name| HOT.iter().any(|prefix| name.starts_with(prefix))).collect();
    hot.sort();
    hot
}

async fn session(town: &Town) -> PgConnection {
    let mut session = PgConnection::connect(&town.database_url).await.unwrap();
    sqlx::raw_sql(SESSION).execute(&mut session).await.unwrap();
    session
}

async fn explain(session: &mut PgConnection, name: &str, options: &str, arguments: &[String]) -> Vec<String> {
    sqlx::raw_sql(AssertSqlSafe(format!("PREPARE one AS {}", statement(name)))).execute(&mut *session).await.unwrap();
    let arguments = if arguments.is_empty() { String::new() } else { format!("({})", arguments.join(", ")) };
    let query = format!("EXPLAIN ({options}) EXECUTE one{arguments}");
    let plan = sqlx::query_scalar(AssertSqlSafe(query)).persistent(false).fetch_all(&mut *session).await;
    let plan = plan.unwrap_or_else(|error| panic!("{name}: {error}"));
    sqlx::raw_sql("DEALLOCATE one").execute(session).await.unwrap();
    plan
}

/// The plans of all statements of the hot paths, by name.
async fn hot_plans(session: &mut PgConnection) -> Vec<(String, Vec<String>)> {
    let mut plans = Vec::new();
    for name in hot_statements() {
        let text: String = statement(&name).lines().filter(|line| !line.starts_with("--")).collect();
        let count = (1..100).rev().find(|number| text.contains(&format!("${number}"))).unwrap_or(0);
        let plan = explain(session, &name, "COSTS OFF", &vec!["NULL".to_owned(); count]).await;
        plans.push((name, plan));
    }
    assert!(plans.len() > 30, "{plans:?}");
    plans
}

/// Steps of a plan that read a whole table or index, or all that a queue has in it to throw most of that away.
fn long_walks(plan: &[String]) -> Vec<String> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in plan.iter().map(|line| line.trim().trim_start_matches("->").trim()) {
        if line.contains("Scan") {
            steps.push((line, Vec::new()));
        } else if let Some((_, notes)) = steps.last_mut() {
            notes.push(line);
        }
    }
    let walks = steps.into_iter().filter(|(step, notes)| {
        let note = |of: &str| notes.iter().find_map(|note| note.strip_prefix(of));
        let by = note("Index Cond: ").unwrap_or_default();
        let only_the_queue = by.matches('=').count() == 1 && by.contains("queue_id = ");
        // What a claim or a report may not look at: a table, an index from its beginning to its end, and what a queue has of anything
        // where something further is asked.
        step.contains("Seq Scan")
            || step.contains("Bitmap")
            || (step.contains("Index") && (by.is_empty() || (only_the_queue && note("Filter: ").is_some())))
    });
    walks.map(|(step, notes)| format!("{step} {}", notes.join(" "))).collect()
}

/// Tasks in every state, in a hundred shares and as many keys, and twenty times as many that have ended.
async fn fill(town: &Town) {
    for part in (0..2_000).collect::<Vec<_>>().chunks(500) {
        let specs = part.iter().map(|number| {
            let spec = town.spec(&format!("t-{number}")).share(&format!("s-{}", number % 100));
            if number % 2 == 0 { spec.key(&format!("k-{}", number % 200)) } else { spec }
        });
        town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
    }
    for lease in town.worker("w").claim_all(200).await.into_iter().take(100) {
        lease.complete().await.applied();
    }
    town.execute(
        "INSERT INTO live (queue_id, uid, share_id, key_id, position, state, revision, attempt, charged, max_attempts, releases,
                           unknown_attempts, token, rank, cost, size, deadline, due, accepted, updated)
         SELECT queue_id, gen_random_uuid(), share_id, key_id, position, state, revision, attempt, charged, max_attempts, releases,
                unknown_attempts, token, rank, cost, size, deadline, due, accepted, updated
         FROM live, generate_series(1, 20) WHERE state = 'BLOCKED' OR (state = 'READY' AND key_id IS NULL)",
    )
    .await;
}

/// Whatever the planner has been told of the tables, and when: a session keeps the plan that it made when they were almost empty.
#[tokio::test]
async fn no_statement_of_the_hot_paths_scans_a_table_or_a_queue_whatever_the_statistics() {
    let town = Town::start().await;
    town.execute(
        "DO $$ DECLARE one regclass; BEGIN
             FOR one IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
                 EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', one);
             END LOOP;
         END $$",
    )
    .await;
    let mut session = session(&town).await;
    let mut walks = Vec::new();
    let mut look = async |when: &str| {
        for (name, plan) in hot_plans(&mut session).await {
            walks.extend(long_walks(&plan).into_iter().map(|walk| format!("{when}: {name}: {walk}")));
        }
    };
    look("empty").await;
    town.submit("one").await;
    look("one task").await;
    town.execute("ANALYZE").await;
    look("one task, analyzed").await;
    let lease = town.worker("w").claim_one().await;
    town.execute("ANALYZE").await;
    look("one lease, analyzed").await;
    lease.complete().await.applied();
    fill(&town).await;
    look("filled, analyzed before").await;
    town.execute(
        "DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)",
    )
    .await;
    look("filled, never analyzed").await;
    town.execute("ANALYZE").await;
    look("filled, analyzed").await;
    town.execute("DELETE FROM live").await;
    town.execute("VACUUM ANALYZE").await;
    look("drained").await;
    assert!(walks.is_empty(), "{}", walks.join("\n"));
}

/// Buffers and rows that a claim's looks visit.
async fn visited(town: &Town) -> (u64, u64) {
    // Parking leaves dead entries behind, as every update does.
    town.execute("VACUUM ANALYZE shares").await;
    town.execute("VACUUM ANALYZE live").await;
    let mut session = session(town).await;
    let queue = town.sql::<i32>(format!("SELECT queue_id FROM queues WHERE name = '{QUEUE}'")).await.to_string();
    let free = town.sql::<i32>("SELECT share_id FROM shares WHERE fairness_key = 'free'").await;
    let low = format!("'{{{}}}'", i64::MIN);
    let (mut buffers, mut rows) = (0, 0);
    for (name, arguments) in [
        ("claim_shares", vec![queue.clone()]),
        ("dispatch_shares", vec![queue.clone(), "64".to_owned()]),
        ("claim_heads", vec![format!("'{{{free}}}'"), "'{10}'".to_owned(), low.clone(), low.clone()]),
    ] {
        // Once to fill the caches of the session and to mark dead entries, once to count.
        for counts in [false, true] {
            let plan = explain(&mut session, name, "ANALYZE, BUFFERS, COSTS OFF, TIMING OFF", &arguments).await;
            let top = plan.iter().find(|line| line.trim().starts_with("Buffers:")).cloned().unwrap_or_default();
            let number = |word: &str, line: &str| -> u64 {
                let after = line.split(word).nth(1).unwrap_or("0");
                after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
            };
            if counts {
                buffers += number("hit=", &top) + number("read=", &top);
                let visited = |line: &String| {
                    number("actual rows=", line) * number("loops=", line).max(1) + number("Removed by Filter: ", line)
                };
                rows += plan.iter().map(visited).sum::<u64>();
            }
        }
    }
    (buffers, rows)
}

#[tokio::test]
async fn a_claim_visits_no_more_for_999_shares_at_their_cap_with_long_backlogs() {
    let town = Town::start().await;
    town.backlog("free", 1_000).await;
    town.backlog("capped-0", 2).await;
    town.put_share("capped-0", |share| share.max_in_flight = Some(1)).await;
    let worker = town.worker("w1");
    let settle = async || {
        // Until every share at its cap is parked.
        let awake = "SELECT count(*) FROM shares WHERE max_in_flight IS NOT NULL AND NOT parked";
        eventually("shares at their cap are parked", async || {
            worker.claim(1).await;
            (town.sql::<i64>(awake).await == 0).then_some(())
        })
        .await;
    };
    worker.claim(3).await;
    settle().await;
    let (small_buffers, small_rows) = visited(&town).await;

    for part in (1..999).collect::<Vec<_>>().chunks(250) {
        let two = part.iter().flat_map(|share| [(share, 0), (share, 1)]);
        let specs = two.map(|(share, number)| town.spec(&format!("capped-{share}/{number}")).share(&format!("capped-{share}")));
        town.submit_batch(specs.collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
    }
    town.execute("UPDATE shares SET max_in_flight = 1 WHERE fairness_key LIKE 'capped%'").await;
    worker.claim_all(998).await;
    settle().await;
    // Ninety-nine more wait in each, copied from the one that does.
    town.execute(
        "INSERT INTO live (queue_id, uid, share_id, position, state, revision, attempt, charged, max_attempts, releases, unknown_attempts,
                           token, rank, cost, size, deadline, due, accepted, updated)
         SELECT queue_id, gen_random_uuid(), share_id, position, state, revision, attempt, charged, max_attempts, releases, unknown_attempts,
                token, rank, cost, size, deadline, due, accepted, updated
         FROM live, generate_series(1, 99) WHERE state = 'READY' AND share_id IN (SELECT share_id FROM shares WHERE max_in_flight = 1)",
    )
    .await;
    let (buffers, rows) = visited(&town).await;
    println!("buffers {small_buffers} → {buffers}, rows {small_rows} → {rows}");
    assert!(buffers <= 2 * small_buffers, "{small_buffers} buffers became {buffers}");
    assert!(rows <= 2 * small_rows, "{small_rows} rows became {rows}");
    let info = Answer::from(town.admin().get_server_info(pb::GetServerInfoRequest {}).await).ok();
    assert!(info.features.iter().any(|feature| feature == "budgets"));
}
