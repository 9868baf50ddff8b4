//! The results: medians, the ratio of each pair of neighbours in time, and the noise.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use super::Failure;
use super::errors::Errors;
use super::load::Load;
use super::machine::Machine;
use super::measure::{Plan, Sample};
use super::plot::{self, Panel};

#[derive(Serialize)]
pub struct Report {
    machine: Machine,
    rounds: u32,
    plan: Plan,
    load: Load,
    servers: usize,
    scenarios: Vec<Outcome>,
}

#[derive(Serialize)]
pub struct Outcome {
    scenario: String,
    /// Who is compared with whom.
    subject: String,
    peer: String,
    metrics: Vec<Metric>,
    errors: BTreeMap<String, (u64, Option<String>)>,
    panels: Vec<Panel>,
}

/// Numbers that are taken once, not in each round: of the subject and of its peer.
pub type Single = (&'static str, [f64; 2]);

#[derive(Serialize)]
struct Metric {
    name: &'static str,
    subject: Spread,
    peer: Spread,
    /// The subject's number over the peer's, of the same round.
    ratio: Spread,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
    rounds: Vec<f64>,
}

impl Spread {
    fn of(rounds: Vec<f64>) -> Spread {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (sorted.first().copied().unwrap_or(f64::NAN), sorted.last().copied().unwrap_or(f64::NAN));
        let half = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => sorted[half],
            _ => f64::midpoint(sorted[half - 1], sorted[half]),
        };
        Spread { median, min, max, rounds }
    }

    fn text(&self) -> String {
        format!("{} ({}…{})", number(self.median), number(self.min), number(self.max))
    }
}

/// Three or more digits that mean something, and no more.
fn number(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size >= 10_000.0 => format!("{:.1} k", value / 1000.0),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Outcome {
    /// `names` and `samples`: of the subject, then of its peer.
    pub fn new(scenario: impl Into<String>, names: [&str; 2], samples: &[Vec<Sample>; 2], singles: &[Single]) -> Outcome {
        let [ours, theirs] = samples;
        let values = |samples: &[Sample], name: &str| -> Vec<f64> {
            samples.iter().filter_map(|sample| sample.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)).collect()
        };
        let metrics =
            ours.first().into_iter().flatten().map(|(name, _)| Metric::new(name, values(ours, name), values(theirs, name)));
        let singles = singles.iter().map(|(name, [ours, theirs])| Metric::new(name, vec![*ours], vec![*theirs]));
        let metrics = metrics.chain(singles).collect();
        let [subject, peer] = names.map(str::to_owned);
        Outcome { scenario: scenario.into(), subject, peer, metrics, errors: BTreeMap::new(), panels: Vec::new() }
    }

    /// With the calls that failed, of the subject and of its peer.
    pub fn with_errors(mut self, [ours, theirs]: &[Errors; 2]) -> Outcome {
        let both = [(&self.subject, ours.taken()), (&self.peer, theirs.taken())];
        self.errors = both.into_iter().filter(|(_, (count, _))| *count > 0).map(|(who, taken)| (who.clone(), taken)).collect();
        self
    }

    /// The medians of two metrics: the subject's, then its peer's.
    pub fn medians(&self, names: [&str; 2]) -> [[f64; 2]; 2] {
        let of = |name: &str| self.metrics.iter().find(|metric| metric.name == name);
        let both = names.map(|name| of(name).map_or([f64::NAN; 2], |metric| [metric.subject.median, metric.peer.median]));
        [[both[0][0], both[1][0]], [both[0][1], both[1][1]]]
    }

    pub fn with_panels(mut self, panels: Vec<Panel>) -> Outcome {
        self.panels = panels;
        self
    }
}

impl Metric {
    fn new(name: &'static str, subject: Vec<f64>, peer: Vec<f64>) -> Metric {
        let ratio = subject.iter().zip(&peer).map(|(ours, theirs)| ours / theirs).collect();
        Metric { name, subject: Spread::of(subject), peer: Spread::of(peer), ratio: Spread::of(ratio) }
    }
}

impl Report {
    pub fn new(machine: Machine, rounds: u32, plan: Plan, load: Load, servers: usize) -> Report {
        Report { machine, rounds, plan, load, servers, scenarios: Vec::new() }
    }

    pub fn add(&mut self, outcome: Outcome) {
        self.scenarios.push(outcome);
    }

    pub fn finish(&mut self) {
        self.machine.finish();
    }

    pub fn errors(&self) -> u64 {
        self.scenarios.iter().flat_map(|outcome| outcome.errors.values()).map(|(count, _)| count).sum()
    }

    pub fn print(&self) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.machine.line())?;
        writeln!(
            out,
            "{} clients, {} rounds of {} s each, taking turns; {} server(s), keys {}, shares {}, caps {}; median (min…max); ratio = left / \
             right of the same round",
            self.plan.clients,
            self.rounds,
            self.plan.window.as_secs_f64(),
            self.servers,
            self.load.keys,
            self.load.shares,
            if self.load.caps { "on" } else { "off" },
        )?;
        for outcome in &self.scenarios {
            writeln!(out, "\n{:<26} {:>26} {:>26} {:>22}", outcome.scenario, outcome.subject, outcome.peer, "ratio")?;
            for metric in &outcome.metrics {
                let [ours, theirs, ratio] = [&metric.subject, &metric.peer, &metric.ratio].map(Spread::text);
                writeln!(out, "{:<26} {ours:>26} {theirs:>26} {ratio:>22}", metric.name)?;
            }
            for (who, (count, first)) in &outcome.errors {
                writeln!(out, "ERRORS: {count} calls of {who} failed, the first with: {}", first.as_deref().unwrap_or("?"))?;
            }
        }
        Ok(out.flush()?)
    }

    pub fn write_json(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text + "\n").map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(())
    }

    pub fn write_plot(&self, path: &Path) -> Result<(), Failure> {
        let panels = self.scenarios.iter().flat_map(|outcome| &outcome.panels);
        std::fs::write(path, plot::svg(panels)?).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_taken_within_each_round_before_the_median() {
        let metric = Metric::new("tasks/s", vec![10.0, 30.0, 20.0], vec![5.0, 10.0, 20.0]);
        assert_eq!((metric.subject.median, metric.peer.median, metric.ratio.median), (20.0, 10.0, 2.0));
        assert_eq!((metric.ratio.min, metric.ratio.max), (1.0, 3.0));
    }
}
