//! How many calls may be in flight: in all, and of one connection. One too many is refused at once, with a hint when to come back; it never
//! waits here for a place.
//!
//! A call is *busy* from its headers to the end of its answer, unless it waits: a Claim or a GetTask that was told to. Those lie idle for
//! up to a minute and cost little, so they have places of their own; neither kind can keep the other out. Watches are counted by the
//! engine (`--max-watchers`). Health and reflection always get through: whoever looks at a server that is full must see that it lives.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::{BoxFuture, Either, Ready, ready};
use http::{Extensions, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tower::{Layer, Service};

use super::status::status;
use super::watch::PATH as WATCH;
use crate::domain::refusal::Refusal;

const OURS: &str = "/leasehold.";

/// How many calls may be in flight.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Busy ones, on the whole server.
    pub busy: usize,
    /// Those that wait, on the whole server.
    pub waiting: usize,
    /// Of either kind, on one connection.
    pub per_connection: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Busy,
    Waiting,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    busy: usize,
    waiting: usize,
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Busy => &mut self.busy,
            Kind::Waiting => &mut self.waiting,
        }
    }
}

/// All calls in flight.
struct Calls {
    limits: Limits,
    counts: Mutex<(Counts, HashMap<SocketAddr, Counts>)>,
}

impl Calls {
    fn counts(&self) -> MutexGuard<'_, (Counts, HashMap<SocketAddr, Counts>)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, peer: Option<SocketAddr>, kind: Kind) -> Result<(), Refusal> {
        let limit = if kind == Kind::Busy { self.limits.busy } else { self.limits.waiting };
        let mut counts = self.counts();
        let (all, connections) = &mut *counts;
        let own = peer.and_then(|peer| connections.get_mut(&peer).map(|own| *own.of(kind))).unwrap_or(0);
        if *all.of(kind) >= limit || own >= self.limits.per_connection {
            return Err(Refusal::Overloaded);
        }
        *all.of(kind) += 1;
        if let Some(peer) = peer {
            *connections.entry(peer).or_default().of(kind) += 1;
        }
        Ok(())
    }

    fn leave(&self, peer: Option<SocketAddr>, kind: Kind) {
        let mut counts = self.counts();
        let (all, connections) = &mut *counts;
        *all.of(kind) -= 1;
        let Some(peer) = peer else { return };
        if let Some(own) = connections.get_mut(&peer) {
            *own.of(kind) -= 1;
            if own.busy + own.waiting == 0 {
                connections.remove(&peer);
            }
        }
    }
}

/// The place of one call; it is free again when the last of it is dropped.
pub struct Place {
    calls: Arc<Calls>,
    peer: Option<SocketAddr>,
    kind: Mutex<Kind>,
}

impl Place {
    /// The call is about to wait: it takes a place among those that do, and leaves its own.
    pub fn waits(extensions: &Extensions) -> Result<(), Refusal> {
        let Some(place) = extensions.get::<Arc<Place>>() else { return Ok(()) };
        let mut kind = place.kind.lock().unwrap_or_else(PoisonError::into_inner);
        if *kind == Kind::Busy {
            place.calls.enter(place.peer, Kind::Waiting)?;
            place.calls.leave(place.peer, Kind::Busy);
            *kind = Kind::Waiting;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let kind = *self.kind.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.calls.leave(self.peer, kind);
    }
}

/// Gives each call a place, in its request's extensions.
#[derive(Clone)]
pub struct InFlightLayer(Arc<Calls>);

impl InFlightLayer {
    pub fn new(limits: Limits) -> Self {
        InFlightLayer(Arc::new(Calls { limits, counts: Mutex::default() }))
    }
}

impl<S> Layer<S> for InFlightLayer {
    type Service = InFlightService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        InFlightService { inner, calls: self.0.clone() }
    }
}

#[derive(Clone)]
pub struct InFlightService<S> {
    inner: S,
    calls: Arc<Calls>,
}

type Answer<E> = Result<Response<Body>, E>;

impl<S, B> Service<Request<B>> for InFlightService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Either<Ready<Answer<S::Error>>, BoxFuture<'static, Answer<S::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        if !path.starts_with(OURS) || path == WATCH {
            return Either::Left(self.inner.call(request));
        }
        let peer = request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        if let Err(refusal) = self.calls.enter(peer, Kind::Busy) {
            return Either::Right(Either::Left(ready(Ok(status(refusal).into_http()))));
        }
        let place = Arc::new(Place { calls: self.calls.clone(), peer, kind: Mutex::new(Kind::Busy) });
        request.extensions_mut().insert(place.clone());
        let answer = self.inner.call(request);
        Either::Right(Either::Right(Box::pin(async move {
            Ok(answer.await?.map(|inner| Body::new(PlacedBody { inner, _place: place })))
        })))
    }
}

/// An answer that keeps its call's place until it was taken.
struct PlacedBody {
    inner: Body,
    _place: Arc<Place>,
}

impl http_body::Body for PlacedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
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
