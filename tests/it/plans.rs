//! The plans of the statements that every claim, submit and report runs: by key, whatever statistics say, and no dearer for a thousand
//! shares that may not run.

use std::path::Path;

use leasehold::api::proto as pb;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::town::{Answer, QUEUE, Town};

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
    "rooms_",
    "moment",
    "payloads_by_uid",
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

#[tokio::test]
async fn no_statement_of_the_hot_paths_scans_a_table() {
    let town = Town::start().await;
    town.submit("one").await;
    town.execute("ANALYZE").await;
    let mut session = session(&town).await;
    let hot = hot_statements();
    assert!(hot.len() > 30, "{hot:?}");
    let mut scans = Vec::new();
    for name in hot {
        let text: String = statement(&name).lines().filter(|line| !line.starts_with("--")).collect();
        let count = (1..100).rev().find(|number| text.contains(&format!("${number}"))).unwrap_or(0);
        let plan = explain(&mut session, &name, "COSTS OFF", &vec!["NULL".to_owned(); count]).await;
        scans.extend(
            plan.into_iter()
                .filter(|line| line.contains("Seq Scan") || line.contains("Bitmap"))
                .map(|line| format!("{name}: {}", line.trim())),
        );
    }
    assert!(scans.is_empty(), "{}", scans.join("\n"));
}

/// Buffers and rows that a claim's looks visit.
async fn visited(town: &Town) -> (u64, u64) {
    // Parking leaves dead entries behind, as every update does.
    town.execute("VACUUM ANALYZE shares").await;
    town.execute("VACUUM ANALYZE live").await;
    let mut session = session(town).await;
    let queue = town.sql::<i32>(format!("SELECT queue_id FROM queues WHERE name = '{QUEUE}'")).await.to_string();
    let free = town.sql::<i32>("SELECT share_id FROM shares WHERE fairness_key = 'free'").await;
    let (mut buffers, mut rows) = (0, 0);
    for (name, arguments) in [
        ("claim_shares", vec![queue.clone()]),
        ("dispatch_shares", vec![queue.clone(), "64".to_owned()]),
        ("claim_heads", vec![queue.clone(), format!("'{{{free}}}'"), "'{10}'".to_owned()]),
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
    town.backlog("free", 50).await;
    town.backlog("capped-0", 2).await;
    town.put_share("capped-0", |share| share.max_in_flight = Some(1)).await;
    let worker = town.worker("w1");
    let settle = async || {
        // Until every share at its cap is parked.
        let awake = "SELECT count(*) FROM shares WHERE max_in_flight IS NOT NULL AND NOT parked";
        for _ in 0..100 {
            if town.sql::<i64>(awake).await == 0 {
                return;
            }
            worker.claim(1).await;
        }
        panic!("shares at their cap stay awake");
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
