//! Deadlines and the drain. Where a deadline has to pass it is a millisecond away; nothing sleeps.

use std::convert::Infallible;
use std::sync::Arc;

use http_body::Body as _;
use tonic::Code;
use tower::{ServiceExt as _, service_fn};

use super::*;

fn parsed(text: &str) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    headers.insert(GRPC_TIMEOUT, text.parse().expect("a header's value"));
    timeout(&headers)
}

#[test]
fn a_timeout_is_at_most_eight_digits_and_a_unit() {
    for (text, expected) in [
        ("1H", Duration::from_secs(3_600)),
        ("2M", Duration::from_secs(120)),
        ("3S", Duration::from_secs(3)),
        ("4m", Duration::from_millis(4)),
        ("5u", Duration::from_micros(5)),
        ("6n", Duration::from_nanos(6)),
        ("0S", Duration::ZERO),
        ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
    ] {
        assert_eq!(parsed(text), Some(expected), "{text}");
    }
    for text in ["", "S", "1", "1s", "123456789S", "+1S", "-1S", "1.5S", " 1S", "1 S", "é"] {
        assert_eq!(parsed(text), None, "{text:?}");
    }
    assert_eq!(timeout(&HeaderMap::new()), None);
}

#[test]
fn a_long_poll_leaves_time_for_its_answer() {
    let now = Instant::now();
    for (timeout, margin) in [(0, 0), (10, 5), (100, 20), (2_000, 100), (60_000, 500)] {
        let left = Duration::from_millis(timeout - margin);
        assert_eq!(answer_by(now, Duration::from_millis(timeout)), Some(now + left), "{timeout} ms");
    }
}

fn request(path: &'static str, timeout: Option<&'static str>) -> Request<()> {
    let mut request = Request::new(());
    *request.uri_mut() = http::Uri::from_static(path);
    if let Some(timeout) = timeout {
        request.headers_mut().insert(GRPC_TIMEOUT, http::HeaderValue::from_static(timeout));
    }
    request
}

/// A body with nothing to say, which tells when it is dropped: then nobody else holds its witness.
struct Silent(#[allow(dead_code, reason = "held for its drop")] Arc<()>);

impl http_body::Body for Silent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Pending
    }
}

/// What a call is answered whose stream says nothing, and the stream's witness.
async fn silent(drain: &CancellationToken, request: Request<()>) -> (BoundedBody, Arc<()>) {
    let witness = Arc::new(());
    let held = witness.clone();
    let handler = service_fn(move |_: Request<()>| {
        let held = held.clone();
        async move { Ok::<_, Infallible>(Response::new(Body::new(Silent(held)))) }
    });
    let Ok(response) = DeadlineLayer::new(drain.clone()).layer(handler).oneshot(request).await;
    (response.into_body(), witness)
}

async fn next(body: &mut BoundedBody) -> Option<Frame<Bytes>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.map(|frame| frame.expect("no error"))
}

async fn ends_with(body: &mut BoundedBody, code: Code) {
    let trailers = next(body).await.and_then(|frame| frame.into_trailers().ok()).expect("trailers");
    let status = Status::from_header_map(&trailers).expect("a status");
    assert_eq!(status.code(), code);
    assert!(!status.details().is_empty());
    assert!(next(body).await.is_none());
    assert!(body.is_end_stream());
}

#[tokio::test]
async fn a_handler_that_is_not_done_in_time_is_dropped_and_answered_deadline_exceeded() {
    let witness = Arc::new(());
    let held = witness.clone();
    let handler = service_fn(move |_: Request<()>| {
        let held = held.clone();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let service = DeadlineLayer::new(CancellationToken::new()).layer(handler);
    let Ok(response) = service.oneshot(request("/leasehold.v1.TaskService/Submit", Some("1m"))).await;
    let status = Status::from_header_map(response.headers()).expect("a status in the headers");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[tokio::test]
async fn a_stream_that_is_not_done_in_time_ends_with_deadline_exceeded() {
    let (mut body, witness) = silent(&CancellationToken::new(), request("/leasehold.v1.TaskService/Watch", Some("1m"))).await;
    ends_with(&mut body, Code::DeadlineExceeded).await;
    assert_eq!(Arc::strong_count(&witness), 1, "the stream is dropped at once");
}

#[tokio::test]
async fn the_drain_ends_the_streams_of_grpc_itself_and_leaves_ours_to_the_engine() {
    let drain = CancellationToken::new();
    let (mut theirs, witness) = silent(&drain, request("/grpc.health.v1.Health/Watch", None)).await;
    let (mut ours, _) = silent(&drain, request("/leasehold.v1.TaskService/Watch", None)).await;
    drain.cancel();
    ends_with(&mut theirs, Code::Unavailable).await;
    assert_eq!(Arc::strong_count(&witness), 1);
    assert!(next(&mut ours).now_or_never().is_none());
}

#[tokio::test]
async fn a_handler_is_told_when_to_answer() {
    let handler = service_fn(|request: Request<()>| async move {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().extend(request.extensions().clone());
        Ok::<_, Infallible>(response)
    });
    let service = DeadlineLayer::new(CancellationToken::new()).layer(handler);
    let before = Instant::now();
    let Ok(response) = service.clone().oneshot(request("/x", Some("10S"))).await;
    let CallerDeadline(by) = *response.extensions().get::<CallerDeadline>().expect("there is one");
    let margin = Duration::from_millis(500);
    assert!(by >= before + Duration::from_secs(10) - margin && by <= Instant::now() + Duration::from_secs(10) - margin);
    let Ok(response) = service.oneshot(request("/x", None)).await;
    assert_eq!(response.extensions().get::<CallerDeadline>(), None);
}
