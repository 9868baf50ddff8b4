//! Overload: three times the Submits that can be carried out, into a queue that has a limit. What is refused must say when to come back; as
//! much must be finished as without the flood, leases that were lost must be found in time, and memory must stay where it is.
//!
//! First it is the workers who can't do more, because each task takes them a while, as most tasks do; callers are deaf to what they are told:
//! each call is one more task, and what is refused is gone. Then the capacity is what the machine can do, by callers who come back when they
//! were told to and keep what is due meanwhile to themselves, as a producer with an outbox does; and last by deaf ones, whose calls cost the
//! machine that it all runs on as much as before, answered or not.

mod lost;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::counters::{Meter, precise};
use super::errors::Errors;
use super::leasehold::Leasehold;
use super::measure::{Plan, Sample, line, millis, percentile};
use super::plot::{Line, Panel};
use super::report::Outcome;
use super::scenarios::{REST, task_name};
use super::site::Site;
use super::soak::capacity;
use super::{Failure, say};
use crate::api::proto as pb;
use crate::embedded::Cluster;

const QUEUE: &str = "overload";
/// Unfinished tasks that the queue accepts.
const LIMIT: u32 = 2_000;
/// What is offered, as a multiple of what can be carried out.
const OFFERED: f64 = 3.0;
/// Callers for each client of the other scenarios.
const CALLERS_PER_CLIENT: usize = 4;
/// Submits of deaf callers go out in parts, this far apart: a timer for each would be a load of its own.
const TICK: Duration = Duration::from_millis(2);
/// What a task takes a slow worker.
const SLOW_WORK: Duration = Duration::from_millis(500);
/// Nobody is sent away for longer.
const LONGEST_HINT: Duration = Duration::from_secs(10);
const WAIT: Duration = Duration::from_secs(2);
/// How often memory is looked at, and how it goes is said.
const LOOK: Duration = Duration::from_secs(1);
const TELL: u64 = 10;

/// What is counted while it goes on.
#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    completed: AtomicU64,
    over: AtomicBool,
    /// When the lease ends that was lost, by task, as if its answer had come at once; and how long it took from there to the next one.
    lost: Mutex<HashMap<String, Instant>>,
    found: Mutex<Vec<Duration>>,
}

impl Counts {
    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn found(&self) -> Vec<Duration> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.sort_unstable();
        found
    }
}

/// What callers do who were refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    ComeBack,
    Deaf,
}

/// What is due a second, by whom, and what each task takes a worker.
#[derive(Clone, Copy)]
struct Flood {
    per_second: f64,
    manner: Manner,
    takes: Duration,
}

#[derive(Clone)]
struct Crowd {
    leasehold: Leasehold,
    counts: Arc<Counts>,
    errors: Errors,
}

/// One kind of overload, and what became of it in each round.
struct Storm {
    name: &'static str,
    manner: Manner,
    takes: Duration,
    samples: Vec<Sample>,
    /// Completions and memory over time, all rounds behind one another.
    lines: [Line; 2],
}

const COMPLETED: &str = "completed/s";

impl Storm {
    fn new(name: &'static str, manner: Manner, takes: Duration) -> Storm {
        let lines = ["completed", "resident"].map(|name| Line { name: name.to_owned(), points: Vec::new() });
        Storm { name, manner, takes, samples: Vec::new(), lines }
    }

    /// What could be completed a second, where the machine completes `peak`.
    fn capacity(&self, clients: usize, peak: f64) -> Result<f64, Failure> {
        let workers = precise(i64::try_from(clients)?);
        Ok(if self.takes.is_zero() { peak } else { workers / self.takes.as_secs_f64() })
    }

    /// One round of it.
    async fn rage(&mut self, site: &Site, plan: Plan, peak: f64, time: Duration, errors: &Errors) -> Result<(), Failure> {
        let per_second = self.capacity(plan.clients, peak)? * OFFERED;
        say!("bench: {}: {per_second:.0} tasks/s are due for {} s", self.name, time.as_secs_f64());
        let flood = Flood { per_second, manner: self.manner, takes: self.takes };
        let (sample, lines) = blow(site, plan, Some(flood), time, errors).await?;
        for (whole, line) in self.lines.iter_mut().zip(lines) {
            let before = time.as_secs_f64() * precise(i64::try_from(self.samples.len())?);
            whole.points.extend(line.into_iter().map(|(second, value)| (before + second, value)));
        }
        self.samples.push(sample);
        Ok(())
    }

