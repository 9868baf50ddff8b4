//! Cliffs: what might make claims slow where there is much of it. Each case grows in a database of its own to 1 %, 10 % and all of its
//! size; a second database with a thousandth of it (at least one) is measured in turns, so the ratios are of the same minute. The small one
//! stays as it is, so the steps are 10 ×, 100 × and 1,000 ×.
//!
//! Cases whose size is a time or a load (`timeline`) compare the moments before with those during and after.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use super::counters::precise;
use super::errors::Errors;
use super::fill::{Filler, Lying, READY};
use super::load::Load;
use super::measure::{Plan, Sample, line};
use super::plot::{Line, Panel};
use super::report::Outcome;
use super::scenarios::REST;
use super::site::Site;
use super::{Failure, paced, say, timeline};
use crate::embedded::Cluster;

pub const QUEUE: &str = "cliff";
/// The queue whose few tasks the sessions' plans are made for.
const FEW: &str = "few";
/// Tasks of each share that is at its cap, beside the one that is leased.
const BEHIND_A_CAP: usize = 100;
/// READY tasks of each of many shares.
const OF_A_SHARE: usize = 10;
/// Unfinished tasks that are due later, for each so many finished ones.
const FINISHED_PER_FUTURE: usize = 10;
/// Cycles on the queue with few tasks: 20 for each of the server's connections, and more.
const PLAN_CYCLES: f64 = 600.0;
/// Up to this size the doctor looks.
pub const EXAMINED: u64 = 1_000;
/// Rows that are there when the statistics are frozen.
const ALMOST_EMPTY: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Tasks that are BLOCKED behind one ordering key.
    Blocked,
    /// READY tasks in one share.
    Ready,
    /// Shares with ten READY tasks each.
    Shares,
    /// Shares at their cap, with a hundred READY tasks behind it; the measured tasks belong to another one.
    Capped,
    /// Finished tasks, and a tenth as many that are due tomorrow.
    Finished,
    /// READY tasks that came after the statistics were frozen on an almost empty database.
    Frozen,
    /// READY tasks, met by sessions whose plans were made for a queue with few.
    Skewed,
    /// Seconds under a snapshot that somebody holds.
    Pinned,
    /// Finished tasks that retention forgets meanwhile.
    Retention,
}

impl Case {
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    fn usual_size(self) -> u64 {
        match self {
            Case::Blocked | Case::Frozen | Case::Skewed | Case::Retention => 100_000,
            Case::Ready => 1_000_000,
            Case::Shares => 10_000,
            Case::Capped => 1_000,
            Case::Finished => 10_000_000,
            Case::Pinned => 60,
        }
    }
}

/// A case and how large it grows.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub case: Case,
    pub size: u64,
}

impl Target {
    pub fn usual(case: Case) -> Target {
        Target { case, size: case.usual_size() }
    }
}

impl FromStr for Target {
    type Err = String;

    /// `case` or `case=size`.
    fn from_str(text: &str) -> Result<Target, String> {
        let (name, size) = text.split_once('=').map_or((text, None), |(name, size)| (name, Some(size)));
        let case = Case::from_str(name, false).map_err(|_| {
            let names: Vec<String> = Case::value_variants().iter().map(|case| case.name()).collect();
            format!("no such case; there are {}", names.join(", "))
        })?;
        let size = size.map_or(Ok(case.usual_size()), |size| size.replace('_', "").parse::<u64>());
        size.ok().filter(|size| *size > 0).map(|size| Target { case, size }).ok_or("its size is a number above 0".into())
    }
}

/// What all cases are measured with.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    pub cluster: &'a Cluster,
    pub log: &'a str,
    pub plan: Plan,
    pub rounds: u32,
    /// Cycles a second.
    pub pace: f64,
}

pub async fn run(means: Means<'_>, target: Target) -> Result<Vec<Outcome>, Failure> {
    match target.case {
        Case::Pinned => timeline::pinned(means, target.size).await,
        Case::Retention => timeline::retention(means, target.size).await,
        _ => grow(means, target).await,
    }
}

async fn grow(means: Means<'_>, target: Target) -> Result<Vec<Outcome>, Failure> {
    let least = (target.size / 1_000).max(1);
    let mut small = Place::open(means, "bench_small", target.case).await?;
    let mut large = Place::open(means, "bench_large", target.case).await?;
    small.grow(least).await?;
    let mut outcomes = Vec::new();
    let mut lines = ["claim p50", "claim p99", "claim p50, small", "claim p99, small"]
        .map(|name| Line { name: name.to_owned(), points: Vec::new() });
    for size in [target.size / 100, target.size / 10, target.size].into_iter().filter(|size| *size > least) {
        large.grow(size).await?;
        let errors: [Errors; 2] = Default::default();
        large.examine(&errors[0]).await?;
        small.examine(&errors[1]).await?;
        let mut samples: [Vec<Sample>; 2] = Default::default();
        for round in 0..means.rounds {
            for turn in 0..2 {
                let side = usize::from(turn == round % 2);
                let place = if side == 0 { &large } else { &small };
                let sample = place.measure(means, &errors[side]).await?;
                say!("bench: {} {}, round {}/{}: {}", target.case.name(), place.size, round + 1, means.rounds, line(&sample));
                samples[side].push(sample);
                tokio::time::sleep(REST.min(means.plan.window)).await;
            }
        }
        let names = [format!("{} {size}", target.case.name()), format!("{} {least}", target.case.name())];
        let title = format!("cliff {}, {} ×", target.case.name(), size / least);
        let outcome = Outcome::new(title, names.each_ref().map(String::as_str), &samples, &[]).with_errors(&errors);
        for (line, value) in lines.iter_mut().zip(outcome.medians(["claim p50, ms", "claim p99, ms"]).into_iter().flatten()) {
            line.points.push((precise(i64::try_from(size)?), value));
        }
        outcomes.push(outcome);
    }
    small.site.close().await?;
    large.site.close().await?;
    let panel = Panel { title: format!("cliff {}", target.case.name()), x: "size", y: "ms", log_x: true, lines: lines.into() };
    if let Some(last) = outcomes.pop() {
        outcomes.push(last.with_panels(vec![panel]));
    }
    Ok(outcomes)
}

