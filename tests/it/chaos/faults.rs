//! What goes wrong in a run, and when: chosen by its seed, injected one after another.

use std::time::Duration;

use leasehold::embedded::{Cluster, Options};
use tokio::time::sleep;

use super::calls::Shared;
use super::history::Micros;
use crate::database::start;
use crate::town::{Proxy, Town};

/// How long faults last, and the calm between them, in milliseconds.
pub struct Pace {
    pub fault: (u64, u64),
    pub calm: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// SIGKILL to a server; a new one comes in its place.
    KillServer,
    /// SIGSTOP and SIGCONT: it notices nothing but a leap of time.
    PauseServer,
    /// Postgres ends in order and comes back.
    StopPostgres,
    /// Postgres ends as in a power cut and recovers.
    CrashPostgres,
    /// `pg_terminate_backend` of some sessions of servers.
    EndBackends,
    /// All of a server's connections break.
    CutWire,
    /// They swallow everything; later ones work.
    SilenceWire,
    /// Postgres crashes, and while it is away a server is killed.
    CrashPostgresAndKillServer,
}

const KINDS: [Kind; 8] = [
    Kind::KillServer,
    Kind::PauseServer,
    Kind::StopPostgres,
    Kind::CrashPostgres,
    Kind::EndBackends,
    Kind::CutWire,
    Kind::SilenceWire,
    Kind::CrashPostgresAndKillServer,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::KillServer => "server killed and started",
            Kind::PauseServer => "server paused",
            Kind::StopPostgres => "Postgres stopped and started",
            Kind::CrashPostgres => "Postgres killed and started",
            Kind::EndBackends => "backends terminated",
            Kind::CutWire => "wire to Postgres cut",
            Kind::SilenceWire => "wire to Postgres silent",
            Kind::CrashPostgresAndKillServer => "Postgres and a server killed and started",
        }
    }
}

/// One of them to come.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub kind: Kind,
    pub server: usize,
    pub calm: Duration,
    pub lasts: Duration,
    /// Of a server's sessions, in a hundred.
    pub part: i32,
}

/// The faults of a seed: every kind once, in an order of chance, then again.
pub fn plan(mut chance: fastrand::Rng, servers: usize, pace: &Pace) -> impl Iterator<Item = Fault> + use<> {
    let (fault, calm) = (pace.fault, pace.calm);
    let mut deck = Vec::new();
    std::iter::from_fn(move || {
        if deck.is_empty() {
            deck.extend(KINDS);
            chance.shuffle(&mut deck);
        }
        Some(Fault {
            kind: deck.pop().expect("it was filled"),
            server: chance.usize(..servers),
            calm: Duration::from_millis(chance.u64(calm.0..calm.1)),
            lasts: Duration::from_millis(chance.u64(fault.0..fault.1)),
            part: chance.i32(10..=100),
        })
    })
}

/// One that was injected, by the clients' clock.
#[derive(Clone, Debug)]
pub struct Injected {
    pub kind: Kind,
    pub begin: Micros,
    /// When its cause was gone.
    pub end: Micros,
}

/// What can be broken.
pub struct Ground {
    pub town: Town,
    pub options: Options,
    pub cluster: Option<Cluster>,
    /// A wire of its own for each server, and the URL that leads over it.
    pub wires: Vec<(Proxy, String)>,
}

impl Ground {
    /// Servers on wires of their own to a Postgres of their own. Where it isn't durable it waits for no disk, and what kills it takes back
    /// no less and no more: only the machine's own death could tell the two apart.
    pub async fn start(servers: usize, durable: bool) -> Ground {
        // Sessions on wires that went silent stay: nobody tells Postgres.
        Ground::start_with(servers, durable, vec![("max_connections".to_owned(), "500".to_owned())]).await
    }

    pub async fn start_with(servers: usize, durable: bool, settings: Vec<(String, String)>) -> Ground {
        let data_dir = crate::town::new_folder("chaos").await.join("pg");
        let options = Options { data_dir, bin_dir: None, durable, settings };
        let cluster = start(&options).await;
        leasehold::store::create_database(&cluster.url("postgres"), "leasehold").await.expect("a database");
        let url = cluster.url("leasehold");
        let mut town = Town::around(url.clone()).await;
        let mut wires = Vec::new();
        for _ in 0..servers {
            let (wire, through) = Proxy::before(&url).await;
            town.add_server_told(&through, &[]).await;
            wires.push((wire, through));
        }
        Ground { town, options, cluster: Some(cluster), wires }
    }

    /// Breaks something, and mends it when its time has come.
    pub async fn suffer(&mut self, fault: &Fault, shared: &Shared) -> Injected {
        let begin = shared.now();
        self.breaks(fault).await;
        if !matches!(fault.kind, Kind::EndBackends | Kind::CutWire) {
            sleep(fault.lasts).await;
        }
        self.mend(fault, shared).await;
        Injected { kind: fault.kind, begin, end: shared.now() }
    }

    async fn breaks(&mut self, fault: &Fault) {
        let number = fault.server;
        match fault.kind {
            Kind::KillServer => self.kill_server(number),
            Kind::PauseServer => self.town.server(number).signal(libc::SIGSTOP),
            Kind::StopPostgres => self.end_postgres(Cluster::stop).await,
            Kind::CrashPostgres => self.end_postgres(Cluster::kill).await,
            Kind::EndBackends => {
                let query = format!(
                    "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
                     WHERE datname = current_database() AND application_name LIKE 'leasehold%' AND random() * 100 < {}",
                    fault.part
                );
                self.town.sql::<i64>(query).await;
            }
            Kind::CutWire => self.wires[number].0.cut(),
            Kind::SilenceWire => self.wires[number].0.silence(),
            Kind::CrashPostgresAndKillServer => {
                self.end_postgres(Cluster::kill).await;
                self.kill_server(number);
            }
        }
    }

    async fn mend(&mut self, fault: &Fault, shared: &Shared) {
        let number = fault.server;
        match fault.kind {
            Kind::KillServer => self.start_server(number, shared).await,
            Kind::PauseServer => self.town.server(number).signal(libc::SIGCONT),
            Kind::StopPostgres | Kind::CrashPostgres => self.cluster = Some(start(&self.options).await),
            Kind::EndBackends | Kind::CutWire => {}
            Kind::SilenceWire => self.wires[number].0.heal(),
            Kind::CrashPostgresAndKillServer => {
                self.cluster = Some(start(&self.options).await);
                self.start_server(number, shared).await;
            }
        }
    }

    fn kill_server(&mut self, number: usize) {
        let server = self.town.server_mut(number);
        server.kill();
        assert_eq!(server.killed_by(), Some(libc::SIGKILL), "it died by itself:\n{}", server.log());
        let log = server.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }

    async fn start_server(&mut self, number: usize, shared: &Shared) {
        let url = self.wires[number].1.clone();
        let channel = self.town.restart_server_told(number, &url).await.channel();
        shared.turn_to(number, channel);
    }

    pub async fn end_postgres(&mut self, end: fn(&mut Cluster)) {
        let mut cluster = self.cluster.take().expect("it runs");
        let ended = tokio::task::spawn_blocking(move || {
            end(&mut cluster);
            drop(cluster);
        });
        ended.await.expect("it does not panic");
    }
}
