//! The HTTP port: health for orchestrators, and a few numbers as Prometheus reads them. Pages for people come here.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// What the port's answers come from. Readiness says: that the server serves, and is not about to stop.
#[derive(Clone)]
pub struct Readiness {
    pub serving: watch::Receiver<bool>,
    pub draining: CancellationToken,
    pub engine: Engine,
}

/// Serves until `shutdown` is cancelled.
pub async fn serve(listener: TcpListener, readiness: Readiness, shutdown: CancellationToken) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(readiness);
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

async fn metrics(State(readiness): State<Readiness>) -> String {
    let watchers = readiness.engine.watchers();
    format!("# HELP leasehold_watchers Open watches.\n# TYPE leasehold_watchers gauge\nleasehold_watchers {watchers}\n")
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, &'static str) {
    if *readiness.serving.borrow() && !readiness.draining.is_cancelled() {
        (StatusCode::OK, "serving\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not serving\n")
    }
}
