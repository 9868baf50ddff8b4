//! What ends a call before its handler does: the caller's deadline (`grpc-timeout`), for unary calls and for streams; and, for
//! the streams that the engine doesn't own (health, reflection), the drain.
//!
//! tonic has a timeout of its own outside of every layer. It says CANCELLED and knows nothing of streams. It can't be turned off,
//! and it reads the header before we could take it away, but it never wins: its timer is set after ours, and each time that it
//! wakes the call it asks us first.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Either, Map};
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::status::status;
use crate::domain::refusal::Refusal;

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Services of gRPC itself: `/grpc.health.v1.Health/Watch` and `/grpc.reflection…` stay open as long as the client likes.
const NOT_OURS: &str = "/grpc.";
/// How long before the deadline an answer should leave: this part of the time there was, within these bounds.
const MARGIN_PART: u32 = 20;
const MARGIN_MIN: Duration = Duration::from_millis(20);
const MARGIN_MAX: Duration = Duration::from_millis(500);

/// When a long poll should answer at the latest, so that the answer is back before its caller's deadline. In a request's
/// extensions, if the caller has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerDeadline(pub Instant);

fn answer_by(received: Instant, timeout: Duration) -> Option<Instant> {
    // A caller with hardly any time is still left half of it.
    let margin = (timeout / MARGIN_PART).clamp(MARGIN_MIN, MARGIN_MAX).min(timeout / 2);
    received.checked_add(timeout - margin)
}

/// At most 8 digits and a unit. Absence: there is no timeout, or none that can be read; then it is passed over, as tonic does.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[derive(Clone, Debug)]
pub struct DeadlineLayer {
    drain: CancellationToken,
}

impl DeadlineLayer {
    /// `drain`: ends the streams that are not ours.
    pub fn new(drain: CancellationToken) -> Self {
        DeadlineLayer { drain }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService { inner, drain: self.drain.clone() }
    }
}

#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    drain: CancellationToken,
}

type Answer<E> = Result<Response<BoundedBody>, E>;

impl<S, B> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<BoundedBody>;
    type Error = S::Error;
    type Future =
        Either<Map<S::Future, fn(Result<Response<Body>, S::Error>) -> Answer<S::Error>>, BoxFuture<'static, Answer<S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let received = Instant::now();
        let timeout = timeout(request.headers());
        let deadline = timeout.and_then(|timeout| received.checked_add(timeout));
        if let Some(by) = timeout.and_then(|timeout| answer_by(received, timeout)) {
            request.extensions_mut().insert(CallerDeadline(by));
        }
        let drain = request.uri().path().starts_with(NOT_OURS).then(|| self.drain.clone());
        let call = self.inner.call(request);
        if deadline.is_none() && drain.is_none() {
            return Either::Left(call.map(|answer| answer.map(|response| response.map(BoundedBody::free))));
        }
        Either::Right(Box::pin(async move {
            let response = match deadline {
                None => call.await?,
                Some(deadline) => match before(deadline, call).await {
                    Some(answer) => answer?,
                    None => status(Refusal::CallerDeadline).into_http(),
                },
            };
            Ok(response.map(|inner| BoundedBody::bound(inner, deadline, drain)))
        }))
    }
}

/// What the call answers, or nothing when the deadline comes first.
async fn before<T>(deadline: Instant, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let mut sleep = pin!(sleep_until(deadline));
    poll_fn(|cx| {
        if let Poll::Ready(answer) = call.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        // The clock is read as well as the timer: tonic's later timer may have woken us before ours was told.
        if Instant::now() >= deadline || sleep.as_mut().poll(cx).is_ready() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await
}

/// A body that can end before its time, with a proper status in its trailers.
pub struct BoundedBody {
    inner: Body,
    deadline: Option<Instant>,
    /// Set only when the body first has nothing ready, which that of a unary call never does.
    sleep: Option<Pin<Box<Sleep>>>,
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    over: bool,
}

impl BoundedBody {
    fn free(inner: Body) -> Self {
        BoundedBody { inner, deadline: None, sleep: None, drain: None, over: false }
    }

    fn bound(inner: Body, deadline: Option<Instant>, drain: Option<CancellationToken>) -> Self {
        let drain = drain.map(|token| Box::pin(token.cancelled_owned()));
        BoundedBody { deadline, drain, ..BoundedBody::free(inner) }
    }

    /// What ends the body now, if anything does.
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Refusal> {
        if let Some(deadline) = self.deadline {
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if sleep.as_mut().poll(cx).is_ready() {
                return Some(Refusal::CallerDeadline);
            }
        }
        let drain = self.drain.as_mut()?;
        drain.as_mut().poll(cx).is_ready().then_some(Refusal::Draining)
    }
}

impl http_body::Body for BoundedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let Some(refusal) = self.end(cx) else { return Poll::Pending };
        self.over = true;
        // The handler's stream goes now, not when the client is done with us.
        self.inner = Body::empty();
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status(refusal).add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
