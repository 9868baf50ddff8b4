//! Overload: three times the Submits that can be carried out, into a queue that has a limit. What is refused must say when to come back; as
//! much must be finished as without the flood, leases that were lost must be found in time, and memory must stay where it is.
//!
//! First by callers who come back when they were told to and keep what is due meanwhile to themselves, as a producer with an outbox does;
//! then by callers who are deaf to all that: each call is one more task, and what is refused is gone. Their calls cost the machine that it
//! all runs on as much as before, answered or not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Status;
use tonic_types::StatusExt as _;

use super::counters::{Meter, precise};
use super::errors::Errors;
use super::leasehold::{Leasehold, pb_duration, task_id};
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
/// Where leases are lost.
const LOST: &str = "overload-lost";
/// Unfinished tasks that the queue accepts.
const LIMIT: u32 = 2_000;
/// What is offered, as a multiple of what can be carried out.
const OFFERED: f64 = 3.0;
/// Callers for each client of the other scenarios.
const CALLERS_PER_CLIENT: usize = 4;
/// Submits of deaf callers go out in parts, this far apart: a timer for each would be a load of its own.
const TICK: Duration = Duration::from_millis(2);
/// Leases that are lost each second, how long they are, and who waits for those tasks to come back.
const LOST_PER_SECOND: u32 = 20;
const LOST_LEASE: Duration = Duration::from_secs(1);
const FINDERS: usize = 4;
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

#[derive(Clone)]
struct Crowd {
    leasehold: Leasehold,
    counts: Arc<Counts>,
    errors: Errors,
}

pub async fn run(cluster: &Cluster, log: &str, meter: &mut Meter, plan: Plan, time: Duration) -> Result<Vec<Outcome>, Failure> {
    let site = Site::open(cluster, "bench_overload", log).await?;
    let errors = Errors::default();
    let limited = |limit| pb::Queue { name: QUEUE.to_owned(), max_unfinished: Some(limit), ..Default::default() };
    site.leasehold.put_queue(limited(LIMIT)).await?;
    let long = Plan { window: plan.window.max(time / 8), ..plan };
    let before = capacity(&site.leasehold, QUEUE, meter, long, &errors).await?;
    tokio::time::sleep(REST).await;
    say!("bench: overload: {before:.0} tasks/s are possible; losing leases of an idle server for {} s", (time / 4).as_secs_f64());
    let (mut calm, _) = storm(&site, plan, None, time / 4, &errors).await?;
    let due = before * OFFERED;
    let mut storms = Vec::new();
    for (name, manner) in [("overload", Manner::ComeBack), ("overload, deaf callers", Manner::Deaf)] {
        say!("bench: {name}: {due:.0} tasks/s are due for {} s", time.as_secs());
        storms.push((name, storm(&site, plan, Some((due, manner)), time, &errors).await?));
    }
    // The tables have grown meanwhile, and the queue is full still.
    site.leasehold.put_queue(limited(LIMIT * 2)).await?;
    let after = capacity(&site.leasehold, QUEUE, meter, long, &errors).await?;
    say!("bench: overload: {after:.0} tasks/s are possible now");
    let peak = f64::midpoint(before, after);
    calm.iter_mut().filter(|(name, _)| *name == COMPLETED).for_each(|(_, value)| *value = peak);
    site.findings().await?.iter().for_each(|finding| errors.note(format!("the doctor: {finding}")));
    site.close().await?;
    let mut errors = Some([errors, Errors::default()]);
    let outcome = |(name, (crowded, [completions, memory])): (&str, (Sample, [Line; 2]))| {
        let panel =
            |what: &str, y, line: Line| Panel { title: format!("{name}: {what}"), x: "s", y, log_x: false, lines: vec![line] };
        let panels = vec![panel("completions", "1/s", completions), panel("the server's memory", "MiB", memory)];
        let outcome = Outcome::new(name, ["3 × the capacity", "the capacity, or idle"], &[vec![crowded], vec![calm.clone()]], &[]);
        // Told once, of all of it.
        outcome.with_errors(&errors.take().unwrap_or_default()).with_panels(panels)
    };
    Ok(storms.into_iter().map(outcome).collect())
}

const COMPLETED: &str = "completed/s";

