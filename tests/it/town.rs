//! The language of these tests, in the words of the design: a town has servers, a clock, tasks and workers.
//!
//! Every town has a database of its own, made from a migrated template in a private Postgres that lives as long as the test run. Its
//! servers are processes. Nothing here sleeps in place of knowing: what takes time is waited for by its condition.

#![allow(dead_code, reason = "a language is larger than what is said in it so far")]

mod answer;
mod audit;
mod budgets;
mod cluster;
mod health;
mod held;
mod matrix;
pub mod pooler;
mod proxy;
mod repairs;
mod server;
mod subjects;
mod tasks;
mod watch;
mod worker;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

#[allow(unused_imports, reason = "words for tests to come")]
pub use {
    answer::{Answer, Refused, item_status},
    held::Held,
    matrix::{Recovery, row_held},
    proxy::Proxy,
    repairs::{ACTOR, REASON, id_of_repair, replayed},
    server::Server,
    subjects::{EDITED, counts, raise_by},
    tasks::{Spec, id_of, task_ref},
    watch::{Seen, Watch},
    worker::{Lease, Worker, failed, released, succeeded},
};

/// The queue that a town's tasks are in, unless a test says otherwise.
pub const QUEUE: &str = "notify";
pub const SECOND: Duration = Duration::from_secs(1);
/// How long a lease lasts where neither task nor worker says so: the default of queues.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long a condition may take to come true before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a test may go on that repeats something until it has seen enough: so long that nobody waits for it in vain, unless
/// `LEASEHOLD_TEST_SECONDS` says how long to try.
pub fn endurance() -> Duration {
    let told = std::env::var("LEASEHOLD_TEST_SECONDS").ok();
    told.map_or(SECOND * 45, |told| SECOND * told.parse::<u32>().expect("LEASEHOLD_TEST_SECONDS is a number"))
}

/// Whether rounds are played as long and piles filled as high as was ever asked for: whoever says how long to try has the time.
pub fn to_the_full() -> bool {
    std::env::var_os("LEASEHOLD_TEST_SECONDS").is_some()
}

pub struct Town {
    pub clock: Clock,
    /// The URL of the town's database.
    pub database_url: String,
    database: PgPool,
    servers: Vec<Server>,
}

impl Town {
    pub async fn start() -> Town {
        Town::with_servers(1).await
    }

    /// Servers that share one database.
    pub async fn with_servers(count: usize) -> Town {
        Town::with_servers_told(count, &[]).await
    }

