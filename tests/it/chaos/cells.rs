//! The chaos cells that job queues over Postgres are compared by: how long after each fault until as much is completed as before.
//!
//! One server under a steady load. Figures of one machine, in a table; nothing is asserted but that it recovers at all.

use std::time::Duration;

use leasehold::embedded::Cluster;
use sqlx::{Connection as _, PgConnection};
use tokio::time::sleep;

use super::faults::Ground;
use crate::database::start;
use crate::load::{Faults, Load};
use crate::town::{SECOND, Town, eventually, within};

/// How long the rate is measured before the fault, and within how long it must be back.
const BEFORE: u32 = 30;
const BUDGET: i64 = 60;
/// The rate after the fault is that of so many seconds on end.
const WINDOW: usize = 10;
/// Of the rate before.
const BACK: f64 = 0.98;

const CELLS: [&str; 4] =
    ["Postgres restarted", "all backends killed", "all backends killed 3 times, every 30 s", "connections exhausted for 10 s"];

/// What the database has no place for any more.
const CONNECTIONS: usize = 60;

async fn kill_backends(town: &Town) {
    let query = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE 'leasehold%'";
    assert!(town.sql::<i64>(query).await > 0, "there was nothing to kill");
}

/// Takes every place that the database has for sessions, and the server's own with them.
async fn exhaust(ground: &Ground, url: &str) {
    kill_backends(&ground.town).await;
    let mut taken = Vec::new();
    while let Ok(session) = PgConnection::connect(url).await {
        taken.push(session);
    }
    assert!(!taken.is_empty(), "there was no place to take");
    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'leasehold%'";
    sqlx::query(all).execute(&mut taken[0]).await.expect("the database answers");
    while let Ok(session) = PgConnection::connect(url).await {
        taken.push(session);
    }
    sleep(SECOND * 10).await;
    drop(taken);
}

/// Runs a cell; its line of the table.
async fn run(cell: usize) -> String {
    let settings = [("max_connections".to_owned(), CONNECTIONS.to_string())];
    let mut ground = Ground::start_with(1, true, settings.to_vec()).await;
    let load = Load::start(vec![ground.town.server(0).channel()], Faults { servers: false, database: true });
    load.until_answered(200).await;
    go_on(&ground.town, &load, SECOND * BEFORE).await;
    let begin = ground.town.clock.now().await;
    match cell {
        0 => {
            ground.end_postgres(Cluster::stop).await;
            ground.cluster = Some(start(&ground.options).await);
        }
        1 => kill_backends(&ground.town).await,
        2 => {
            for kill in 0..3 {
                kill_backends(&ground.town).await;
                if kill < 2 {
                    go_on(&ground.town, &load, SECOND * 30).await;
                }
            }
        }
        _ => {
            let url = ground.cluster.as_ref().expect("it runs").url("leasehold");
            exhaust(&ground, &url).await;
        }
    }
    let end = eventually("the database answers", async || now(&ground.town).await).await;
    go_on(&ground.town, &load, SECOND * (BUDGET as u32 + 5)).await;
    let (before, after) = rates(&ground.town, begin, end).await;
    load.settle(&ground.town).await;
    ground.town.audit_database().await;
    let windows: Vec<f64> = after.windows(WINDOW).map(|window| window.iter().sum::<i64>() as f64 / WINDOW as f64).collect();
    let best = windows.iter().copied().fold(0.0, f64::max);
    let back = windows.iter().position(|rate| *rate >= before * BACK);
    let told = back.map_or(format!("no: at best {:.0} %", 100.0 * best / before), |second| format!("after {second} s"));
    format!("| {} | {before:.0}/s | {best:.0}/s | {told} |\n", CELLS[cell])
}

/// By the database's clock, if the database answers.
async fn now(town: &Town) -> Option<i64> {
    sqlx::query_scalar("SELECT (extract(epoch FROM app_now()) * 1000000)::bigint").fetch_one(town.database()).await.ok()
}

/// Lets the load go on for so long.
async fn go_on(town: &Town, load: &Load, time: Duration) {
    within(time, async || {
        if let Ok(unfinished) = sqlx::query_scalar("SELECT count(*) FROM live").fetch_one(town.database()).await {
            load.go_on(unfinished);
        }
        None::<()>
    })
    .await;
}

/// Completions a second before the fault, and in each second after it was over.
async fn rates(town: &Town, begin: i64, end: i64) -> (f64, Vec<i64>) {
    let query = "SELECT (extract(epoch FROM ended) * 1000000)::bigint FROM ended WHERE state IN ('COMPLETED', 'SKIPPED')";
    let ended: Vec<i64> = sqlx::query_scalar(query).fetch_all(town.database()).await.expect("ends can be read");
    let span = i64::from(BEFORE) * 1_000_000;
    let before = ended.iter().filter(|time| (begin - span..begin).contains(time)).count() as f64 / f64::from(BEFORE);
    let mut after = vec![0; BUDGET as usize];
    for time in ended {
        if let Some(second) = usize::try_from((time - end).div_euclid(1_000_000)).ok().and_then(|second| after.get_mut(second)) {
            *second += 1;
        }
    }
    (before, after)
}

/// All cells; the table.
pub async fn table() -> String {
    let mut text = String::from("| fault | completions before | best 10 s after | back to 98 % |\n|---|---|---|---|\n");
    for cell in 0..CELLS.len() {
        let line = run(cell).await;
        println!("{line}");
        text += &line;
    }
    text
}