    /// `calm` and `peaks`: of each round, leases lost without a crowd, and what the machine completed.
    fn outcome(self, clients: usize, calm: &[Sample], peaks: &[f64]) -> Result<Outcome, Failure> {
        let mut beside = calm.to_vec();
        for (sample, peak) in beside.iter_mut().zip(peaks) {
            let capacity = self.capacity(clients, *peak)?;
            sample.iter_mut().filter(|(name, _)| *name == COMPLETED).for_each(|(_, value)| *value = capacity);
        }
        let panel =
            |what: &str, y, line| Panel { title: format!("{}: {what}", self.name), x: "s", y, log_x: false, lines: vec![line] };
        let [completions, memory] = self.lines;
        let panels = vec![panel("completions", "1/s", completions), panel("the server's memory", "MiB", memory)];
        let names = ["3 × the capacity", "the capacity, or idle"];
        Ok(Outcome::new(self.name, names, &[self.samples, beside], &[]).with_panels(panels))
    }
}

/// Each kind for `time`, divided between the rounds. The capacity is measured before and after each round: tables grow, and machines change.
pub async fn run(
    cluster: &Cluster, log: &str, meter: &mut Meter, plan: Plan, rounds: u32, time: Duration,
) -> Result<Vec<Outcome>, Failure> {
    let site = Site::open(cluster, "bench_overload", log).await?;
    let errors = Errors::default();
    let turn = time / rounds;
    let long = Plan { window: plan.window.max(turn / 8), ..plan };
    let (mut calm, mut capacities) = (Vec::new(), Vec::new());
    let mut storms = [
        Storm::new("overload, slow workers", Manner::Deaf, SLOW_WORK),
        Storm::new("overload", Manner::ComeBack, Duration::ZERO),
        Storm::new("overload, deaf callers", Manner::Deaf, Duration::ZERO),
    ];
    for round in 0..=rounds {
        // Over what a storm leaves behind, which is all that it may.
        limit(&site, LIMIT * 2).await?;
        let crowd = Crowd::new(&site, &errors);
        let lost = lost::start(crowd.clone(), site.server.address());
        let peak = capacity(&site.leasehold, QUEUE, meter, long, &errors).await?;
        crowd.ends(lost).await?;
        capacities.push(peak);
        say!("bench: overload: {peak:.0} tasks/s are possible");
        if round == rounds {
            break;
        }
        limit(&site, LIMIT).await?;
        tokio::time::sleep(REST).await;
        let [slow, crowded, deaf] = &mut storms;
        slow.rage(&site, plan, peak, turn, &errors).await?;
        calm.push(blow(&site, plan, None, turn / 4, &errors).await?.0);
        // By how fast slow workers are, callers were sent away for so long, and those who come now would be sent behind them.
        tokio::time::sleep(LONGEST_HINT.min(turn)).await;
        crowded.rage(&site, plan, peak, turn, &errors).await?;
        deaf.rage(&site, plan, peak, turn, &errors).await?;
    }
    site.findings().await?.iter().for_each(|finding| errors.note(format!("the doctor: {finding}")));
    site.close().await?;
    let peaks: Vec<f64> = capacities.windows(2).map(|both| f64::midpoint(both[0], both[1])).collect();
    // Told once, of all of it.
    let mut errors = Some([errors, Errors::default()]);
    let outcome = |storm: Storm| {
        let outcome = storm.outcome(plan.clients, &calm, &peaks)?;
        Ok(outcome.with_errors(&errors.take().unwrap_or_default()))
    };
    storms.into_iter().map(outcome).collect()
}

async fn limit(site: &Site, limit: u32) -> Result<(), Failure> {
    site.leasehold.put_queue(pb::Queue { name: QUEUE.to_owned(), max_unfinished: Some(limit), ..Default::default() }).await
}

/// Leases are lost for so long, beside all workers and a flood of so many Submits a second, if there is one. What it came to, and
/// completions and memory over time.
async fn blow(
    site: &Site, plan: Plan, flood: Option<Flood>, time: Duration, errors: &Errors,
) -> Result<(Sample, [Vec<(f64, f64)>; 2]), Failure> {
    let crowd = Crowd::new(site, errors);
    let counts = crowd.counts.clone();
    let mut others = JoinSet::new();
    if let Some(Flood { per_second, manner, takes }) = flood {
        (0..plan.clients).for_each(|client| drop(others.spawn(crowd.clone().work(client, takes))));
        let callers = plan.clients * CALLERS_PER_CLIENT;
        let interval = Duration::from_secs_f64(precise(i64::try_from(callers)?) / per_second);
        match manner {
            Manner::ComeBack => (0..callers).for_each(|caller| drop(others.spawn(crowd.clone().call(caller, interval)))),
            Manner::Deaf => drop(others.spawn(crowd.clone().flood(per_second))),
        }
    }
    let lost = lost::start(crowd.clone(), site.server.address());
    tokio::time::sleep(plan.warm_up).await;
    let begin = Instant::now();
    let read = || [&counts.completed, &counts.accepted, &counts.refused].map(|count| count.load(Ordering::Relaxed));
    let (first, mut before, mut memory) = (read(), read(), 0.0_f64);
    let mut lines = [Vec::new(), Vec::new()];
    for look in 1..=u32::try_from(time.as_secs())?.max(1) {
        tokio::time::sleep_until((begin + LOOK * look).into()).await;
        let now = read();
        let resident = site.server.memory()?;
        memory = memory.max(resident);
        for (line, value) in lines.iter_mut().zip([precise((now[0] - before[0]).cast_signed()), resident]) {
            line.push((begin.elapsed().as_secs_f64(), value));
        }
        before = now;
        if u64::from(look).is_multiple_of(TELL) {
            say!("bench: {look} of {} s: {}", time.as_secs(), line(&sample(&counts, first, now, begin.elapsed(), memory)));
        }
    }
    let sample = sample(&counts, first, read(), begin.elapsed(), memory);
    crowd.ends(lost).await?;
    while let Some(ended) = others.join_next().await {
        ended?;
    }
    Ok((sample, lines))
}

