//! Connections that grow old: behind a balancer of connections clients move from server to server, and lose nothing by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold::api::proto as pb;
use pb::watch_response::Item;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::town::{Answer, PATIENCE, SECOND, Seen, Town, Worker, eventually};

/// How often the watch is to be resumed.
const MOVES: usize = 3;

/// Carries each connection to the next of the servers, as balancers below gRPC do.
async fn balancer(servers: Vec<String>) -> (Channel, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let carried = Arc::new(AtomicUsize::new(0));
    let count = carried.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let to = servers[count.fetch_add(1, Ordering::SeqCst) % servers.len()].clone();
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(to).await {
                    drop(copy_bidirectional(&mut client, &mut server).await);
                }
            });
        }
    });
    (Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy(), carried)
}

/// What a call is answered, as soon as it gets through. Tonic's client fails calls that it has not sent yet when their connection is told to
/// go; other clients send them over the next one by themselves.
macro_rules! through {
    ($call:expr) => {
        loop {
            match $call.await.0 {
                Err(status) if status.code() == Code::Cancelled && status.details().is_empty() => {}
                other => break Answer(other).ok(),
            }
        }
    };
}

async fn submit(
    tasks: &mut pb::task_service_client::TaskServiceClient<Channel>, spec: &pb::TaskSpec,
) -> Answer<pb::SubmitResponse> {
    tasks.submit(pb::SubmitRequest { spec: Some(spec.clone()) }).await.into()
}

/// What a client sees that resumes its watch whenever it ends, until it has seen the end of `last`; and how often it had to.
async fn follow(town: &Town, channel: Channel, mut cursor: String, last: &str) -> (Vec<Seen>, usize) {
    let (mut seen, mut resumed) = (Vec::new(), 0);
    loop {
        let mut watch = through!(town.watch_over(channel.clone(), |request| request.after_cursor.clone_from(&cursor)));
        let ended = loop {
            match watch.try_next().await {
                Ok(Some(Item::Event(event))) => {
                    seen.push(Seen::from(&event));
                    if event.terminal && event.task.as_ref().is_some_and(|task| task.task_id == last) {
                        return (seen, resumed);
                    }
                }
                Ok(Some(Item::Bookmark(_))) => {}
                Ok(other) => panic!("{other:?}"),
                Err(status) => break status,
            }
        };
        let refused = Answer::<()>(Err(ended)).refused_as(Code::Unavailable, "DRAINING");
        cursor = refused.says("last_cursor").to_owned();
        resumed += 1;
    }
}

#[tokio::test]
async fn watches_long_polls_and_workers_live_through_connections_that_grow_old_and_move_to_other_servers() {
    let town = Arc::new(Town::with_servers_told(2, &["--max-connection-age-seconds", "1"]).await);
    let (channel, carried) = balancer(vec![town.server(0).grpc().to_owned(), town.server(1).grpc().to_owned()]).await;
    let watching = tokio::spawn({
        let (town, channel) = (town.clone(), channel.clone());
        let cursor = town.spec("first").try_submit().await.ok().cursor;
        async move { follow(&town, channel, cursor, "last").await }
    });
    // One that waits for a task of its own all the while.
    let waiting = tokio::spawn({
        let worker = Worker::new(channel.clone(), "patient").on_queue("other");
        async move { through!(worker.try_claim_within(1, PATIENCE)) }
    });
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let working = tokio::spawn({
        let worker = Worker::new(channel.clone(), "busy").reporting_effects();
        let (over, done) = (over.clone(), done.clone());
        async move {
            while !over.load(Ordering::SeqCst) {
                for lease in through!(worker.try_claim_within(1, SECOND)) {
                    through!(lease.begin_effect("effect"));
                    assert!(!through!(lease.complete()).already_applied);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    });
    let mut number = 0;
    let begin = std::time::Instant::now();
    while carried.load(Ordering::SeqCst) <= MOVES {
        assert!(begin.elapsed() < PATIENCE, "connections do not grow old");
        let spec = town.spec(&format!("t-{number}")).spec;
        let mut tasks = pb::task_service_client::TaskServiceClient::new(channel.clone());
        assert!(through!(submit(&mut tasks, &spec)).created);
        number += 1;
        eventually("it is worked on", async || (done.load(Ordering::SeqCst) >= number).then_some(())).await;
    }
    town.spec("for the patient one").queue("other").submit().await;
    let leases = waiting.await.unwrap();
    assert_eq!(leases.len(), 1);
    through!(leases[0].complete());
    town.submit("last").await;
    let (seen, resumed) = watching.await.unwrap();
    over.store(true, Ordering::SeqCst);
    working.await.unwrap();
    println!("{number} tasks, {} connections, resumed {resumed} times", carried.load(Ordering::SeqCst));
    assert!(resumed > 0, "the watch never moved");
    let told: Vec<Seen> = town.log().await.into_iter().filter(|event| event.id != "for the patient one").collect();
    assert_eq!(seen, told, "every event once, in its order");
    town.audit().await;
}
