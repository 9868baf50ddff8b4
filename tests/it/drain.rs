//! How servers start, stop and die: in order when asked, and without hurting anybody when not.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use leasehold::api::proto::TaskState;
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::load::{Faults, Load};
use crate::town::{Answer, PATIENCE, Recovery, SECOND, Server, Town, eventually, new_folder};

/// How long a server may take to stop, as it is told to in these tests.
const GRACE: Duration = Duration::from_secs(10);
/// Tasks that the server which is killed holds at the time.
const HELD: usize = 5;
const LEASE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_server_that_is_asked_to_stop_ends_its_long_polls_empty_and_answers_what_is_under_way() {
    let mut town = Town::with_servers_told(1, &["--grace-seconds", "10"]).await;
    town.submit("before").await;
    let lease = town.worker("w1").claim_one().await;
    let waiting = {
        let worker = town.worker("w2");
        tokio::spawn(async move { worker.try_claim_within(1, PATIENCE).await })
    };
    // A stranger's uncommitted task of the same id keeps a Submit under way for as long as we like.
    let mut held = town.hold_id("during").await;
    let submitting = {
        let spec = town.spec("during").spec;
        tokio::spawn(submit(town.tasks(), spec))
    };
    held.until_waited_for().await;
    let mut watch = HealthClient::new(town.server(0).channel()).watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);

    let begin = Instant::now();
    town.server(0).terminate();
    assert!(waiting.await.unwrap().ok().is_empty());
    // A watcher of health is told, or its stream ends: either says that this server is not to be called any more.
    match watch.message().await {
        Ok(message) => assert_eq!(message.expect("it is told").status(), ServingStatus::NotServing),
        Err(status) => drop(Answer::<()>(Err(status)).refused_as(Code::Unavailable, "DRAINING")),
    }
    let address = town.server(0).grpc().to_owned();
    eventually("new connections are refused", async || TcpStream::connect(&address).await.is_err().then_some(())).await;
    assert!(!submitting.is_finished(), "it did not wait for the Submit");
    held.execute("ROLLBACK TO before").await;
    submitting.await.unwrap().expect("the Submit is answered");
    held.let_go().await;
    let status = town.server_mut(0).stopped().await;
    assert_eq!(status.code(), Some(0));
    assert!(begin.elapsed() < GRACE, "it took {:?}", begin.elapsed());

    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks WHERE task_id = 'during'").await, 1);
    town.restart_server(0).await;
    assert_eq!(town.task("during").await.state(), TaskState::Ready);
    // A lease is the worker's, not the server's.
    lease.at(&town.worker("w1")).complete().await.applied();
    town.audit().await;
}

type Tasks = leasehold::api::proto::task_service_client::TaskServiceClient<tonic::transport::Channel>;

async fn submit(mut tasks: Tasks, spec: leasehold::api::proto::TaskSpec) -> Result<(), tonic::Status> {
    tasks.submit(leasehold::api::proto::SubmitRequest { spec: Some(spec) }).await.map(drop)
}

impl Town {
    /// A stranger's task of this id, which will be taken back.
    async fn hold_id(&self, id: &str) -> crate::town::Held<'_> {
        let mut held = self.hold("SELECT").await;
        held.execute("SAVEPOINT before").await;
        held.execute(&format!(
            "INSERT INTO tasks (queue_id, uid, task_id, kind, content_type, target, event_id, fairness_key, ordering_key, cost, priority, digest)
             SELECT queue_id, gen_random_uuid(), '{id}', '', '', '', '', '', '', 1, 0, '' FROM queues"
        ))
        .await;
        held
    }
}

