//! What a window cost: bytes of WAL, transactions that wrote, seconds of processors; and over a scenario, rows left dead.

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, PgConnection};

use super::Failure;
use super::measure::Sample;
use super::processes::{cpu_seconds, family_cpu_seconds};

/// A reading of the whole cluster. Only one subject works at a time.
#[derive(Clone, Copy)]
pub struct Reading {
    wal: i64,
    writers: i64,
    /// In seconds; absent where there is no such process, or nothing tells.
    servers: Option<f64>,
    postgres: Option<f64>,
}

impl Reading {
    /// What was used since an earlier reading, per task.
    pub fn each(self, earlier: Reading, tasks: f64) -> Sample {
        let micros = |now: Option<f64>, then: Option<f64>| now.zip(then).map_or(f64::NAN, |(now, then)| (now - then) / tasks * 1e6);
        vec![
            ("WAL bytes/task", precise(self.wal - earlier.wal) / tasks),
            ("commits/task", precise(self.writers - earlier.writers) / tasks),
            ("server CPU, µs/task", micros(self.servers, earlier.servers)),
            ("Postgres CPU, µs/task", micros(self.postgres, earlier.postgres)),
        ]
    }
}

/// A reading of one database's statistics, which lag.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Row versions that were made dead, ever, and those that lie there now.
    dead: i64,
    lying: i64,
    added: i64,
    transactions: i64,
}

impl Rows {
    /// Per row that was added between two readings.
    pub fn each(self, earlier: Rows) -> [(&'static str, f64); 3] {
        let added = precise((self.added - earlier.added).max(1));
        [
            ("dead rows/task", precise(self.dead - earlier.dead) / added),
            ("dead rows lying/task", precise(self.lying - earlier.lying) / added),
            ("transactions/task", precise(self.transactions - earlier.transactions) / added),
        ]
    }
}

/// A connection that only looks.
pub struct Meter {
    connection: PgConnection,
    postgres: u32,
    servers: Vec<u32>,
}

impl Meter {
    /// `postgres` and `servers`: the processes whose work is counted.
    pub async fn open(options: &PgConnectOptions, postgres: i32, servers: Vec<u32>) -> Result<Meter, Failure> {
        let connection = options.clone().application_name("leasehold-bench-meter").connect().await?;
        Ok(Meter { connection, postgres: postgres.try_into()?, servers })
    }

    /// Other servers are at work from now on.
    pub fn watch(&mut self, servers: Vec<u32>) {
        self.servers = servers;
    }

    pub async fn read(&mut self) -> Result<Reading, Failure> {
        let (wal, writers) = sqlx::query_as(include_str!("sql/counters.sql")).fetch_one(&mut self.connection).await?;
        let used: Option<f64> = self.servers.iter().map(|pid| cpu_seconds(*pid)).sum();
        let servers = used.filter(|_| !self.servers.is_empty());
        Ok(Reading { wal, writers, servers, postgres: family_cpu_seconds(self.postgres) })
    }

    /// `table`: the one whose new rows are counted.
    pub async fn rows(&mut self, table: &str) -> Result<Rows, Failure> {
        let row = sqlx::query_as(include_str!("sql/rows.sql")).bind(table).fetch_one(&mut self.connection).await?;
        let (dead, lying, added, transactions) = row;
        Ok(Rows { dead, lying, added, transactions })
    }

    pub async fn setting(&mut self, name: &str) -> Result<String, Failure> {
        Ok(sqlx::query_scalar("SELECT current_setting($1)").bind(name).fetch_one(&mut self.connection).await?)
    }
}

/// A count as a number to divide by; exact below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
pub fn precise(count: i64) -> f64 {
    count as f64
}
