//! A database and a server of its own, for what must begin on an empty one and would be in the way of what is measured after it.

use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};

use super::Failure;
use super::lab::Server;
use super::leasehold::Leasehold;
use super::load::Load;
use crate::embedded::Cluster;
use crate::store::{self, Examination, RULES};

/// How long the doctor may take for one rule: it reads everything.
const PATIENCE: Duration = Duration::from_secs(600);

pub struct Site {
    name: &'static str,
    url: String,
    admin: String,
    log: String,
    pub server: Server,
    pub leasehold: Leasehold,
    /// To fill and to look.
    pub sql: PgConnection,
}

impl Site {
    /// `name`: of the database, which must not be there.
    pub async fn open(cluster: &Cluster, name: &'static str, log: &str) -> Result<Site, Failure> {
        let (url, admin) = (cluster.url(name), cluster.url("postgres"));
        store::create_database(&admin, name).await?;
        store::migrate(&url).await?;
        let server = Server::start(&url, log).await?;
        let leasehold = Leasehold::connect(&[server.address()], Load::default()).await?;
        let sql = PgConnectOptions::from_str(&url)?.application_name("leasehold-bench-filler").connect().await?;
        Ok(Site { name, url, admin, log: log.to_owned(), server, leasehold, sql })
    }

    /// A new server on the same database: no session remembers a plan.
    pub async fn restart(&mut self) -> Result<(), Failure> {
        self.server = Server::start(&self.url, &self.log).await?;
        self.leasehold = Leasehold::connect(&[self.server.address()], Load::default()).await?;
        Ok(())
    }

    pub async fn settle(&mut self) -> Result<(), Failure> {
        // A list of statements would be one transaction, in which VACUUM can't run.
        let statements = include_str!("sql/fill_settle.sql").split(';');
        for statement in statements {
            sqlx::raw_sql(statement).execute(&mut self.sql).await?;
        }
        Ok(())
    }

    /// Statistics stay as they are.
    pub async fn freeze(&mut self) -> Result<(), Failure> {
        sqlx::raw_sql(include_str!("sql/freeze.sql")).execute(&mut self.sql).await?;
        Ok(())
    }

    /// What the doctor finds.
    pub async fn findings(&self) -> Result<Vec<String>, Failure> {
        let mut examination = Examination::begin(&self.url, PATIENCE).await?;
        let mut found = Vec::new();
        for rule in &RULES {
            let findings = examination.ask(rule).await?;
            found.extend(findings.told.first().map(|first| format!("{}: {} times: {first}", rule.promise(), findings.count)));
        }
        examination.end().await?;
        Ok(found)
    }

    /// Ends the server and removes the database.
    pub async fn close(self) -> Result<(), Failure> {
        drop(self.server);
        drop(self.sql);
        let mut admin = PgConnectOptions::from_str(&self.admin)?.connect().await?;
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await?;
        Ok(())
    }
}
