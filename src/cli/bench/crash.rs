//! Crash: Postgres and all its processes are killed under full load, as often as there are rounds, and started again. Then every answer
//! that was given is called in. First plainly; then with shares and caps, where claims commit without waiting for the disk.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::counters::precise;
use super::errors::Errors;
use super::lab::{self, Folder};
use super::leasehold::{Leasehold, task_id};
use super::load::Load;
use super::measure::{Plan, Sample, line};
use super::processes::children;
use super::report::Outcome;
use super::scenarios::task_name;
use super::site::Site;
use super::{Failure, say};
use crate::embedded::{Cluster, Options};

const QUEUE: &str = "crash";
const SHARES: u64 = 8;
/// How long a claim waits, and a client whose call failed.
const WAIT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
/// How long the server may take to work again.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients were told.
#[derive(Default)]
struct Told {
    submitted: Mutex<HashSet<String>>,
    /// Task and token.
    leased: Mutex<HashSet<String>>,
    completed: Mutex<HashSet<String>>,
    /// Reports that were refused although their lease had been told and lasted.
    refused: AtomicU64,
    failed: AtomicU64,
    over: AtomicBool,
}

fn held(names: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    fn ends(&self) -> usize {
        held(&self.completed).len()
    }

    async fn until_more_ends(&self, more: usize) -> Result<(), Failure> {
        let (goal, begin) = (self.ends() + more, Instant::now());
        while self.ends() < goal {
            if begin.elapsed() > PATIENCE {
                return Err(format!("nothing was completed for {PATIENCE:?}").into());
            }
            tokio::time::sleep(PAUSE / 4).await;
        }
        Ok(())
    }
}

pub async fn run(folder: &Folder, log: &str, plan: Plan, rounds: u32) -> Result<Vec<Outcome>, Failure> {
    let options = lab::options(folder, "crash", u32::try_from(plan.clients)?, 1);
    let mut cluster = Some(lab::postgres(options.clone()).await?);
    let mut outcomes = Vec::new();
    for (name, database, load) in [
        ("crash", "bench_crash", Load::default()),
        ("crash, fair and capped", "bench_crash_fair", Load { shares: SHARES, caps: true, keys: 0 }),
    ] {
        let running = cluster.as_ref().ok_or("Postgres does not run")?;
        let site = Site::open(running, database, log).await?;
        let errors = Errors::default();
        let mut samples = Vec::new();
        for round in 0..rounds {
            let sample = crash(&site, load, &mut cluster, &options, database, plan, &errors).await?;
            say!("bench: {name}, round {}/{rounds}: {}", round + 1, line(&sample));
            samples.push(sample);
        }
        for finding in site.findings().await? {
            errors.note(format!("the doctor: {finding}"));
        }
        outcomes
            .push(Outcome::new(name, ["leasehold", "–"], &[samples, Vec::new()], &[]).with_errors(&[errors, Errors::default()]));
    }
    Ok(outcomes)
}