    /// Servers with more arguments for `leasehold serve`.
    pub async fn with_servers_told(count: usize, arguments: &[&str]) -> Town {
        let (database_url, database) = cluster::new_database().await;
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(Server::start(&database_url, arguments).await);
        }
        Town::of_parts(database_url, database, servers)
    }

    fn of_parts(database_url: String, database: PgPool, servers: Vec<Server>) -> Town {
        Town { clock: Clock { database: database.clone() }, database_url, database, servers }
    }

    /// A server with a database of its own, of which only the server can speak.
    pub fn of(server: Server) -> Town {
        let database = PgPoolOptions::new().connect_lazy("postgres://nobody@localhost:1/none").expect("a URL");
        Town { clock: Clock { database: database.clone() }, database_url: String::new(), database, servers: vec![server] }
    }

    /// A database with nothing in it, and no server yet; it belongs to the role of its URL.
    pub async fn empty() -> Town {
        let (database_url, database) = cluster::empty_database().await;
        Town { clock: Clock { database: database.clone() }, database_url, database, servers: Vec::new() }
    }

    /// The URL of the town's database for another role.
    pub fn url_as(&self, role: &str) -> String {
        cluster::as_role(&self.database_url, role)
    }

    /// Lets the clock of a database that was made by migrations be moved.
    pub async fn replace_clock(&self) {
        cluster::replace_clock(&self.database).await;
    }

    /// One server on a Postgres that is this test's to stop. Its clock can't be moved.
    pub async fn on(database_url: String) -> Town {
        let mut town = Town::around(database_url).await;
        town.add_server().await;
        town
    }

    /// A database that is there, and no server yet.
    pub async fn around(database_url: String) -> Town {
        let database = PgPoolOptions::new().max_connections(8).connect(&database_url).await.expect("the database answers");
        Town { clock: Clock { database: database.clone() }, database_url, database, servers: Vec::new() }
    }

    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number]
    }

    pub fn server_mut(&mut self, number: usize) -> &mut Server {
        &mut self.servers[number]
    }

    /// One more server for the same database.
    pub async fn add_server(&mut self) -> &mut Server {
        let server = Server::start(&self.database_url, &[]).await;
        self.servers.push(server);
        self.servers.last_mut().expect("one was just added")
    }

    /// One more server, which knows the database by this URL.
    pub async fn add_server_told(&mut self, database_url: &str, arguments: &[&str]) -> &mut Server {
        let server = Server::start(database_url, arguments).await;
        self.servers.push(server);
        self.servers.last_mut().expect("one was just added")
    }

    /// A new process in the place of a server that ended.
    pub async fn restart_server(&mut self, number: usize) -> &mut Server {
        let database_url = self.database_url.clone();
        self.restart_server_told(number, &database_url).await
    }

    /// A new process in the place of a server that ended, which knows the database by this URL.
    pub async fn restart_server_told(&mut self, number: usize, database_url: &str) -> &mut Server {
        self.servers[number] = Server::start(database_url, &[]).await;
        &mut self.servers[number]
    }

    /// Connections of our own to the town's database: to hold rows and to look at what is really there.
    pub fn database(&self) -> &PgPool {
        &self.database
    }

    /// One value that the database tells.
    pub async fn sql<T>(&self, query: impl Into<String>) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let query = query.into();
        let value = sqlx::query_scalar(AssertSqlSafe(query.clone())).fetch_one(&self.database).await;
        value.unwrap_or_else(|error| panic!("{error}\n{query}"))
    }

    /// Changes something behind the servers' back; how many rows.
    pub async fn execute(&self, statement: impl Into<String>) -> u64 {
        let statement = statement.into();
        let done = sqlx::query(AssertSqlSafe(statement.clone())).execute(&self.database).await;
        done.unwrap_or_else(|error| panic!("{error}\n{statement}")).rows_affected()
    }

    /// Sets columns of the queue's policy, e.g. `on_repair = 'HOLD'`; makes the queue if it isn't there.
    pub async fn policy(&self, columns: &str) {
        self.execute(format!("INSERT INTO queues (name) VALUES ('{QUEUE}') ON CONFLICT DO NOTHING")).await;
        self.execute(format!("UPDATE queues SET {columns} WHERE name = '{QUEUE}'")).await;
    }
}

/// The database's clock, which is the only one that decides anything.
pub struct Clock {
    database: PgPool,
}

impl Clock {
    /// Moves `app_now()` on, at once for every statement that begins from here on.
    pub async fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("tests don't live that long");
        let moved = sqlx::query("UPDATE test_clock SET ahead = ahead + $1 * interval '1 microsecond'").bind(micros);
        moved.execute(&self.database).await.expect("the clock can be moved");
    }

    /// Microseconds since 1970.
    pub async fn now(&self) -> i64 {
        let now = sqlx::query_scalar("SELECT (extract(epoch FROM app_now()) * 1000000)::bigint");
        now.fetch_one(&self.database).await.expect("the clock can be read")
    }
}

/// Waits for something to become true; what it is names it when it does not.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(PATIENCE, look).await.unwrap_or_else(|| panic!("did not come true in {PATIENCE:?}: {what}"))
}

/// Looks again and again until there is something, or for so long. It looks once more when the time is over.
pub async fn within<T>(time: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let over = begin.elapsed() >= time;
        let found = look().await;
        if over || found.is_some() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Microseconds since 1970 of an instant in an answer.
pub fn micros(instant: Option<&prost_types::Timestamp>) -> i64 {
    let instant = instant.expect("the instant is there");
    instant.seconds * 1_000_000 + i64::from(instant.nanos) / 1_000
}

pub fn span(duration: Duration) -> prost_types::Duration {
    duration.try_into().expect("tests don't live that long")
}

/// A number of its own for everything in this run that needs a name.
pub fn next_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A folder of this run's own for one test.
pub async fn new_folder(name: &str) -> std::path::PathBuf {
    cluster::folder().await.join(format!("{name}-{}", next_number()))
}

/// The state's name without its prefix, for messages.
pub fn state_name(state: i32) -> &'static str {
    pb::TaskState::try_from(state).map_or("?", |state| state.as_str_name().trim_start_matches("TASK_STATE_"))
}
