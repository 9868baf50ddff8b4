//! Cycles at a fixed pace: each submits a task, claims one and completes it, whether earlier cycles are through or not. So what lies in
//! the queue stays as much as it was, and no stall hides itself by delaying the next cycle.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::errors::Errors;
use super::leasehold::Leasehold;
use super::measure::{Sample, line, millis, percentile};
use super::plot::{Line, over_time};
use super::scenarios::task_name;
use super::{Failure, say};

/// How long a claim may wait for a task: there is one for each cycle.
const WAIT: Duration = Duration::from_secs(10);
/// How often it is said how far it is.
const TELL: Duration = Duration::from_secs(10);

/// What one cycle took, in milliseconds.
#[derive(Clone, Copy)]
pub struct Cycle {
    /// When it was due, in seconds since the first one.
    pub at: f64,
    submit: f64,
    claim: f64,
    complete: f64,
}

/// Runs for `time`, `pace` cycles a second.
pub async fn run(leasehold: &Leasehold, queue: &str, pace: f64, time: Duration, errors: &Errors) -> Vec<Cycle> {
    let begin = Instant::now();
    let (mut running, mut cycles, mut told) = (JoinSet::new(), Vec::new(), begin);
    for number in 0_u32.. {
        let at = f64::from(number) / pace;
        let due = begin + Duration::from_secs_f64(at);
        if due >= begin + time {
            break;
        }
        tokio::time::sleep_until(due.into()).await;
        let (leasehold, queue, errors) = (leasehold.clone(), queue.to_owned(), errors.clone());
        running
            .spawn(async move { cycle(leasehold, queue, number as usize, at).await.inspect_err(|error| errors.note(error)).ok() });
        while let Some(ended) = running.try_join_next() {
            cycles.extend(ended.ok().flatten());
        }
        if told.elapsed() > TELL {
            told = Instant::now();
            let sample = sample(cycles.iter().filter(|cycle| cycle.at > at - TELL.as_secs_f64()));
            say!("bench: {at:.0} of {} s: {}", time.as_secs(), line(&sample));
        }
    }
    while let Some(ended) = running.join_next().await {
        cycles.extend(ended.ok().flatten());
    }
    cycles
}

async fn cycle(leasehold: Leasehold, queue: String, client: usize, at: f64) -> Result<Cycle, Failure> {
    let begin = Instant::now();
    leasehold.submit(client, &queue, task_name()).await?;
    let submitted = Instant::now();
    let lease = leasehold.claim(client, &queue, 1, Some(WAIT)).await?.pop().ok_or("a claim came back empty")?;
    let claimed = Instant::now();
    leasehold.complete(client, lease).await?;
    Ok(Cycle { at, submit: millis(submitted - begin), claim: millis(claimed - submitted), complete: millis(claimed.elapsed()) })
}

pub fn sample<'a>(cycles: impl Iterator<Item = &'a Cycle>) -> Sample {
    let cycles: Vec<&Cycle> = cycles.collect();
    let part = |of: fn(&Cycle) -> f64, part: f64| {
        let mut times: Vec<Duration> = cycles.iter().map(|cycle| Duration::from_secs_f64(of(cycle) / 1e3)).collect();
        times.sort_unstable();
        millis(percentile(&times, part))
    };
    vec![
        ("claim p50, ms", part(|cycle| cycle.claim, 0.50)),
        ("claim p99, ms", part(|cycle| cycle.claim, 0.99)),
        ("submit p50, ms", part(|cycle| cycle.submit, 0.50)),
        ("submit p99, ms", part(|cycle| cycle.submit, 0.99)),
        ("complete p50, ms", part(|cycle| cycle.complete, 0.50)),
        ("complete p99, ms", part(|cycle| cycle.complete, 0.99)),
    ]
}

/// Claims and completions over time.
pub fn lines(cycles: &[Cycle]) -> Vec<Line> {
    let claims = over_time("claim", cycles.iter().map(|cycle| (cycle.at, cycle.claim)));
    let completions = over_time("complete", cycles.iter().map(|cycle| (cycle.at, cycle.complete)));
    claims.into_iter().chain(completions).collect()
}
