//! `leasehold bench`: what this machine can do, as ratios in one run. It starts a private Postgres whose commits are real, a server
//! as a process of its own, and lets two subjects take turns: Leasehold over gRPC, and a peer over SQL on the same schema.
//!
//! The peers' SQL lies in `bench/sql` and is not checked at compile time: it is a yardstick, no part of the service, whose only SQL
//! is `src/store`. A peer does what an application would write by hand (`naive`: a transaction per call, a round trip per statement)
//! or what cannot be beaten on this schema (`ceiling`: a hundred tasks per statement, nothing judged). Both skip what Leasehold
//! checks. Deliberately not here: absolute promises. Numbers of different runs or machines don't compare; ratios of one run do.

mod ceiling;
mod cliffs;
mod counters;
mod crash;
mod errors;
mod fill;
mod lab;
mod leasehold;
mod load;
mod machine;
mod measure;
mod naive;
mod overload;
mod paced;
mod pickup;
mod plot;
mod processes;
mod report;
mod scenarios;
mod servers;
mod site;
mod soak;
mod timeline;
mod watch;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::embedded::Cluster;
use cliffs::{Case, Means, Target};
use lab::Lab;
use load::Load;
use measure::Plan;
use report::{Outcome, Report};

/// Servers that the scenario `servers` compares with one, if nothing else is told.
const SERVERS: u32 = 4;
const WARM_UP: Duration = Duration::from_millis(700);

#[derive(Args)]
pub(super) struct Arguments {
    /// What to measure; if absent everything down to `watch`: the others take longer.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// How long each subject is measured in each round, in seconds, after warming up.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// How often the subjects take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls in flight; the naive subject has as many connections to the database.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    clients: u32,
    /// Servers over the one database, the clients spread over them. The scenario `servers` compares so many with one: 4 if absent.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16))]
    servers: Option<u32>,
    /// Ordering keys that the tasks take turns at; 0: no task has one. The peers' tasks never have one.
    #[arg(long, default_value_t = 0)]
    keys: u64,
    /// Fairness keys that the tasks take turns at; 0: no task has one. The peers' tasks never have one.
    #[arg(long, default_value_t = 0)]
    shares: u64,
    /// Limit what may be in flight: each share to its part of the clients, the queue to all of them.
    #[arg(long)]
    caps: bool,
    /// Cases of `cliffs`, each with its size if it is not to be the usual one: `ready=1_000_000,pinned=600`; all if absent.
    #[arg(long, value_delimiter = ',')]
    cliff: Vec<Target>,
    /// Tasks a second of `cliffs`.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pace: u32,
    /// How long `soak` goes on, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    soak_seconds: u64,
    /// How long `overload` goes on, in seconds: of each kind, divided between the rounds.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    overload_seconds: u64,
    /// The part of the capacity that `soak` asks for, in percent.
    #[arg(long, default_value_t = 70, value_parser = clap::value_parser!(u32).range(1..=100))]
    soak_percent: u32,
    /// Also write the results to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Also draw latencies over time, and over size, into this file, as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// A folder on the disk to measure with. Default: the system's folder for temporary files, which must not be in memory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What the server logs to standard error, as a tracing filter.
    #[arg(long, default_value = "warn")]
    server_log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Single Submits.
    Submit,
    /// Claim of one task, then Complete, on a filled queue.
    Lifecycle,
    /// Paced Submits; the time until a waiting worker holds the lease.
    Pickup,
    /// SubmitBatch, Claim and CompleteBatch of a hundred tasks.
    Batch,
    /// The lifecycle with fair shares, and with caps too, on several servers and on one.
    Servers,
    /// Ten thousand watches, a thousand events a second to a hundred of them; the server's memory, and how late events come.
    Watch,
    /// Claims beside much that might slow them down, against little of it.
    Cliffs,
    /// A part of the capacity for long: latencies, tables, memory, and what the doctor finds at the end.
    Soak,
    /// Three times the capacity for a while: how much is finished, what is refused, how soon lost leases are found, and memory.
    Overload,
    /// Postgres is killed under full load: whether anything is lost that was answered.
    Crash,
}

impl Scenario {
    const USUAL: [Scenario; 6] =
        [Scenario::Submit, Scenario::Lifecycle, Scenario::Pickup, Scenario::Batch, Scenario::Servers, Scenario::Watch];

