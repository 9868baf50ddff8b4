//! Where it is measured: a folder, a private Postgres with a database per subject, and the server as a process of its own. Dropping
//! them ends and removes them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};
use tokio::sync::mpsc;

use super::counters::Meter;
use super::leasehold::Leasehold;
use super::load::Load;
use super::{Failure, naive::Naive};
#[cfg(target_os = "linux")]
use crate::embedded::end_with_us;
use crate::embedded::{Cluster, Options};
use crate::store;

const READY_WAIT: Duration = Duration::from_secs(30);
/// Connections to the database beside those of the naive subject: those of a server, and ours to look and to fill.
const SERVER_CONNECTIONS: u32 = 24;
const OTHER_CONNECTIONS: u32 = 40;

/// A new folder, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn create(parent: Option<&Path>) -> Result<Folder, Failure> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = parent.join(format!("leasehold-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Durable, and without a checkpoint within a usual run: full pages in the WAL would depend on the moment. `name`: of its folder.
pub fn options(folder: &Folder, name: &str, clients: u32, servers: u32) -> Options {
    let connections = (clients + servers * SERVER_CONNECTIONS + OTHER_CONNECTIONS).to_string();
    let settings = [("max_connections", connections.as_str()), ("max_wal_size", "8GB"), ("checkpoint_timeout", "1h")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    Options { data_dir: folder.path().join(name), bin_dir: None, durable: true, settings }
}

pub async fn postgres(options: Options) -> Result<Cluster, Failure> {
    Ok(tokio::task::spawn_blocking(move || Cluster::start(&options)).await??)
}

/// Both subjects, ready to be measured.
pub struct Lab<'a> {
    pub leasehold: Leasehold,
    pub naive: Naive,
    /// Looks at the database of Leasehold, and at the whole cluster.
    pub meter: Meter,
    pub naive_meter: Meter,
    pub servers: Vec<Server>,
    pub load: Load,
    /// To fill the database of Leasehold.
    pub sql: PgConnection,
    cluster: &'a Cluster,
    log: &'a str,
}

const OURS: &str = "bench_leasehold";
const NAIVE: &str = "bench_naive";

impl<'a> Lab<'a> {
    pub async fn open(cluster: &'a Cluster, log: &'a str, clients: usize, load: Load, servers: usize) -> Result<Lab<'a>, Failure> {
        for database in [OURS, NAIVE] {
            store::create_database(&cluster.url("postgres"), database).await?;
            store::migrate(&cluster.url(database)).await?;
        }
        let servers = start_servers(cluster, OURS, log, servers).await?;
        let leasehold = Leasehold::connect(&addresses(&servers), load).await?;
        let options = PgConnectOptions::from_str(&cluster.url(NAIVE))?;
        let naive = Naive::connect(&options, clients).await?;
        let pids = servers.iter().map(Server::pid).collect();
        let ours = PgConnectOptions::from_str(&cluster.url(OURS))?;
        let meter = Meter::open(&ours, cluster.pid(), pids).await?;
        let sql = ours.application_name("leasehold-bench-filler").connect().await?;
        let naive_meter = Meter::open(&options, cluster.pid(), Vec::new()).await?;
        Ok(Lab { leasehold, naive, meter, naive_meter, servers, load, sql, cluster, log })
    }

    /// So many servers on the database of Leasehold from now on, and the clients spread over them.
    pub async fn serve_with(&mut self, count: usize) -> Result<(), Failure> {
        self.servers.truncate(count);
        self.servers.extend(start_servers(self.cluster, OURS, self.log, count - self.servers.len()).await?);
        self.leasehold = Leasehold::connect(&addresses(&self.servers), self.load).await?;
        self.meter.watch(self.servers.iter().map(Server::pid).collect());
        Ok(())
    }
}

async fn start_servers(cluster: &Cluster, database: &str, log: &str, count: usize) -> Result<Vec<Server>, Failure> {
    let mut servers = Vec::with_capacity(count);
    for _ in 0..count {
        servers.push(Server::start(&cluster.url(database), log).await?);
    }
    Ok(servers)
}

fn addresses(servers: &[Server]) -> Vec<&str> {
    servers.iter().map(Server::address).collect()
}

/// `leasehold serve`, ended when dropped, and when we die.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub async fn start(database_url: &str, log: &str) -> Result<Server, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        // What our own environment says to servers is not meant for this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LEASEHOLD_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--log", log]);
        command.env("LEASEHOLD_DATABASE_URL", database_url).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        // The runtime is single-threaded, so the thread that forks lives as long as we do.
        #[cfg(target_os = "linux")]
        end_with_us(&mut command);
        let mut server = Server { child: command.spawn()?, address: String::new() };
        server.address = server.ready().await?;
        Ok(server)
    }

    /// The address in the line that says that it is ready. Whatever it says later is read, so that it never waits for us.
    async fn ready(&mut self) -> Result<String, Failure> {
        let out = self.child.stdout.take().ok_or("the server has no output")?;
        let (said, mut says) = mpsc::unbounded_channel();
        thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(said.send(line))));
        let end = tokio::time::Instant::now() + READY_WAIT;
        while let Ok(Some(line)) = tokio::time::timeout_at(end, says.recv()).await {
            if let Some(address) = line.split_whitespace().find_map(|word| word.strip_prefix("grpc=")) {
                return Ok(format!("http://{address}"));
            }
        }
        Err("the server did not become ready".into())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens, as a URL.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What of it is in memory, in MiB.
    pub fn memory(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: u32 = resident.trim().trim_end_matches(" kB").parse()?;
        Ok(f64::from(kib) / 1024.0)
    }
}

impl Drop for Server {
    /// At once: its database goes with it.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
