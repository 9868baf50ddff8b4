//! More calls at once than a server or a connection may have: the next one is refused with a hint, and a place that comes free is taken.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body::Frame;
use leasehold::api::proto as pb;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_types::StatusExt as _;
use tower::{Service as _, ServiceExt as _};

use crate::town::{Answer, SECOND, Town, eventually, task_ref};

/// A call that has begun, and whose request is not complete before the test says so.
struct HeldOpen {
    channel: Channel,
    rest: oneshot::Sender<Bytes>,
    answer: JoinHandle<Option<Status>>,
}

impl HeldOpen {
    /// A GetServerInfo over this connection.
    fn over(channel: Channel) -> HeldOpen {
        let (rest, more) = oneshot::channel();
        let mut own = channel.clone();
        let answer = tokio::spawn(async move {
            let request = Request::post("http://leasehold/leasehold.v1.AdminService/GetServerInfo");
            let request = request.header("content-type", "application/grpc").header("te", "trailers");
            let request = request.body(Body::new(Later(Some(more)))).expect("a request");
            let answer = own.ready().await.expect("a connection").call(request).await.expect("an answer");
            Status::from_header_map(answer.headers())
        });
        HeldOpen { channel, rest, answer }
    }

    /// The rest of the request is sent, and the call answered.
    async fn end(self) {
        self.rest.send(Bytes::from_static(&[0; 5])).expect("somebody waits for it");
        assert!(self.answer.await.expect("it does not panic").is_none(), "it was refused");
    }
}

struct Later(Option<oneshot::Receiver<Bytes>>);

impl http_body::Body for Later {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(more) = &mut self.0 else { return Poll::Ready(None) };
        let bytes = std::task::ready!(Pin::new(more).poll(cx)).unwrap_or_default();
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

/// A call that is answered at once, over this connection.
async fn asks(channel: &Channel) -> Answer<pb::GetServerInfoResponse> {
    let mut admin = pb::admin_service_client::AdminServiceClient::new(channel.clone());
    admin.get_server_info(pb::GetServerInfoRequest {}).await.into()
}

/// Refused so often in a row, it was no place that a call before had not quite left.
const SURE: u32 = 3;

/// Waits until the place of each of `held` is taken, and what `asks` is refused for it. Whatever was refused a place itself begins anew.
async fn until_refused<T, A>(
    held: &mut [T], over: impl Fn(&T) -> bool, again: impl Fn(&T) -> T, asks: impl AsyncFn() -> Answer<A>,
) -> Status {
    let state = std::cell::RefCell::new((held, 0));
    let look = async || {
        let whole = {
            let (held, _) = &mut *state.borrow_mut();
            let mut whole = true;
            for one in held.iter_mut().filter(|one| over(one)) {
                *one = again(one);
                whole = false;
            }
            whole
        };
        let refused = asks().await.0.err();
        let (_, times) = &mut *state.borrow_mut();
        *times = if whole && refused.is_some() { *times + 1 } else { 0 };
        refused.filter(|_| *times == SURE)
    };
    eventually("a call is refused", look).await
}

/// As many calls as there are channels are held open, and one more, over `channel`, is refused.
async fn full(held: &mut [HeldOpen], channel: &Channel) -> Status {
    until_refused(held, |one| one.answer.is_finished(), |one| HeldOpen::over(one.channel.clone()), async || asks(channel).await)
        .await
}

fn tells_when_to_come_back(status: Status) {
    let refused = Answer::<()>(Err(status)).refused_as(Code::Unavailable, "OVERLOADED");
    let hint = refused.status.get_details_retry_info().expect("a hint").retry_delay;
    assert_eq!(hint, Some(SECOND));
    assert_eq!(refused.status.metadata().get("grpc-retry-pushback-ms").expect("a hint"), "1000");
}

#[tokio::test]
async fn one_call_too_many_is_refused_with_a_hint_and_a_place_that_comes_free_is_taken() {
    let town = Town::with_servers_told(1, &["--max-in-flight", "3"]).await;
    let server = town.server(0);
    let mut held = Vec::new();
    for _ in 0..3 {
        // Each over a connection of its own: it is all of them together that are too many.
        held.push(HeldOpen::over(server.connect().await));
    }
    let channel = server.connect().await;
    tells_when_to_come_back(full(&mut held, &channel).await);
    town.spec("t").try_submit().await.refused_as(Code::Unavailable, "OVERLOADED");
    // Whoever looks sees that the server lives.
    assert_eq!(server.health("").await.unwrap(), ServingStatus::Serving);
    assert_eq!(server.http_status("/readyz").await, Some(200));
    held.pop().expect("three are held").end().await;
    eventually("a place is free", async || asks(&channel).await.0.ok()).await;
    // Who hangs up leaves a place as well.
    held.push(HeldOpen::over(server.connect().await));
    full(&mut held, &channel).await;
    held.pop().expect("three are held").answer.abort();
    eventually("a place is free", async || asks(&channel).await.0.ok()).await;
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 0, "a refused Submit left something");
    for call in held {
        call.end().await;
    }
    town.submit("t").await;
    town.audit().await;
}

