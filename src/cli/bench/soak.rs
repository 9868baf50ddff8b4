//! Soak: a part of what the machine can do, for long. Latencies, tables and memory must stay where they are, and the doctor must find
//! nothing at the end.

use std::time::{Duration, Instant};

use super::counters::{Meter, precise};
use super::errors::Errors;
use super::leasehold::Leasehold;
use super::measure::{Plan, Sample, closed_loop};
use super::paced::{self, Cycle};
use super::plot::{Line, Panel};
use super::report::{Outcome, Single};
use super::scenarios::REST;
use super::site::Site;
use super::{Failure, say};
use crate::embedded::Cluster;

const QUEUE: &str = "soak";
/// Looks at tables and memory.
const LOOKS: u32 = 120;
const MIB: f64 = 1_048_576.0;
/// The first and the last part are compared.
const PART: f64 = 0.2;

/// How large things were at a moment.
#[derive(Clone, Copy, Default)]
struct Size {
    at: f64,
    live: f64,
    whole: f64,
    lying: f64,
    server: f64,
}

/// `share`: of the capacity that is found first.
pub async fn run(
    cluster: &Cluster, log: &str, meter: &mut Meter, plan: Plan, share: f64, time: Duration,
) -> Result<Outcome, Failure> {
    let mut site = Site::open(cluster, "bench_soak", log).await?;
    let errors = Errors::default();
    let capacity = capacity(&site.leasehold, QUEUE, meter, plan, &errors).await?;
    let pace = capacity * share;
    say!("bench: soak: {capacity:.0} tasks/s are possible; {pace:.0} for {} s", time.as_secs());
    tokio::time::sleep(REST).await;
    let Site { leasehold, sql, server, .. } = &mut site;
    let begin = Instant::now();
    let mut sizes = Vec::new();
    let look = async {
        for look in 0..=LOOKS {
            tokio::time::sleep_until((begin + time * look / LOOKS).into()).await;
            let row = sqlx::query_as(include_str!("sql/sizes.sql")).fetch_one(&mut *sql).await?;
            let (live, whole, lying): (i64, i64, i64) = row;
            let (live, whole) = (precise(live) / MIB, precise(whole) / MIB);
            sizes.push(Size { at: begin.elapsed().as_secs_f64(), live, whole, lying: precise(lying), server: server.memory()? });
        }
        Ok::<(), Failure>(())
    };
    let (cycles, looked) = tokio::join!(paced::run(leasehold, QUEUE, pace, time, &errors), look);
    looked?;
    say!("bench: soak: asking the doctor");
    let findings = site.findings().await?;
    findings.iter().for_each(|finding| errors.note(format!("the doctor: {finding}")));
    let found = precise(i64::try_from(findings.len())?);
    let singles = [("tasks/s asked and possible", [pace, capacity]), ("findings of the doctor", [found, f64::NAN])];
    let outcome = outcome(&cycles, &sizes, time, &singles).with_errors(&[errors, Errors::default()]);
    site.close().await?;
    Ok(outcome)
}

/// Whole cycles a second with all clients.
pub async fn capacity(
    leasehold: &Leasehold, queue: &'static str, meter: &mut Meter, plan: Plan, errors: &Errors,
) -> Result<f64, Failure> {
    let leasehold = leasehold.clone();
    let step = move |client| {
        let leasehold = leasehold.clone();
        async move { leasehold.cycle(client, queue).await }
    };
    Ok(closed_loop(meter, errors, plan, step).await?.per_second().max(1.0))
}

fn outcome(cycles: &[Cycle], sizes: &[Size], time: Duration, singles: &[Single]) -> Outcome {
    let end = time.as_secs_f64();
    let part = |from: f64, until: f64| -> Vec<Sample> {
        let mut sample = paced::sample(cycles.iter().filter(|cycle| (from..until).contains(&cycle.at)));
        let within: Vec<&Size> = sizes.iter().filter(|size| (from..until).contains(&size.at)).collect();
        let most = |of: fn(&Size) -> f64| within.iter().map(|size| of(size)).fold(0.0, f64::max);
        sample.extend([
            ("live tasks, MiB", most(|size| size.live)),
            ("dead rows lying", most(|size| size.lying)),
            ("database, MiB", most(|size| size.whole)),
            ("server, MiB", most(|size| size.server)),
        ]);
        vec![sample]
    };
    let samples = [part(end * (1.0 - PART), end), part(0.0, end * PART)];
    let line = |name: &str, of: fn(&Size) -> f64| Line {
        name: name.to_owned(),
        points: sizes.iter().map(|size| (size.at, of(size))).collect(),
    };
    let panel = |title: &str, y, lines| Panel { title: title.to_owned(), x: "s", y, log_x: false, lines };
    Outcome::new("soak", ["last fifth", "first fifth"], &samples, singles).with_panels(vec![
        panel("soak", "ms", paced::lines(cycles)),
        panel("soak: memory and table", "MiB", vec![line("server", |s| s.server), line("live tasks", |s| s.live)]),
        panel("soak: dead rows", "rows", vec![line("lying", |s| s.lying)]),
    ])
}
