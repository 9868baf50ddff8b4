//! Behind a pooler that lends a connection for one transaction at a time, one client can be answered with another's rows: a server notices
//! when it starts, and says so. A pooler that gives each client a connection of its own does no harm.
//!
//! Most poolers here are these tests' own, just large enough to lend: they know where a message of the protocol ends, and which one says
//! that a transaction is over. Where pgbouncer is installed it has to behave as they do; `make pooler` installs it, and runs the core of
//! the suite with a pgbouncer before every server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use leasehold::store::{Db, Pools};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::town::pooler::{self, Address, Bouncer, OWN, lending_sessions};
use crate::town::{PATIENCE, SECOND, Town};

/// Which of the connections that nobody uses is lent next.
#[derive(Clone, Copy)]
enum Lends {
    TheLatest,
    TheOldest,
}

/// A pooler that lends for a transaction.
struct Pooler {
    lends: Lends,
    idle: Mutex<VecDeque<UnixStream>>,
    lendable: Semaphore,
    /// What a new client is told: what the database told us.
    welcome: Vec<u8>,
}

/// A whole message: its type, its length, its body.
async fn message(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 5];
    stream.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[1..].try_into().expect("four bytes"));
    message.resize(length as usize + 1, 0);
    stream.read_exact(&mut message[5..]).await.ok()?;
    Some(message)
}

/// All that the database says until it is ready for more, and whether no transaction is open then.
async fn answer(stream: &mut UnixStream) -> Option<(Vec<u8>, bool)> {
    let mut said = Vec::new();
    loop {
        let message = message(stream).await?;
        said.extend_from_slice(&message);
        if message[0] == b'Z' {
            return Some((said, message[5] == b'I'));
        }
    }
}

/// A pooler that lends `count` connections for a transaction each.
async fn lending_transactions(url: &str, count: usize, lends: Lends) -> String {
    let address = Address::of(url);
    let (mut idle, mut welcome) = (VecDeque::new(), Vec::new());
    for _ in 0..count {
        let mut stream = address.connect().await;
        stream.write_all(&address.startup()).await.expect("the database listens");
        (welcome, _) = answer(&mut stream).await.expect("the database lets the pooler in");
        idle.push_back(stream);
    }
    let pooler = Arc::new(Pooler { lends, idle: Mutex::new(idle), lendable: Semaphore::new(count), welcome });
    let (listener, url) = address.listen().await;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(lend(pooler.clone(), client));
        }
    });
    url
}

async fn lend(pooler: Arc<Pooler>, mut client: UnixStream) -> Option<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length).await.ok()?;
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut startup).await.ok()?;
    client.write_all(&pooler.welcome).await.ok()?;
    loop {
        let mut said = message(&mut client).await?;
        let lent = pooler.lendable.acquire().await.ok()?;
        let mut stream = {
            let mut idle = pooler.idle.lock().unwrap();
            match pooler.lends {
                Lends::TheLatest => idle.pop_back(),
                Lends::TheOldest => idle.pop_front(),
            }
        }
        .expect("as many are idle as may be lent");
        loop {
            stream.write_all(&said).await.ok()?;
            let mut over = false;
            match said[0] {
                b'X' => return None,
                b'Q' | b'S' => {
                    let (told, closed) = answer(&mut stream).await?;
                    client.write_all(&told).await.ok()?;
                    over = closed;
                }
                _ => {}
            }
            if over {
                break;
            }
            said = message(&mut client).await?;
        }
        pooler.idle.lock().unwrap().push_back(stream);
        drop(lent);
    }
}

/// Runs a command that must fail; what it said.
async fn refused(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env_remove("LEASEHOLD_DATABASE_URL").kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.expect("it ends").expect("it runs");
    assert!(!output.status.success(), "it came to a good end");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_server_refuses_to_start_behind_a_pooler_that_lends_transactions() {
    let town = Town::with_servers(0).await;
    let shapes =
        [(1, Lends::TheLatest), (2, Lends::TheOldest), (3, Lends::TheOldest), (5, Lends::TheLatest), (7, Lends::TheOldest)];
    for (count, lends) in shapes {
        let url = lending_transactions(&town.database_url, count, lends).await;
        for command in [&["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"][..], &["migrate"]] {
            let said = refused(&[command, &["--database-url", &url]].concat()).await;
            assert!(said.contains("a pooler that lends a connection for one transaction at a time"), "{count}: {said}");
        }
    }
}

#[tokio::test]
async fn a_server_works_behind_a_pooler_that_lends_sessions() {
    let mut town = Town::with_servers(0).await;
    let url = lending_sessions(&town.database_url).await;
    town.add_server_told(&url, &[]).await;
    for id in ["first", "second"] {
        town.spec(id).key("k").submit().await;
    }
    let slow = town.worker("w1").for_a_lease_of(SECOND * 5).claim_one().await;
    town.clock.advance(SECOND * 6).await;
    town.wait_for_state("first", leasehold::api::proto::TaskState::RetryAt).await;
    slow.complete().await.refused_with("LEASE_EXPIRED");
    town.clock.advance(SECOND * 2).await;
    town.worker("w2").claim_one().await.complete().await.applied();
    let db = Db::open(&url, Pools::default()).expect("a URL");
    let mut transaction = db.begin().await.expect("a session");
    let limit: String = sqlx::query_scalar("SHOW lock_timeout").fetch_one(transaction.connection()).await.expect("a setting");
    assert_eq!(limit, "200ms", "the pooler has kept back what our sessions are limited to");
    town.audit().await;
}

#[tokio::test]
async fn a_server_refuses_to_start_behind_a_pgbouncer_that_lends_transactions_or_statements() {
    let Some(program) = pooler::pgbouncer() else { return println!("not run: there is no pgbouncer") };
    let town = Town::with_servers(0).await;
    for mode in ["transaction", "statement"] {
        // It lends what came back last, or what has been idle for longest, of a few connections or of many.
        for more in
            ["default_pool_size = 1", "default_pool_size = 20", "default_pool_size = 20\nserver_round_robin = 1\nmin_pool_size = 5"]
        {
            let bouncer = Bouncer::start(&program, &town.database_url, &format!("pool_mode = {mode}\n{more}")).await;
            for command in [&["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"][..], &["migrate"]] {
                let said = refused(&[command, &["--database-url", &bouncer.url]].concat()).await;
                assert!(said.contains("a pooler that lends a connection for one transaction at a time"), "{mode}, {more}: {said}");
            }
        }
    }
}

/// A part of the core of the suite that takes little time. `make pooler` runs all of it.
const SLICE: [&str; 2] = ["fencing::", "races::"];

/// The tests run again, in a process of their own, in which every server stands behind a pooler.
#[tokio::test]
async fn tests_of_fencing_and_of_races_pass_behind_a_pooler_too() {
    let pooler = pooler::pgbouncer().map_or_else(|| OWN.into(), std::path::PathBuf::into_os_string);
    let mut command = Command::new(std::env::current_exe().expect("we run"));
    command.args(["--test-threads", "2"]).args(SLICE).env(pooler::VARIABLE, &pooler).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE * 20, command.output()).await.expect("it ends").expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "behind {}:\n{said}\n{}", pooler.display(), String::from_utf8_lossy(&output.stderr));
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed >= 10), "{said}");
    println!("{} tests passed behind {}", passed.unwrap_or(0), pooler.display());
}