#[tokio::test]
async fn a_connection_with_too_many_calls_is_refused_more_and_others_are_served() {
    let town = Town::with_servers_told(1, &["--max-per-connection", "2"]).await;
    let (busy, other) = (town.server(0).connect().await, town.server(0).connect().await);
    let mut held = [HeldOpen::over(busy.clone()), HeldOpen::over(busy.clone())];
    tells_when_to_come_back(full(&mut held, &busy).await);
    for _ in 0..10 {
        asks(&other).await.ok();
    }
    let [first, second] = held;
    first.end().await;
    eventually("a place is free", async || asks(&busy).await.0.ok()).await;
    second.end().await;
    town.audit().await;
}

#[tokio::test]
async fn calls_that_wait_leave_room_for_those_that_work_and_have_a_limit_of_their_own() {
    let town = Town::with_servers_told(1, &["--max-in-flight", "8", "--max-waiting", "3"]).await;
    town.spec("later").start_delay(SECOND * 600).submit().await;
    let worker = || town.worker("w1");
    let mut waits: Vec<_> = (0..3).map(|number| wait(&town, number == 0)).collect();
    let shortly = async || worker().try_claim_within(1, Duration::from_millis(1)).await;
    let over = |wait: &Waiting| wait.call.is_finished();
    tells_when_to_come_back(until_refused(&mut waits, over, |one| wait(&town, one.looks), shortly).await);
    // What doesn't wait is served, although as many wait as may.
    for _ in 0..10 {
        asks(&town.server(0).channel()).await.ok();
        assert!(worker().claim(1).await.is_empty());
        town.task("later").await;
    }
    // Who gets work leaves a place for the next one who waits.
    town.submit("t").await;
    eventually("a Claim ends", async || waits.iter().any(|wait| !wait.looks && over(wait)).then_some(())).await;
    assert!(eventually("a place is free", async || shortly().await.0.ok()).await.is_empty());
    town.cancel("later").await.ok();
    let look = waits.remove(0);
    assert!(look.call.await.expect("it does not panic").is_ok(), "the wait ends with the task");
    waits.into_iter().for_each(|wait| wait.call.abort());
    town.audit_database().await;
}

/// A call that waits: a GetTask, or a Claim.
struct Waiting {
    looks: bool,
    call: JoinHandle<Result<(), Status>>,
}

fn wait(town: &Town, looks: bool) -> Waiting {
    let (mut tasks, worker) = (town.tasks(), town.worker("w1"));
    let call = tokio::spawn(async move {
        if looks {
            let wait_until = Some(pb::WaitUntil::default());
            return tasks.get_task(pb::GetTaskRequest { task: Some(task_ref("later")), view: 0, wait_until }).await.map(drop);
        }
        worker.try_claim_within(1, SECOND * 60).await.0.map(drop)
    });
    Waiting { looks, call }
}

#[tokio::test]
async fn a_full_server_that_ends_takes_no_longer_than_its_grace() {
    let mut town = Town::with_servers_told(1, &["--max-in-flight", "1", "--grace-seconds", "1"]).await;
    let mut held = [HeldOpen::over(town.server(0).connect().await)];
    full(&mut held, &town.server(0).connect().await).await;
    assert!(town.server_mut(0).stop().await.success());
    town.audit().await;
}