/// A database that grows in one respect.
struct Place {
    site: Site,
    case: Case,
    size: u64,
}

impl Place {
    async fn open(means: Means<'_>, name: &'static str, case: Case) -> Result<Place, Failure> {
        let mut site = Site::open(means.cluster, name, means.log).await?;
        let mut filler = Filler::open(&mut site.sql, QUEUE).await?;
        match case {
            // The head keeps the key until tomorrow.
            Case::Blocked => filler.unfinished(Lying { state: "SCHEDULED", key: "busy", ..TOMORROW }, 1).await?,
            Case::Frozen => {
                filler.unfinished(READY, ALMOST_EMPTY).await?;
                filler.finished(ALMOST_EMPTY, 0.0).await?;
                site.freeze().await?;
            }
            _ => {}
        }
        Ok(Place { site, case, size: 0 })
    }

    /// The doctor reads everything, so it is asked while there is little: what was laid in must be what a server would have written.
    async fn examine(&self, errors: &Errors) -> Result<(), Failure> {
        if self.size <= EXAMINED {
            self.site.findings().await?.iter().for_each(|finding| errors.note(format!("the doctor: {finding}")));
        }
        Ok(())
    }

    /// Lays in what is missing.
    async fn grow(&mut self, size: u64) -> Result<(), Failure> {
        say!("bench: filling {} up to {size}", self.case.name());
        let more = usize::try_from(size - self.size)?;
        let mut filler = Filler::open(&mut self.site.sql, QUEUE).await?;
        match self.case {
            Case::Blocked => filler.unfinished(Lying { state: "BLOCKED", key: "busy", ..READY }, more).await?,
            Case::Shares => {
                filler.shares(size, None).await?;
                let lacking = usize::try_from(size)? * OF_A_SHARE - usize::try_from(self.size)? * OF_A_SHARE;
                filler.unfinished(Lying { shares: size, ..READY }, lacking).await?;
            }
            Case::Capped => {
                filler.shares(size, Some(1)).await?;
                filler.unfinished(Lying { shares: size, ..READY }, more * (BEHIND_A_CAP + 1)).await?;
                while self.site.leasehold.hold(QUEUE).await? > 0 {}
            }
            Case::Finished => {
                filler.finished(more, 1.0).await?;
                filler.unfinished(TOMORROW, more.div_ceil(FINISHED_PER_FUTURE)).await?;
            }
            _ => filler.unfinished(READY, more).await?,
        }
        self.size = size;
        if self.case != Case::Frozen {
            self.site.settle().await?;
        }
        if self.case == Case::Skewed {
            self.site.restart().await?;
            let cycles = Duration::from_secs_f64(PLAN_CYCLES / 200.0);
            paced::run(&self.site.leasehold, FEW, 200.0, cycles, &Errors::default()).await;
        }
        Ok(())
    }

    async fn measure(&self, means: Means<'_>, errors: &Errors) -> Result<Sample, Failure> {
        let shares = if self.case == Case::Shares { self.size } else { 0 };
        let leasehold = self.site.leasehold.with_load(Load { shares, ..Load::default() });
        let cycles = paced::run(&leasehold, QUEUE, means.pace, means.plan.warm_up + means.plan.window, errors).await;
        let warm = means.plan.warm_up.as_secs_f64();
        let measured = cycles.iter().filter(|cycle| cycle.at >= warm);
        if measured.clone().next().is_none() {
            return Err("no cycle came through".into());
        }
        Ok(paced::sample(measured))
    }
}

const TOMORROW: Lying<'_> = Lying { state: "SCHEDULED", starts_in_seconds: Some(43_200.0), ..READY };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_told_with_its_size_or_has_its_usual_one() {
        let target = |text: &str| text.parse::<Target>().map(|target| (target.case, target.size));
        assert_eq!(target("ready=5_000"), Ok((Case::Ready, 5_000)));
        assert_eq!(target("pinned"), Ok((Case::Pinned, 60)));
        assert!(target("ready=0").is_err() && target("ready=many").is_err() && target("steady").is_err());
    }
}
