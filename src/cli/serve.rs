//! `leasehold serve`: puts the parts together, says when it is ready, and takes them apart in order.

use std::io::Write;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Failure;
use crate::config::ServeConfig;
use crate::embedded::{Cluster, Options};
use crate::engine::{Engine, Settings};
use crate::store::{Db, Pools};
use crate::{api, console, loops, store, telemetry};

/// How long leases that nobody took may need on their way back before the server ends without them.
const SETTLING: Duration = Duration::from_secs(3);

pub(super) fn run(config: ServeConfig) -> Result<(), Failure> {
    config.check()?;
    telemetry::start(&config.log)?;
    // Started before the runtime and stopped after it: the server may use it to its last moment.
    let cluster = match &config.database_url {
        Some(_) => None,
        None => Some(private_postgres(&config)?),
    };
    let url = config.database_url.clone().or_else(|| cluster.as_ref().map(|cluster| cluster.url("leasehold"))).unwrap_or_default();
    let place = match &cluster {
        Some(_) => format!("private:{}", config.data_dir()?.display()),
        None => redacted(&url),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(config, url, place));
    runtime.shutdown_timeout(Duration::from_secs(2));
    drop(cluster);
    served
}

fn private_postgres(config: &ServeConfig) -> Result<Cluster, Failure> {
    let options = Options { data_dir: config.data_dir()?.join("postgres"), bin_dir: None, durable: true, settings: Vec::new() };
    let cluster = Cluster::start(&options)?;
    super::block_on(async { Ok(store::create_database(&cluster.url("postgres"), "leasehold").await?) })?;
    Ok(cluster)
}

/// The database's address without its password.
fn redacted(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}{}", &url[..scheme + 3], &url[at + 1..]),
        _ => url.to_owned(),
    }
}

async fn serve(config: ServeConfig, url: String, place: String) -> Result<(), Failure> {
    if config.no_migrate {
        store::check_schema(&url).await?
    } else {
        store::migrate(&url).await?
    }
    let db = Db::open(&url, Pools { writes: config.write_connections, reads: config.read_connections })?;
    let engine = Engine::start(
        db.clone(),
        Settings {
            payload_limit: config.payload_limit,
            watchers: config.max_watchers,
            connection_age: config.max_connection_age_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            ..Settings::default()
        },
    );
    let grpc = TcpListener::bind(config.listen).await?;
    let http = TcpListener::bind(config.http_listen).await?;
    let (grpc_address, http_address) = (grpc.local_addr()?, http.local_addr()?);

    let (serving, says) = watch::channel(false);
    let (stop_serving, stop_loops, tracker) = (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
    loops::start(&loops::Context { engine: engine.clone(), database_url: url, serving }, &tracker, &stop_loops);
    let grace = Duration::from_secs(config.grace_seconds);
    let (told, hears) = watch::channel(false);
    let limits = api::in_flight::Limits {
        busy: config.max_in_flight,
        waiting: config.max_waiting,
        per_connection: config.max_per_connection,
    };
    let mut api = tokio::spawn(api::server::serve(grpc, engine.clone(), limits, says.clone(), told, stop_serving.clone(), grace));
    let readiness = console::Readiness { serving: says, draining: stop_serving.clone(), engine: engine.clone() };
    tracker.spawn(console::serve(http, readiness, stop_loops.clone()));
    ready(hears, grpc_address, http_address, &place).await?;

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let ended = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        ended = &mut api => Some(ended),
    };
    // First no new work, then what runs may end, then the loops, then the connections.
    tracing::info!(grace_seconds = config.grace_seconds, "draining");
    engine.drain();
    stop_serving.cancel();
    let ended = match ended {
        Some(ended) => ended,
        None => api.await,
    };
    drop(tokio::time::timeout(SETTLING, engine.settled()).await);
    stop_loops.cancel();
    tracker.close();
    drop(tokio::time::timeout(Duration::from_secs(3), tracker.wait()).await);
    drop(tokio::time::timeout(Duration::from_secs(2), db.close()).await);
    tracing::info!("stopped");
    Ok(ended??)
}

/// Says that the server is ready once the database has answered and health says so. One line, for people and for scripts.
async fn ready(
    mut healthy: watch::Receiver<bool>, grpc: std::net::SocketAddr, http: std::net::SocketAddr, place: &str,
) -> Result<(), Failure> {
    drop(tokio::time::timeout(Duration::from_secs(10), healthy.wait_for(|healthy| *healthy)).await);
    let mut out = std::io::stdout().lock();
    writeln!(out, "leasehold ready grpc={grpc} http={http} database={place}")?;
    out.flush()?;
    Ok(())
}
