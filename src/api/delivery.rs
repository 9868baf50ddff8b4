//! Sees whether an answer was taken. A Claim leaves its `Delivery` in the response; this layer moves it into the body, which says
//! `delivered` once the last frame has been taken, and drops it otherwise: then the engine gives the leases back.
//!
//! "Taken" is as far as a server can know: HTTP/2 asks for the trailers only after the client's window had room for everything
//! before them. A caller that dies after that keeps its leases until they end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Map;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// What waits for its answer to be taken; dropping the last of it undoes what was answered. (A trait, so that this file need not
/// know the engine.)
pub trait Pending: Clone + Send + Sync + Unpin + 'static {
    fn taken(self);
}

impl Pending for crate::engine::Delivery {
    fn taken(self) {
        self.delivered();
    }
}

/// Looks for a `P` in each response.
#[derive(Debug)]
pub struct DeliveryLayer<P>(std::marker::PhantomData<fn(P)>);

impl<P> DeliveryLayer<P> {
    pub fn new() -> Self {
        DeliveryLayer(std::marker::PhantomData)
    }
}

impl<P> Default for DeliveryLayer<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Clone for DeliveryLayer<P> {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl<S, P> Layer<S> for DeliveryLayer<P> {
    type Service = DeliveryService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        DeliveryService { inner, layer: self.clone() }
    }
}

#[derive(Debug)]
pub struct DeliveryService<S, P> {
    inner: S,
    layer: DeliveryLayer<P>,
}

impl<S: Clone, P> Clone for DeliveryService<S, P> {
    fn clone(&self) -> Self {
        DeliveryService { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, P, B> Service<Request<B>> for DeliveryService<S, P>
where
    S: Service<Request<B>, Response = Response<Body>>,
    P: Pending,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Map<S::Future, fn(Result<Response<Body>, S::Error>) -> Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.inner.call(request).map(|response| response.map(attach::<P>))
    }
}

/// Takes the pending delivery out of the extensions, so that the body holds the only one.
fn attach<P: Pending>(mut response: Response<Body>) -> Response<Body> {
    match response.extensions_mut().remove::<P>() {
        None => response,
        Some(pending) => response.map(|inner| Body::new(WatchedBody { inner, pending: Some(pending) })),
    }
}

struct WatchedBody<P> {
    inner: Body,
    pending: Option<P>,
}

impl<P: Pending> WatchedBody<P> {
    fn taken(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.taken();
        }
    }
}

impl<P: Pending> http_body::Body for WatchedBody<P> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => match frame.trailers_ref() {
                // Trailers that tell of an error: the leases never arrived.
                Some(trailers) if trailers.get(Status::GRPC_STATUS).is_some_and(|status| status != "0") => self.pending = None,
                Some(_) => self.taken(),
                None if self.inner.is_end_stream() => self.taken(),
                None => {}
            },
            Some(Err(_)) => self.pending = None,
            None => self.taken(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
