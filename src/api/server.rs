//! The gRPC server: the five services, health and reflection on one listener, between the layers that every call passes.
//!
//! TLS, credentials and telemetry are not here yet. What runs behind the services is the engine's.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use http::Response;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::layer::util::{Identity, Stack};
use tower::util::MapResponseLayer;

use super::admin_service::Admin;
use super::deadline::DeadlineLayer;
use super::delivery::DeliveryLayer;
use super::in_flight::{InFlightLayer, Limits};
use super::proto::{
    self as pb, admin_service_server as admin, repair_service_server as repair, schedule_service_server as schedule,
    task_service_server as task, worker_service_server as worker,
};
use super::repair_service::Repairs;
use super::schedule_service::Schedules;
use super::task_service::Tasks;
use super::unread::reword;
use super::watch::TaskServer;
use super::worker_service::Workers;
use crate::engine::{Delivery, Engine};

/// What health is told of. The empty name is the server as a whole.
pub const SERVICES: [&str; 6] =
    ["", task::SERVICE_NAME, worker::SERVICE_NAME, repair::SERVICE_NAME, schedule::SERVICE_NAME, admin::SERVICE_NAME];

/// A whole request, in bytes. Room for a full batch, so that our own limits are met first and say which field it is.
pub(super) const REQUEST_BYTES: usize = 8 * 1024 * 1024;
/// Streams on one connection beside as many busy calls and as many that wait as it may have: watches, and calls that are being refused.
/// What comes on top of all that waits in the client.
const MORE_STREAMS: usize = 1_000;
/// A dead peer is noticed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How much a client may send ahead: on one call, and on all of a connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How long to wait before accepting again when the system has no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("the contract's descriptors can't be read: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Serves until `shutdown`, and tells health what `serving` says (`told` then says so too, so that nobody is called ready before health
/// has heard of it); then health turns NOT_SERVING, no connection is accepted any more,
/// and calls in flight may finish. Returns when they have, at the latest `grace` later; what is still in flight then goes with the runtime.
pub async fn serve(
    listener: TcpListener, engine: Engine, limits: Limits, serving: watch::Receiver<bool>, told: watch::Sender<bool>,
    shutdown: CancellationToken, grace: Duration,
) -> Result<(), ServeError> {
    let health = HealthReporter::new();
    set_health(&health, ServingStatus::NotServing).await;
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(follow(serving, told, health.clone())));
    let streams = CancellationToken::new();
    let router = router(engine, limits, health.clone(), streams.clone())?;
    let signal = shutdown.clone();
    let drained = async move {
        signal.cancelled().await;
        set_health(&health, ServingStatus::NotServing).await;
        // After it, so that whoever watches health is told before its stream ends.
        streams.cancel();
    };
    let serving = router.serve_with_incoming_shutdown(connections(listener), drained);
    let too_late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = serving => Ok(ended?),
        () = too_late => {
            tracing::warn!(?grace, "calls were still in flight when the time to finish them was over");
            Ok(())
        }
    }
}

/// Tells health what `serving` says, and again whenever that changes.
async fn follow(mut serving: watch::Receiver<bool>, told: watch::Sender<bool>, health: HealthReporter) {
    loop {
        let serves = *serving.borrow_and_update();
        set_health(&health, if serves { ServingStatus::Serving } else { ServingStatus::NotServing }).await;
        told.send_replace(serves);
        if serving.changed().await.is_err() {
            return;
        }
    }
}

/// Tells health the same of every service.
pub async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}

type Reword = MapResponseLayer<fn(Response<Body>) -> Response<Body>>;
type Layers = Stack<Reword, Stack<DeliveryLayer<Delivery>, Stack<InFlightLayer, Stack<DeadlineLayer, Identity>>>>;

fn router(
    engine: Engine, limits: Limits, health: HealthReporter, streams: CancellationToken,
) -> Result<Router<Layers>, ServeError> {
    // A macro, since the generated servers share their settings but no trait.
    macro_rules! bounded {
        ($server:expr) => {
            $server.accept_compressed(CompressionEncoding::Gzip).max_decoding_message_size(REQUEST_BYTES)
        };
    }
    let (v1, v1alpha) = (reflection().build_v1()?, reflection().build_v1alpha()?);
    let mut server = Server::builder();
    if let Some(age) = engine.connection_age() {
        // Without a grace: tonic would cut the connection after both, and never tell the client. Calls end by themselves, watches by their
        // own age.
        server = server.max_connection_age(age);
    }
    Ok(server
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(streams_per_connection(limits))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        // The first one is the outermost: a deadline that passes drops the answer, and with it its delivery.
        .layer(DeadlineLayer::new(streams))
        .layer(InFlightLayer::new(limits))
        .layer(DeliveryLayer::<Delivery>::new())
        .layer(MapResponseLayer::new(reword as fn(_) -> _))
        .add_service(TaskServer::new(bounded!(task::TaskServiceServer::new(Tasks::new(engine.clone()))), engine.clone()))
        .add_service(bounded!(worker::WorkerServiceServer::new(Workers::new(engine.clone()))))
        .add_service(bounded!(repair::RepairServiceServer::new(Repairs::new(engine.clone()))))
        .add_service(bounded!(schedule::ScheduleServiceServer::new(Schedules)))
        .add_service(bounded!(admin::AdminServiceServer::new(Admin::new(engine))))
        .add_service(bounded!(HealthServer::new(HealthService::from_health_reporter(health))))
        .add_service(bounded!(v1))
        .add_service(bounded!(v1alpha)))
}

fn streams_per_connection(limits: Limits) -> u32 {
    u32::try_from(limits.per_connection.saturating_mul(2).saturating_add(MORE_STREAMS)).unwrap_or(u32::MAX)
}

/// With the sets of tonic-types and tonic-health too: without them a client can't decode error details.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Accepts for ever. Errors of accepting never end it: most are of one connection, the others (no file handles left) pass.
fn connections(listener: TcpListener) -> impl Stream<Item = Result<TcpStream, Infallible>> {
    stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((connection, _)) => {
                    // Answers are small and somebody waits for each.
                    let _ = connection.set_nodelay(true);
                    return Some((Ok(connection), listener));
                }
                Err(error) if passes(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

/// Whether only the one connection is lost.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

#[cfg(test)]
mod tests;
