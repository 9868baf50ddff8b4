//! The failure matrix: what was seen of each fault in this run, written to `target/failure-matrix.md`.
//!
//! A row counts only where it ran. It is told at the end of its test, when everything that it claims has been asserted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Town;

/// The faults, by their number.
const FAULTS: [&str; 35] = [
    "producer dies before commit",
    "database away at Submit",
    "answer to Submit lost",
    "relay crashes after Submit, before it marks the row sent",
    "worker dies holding a lease, effect not begun",
    "worker dies after it reported that the effect begins",
    "late report from the old token",
    "provider accepted, then the worker dies before reporting",
    "cancel while waiting, while running, after a terminal state",
    "attempts used up",
    "deadline passes while waiting, while running, during backoff",
    "trigger repeated during backoff",
    "queue full, many producers at once",
    "the same schedule slot fired twice",
    "server fleet down over three schedule ticks",
    "retention passes",
    "server killed in the middle of a batch",
    "Postgres restarted, all its backends terminated under load",
    "connection to Postgres goes silent",
    "client vanishes during a long poll",
    "two servers, one killed",
    "subject version raised while v1 waits and runs",
    "ordering key through failure, retry, expiry, takeover",
    "one poisonous row in a batch or sweep",
    "watcher disconnects, lags, resumes",
    "commit order differs from numbering",
    "replay of a repair whose version is stale",
    "long-running snapshot pins old rows",
    "payload and result erased",
    "every nudge and NOTIFY lost",
    "Claim's transaction dies before its commit",
    "the same due row swept twice, and by two servers",
    "Leasehold away, the producer's database up",
    "a worker that ignores CANCEL",
    "BeginEffect against a raised floor, a cancel, a lost lease",
];

/// How long something took until it was whole again, and how long it may take.
#[derive(Clone, Copy)]
pub struct Recovery {
    pub took: Duration,
    pub budget: Duration,
}

static SEEN: Mutex<BTreeMap<usize, Vec<String>>> = Mutex::new(BTreeMap::new());

impl Town {
    /// This row of the matrix has held: what the task went through, how often it was handed out, and how long recovery took.
    pub async fn row_held(&self, row: usize, id: &str, recovery: Option<Recovery>) {
        let history = self.history(id).await;
        let leases = history.iter().filter(|event| event.starts_with("LEASED>")).count();
        let transitions = if history.is_empty() { "none: there is no such task".to_owned() } else { history.join(" ") };
        let recovered = recovery.map_or_else(|| "–".to_owned(), |r| format!("{:.1?} of {:.1?}", r.took, r.budget));
        told(row, format!("`{id}` | {transitions} | {} | {recovered}", leases.saturating_sub(1)));
    }
}

/// A row that is about many tasks, or none.
pub fn row_held(row: usize, what: &str, recovery: Option<Recovery>) {
    let recovered = recovery.map_or_else(|| "–".to_owned(), |r| format!("{:.1?} of {:.1?}", r.took, r.budget));
    told(row, format!("– | {what} | – | {recovered}"));
}

fn told(row: usize, line: String) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    println!("row {row} held: {line}");
    // A run behind a pooler is of a part of the tests: it would tell that the others have not run.
    if super::pooler::told().is_some() {
        return;
    }
    seen.entry(row).or_default().push(line);
    let mut text = String::from("# Failure matrix\n\nWritten by the tests, in their last run.\n\n");
    text.push_str(
        "| # | fault | task | transitions | leases beyond the first | recovery, of its budget |\n|---|---|---|---|---|---|\n",
    );
    for (row, fault) in (1..).zip(FAULTS) {
        let not_run = ["– | not run | – | –".to_owned()];
        for line in seen.get(&row).map_or(&not_run[..], Vec::as_slice) {
            writeln!(text, "| {row} | {fault} | {line} |").expect("a text can be written to");
        }
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in `target`");
    std::fs::write(target.join("failure-matrix.md"), text).expect("the report can be written");
}
