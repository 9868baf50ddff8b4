//! When an answer counts as taken: frame by frame, and once through a real server and client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream;
use http::HeaderMap;
use http_body::Body as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tower::{ServiceExt as _, service_fn};

use super::*;
use crate::api::deadline::DeadlineLayer;
use crate::api::proto as pb;
use crate::api::proto::worker_service_client::WorkerServiceClient;
use crate::api::proto::worker_service_server::{WorkerService, WorkerServiceServer};

#[derive(Debug, PartialEq)]
enum Fate {
    Taken,
    GivenBack,
}

/// Tells what became of it: once, however many clones there were.
#[derive(Clone)]
struct Slip(Arc<Told>);

struct Told {
    taken: AtomicBool,
    fates: UnboundedSender<Fate>,
}

impl Slip {
    fn new() -> (Slip, UnboundedReceiver<Fate>) {
        let (fates, told) = unbounded_channel();
        (Slip(Arc::new(Told { taken: AtomicBool::new(false), fates })), told)
    }
}

impl Pending for Slip {
    fn taken(self) {
        self.0.taken.store(true, Ordering::SeqCst);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.fates.send(if *self.taken.get_mut() { Fate::Taken } else { Fate::GivenBack });
    }
}

/// A body of these frames, which ends with the last of them.
struct Frames(VecDeque<Frame<Bytes>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn data() -> Frame<Bytes> {
    Frame::data(Bytes::from_static(b"leases"))
}

fn trailers(status: &'static str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static(status));
    Frame::trailers(trailers)
}

/// A response of these frames that has passed the layer.
async fn answered(frames: impl IntoIterator<Item = Frame<Bytes>>, slip: Slip) -> Response<Body> {
    let mut response = Response::new(Body::new(Frames(frames.into_iter().collect())));
    response.extensions_mut().insert(slip);
    let mut response = Some(response);
    let handler = service_fn(move |_: Request<()>| {
        let response = response.take();
        async move { response.ok_or("asked twice") }
    });
    let service = DeliveryLayer::<Slip>::new().layer(handler);
    service.oneshot(Request::new(())).await.expect("there is one response")
}

async fn next(body: &mut Body) -> Option<Frame<Bytes>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.map(|frame| frame.expect("no error"))
}

#[tokio::test]
async fn an_answer_is_taken_with_its_last_frame_and_not_before() {
    let (slip, mut told) = Slip::new();
    let mut body = answered([data(), trailers("0")], slip).await.into_body();
    assert!(next(&mut body).await.is_some_and(|frame| frame.is_data()));
    assert!(told.try_recv().is_err(), "the trailers are still to come");
    assert!(next(&mut body).await.is_some_and(|frame| frame.is_trailers()));
    assert_eq!(told.try_recv(), Ok(Fate::Taken));
}

#[tokio::test]
async fn an_answer_that_nobody_asks_for_is_given_back() {
    let (slip, mut told) = Slip::new();
    drop(answered([data(), trailers("0")], slip).await);
    assert_eq!(told.try_recv(), Ok(Fate::GivenBack));
}

#[tokio::test]
async fn an_answer_of_which_only_a_part_was_taken_is_given_back() {
    let (slip, mut told) = Slip::new();
    let mut body = answered([data(), trailers("0")], slip).await.into_body();
    next(&mut body).await;
    drop(body);
    assert_eq!(told.try_recv(), Ok(Fate::GivenBack));
}

#[tokio::test]
async fn an_answer_whose_trailers_tell_of_an_error_is_given_back() {
    let (slip, mut told) = Slip::new();
    let mut body = answered([trailers("13")], slip).await.into_body();
    next(&mut body).await;
    assert_eq!(told.try_recv(), Ok(Fate::GivenBack));
}

/// Answers each Claim with a lease and its slip, or not at all.
struct Fake {
    slips: UnboundedSender<UnboundedReceiver<Fate>>,
    answers: bool,
}

#[tonic::async_trait]
impl WorkerService for Fake {
    async fn claim(&self, _: tonic::Request<pb::ClaimRequest>) -> Result<tonic::Response<pb::ClaimResponse>, Status> {
        let (slip, told) = Slip::new();
        let _ = self.slips.send(told);
        if !self.answers {
            std::future::pending::<()>().await;
        }
        let mut response = tonic::Response::new(pb::ClaimResponse { leases: vec![pb::Lease::default()] });
        response.extensions_mut().insert(slip);
        Ok(response)
    }

    async fn begin_effect(
        &self, _: tonic::Request<pb::BeginEffectRequest>,
    ) -> Result<tonic::Response<pb::BeginEffectResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn heartbeat(&self, _: tonic::Request<pb::HeartbeatRequest>) -> Result<tonic::Response<pb::HeartbeatResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn complete(&self, _: tonic::Request<pb::CompleteRequest>) -> Result<tonic::Response<pb::CompleteResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn complete_batch(
        &self, _: tonic::Request<pb::CompleteBatchRequest>,
    ) -> Result<tonic::Response<pb::CompleteBatchResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// A client of a served [`Fake`], and the slips of its claims.
async fn served(answers: bool) -> (WorkerServiceClient<tonic::transport::Channel>, UnboundedReceiver<UnboundedReceiver<Fate>>) {
    let (slips, handed) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let incoming = stream::unfold(listener, |listener| async { Some((listener.accept().await.map(|(io, _)| io), listener)) });
    let server = Server::builder()
        .layer(DeadlineLayer::new(CancellationToken::new()))
        .layer(DeliveryLayer::<Slip>::new())
        .add_service(WorkerServiceServer::new(Fake { slips, answers }));
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
    (WorkerServiceClient::new(endpoint.connect().await.expect("it listens")), handed)
}

#[tokio::test]
async fn a_client_that_has_its_answer_has_taken_it() {
    let (mut client, mut handed) = served(true).await;
    let response = client.claim(pb::ClaimRequest::default()).await.expect("an answer").into_inner();
    assert_eq!(response.leases.len(), 1);
    let mut told = handed.recv().await.expect("a slip");
    assert_eq!(told.recv().await, Some(Fate::Taken));
}

#[tokio::test]
async fn a_client_that_goes_away_before_its_answer_gives_it_back() {
    let (mut client, mut handed) = served(false).await;
    let call = tokio::spawn(async move { client.claim(pb::ClaimRequest::default()).await });
    let mut told = handed.recv().await.expect("the call has arrived");
    call.abort();
    assert_eq!(told.recv().await, Some(Fate::GivenBack));
}
