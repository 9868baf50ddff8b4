//! Leases on their way: who is gone before they arrive keeps none, and who asks again gets the same.

use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::{ObstacleKind, TaskState};
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::town::{Answer, Lease, PATIENCE, QUEUE, Recovery, SECOND, Server, Town, eventually, span};

/// How soon leases that nobody took must be back, as the issue says.
const GIVEN_BACK: Duration = Duration::from_secs(1);
const TASKS: usize = 5;
/// More than a server has for its write path.
const CONNECTIONS: usize = 20;
/// How often a call dies while its repetition runs.
const ROUNDS: usize = 10;

impl Town {
    async fn submit_some(&self) {
        for number in 0..TASKS {
            self.submit(&format!("m-{number}")).await;
        }
    }

    /// Waits until a claim stands in the first server's line; there must be a READY task that nobody may have.
    async fn until_a_claim_waits(&self, id: &str) {
        let nobody = |obstacles: Vec<pb::Obstacle>| obstacles.iter().any(|one| one.kind() == ObstacleKind::NoWorker);
        eventually("a claim waits", async || (!nobody(self.explain(id).await)).then_some(())).await;
    }
}

/// Connections to its gRPC port that the server has not closed yet.
fn connections(server: &Server) -> usize {
    let (_, port) = server.grpc().rsplit_once(':').expect("host and port");
    let local = format!(":{:04X}", port.parse::<u16>().expect("a port"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    // ESTABLISHED, or CLOSE_WAIT: the client has closed it, the server not yet.
    let open = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[1].ends_with(&local) && ["01", "08"].contains(&words[3])
    };
    table.lines().filter(open).count()
}

/// A Claim over a connection of its own, on its way.
struct Call {
    town_connections: usize,
    call: tokio::task::JoinHandle<Answer<Vec<Lease>>>,
}

async fn claim_alone(town: &Town, server: usize, worker: &str, request_id: &str) -> Call {
    town.tasks_at(server).get_task(pb::GetTaskRequest::default()).await.expect_err("it names no task");
    let town_connections = connections(town.server(server));
    let worker = town.worker_at(server, worker).with_request_id(request_id).over(town.server(server).connect().await);
    Call { town_connections, call: tokio::spawn(async move { worker.try_claim_within(10, PATIENCE).await }) }
}

impl Call {
    /// The client is gone, and the server knows it.
    async fn dies(self, server: &Server) {
        self.call.abort();
        assert!(self.call.await.is_err(), "the call was answered");
        let gone = async || (connections(server) <= self.town_connections).then_some(());
        eventually("the server has closed the connection", gone).await;
    }
}

/// Nobody has leased these before, and now `other` does.
async fn only_the_other_leases(town: &Town, ids: &[&str]) {
    town.policy("paused = false").await;
    for lease in town.worker("other").claim_all(ids.len()).await {
        assert_eq!(lease.attempt(), 1);
        assert_eq!(town.history(lease.id()).await, ["SUBMITTED>READY", "LEASED>LEASED"]);
        lease.complete().await.applied();
    }
    town.audit().await;
}

#[tokio::test]
async fn a_claimer_whose_connection_breaks_while_it_waits_takes_nothing() {
    let town = Town::start().await;
    town.policy("paused = true").await;
    town.submit("before").await;
    let waiting = claim_alone(&town, 0, "gone", "").await;
    town.until_a_claim_waits("before").await;
    waiting.dies(town.server(0)).await;
    town.submit("after").await;
    only_the_other_leases(&town, &["before", "after"]).await;
}

#[tokio::test]
async fn a_claimer_that_takes_its_call_back_while_it_waits_takes_nothing() {
    let town = Town::start().await;
    town.policy("paused = true").await;
    town.submit("before").await;
    let channel: Channel = town.server(0).connect().await;
    let worker = town.worker("gone").over(channel.clone());
    let waiting = tokio::spawn(async move { worker.try_claim_within(10, PATIENCE).await });
    town.until_a_claim_waits("before").await;
    waiting.abort();
    assert!(waiting.await.is_err(), "the call was answered");
    // A connection's frames are read in order: when this is answered, the call's end has been read.
    let mut tasks = pb::task_service_client::TaskServiceClient::new(channel);
    tasks.get_task(pb::GetTaskRequest::default()).await.expect_err("it names no task");
    town.submit("after").await;
    only_the_other_leases(&town, &["before", "after"]).await;
}

#[tokio::test]
async fn leases_for_a_claimer_that_died_meanwhile_are_given_back_at_once_and_uncharged() {
    let town = Town::start().await;
    town.submit_some().await;
    let mut gate = town.hold_gate().await;
    let call = claim_alone(&town, 0, "gone", "").await;
    gate.until_waited_for().await;
    call.dies(town.server(0)).await;
    gate.let_go().await;
    let released = "SELECT count(*) FROM events WHERE kind = 'RELEASED'";
    eventually("the leases are given back", async || (town.sql::<i64>(released).await == TASKS as i64).then_some(())).await;
    let longest: i64 = town
        .sql(
            "SELECT max((extract(epoch FROM r.time - l.time) * 1000000)::bigint) FROM events l JOIN events r USING (queue_id, uid, attempt)
             WHERE l.kind = 'LEASED' AND r.kind = 'RELEASED'",
        )
        .await;
    assert!(u128::try_from(longest).unwrap() < GIVEN_BACK.as_micros(), "given back after {longest} µs");
    for number in 0..TASKS {
        let task = town.task(&format!("m-{number}")).await;
        assert_eq!((task.state(), task.attempt, task.attempts_charged), (TaskState::Ready, 1, 0));
    }
    for lease in town.worker("other").claim_all(TASKS).await {
        assert_eq!((lease.attempt(), lease.task().attempts_charged), (2, 1));
        lease.complete().await.applied();
    }
    let took = Duration::from_micros(longest.unsigned_abs());
    town.row_held(20, "m-0", Some(Recovery { took, budget: GIVEN_BACK })).await;
    town.audit().await;
}

#[tokio::test]
async fn a_gate_that_is_held_for_long_refuses_claims_for_now_and_hurts_nobody_else() {
    let town = Town::start().await;
    town.submit_some().await;
    let mut gate = town.hold_gate().await;
    let call = claim_alone(&town, 0, "w1", "").await;
    gate.until_waited_for().await;
    let refused = call.call.await.unwrap().refused_as(Code::Unavailable, "DATABASE_UNAVAILABLE");
    assert!(refused.status.get_details_retry_info().is_some());
    // More calls than there are connections: none of them meets what the claim has left behind.
    for number in 0..CONNECTIONS * 2 {
        town.submit(&format!("n-{number}")).await;
        assert_eq!(town.server(0).http_status("/readyz").await, Some(200));
    }
    gate.let_go().await;
    assert_eq!(town.worker("w2").claim_all(TASKS).await.len(), TASKS);
    town.audit().await;
}

#[tokio::test]
async fn a_waiting_claim_answers_before_its_callers_deadline() {
    let town = Town::start().await;
    let claim =
        pb::ClaimRequest { queue: QUEUE.into(), worker_id: "w1".into(), wait: Some(span(SECOND * 30)), ..Default::default() };
    // The server keeps a twentieth of the time for the answer's way home; of less a busy test machine makes nothing.
    let timeout = SECOND * 5;
    let mut request = tonic::Request::new(claim);
    request.set_timeout(timeout);
    let begin = Instant::now();
    let answer = town.worker("w1").client().claim(request).await.expect("an answer, not a timeout").into_inner();
    assert_eq!(answer.leases, []);
    assert!(begin.elapsed() > timeout / 2, "it did not wait: {:?}", begin.elapsed());
    // Nobody waits any more, so that what comes is somebody else's.
    town.submit("later").await;
    assert_eq!(town.worker("w2").claim_one().await.attempt(), 1);
    town.audit().await;
}

fn tokens(leases: &[Lease]) -> Vec<i64> {
    leases.iter().map(Lease::token).collect()
}

#[tokio::test]
async fn a_claim_whose_wait_ends_while_its_turn_has_come_gets_what_it_brings() {
    let town = Town::start().await;
    town.submit("t").await;
    let mut gate = town.hold_gate().await;
    let (worker, wait) = (town.worker("w1"), Duration::from_millis(200));
    let begin = Instant::now();
    let waiting = tokio::spawn(async move { worker.claim_within(1, wait).await });
    gate.until_waited_for().await;
    // Nobody else asks: what it doesn't get, nobody has.
    eventually("its wait is over", async || (begin.elapsed() > wait * 2).then_some(())).await;
    gate.let_go().await;
    let leases = waiting.await.expect("it does not panic");
    assert_eq!(leases.iter().map(Lease::id).collect::<Vec<_>>(), ["t"]);
    assert_eq!(town.history("t").await, ["SUBMITTED>READY", "LEASED>LEASED"]);
    leases[0].complete().await.applied();
    town.audit().await;
}

#[tokio::test]
async fn the_same_request_id_is_answered_with_the_same_leases_by_every_server() {
    let town = Town::with_servers(2).await;
    town.submit_some().await;
    let worker = |server: usize| town.worker_at(server, "w1").with_request_id("r-1");
    let first = worker(0).claim(3).await;
    assert_eq!(first.len(), 3);
    for server in [0, 1, 0] {
        let again = worker(server).claim(3).await;
        assert_eq!(tokens(&again), tokens(&first));
        assert!(again.iter().zip(&first).all(|(again, first)| again.attempt() == 1 && again.id() == first.id()));
    }
    // Another worker's request of that name is another request.
    let others = town.worker_at(1, "w2").with_request_id("r-1").claim(10).await;
    assert_eq!(others.len(), TASKS - 3);
    first[0].complete().await.applied();
    assert_eq!(tokens(&worker(1).claim(3).await), tokens(&first[1..]));
    for lease in first[1..].iter().chain(&others) {
        lease.complete().await.applied();
    }
    town.audit().await;
}

/// All that the first server still had to do for claims and leases when this was called is done.
async fn until_it_is_quiet(town: &Town) {
    // Its line of claims is served one after the other; leases that were not taken are given back after that.
    drop(town.worker_at(0, "probe").on_queue(QUEUE).claim(1).await);
    for _ in 0..4 {
        drop(town.cancel("no such task").await);
    }
}

/// The call whose answer arrived is the only holder.
async fn it_holds_what_it_was_given(town: &Town, leases: Vec<Lease>) {
    assert_eq!(leases.len(), TASKS);
    until_it_is_quiet(town).await;
    for lease in leases {
        let task = town.task(lease.id()).await;
        assert_eq!(
            (task.state(), task.fencing_token),
            (TaskState::Leased, lease.token()),
            "{}: the lease was taken away",
            lease.id()
        );
        lease.complete().await.applied();
    }
}

#[tokio::test]
async fn a_repeated_request_whose_first_call_dies_at_the_same_moment_is_the_only_holder() {
    let town = Town::with_servers(2).await;
    for round in 0..ROUNDS {
        for number in 0..TASKS {
            town.submit(&format!("m-{round}-{number}")).await;
        }
        let request_id = format!("r-{round}");
        let mut gate = town.hold_gate().await;
        let first = claim_alone(&town, 0, "w1", &request_id).await;
        gate.until_waited_for().await;
        first.dies(town.server(0)).await;
        let second = claim_alone(&town, 1, "w1", &request_id).await;
        gate.until_waited_for_by(2).await;
        gate.let_go().await;
        it_holds_what_it_was_given(&town, second.call.await.unwrap().ok()).await;
    }
    town.audit().await;
}

#[tokio::test]
async fn a_dead_first_call_that_comes_after_its_repetition_takes_nothing_away_from_it() {
    let town = Town::with_servers(2).await;
    town.submit_some().await;
    let mut gate = town.hold_gate().await;
    let first = claim_alone(&town, 0, "w1", "r-1").await;
    gate.until_waited_for().await;
    first.dies(town.server(0)).await;
    town.server(0).signal(libc::SIGSTOP);
    gate.let_go().await;
    let second = town.worker_at(1, "w1").with_request_id("r-1").claim_within(10, PATIENCE).await;
    town.server(0).signal(libc::SIGCONT);
    it_holds_what_it_was_given(&town, second).await;
    town.audit().await;
}

#[tokio::test]
async fn what_a_draining_server_leased_for_a_call_that_has_ended_is_given_back_before_it_goes() {
    let mut town = Town::start().await;
    town.submit("t").await;
    let mut gate = town.hold_gate().await;
    let waiting = {
        let worker = town.worker("w1");
        tokio::spawn(async move { worker.try_claim_within(1, PATIENCE).await })
    };
    gate.until_waited_for().await;
    town.server(0).terminate();
    assert!(waiting.await.unwrap().ok().is_empty());
    gate.let_go().await;
    assert_eq!(town.server_mut(0).stopped().await.code(), Some(0));
    town.restart_server(0).await;
    let task = town.task("t").await;
    assert_eq!((task.state(), task.attempts_charged), (TaskState::Ready, 0));
    town.audit().await;
}
