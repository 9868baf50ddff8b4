//! What was seen of a run: figures in `target/chaos.md`, and where it broke a promise everything, in `target/chaos-<seed>.txt`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::faults::Injected;
use super::history::{History, Micros, Said, What};
use super::rows::Rows;

/// The runs of this process so far.
static RUNS: Mutex<String> = Mutex::new(String::new());

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in `target`").to_owned()
}

pub fn write(seed: u64, history: &History, rows: &Rows, injected: &[Injected], broken: &[String]) {
    let text = section(seed, history, rows, injected, broken);
    println!("{text}");
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    runs.push_str(&text);
    let whole = format!("# Chaos\n\nWritten by the tests, in their last run.\n\n{runs}");
    std::fs::write(target().join("chaos.md"), whole).expect("the report can be written");
    if !broken.is_empty() {
        let everything = format!("{}\n\n{injected:#?}\n\n{history:#?}\n\n{rows:#?}\n", broken.join("\n"));
        std::fs::write(target().join(format!("chaos-{seed}.txt")), everything).expect("the history can be written");
    }
}

/// The table of recoveries.
pub fn write_cells(table: &str) {
    std::fs::write(target().join("chaos-cells.md"), format!("# Recoveries\n\n{table}")).expect("the report can be written");
}

fn count<K: Ord>(of: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    of.for_each(|one| *counts.entry(one).or_insert(0) += 1);
    counts
}

fn line<K: AsRef<str>>(title: &str, counts: &BTreeMap<K, usize>) -> String {
    let told: Vec<String> = counts.iter().map(|(what, count)| format!("{} {count}", what.as_ref())).collect();
    format!("- {title}: {} ({})\n", counts.values().sum::<usize>(), told.join(", "))
}

fn section(seed: u64, history: &History, rows: &Rows, injected: &[Injected], broken: &[String]) -> String {
    let mut text = format!("## Seed {seed}: {} violations\n\n", broken.len());
    text += &line("faults injected", &count(injected.iter().map(|fault| fault.kind.name())));
    let broken_for: Micros = injected.iter().map(|fault| fault.end - fault.begin).sum();
    writeln!(text, "- something was broken for {} s", broken_for / 1_000_000).expect("a text can be written to");
    text += &line("calls made", &count(history.calls.iter().map(|call| call.what.kind())));
    let told = |call: &super::history::Call| match call.what.told() {
        ("no", Some(reason)) => format!("no: {reason}"),
        (told, _) => told.to_owned(),
    };
    text += &line("what was said", &count(history.calls.iter().map(told)));
    let ended = rows.standings.iter().filter(|standing| !standing.live);
    let state = |cause: &str, state: &str| if cause.is_empty() { state.to_owned() } else { format!("{state}/{cause}") };
    text += &line("tasks ended", &count(ended.map(|standing| state(&standing.cause, &standing.state))));
    text += &line("tasks that wait for a repair", &count(rows.standings.iter().filter(|s| s.live).map(|s| s.state.clone())));
    text += &line(
        "attempts",
        &count(rows.events.iter().filter(|e| !e.outcome.is_empty() && e.kind != "LATE_REPORT").map(|e| e.outcome.clone())),
    );
    let mut recoveries = recoveries(history, injected);
    recoveries.sort_unstable();
    let at = |part: usize| recoveries.get((recoveries.len() * part / 100).min(recoveries.len().saturating_sub(1)));
    if let (Some(half), Some(most), Some(worst)) = (at(50), at(99), recoveries.last()) {
        writeln!(
            text,
            "- recovery (from a fault's end to the next accepted Complete): p50 {half} ms, p99 {most} ms, worst {worst} ms"
        )
        .expect("a text can be written to");
    }
    text + "\n"
}

/// From each fault's end to the next Complete that was accepted, in milliseconds.
fn recoveries(history: &History, injected: &[Injected]) -> Vec<Micros> {
    let accepted = history.calls.iter().filter(|call| matches!(&call.what, What::Complete { said: Said::Yes(()), .. }));
    let moments: Vec<Micros> = accepted.map(|call| call.after).collect();
    let next = |end: Micros| moments.iter().find(|moment| **moment > end).map(|moment| (moment - end) / 1_000);
    injected.iter().filter_map(|fault| next(fault.end)).collect()
}