#[tokio::test]
async fn when_one_of_two_servers_is_killed_the_other_serves_everything_and_no_task_waits_longer_than_its_lease() {
    let mut town = Town::with_servers(2).await;
    let channels = vec![town.server(0).channel(), town.server(1).channel()];
    let load = Load::start(channels, Faults { servers: true, database: false });
    load.until_answered(100).await;
    for number in 0..HELD {
        town.spec(&format!("m-{number}")).queue("short").lease(LEASE).retry(5, Duration::ZERO).submit().await;
    }
    let held = town.worker_at(0, "w1").on_queue("short").claim_all(HELD).await;
    town.server_mut(0).kill();
    let unfinished = town.sql("SELECT count(*) FROM live").await;
    load.turn_to(vec![town.server(1).channel()], unfinished);
    // The first holder says nothing more; the second gets its tasks as soon as the leases have ended.
    for lease in town.worker_at(1, "w2").on_queue("short").claim_all(HELD).await {
        assert_eq!(lease.attempt(), 2);
        let first = held.iter().find(|first| first.id() == lease.id()).expect("it was held before");
        first.at(&town.worker_at(1, "w1")).complete().await.refused_with("LEASE_SUPERSEDED");
        lease.complete().await.applied();
    }
    let waited: i64 = town
        .sql(
            "SELECT max((extract(epoch FROM b.time - a.time) * 1000)::bigint) FROM events a JOIN events b USING (queue_id, uid)
             JOIN queues q USING (queue_id) WHERE q.name = 'short' AND (a.kind, a.attempt, b.kind, b.attempt) = ('LEASED', 1, 'LEASED', 2)",
        )
        .await;
    let bound = LEASE + SECOND;
    assert!(u128::try_from(waited).unwrap() < bound.as_millis(), "a task waited {waited} ms, its lease lasted {LEASE:?}");
    load.until_answered(100).await;
    town.restart_server(0).await;
    load.settle(&town).await;
    let took = Duration::from_millis(waited.unsigned_abs());
    town.row_held(21, "m-0", Some(Recovery { took, budget: bound })).await;
    town.audit().await;
}

fn leasehold(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env_remove("LEASEHOLD_INSECURE").output().expect("it runs")
}

#[test]
fn without_credentials_a_server_refuses_addresses_that_others_can_reach() {
    // A database that nobody can reach: whoever gets past the check fails for another reason.
    let nowhere = "postgres://leasehold@localhost:1/none?host=/nonexistent";
    for [flag, other] in [["--listen", "--http-listen"], ["--http-listen", "--listen"]] {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let serve = ["serve", "--database-url", nowhere, other, "127.0.0.1:0", flag, address];
            let refused = leasehold(&serve);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains(flag) && said.contains("--insecure"), "{said}");
            let insecure = leasehold(&[&serve[..], &["--insecure"]].concat());
            let said = String::from_utf8_lossy(&insecure.stderr).into_owned();
            assert!(!insecure.status.success() && !said.contains("loopback"), "{said}");
        }
    }
}

/// Host and port that the ready line names.
fn named<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {line:?}"))
}

#[tokio::test]
async fn the_ready_line_has_the_real_ports() {
    let town = Town::start().await;
    let line = town.server(0).ready_line();
    assert!(line.starts_with("leasehold ready grpc=127.0.0.1:"), "{line}");
    for name in ["grpc=", "http="] {
        assert!(!named(line, name).ends_with(":0"), "{line}");
        TcpStream::connect(named(line, name)).await.expect("somebody listens there");
    }
    assert_ne!(named(line, "grpc="), named(line, "http="));
    town.server(0).until_it_serves().await;
}

/// Processes that run in this folder or below it.
fn processes_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().expect("the folder is there");
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    let there = |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder));
    entries.filter(there).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

async fn no_process_is_left_in(folder: &Path) {
    eventually("no postgres is left", async || processes_in(folder).is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_private_postgres_keeps_its_tasks_and_ends_with_its_server_however_that_ends() {
    let folder = new_folder("private").await;
    let server = Server::start_private(&folder).await;
    assert!(named(server.ready_line(), "database=").starts_with("private:"), "{}", server.ready_line());
    let mut town = Town::of(server);
    town.spec("before").payload(b"kept").submit().await;
    assert!(!processes_in(&folder).is_empty(), "there is no postgres to be seen");
    assert_eq!(town.server_mut(0).stop().await.code(), Some(0));
    // A server that stops takes its Postgres with it: nothing is left once it has ended.
    assert_eq!(processes_in(&folder), Vec::<String>::new());

    let mut town = Town::of(Server::start_private(&folder).await);
    assert_eq!(town.task_with_payload("before").await.spec.unwrap().payload, b"kept".as_slice());
    let lease = town.worker("w1").claim_one().await;
    town.submit("acknowledged").await;
    town.server_mut(0).kill();
    no_process_is_left_in(&folder).await;

    let mut town = Town::of(Server::start_private(&folder).await);
    assert_eq!(town.task("acknowledged").await.state(), TaskState::Ready);
    lease.at(&town.worker("w1")).complete().await.applied();
    assert_eq!(town.server_mut(0).stop().await.code(), Some(0));
    assert_eq!(processes_in(&folder), Vec::<String>::new());
}