/// Leases are lost for so long, beside all workers and a flood of so many Submits a second, if there is one. What it came to, and
/// completions and memory over time.
async fn storm(
    site: &Site, plan: Plan, flood: Option<(f64, Manner)>, time: Duration, errors: &Errors,
) -> Result<(Sample, [Line; 2]), Failure> {
    let crowd = Crowd { leasehold: site.leasehold.clone(), counts: Arc::default(), errors: errors.clone() };
    let counts = crowd.counts.clone();
    let mut others = JoinSet::new();
    if let Some((per_second, manner)) = flood {
        (0..plan.clients).for_each(|client| drop(others.spawn(crowd.clone().work(client))));
        let callers = plan.clients * CALLERS_PER_CLIENT;
        let interval = Duration::from_secs_f64(precise(i64::try_from(callers)?) / per_second);
        match manner {
            Manner::ComeBack => (0..callers).for_each(|caller| drop(others.spawn(crowd.clone().call(caller, interval)))),
            Manner::Deaf => drop(others.spawn(crowd.clone().flood(per_second))),
        }
    }
    (0..FINDERS).for_each(|client| drop(others.spawn(crowd.clone().find(client))));
    others.spawn(crowd.clone().lose());
    tokio::time::sleep(plan.warm_up).await;
    let begin = Instant::now();
    let read = || [&counts.completed, &counts.accepted, &counts.refused].map(|count| count.load(Ordering::Relaxed));
    let (first, mut before, mut memory) = (read(), read(), 0.0_f64);
    let mut lines = ["completed", "resident"].map(|name| Line { name: name.to_owned(), points: Vec::new() });
    for look in 1..=u32::try_from(time.as_secs())?.max(1) {
        tokio::time::sleep_until((begin + LOOK * look).into()).await;
        let now = read();
        let resident = site.server.memory()?;
        memory = memory.max(resident);
        for (line, value) in lines.iter_mut().zip([precise((now[0] - before[0]).cast_signed()), resident]) {
            line.points.push((begin.elapsed().as_secs_f64(), value));
        }
        before = now;
        if u64::from(look).is_multiple_of(TELL) {
            say!("bench: {look} of {} s: {}", time.as_secs(), line(&sample(&counts, first, now, begin.elapsed(), memory)));
        }
    }
    let sample = sample(&counts, first, read(), begin.elapsed(), memory);
    counts.over.store(true, Ordering::Relaxed);
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

    async fn work(self, client: usize) {
        while !self.counts.over() {
            match self.leasehold.claim(client, QUEUE, 1, Some(WAIT)).await {
                Ok(leases) => {
                    for lease in leases {
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

    /// Submits what will be claimed and forgotten.
    async fn lose(self) {
        let at_once = Some(prost_types::Duration::default());
        let retry = pb::RetryPolicy { initial_backoff: at_once, max_backoff: at_once, ..Default::default() };
        while !self.counts.over() {
            let spec = pb::TaskSpec { retry: Some(retry), ..self.leasehold.spec(LOST, task_name()) };
            if let Err(error) = self.leasehold.submit_spec(0, spec).await {
                self.obey(error).await;
            }
            tokio::time::sleep(Duration::from_secs(1) / LOST_PER_SECOND).await;
        }
    }

    /// Leases for one worker, who forgets each task once and completes it when it comes back. One worker that is silent is no stalled fleet.
    async fn find(self, client: usize) {
        let request = pb::ClaimRequest {
            queue: LOST.to_owned(),
            worker_id: "forgetful".into(),
            max_tasks: Some(1),
            wait: pb_duration(WAIT).ok(),
            lease_duration: pb_duration(LOST_LEASE).ok(),
            ..Default::default()
        };
        while !self.counts.over() {
            let leases = match self.leasehold.claim_with(client, request.clone()).await {
                Ok(leases) => leases,
                Err(error) => {
                    self.obey(error).await;
                    continue;
                }
            };
            for lease in leases {
                let now = Instant::now();
                let name = task_id(&lease);
                let ended = self.counts.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                if let Some(ended) = ended {
                    let took = now.saturating_duration_since(ended);
                    self.counts.found.lock().unwrap_or_else(PoisonError::into_inner).push(took);
                    self.complete(client, lease).await;
                } else if let Some(remaining) = lease.remaining.and_then(|span| Duration::try_from(span).ok()) {
                    self.counts.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(name, now + remaining);
                }
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
