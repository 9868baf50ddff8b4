//! Closed loops: a fixed number of clients, each of whom asks again when it was answered. What falls into the window is counted,
//! the warm-up before it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Failure;
use super::counters::{Meter, Reading, precise};
use super::errors::Errors;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Plan {
    pub clients: usize,
    pub warm_up: Duration,
    pub window: Duration,
}

/// What one step of a client came to.
pub enum Step {
    /// So many tasks.
    Done(u32),
    /// There is nothing left to do: the window ends here, for everyone.
    Dry,
}

/// One subject's numbers of one round, by name.
pub type Sample = Vec<(&'static str, f64)>;

/// A round in a line, for the person who waits. What was not measured is not told.
pub fn line(sample: &Sample) -> String {
    let told = sample.iter().filter(|(_, value)| value.is_finite());
    told.map(|(name, value)| format!("{name} {value:.2}")).collect::<Vec<_>>().join(", ")
}

/// What the window held.
pub struct Measured {
    pub seconds: f64,
    /// Tasks finished within the window, and altogether.
    pub done: u64,
    pub total: u64,
    /// Of the steps within the window: when it ended, in seconds since the window began, and how long it took.
    steps: Vec<(f64, Duration)>,
    before: Reading,
    after: Reading,
}

impl Measured {
    pub fn sample(&self) -> Sample {
        let done = precise(self.done.max(1).cast_signed());
        let mut latencies: Vec<Duration> = self.steps.iter().map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        let mut sample = vec![
            ("tasks/s", done / self.seconds),
            ("step p50, ms", millis(percentile(&latencies, 0.50))),
            ("step p99, ms", millis(percentile(&latencies, 0.99))),
        ];
        sample.extend(self.after.each(self.before, done));
        sample
    }

    /// Latencies over time, in milliseconds.
    pub fn over_time(&self) -> impl Iterator<Item = (f64, f64)> {
        self.steps.iter().map(|(at, latency)| (*at, millis(*latency)))
    }

    pub fn per_second(&self) -> f64 {
        precise(self.done.cast_signed()) / self.seconds
    }
}

/// Of sorted values; zero if there are none.
pub fn percentile(sorted: &[Duration], part: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an index into a Vec")]
    let index = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(index.saturating_sub(1)).or(sorted.last()).copied().unwrap_or_default()
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

const WARM: u8 = 0;
const COUNTED: u8 = 1;
const OVER: u8 = 2;

struct Shared {
    phase: AtomicU8,
    dry: Notify,
    errors: Errors,
}

/// Runs `step` with the number of its client, over and over.
pub async fn closed_loop<F, Fut>(meter: &mut Meter, errors: &Errors, plan: Plan, step: F) -> Result<Measured, Failure>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<Step, Failure>> + Send + 'static,
{
    let shared = Arc::new(Shared { phase: AtomicU8::new(WARM), dry: Notify::new(), errors: errors.clone() });
    let mut clients = JoinSet::new();
    for number in 0..plan.clients {
        clients.spawn(client(number, step.clone(), shared.clone()));
    }
    tokio::time::sleep(plan.warm_up).await;
    let before = meter.read().await?;
    let begin = Instant::now();
    shared.phase.store(COUNTED, Ordering::Relaxed);
    drop(tokio::time::timeout(plan.window, shared.dry.notified()).await);
    shared.phase.store(OVER, Ordering::Relaxed);
    let seconds = begin.elapsed().as_secs_f64();
    let after = meter.read().await?;
    let (mut done, mut total, mut steps) = (0, 0, Vec::new());
    while let Some(told) = clients.join_next().await {
        let told = told?;
        done += told.done;
        total += told.total;
        steps.extend(told.steps.iter().map(|(at, took)| (at.saturating_duration_since(begin).as_secs_f64(), *took)));
    }
    Ok(Measured { seconds, done, total, steps, before, after })
}

#[derive(Default)]
struct Told {
    done: u64,
    total: u64,
    steps: Vec<(Instant, Duration)>,
}

async fn client<F, Fut>(number: usize, step: F, shared: Arc<Shared>) -> Told
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<Step, Failure>>,
{
    let mut told = Told::default();
    while shared.phase.load(Ordering::Relaxed) != OVER {
        let begin = Instant::now();
        match step(number).await {
            Ok(Step::Done(tasks)) => {
                told.total += u64::from(tasks);
                if shared.phase.load(Ordering::Relaxed) == COUNTED {
                    told.done += u64::from(tasks);
                    told.steps.push((Instant::now(), begin.elapsed()));
                }
            }
            Ok(Step::Dry) => {
                shared.dry.notify_one();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => {
                shared.errors.note(error);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|part| percentile(&times, part).as_millis()), [50, 95, 99, 100]);
        assert_eq!((percentile(&[], 0.5), percentile(&times[..1], 0.99)), (Duration::ZERO, times[0]));
    }
}