    fn name(self) -> &'static str {
        match self {
            Scenario::Submit => "submit",
            Scenario::Lifecycle => "lifecycle",
            Scenario::Pickup => "pickup",
            Scenario::Batch => "batch",
            Scenario::Servers => "servers",
            Scenario::Watch => "watch",
            Scenario::Cliffs => "cliffs",
            Scenario::Soak => "soak",
            Scenario::Overload => "overload",
            Scenario::Crash => "crash",
        }
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "from 0.1 to 3600 seconds".to_owned())
}

/// A line about how far it is, for the person who waits.
macro_rules! say {
    ($($part:tt)*) => {{
        #[allow(clippy::print_stderr, reason = "this is where a command speaks to a person")]
        { eprintln!($($part)*) }
    }};
}
use say;

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    let folder = lab::Folder::create(arguments.dir.as_deref())?;
    let report = super::block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Whichever way this ends, what was started is dropped, which ends it: the server, then Postgres, then the folder.
        tokio::select! {
            report = measure_all(&arguments, &folder) => report,
            _ = terminate.recv() => Err("terminated".into()),
            _ = interrupt.recv() => Err("interrupted".into()),
        }
    })?;
    report.print()?;
    if let Some(path) = &arguments.json {
        report.write_json(path)?;
    }
    if let Some(path) = &arguments.plot {
        report.write_plot(path)?;
    }
    match report.errors() {
        0 => Ok(()),
        errors => Err(format!("{errors} calls failed (see above): these numbers can't be trusted").into()),
    }
}

async fn measure_all(arguments: &Arguments, folder: &lab::Folder) -> Result<Report, Failure> {
    say!("bench: starting a Postgres and a server in {}", folder.path().display());
    let several = arguments.servers.unwrap_or(SERVERS);
    let cluster = lab::postgres(lab::options(folder, "postgres", arguments.clients, several)).await?;
    let plan = arguments.plan();
    let load = Load { keys: arguments.keys, shares: arguments.shares, caps: arguments.caps };
    let servers = arguments.servers.unwrap_or(1) as usize;
    let mut lab = Lab::open(&cluster, &arguments.server_log, plan.clients, load, servers).await?;
    let machine = machine::describe(&mut lab, folder).await?;
    say!("bench: {}", machine.line());
    say!("bench: the first server is process {}, Postgres is process {}", lab.servers[0].pid(), cluster.pid());
    let mut report = Report::new(machine, arguments.rounds, plan, load, servers);
    let chosen: &[Scenario] = if arguments.scenario.is_empty() { &Scenario::USUAL } else { &arguments.scenario };
    for &scenario in chosen {
        arguments.measure(&mut lab, &cluster, folder, scenario).await?.into_iter().for_each(|outcome| report.add(outcome));
    }
    report.finish();
    Ok(report)
}

impl Arguments {
    fn plan(&self) -> Plan {
        let window = Duration::from_secs_f64(self.seconds);
        Plan { clients: self.clients as usize, warm_up: WARM_UP.min(window), window }
    }

    async fn measure(
        &self, lab: &mut Lab<'_>, cluster: &Cluster, folder: &lab::Folder, scenario: Scenario,
    ) -> Result<Vec<Outcome>, Failure> {
        let (plan, rounds, log) = (self.plan(), self.rounds, &self.server_log);
        match scenario {
            Scenario::Watch => Ok(vec![watch::run(lab, plan, rounds).await?]),
            Scenario::Servers => servers::run(lab, plan, rounds, self.servers.unwrap_or(SERVERS) as usize).await,
            Scenario::Cliffs => {
                let all = || Case::value_variants().iter().map(|case| Target::usual(*case)).collect();
                let targets: Vec<Target> = if self.cliff.is_empty() { all() } else { self.cliff.clone() };
                let means = Means { cluster, log, plan, rounds, pace: self.pace.into() };
                let mut outcomes = Vec::new();
                for target in targets {
                    outcomes.extend(cliffs::run(means, target).await?);
                }
                Ok(outcomes)
            }
            Scenario::Soak => {
                let time = Duration::from_secs(self.soak_seconds);
                Ok(vec![soak::run(cluster, log, &mut lab.meter, plan, f64::from(self.soak_percent) / 100.0, time).await?])
            }
            Scenario::Overload => {
                let time = Duration::from_secs(self.overload_seconds);
                overload::run(cluster, log, &mut lab.meter, plan, rounds, time).await
            }
            Scenario::Crash => crash::run(folder, log, plan, rounds).await,
            _ => Ok(vec![scenarios::run(lab, scenario, plan, rounds).await?]),
        }
    }
}
