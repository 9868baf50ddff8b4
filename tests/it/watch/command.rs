//! `leasehold watch`, as people and scripts see it.

use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use crate::town::{PATIENCE, QUEUE, Town};

/// The command, and what it says line by line.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(server: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["watch", "--server", server, "--queue", QUEUE]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Running { child, lines }
    }

    /// The next line without its time; absent: it has ended.
    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("it says something");
        line.expect("it can be read")
    }

    async fn change(&mut self) -> String {
        let line = self.line().await.expect("it goes on");
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    }
}

/// A door that leads to one server and then to another. Turning it cuts whoever went through.
struct Door {
    address: String,
    leads_to: Arc<watch::Sender<String>>,
}

impl Door {
    async fn to(server: &str) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let leads_to = Arc::new(watch::Sender::new(server.to_owned()));
        let door = leads_to.clone();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut turned = door.subscribe();
                let target = turned.borrow_and_update().clone();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = turned.changed() => {}
                    }
                });
            }
        });
        Door { address, leads_to }
    }

    fn turn_to(&self, server: &str) {
        self.leads_to.send_replace(server.to_owned());
    }
}

#[tokio::test]
async fn the_command_says_a_line_a_change_and_goes_on_at_another_server_without_missing_or_repeating_one() {
    let town = Town::with_servers(2).await;
    town.submit("first").await;
    let door = Door::to(town.server(0).grpc()).await;
    let mut running = Running::start(&door.address, &[]);
    assert_eq!(running.change().await, "first READY");
    let lease = town.worker("w1").claim_one().await;
    let (token, worker) = (lease.token(), "w1");
    assert_eq!(running.change().await, format!("first LEASED ← READY attempt 1 token {token} {worker}"));
    door.turn_to(town.server(1).grpc());
    lease.complete().await.applied();
    assert_eq!(running.change().await, format!("first COMPLETED ← LEASED attempt 1 token {token} {worker}"));
    // Again, while nobody answers at first.
    door.turn_to("127.0.0.1:1");
    town.submit("second").await;
    door.turn_to(town.server(0).grpc());
    assert_eq!(running.change().await, "second READY ← new");
}

#[tokio::test]
async fn the_command_ends_with_its_task_and_its_cursors_lead_on() {
    let town = Town::start().await;
    town.submit("m-1").await;
    let mut running = Running::start(town.server(0).grpc(), &["--task", "m-1", "--until-terminal", "--json"]);
    let mut cursor = String::new();
    let mut kinds = Vec::new();
    while let Some(line) = running.line().await {
        let object: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        cursor = object["cursor"].as_str().unwrap_or(&cursor).to_owned();
        kinds.extend(object["event"]["kind"].as_str().map(str::to_owned));
        if object.get("snapshotDone").is_some() {
            town.worker("w1").claim_one().await.complete().await.applied();
        }
    }
    assert_eq!(running.child.wait().await.expect("it ends").code(), Some(0));
    assert_eq!(kinds, ["TASK_EVENT_KIND_LEASED", "TASK_EVENT_KIND_ENDED"]);
    town.spec("m-2").share("tenant").label("a", "b").submit().await;
    town.submit("m-3").await;
    let picking = ["--after", &cursor, "--share", "tenant", "--label", "a=b", "--states", "ready,LEASED"];
    assert_eq!(Running::start(town.server(0).grpc(), &picking).change().await, "m-2 READY ← new");
    let nobody = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["watch", "--server", town.server(0).grpc(), "--queue", "nobody"])
        .output()
        .await
        .expect("it runs");
    assert!(!nobody.status.success() && String::from_utf8_lossy(&nobody.stderr).contains("QUEUE_NOT_FOUND"), "{nobody:?}");
}
