//! Watch over gRPC: the stream of one watcher, written so that an event is encoded once however many watch it.
//!
//! The generated server encodes each message for each stream, so Watch is answered here, before it: its codec takes messages that are bytes
//! already. All other methods of TaskService go on to the generated server.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Request, Response};
use prost::Message as _;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, EnabledCompressionEncodings, EncodeBuf, Encoder};
use tonic::codegen::BoxStream;
use tonic::server::{Grpc, NamedService, ServerStreamingService};
use tonic::{Code, Status};
use tonic_prost::ProstDecoder;
use tower::Service;

use super::convert::{answers, event};
use super::proto::{self as pb, task_service_server::TaskServiceServer, watch_response::Item};
use super::server::REQUEST_BYTES;
use super::status::status;
use super::task_service::Tasks;
use crate::domain::refusal::Refusal;
use crate::engine::{Engine, Sight, WatchCommand, Watcher};

pub(super) const PATH: &str = "/leasehold.v1.TaskService/Watch";

/// TaskService, with Watch answered in shared bytes.
#[derive(Clone)]
pub struct TaskServer {
    generated: TaskServiceServer<Tasks>,
    engine: Engine,
}

impl TaskServer {
    pub fn new(generated: TaskServiceServer<Tasks>, engine: Engine) -> Self {
        TaskServer { generated, engine }
    }
}

impl NamedService for TaskServer {
    const NAME: &'static str = <TaskServiceServer<Tasks> as NamedService>::NAME;
}

impl Service<Request<Body>> for TaskServer {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != PATH {
            return self.generated.call(request);
        }
        let engine = self.engine.clone();
        Box::pin(async move {
            let mut accepted = EnabledCompressionEncodings::default();
            accepted.enable(CompressionEncoding::Gzip);
            let mut grpc = Grpc::new(Shared)
                .apply_compression_config(accepted, EnabledCompressionEncodings::default())
                .apply_max_message_size_config(Some(REQUEST_BYTES), None);
            Ok(grpc.server_streaming(Watches(engine), request).await)
        })
    }
}

/// Messages go out as the bytes that they are.
struct Shared;

impl Codec for Shared {
    type Encode = Bytes;
    type Decode = pb::WatchRequest;
    type Encoder = Shared;
    type Decoder = ProstDecoder<pb::WatchRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        Shared
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for Shared {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

struct Watches(Engine);

impl ServerStreamingService<pb::WatchRequest> for Watches {
    type Response = Bytes;
    type ResponseStream = BoxStream<Bytes>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<pb::WatchRequest>) -> Self::Future {
        let engine = self.0.clone();
        Box::pin(async move { frames(&engine, request.into_inner()).await.map(tonic::Response::new) })
    }
}

/// The stream of a watch, each message encoded.
async fn frames(engine: &Engine, request: pb::WatchRequest) -> Result<BoxStream<Bytes>, Status> {
    let command: WatchCommand = event::watch(request).map_err(status)?;
    let watcher = engine.watch(command).await.map_err(status)?;
    let next = async |mut watcher: Watcher| Some((frame(watcher.next().await?), watcher));
    Ok(Box::pin(stream::unfold(watcher, next)))
}

/// The stream of a watch in the contract's own messages.
pub async fn messages(engine: &Engine, request: pb::WatchRequest) -> Result<BoxStream<pb::WatchResponse>, Status> {
    let decode =
        |bytes: Bytes| async { pb::WatchResponse::decode(bytes).map_err(|error| Status::new(Code::Internal, error.to_string())) };
    Ok(frames(engine, request).await?.and_then(decode).boxed())
}

fn frame(sight: Result<Sight, Refusal>) -> Result<Bytes, Status> {
    let message = match sight.map_err(status)? {
        Sight::Event(told) => return Ok(encoded(&told)),
        // A snapshot can't be resumed before it is complete.
        Sight::Task(task) => pb::WatchResponse { cursor: String::new(), item: Some(Item::Snapshot(answers::task(*task, false))) },
        Sight::SnapshotDone(position) => event::at(position, Item::SnapshotDone(pb::SnapshotDone {})),
        Sight::Bookmark(position) => event::at(position, Item::Bookmark(pb::Bookmark {})),
    };
    Ok(message.encode_to_vec().into())
}

fn encoded(told: &Arc<crate::engine::TaskEvent>) -> Bytes {
    told.encoded(|told| event::event(told).encode_to_vec().into())
}