/// Full load, the crash in the middle of it, and as much load again once it is over.
async fn crash(
    site: &Site, load: Load, cluster: &mut Option<Cluster>, options: &Options, database: &str, plan: Plan, errors: &Errors,
) -> Result<Sample, Failure> {
    let leasehold = site.leasehold.with_load(load);
    leasehold.cap(QUEUE, plan.clients).await?;
    let told: Arc<Told> = Arc::default();
    let mut clients = JoinSet::new();
    (0..plan.clients).for_each(|number| drop(clients.spawn(client(number, leasehold.clone(), told.clone()))));
    told.until_more_ends(plan.clients).await?;
    tokio::time::sleep(plan.warm_up + plan.window).await;
    let (pid, victim) = cluster.take().map(|cluster| (cluster.pid(), cluster)).ok_or("Postgres does not run")?;
    let at_the_kill = held(&told.submitted).len();
    let killed = Instant::now();
    tokio::task::spawn_blocking(move || kill(pid, victim)).await??;
    let running = lab::postgres(options.clone()).await?;
    let started = Instant::now();
    told.until_more_ends(1).await?;
    let silence = killed.elapsed();
    let waited = started.elapsed();
    tokio::time::sleep(plan.window).await;
    told.over.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let url = running.url(database);
    *cluster = Some(running);
    let mut sql = url.parse::<PgConnectOptions>()?.application_name("leasehold-bench-filler").connect().await?;
    let lost = missing(&mut sql, include_str!("sql/crash_lost.sql"), &told.submitted).await?;
    let undone = missing(&mut sql, include_str!("sql/crash_undone.sql"), &told.completed).await?;
    let unleased = missing(&mut sql, include_str!("sql/crash_unleased.sql"), &told.leased).await?;
    let refused = told.refused.load(Ordering::Relaxed);
    if lost + undone + unleased > 0 || refused > 0 {
        let missing = format!("{lost} acknowledged tasks, {unleased} leases that were told, {undone} acknowledged ends");
        errors.note(format!("not there: {missing}; {refused} reports were refused"));
    }
    let count = |names: usize| i64::try_from(names).map(precise);
    Ok(vec![
        ("acknowledged tasks", count(held(&told.submitted).len())?),
        ("of these before the kill", count(at_the_kill)?),
        ("leases told", count(held(&told.leased).len())?),
        ("acknowledged ends", count(told.ends())?),
        ("tasks lost", precise(lost)),
        ("leases lost", precise(unleased)),
        ("ends lost", precise(undone)),
        ("calls that failed", precise(told.failed.load(Ordering::Relaxed).cast_signed())),
        ("nothing done for, s", silence.as_secs_f64()),
        ("of these with Postgres up, s", waited.as_secs_f64()),
    ])
}

/// All of its processes, so that none can finish what it was about to do.
fn kill(pid: i32, mut victim: Cluster) -> Result<(), Failure> {
    let backends = children(u32::try_from(pid)?);
    // The shell knows how to send signals, wherever there is one.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"kill -9 "$@""#, "kill"]).args(backends.iter().map(u32::to_string)).stderr(Stdio::null());
    // Some have ended by themselves meanwhile, which it calls a failure.
    shell.status()?;
    victim.kill();
    Ok(())
}

/// Submits, claims and completes until it is over, and notes what it was told.
async fn client(number: usize, leasehold: Leasehold, told: Arc<Told>) {
    while !told.over.load(Ordering::Relaxed) {
        if turn(number, &leasehold, &told).await.is_err() {
            told.failed.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn turn(number: usize, leasehold: &Leasehold, told: &Told) -> Result<(), Failure> {
    let name = task_name();
    leasehold.submit(number, QUEUE, name.clone()).await?;
    held(&told.submitted).insert(name);
    for lease in leasehold.claim(number, QUEUE, 1, Some(WAIT)).await? {
        // A worker repeats its report until it is answered: nobody else can end its lease before time does.
        let (begin, name) = (Instant::now(), task_id(&lease));
        let token = lease.lease_ref.as_ref().map_or(0, |lease| lease.fencing_token);
        held(&told.leased).insert(format!("{name} {token}"));
        while let Err(error) = leasehold.report(number, lease.clone()).await {
            let away = error.downcast_ref::<Status>().is_some_and(|status| status.code() == Code::Unavailable);
            if !away {
                told.refused.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
            told.failed.fetch_add(1, Ordering::Relaxed);
            if begin.elapsed() > PATIENCE {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
        held(&told.completed).insert(name);
    }
    Ok(())
}

async fn missing(sql: &mut PgConnection, query: &'static str, names: &Mutex<HashSet<String>>) -> Result<i64, Failure> {
    let names: Vec<String> = held(names).iter().cloned().collect();
    Ok(sqlx::query_scalar(query).bind(QUEUE).bind(names).fetch_one(sql).await?)
}