fn sample(counts: &Counts, first: [u64; 3], now: [u64; 3], time: Duration, memory: f64) -> Sample {
    let rate = |which: usize| precise((now[which] - first[which]).cast_signed()) / time.as_secs_f64();
    let found = counts.found();
    vec![
        (COMPLETED, rate(0)),
        ("accepted/s", rate(1)),
        ("refused/s", rate(2)),
        ("lost leases found", precise(i64::try_from(found.len()).unwrap_or(i64::MAX))),
        ("found after p50, ms", millis(percentile(&found, 0.50))),
        ("found after p99, ms", millis(percentile(&found, 0.99))),
        ("server, MiB", memory),
    ]
}

impl Crowd {
    fn new(site: &Site, errors: &Errors) -> Crowd {
        Crowd { leasehold: site.leasehold.clone(), counts: Arc::default(), errors: errors.clone() }
    }

    /// Its work is over, and so is that of those who lose leases.
    async fn ends(&self, lost: JoinHandle<Result<(), Failure>>) -> Result<(), Failure> {
        self.counts.over.store(true, Ordering::Relaxed);
        tokio::task::spawn_blocking(move || lost.join()).await?.map_err(|_| "whoever loses leases died")?
    }

    /// A task every so often. Who was refused comes back with it when they were told to; what is due meanwhile follows it.
    async fn call(self, client: usize, interval: Duration) {
        let mut due = tokio::time::Instant::now() + interval.mul_f64(fastrand::f64());
        while !self.counts.over() {
            tokio::time::sleep_until(due).await;
            due += interval;
            let name = task_name();
            while let Err(error) = self.leasehold.submit(client, QUEUE, name.clone()).await {
                if hint(&error).is_some() {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                }
                self.obey(error).await;
                if self.counts.over() {
                    return;
                }
            }
            self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So many Submits a second, whatever becomes of them.
    async fn flood(self, per_second: f64) {
        let (begin, mut sent) = (Instant::now(), 0_u32);
        let mut calls = JoinSet::new();
        while !self.counts.over() {
            while f64::from(sent) < begin.elapsed().as_secs_f64() * per_second {
                sent += 1;
                calls.spawn(self.clone().submit(sent as usize));
            }
            while calls.try_join_next().is_some() {}
            tokio::time::sleep(TICK).await;
        }
        calls.join_all().await;
    }

    async fn submit(self, client: usize) {
        match self.leasehold.submit(client, QUEUE, task_name()).await {
            Ok(()) => drop(self.counts.accepted.fetch_add(1, Ordering::Relaxed)),
            Err(error) if hint(&error).is_some() => drop(self.counts.refused.fetch_add(1, Ordering::Relaxed)),
            Err(error) => self.errors.note(error),
        }
    }

    /// Each task takes so long.
    async fn work(self, client: usize, takes: Duration) {
        while !self.counts.over() {
            match self.leasehold.claim(client, QUEUE, 1, Some(WAIT)).await {
                Ok(leases) => {
                    for lease in leases {
                        if !takes.is_zero() {
                            tokio::time::sleep(takes).await;
                        }
                        if self.complete(client, lease).await {
                            self.counts.completed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                Err(error) => self.obey(error).await,
            }
        }
    }

    /// Whether it was answered.
    async fn complete(&self, client: usize, lease: pb::Lease) -> bool {
        while let Err(error) = self.leasehold.complete(client, lease.clone()).await {
            if hint(&error).is_none() {
                self.errors.note(error);
                return false;
            }
            self.obey(error).await;
        }
        true
    }

    /// Comes back when it was told to.
    async fn obey(&self, error: Failure) {
        match hint(&error) {
            Some(delay) => tokio::time::sleep(delay).await,
            None => {
                self.errors.note(error);
                tokio::time::sleep(TICK).await;
            }
        }
    }
}

/// When to come back; absent: it was not refused for lack of room.
fn hint(error: &Failure) -> Option<Duration> {
    let status = error.downcast_ref::<Status>()?;
    let details = status.get_error_details();
    let full = details.error_info().is_some_and(|info| ["QUEUE_FULL", "OVERLOADED"].contains(&info.reason.as_str()));
    details.retry_info().filter(|_| full)?.retry_delay
}
