//! Brings a database to this version's schema. Forward only.

use std::collections::BTreeMap;
use std::str::FromStr;

use sqlx::migrate::{Migrate, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, PgConnection, Row as _};

use super::StoreError;
use super::pool::connect_options;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// Why a database can't be used by this version.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("the database can't be reached: {0}")]
    Unreachable(StoreError),
    #[error("the database's schema can't be brought to this version: {0}")]
    Failed(sqlx::migrate::MigrateError),
    #[error("the database's schema is older than this version: it lacks {missing} of its migrations; run `leasehold migrate`")]
    Behind { missing: usize },
    #[error(
        "the database's schema is newer than this version: it has migration {unknown}, of which this version knows nothing; run the \
         version that migrated it, or a later one"
    )]
    Ahead { unknown: i64 },
    #[error(
        "the database is behind a pooler that lends a connection for one transaction at a time (pgbouncer's pool_mode transaction or \
         statement): two sessions were answered by one backend, and so could get each other's rows; let the pooler lend whole \
         sessions, or connect to the database itself"
    )]
    Shared,
    #[error("the database's schema is another one than this version's: its migration {0} is not the one that this version has")]
    Different(i64),
}

impl From<sqlx::migrate::MigrateError> for MigrateError {
    fn from(error: sqlx::migrate::MigrateError) -> Self {
        match error {
            sqlx::migrate::MigrateError::VersionMissing(unknown) => MigrateError::Ahead { unknown },
            sqlx::migrate::MigrateError::VersionMismatch(version) => MigrateError::Different(version),
            other => MigrateError::Failed(other),
        }
    }
}

/// Applies what is missing. Two servers that do so at once take turns.
pub async fn migrate(url: &str) -> Result<(), MigrateError> {
    let mut connection = own_session(url).await?;
    MIGRATIONS.run_direct(None, &mut connection, false).await?;
    Ok(())
}

/// Whether the database has this version's schema; changes nothing.
pub async fn check_schema(url: &str) -> Result<(), MigrateError> {
    let mut connection = own_session(url).await?;
    let applied = match connection.list_applied_migrations("_sqlx_migrations").await {
        Err(sqlx::migrate::MigrateError::Execute(error)) if is_absent(&error) => Vec::new(),
        other => other?,
    };
    if let Some(theirs) = applied.iter().rfind(|theirs| !MIGRATIONS.version_exists(theirs.version)) {
        return Err(MigrateError::Ahead { unknown: theirs.version });
    }
    let mut missing = 0;
    for ours in MIGRATIONS.iter() {
        match applied.iter().find(|theirs| theirs.version == ours.version) {
            None => missing += 1,
            Some(theirs) if theirs.checksum != ours.checksum => return Err(MigrateError::Different(ours.version)),
            Some(_) => {}
        }
    }
    if missing > 0 { Err(MigrateError::Behind { missing }) } else { Ok(()) }
}

/// Sessions that are compared, and how often each is asked who answers it.
const SESSIONS: usize = 3;
const LOOKS: usize = 4;

/// A session, once it is sure that sessions have a backend each, and always the same. A pooler that lends for a transaction shows at
/// once where it lends what came back last (two sessions have one backend) or has fewer connections than we ask for; where it lends what
/// has been idle for longest, a session changes its backend because the sessions don't always take turns in the same order.
async fn own_session(url: &str) -> Result<PgConnection, MigrateError> {
    let unreachable = |error: sqlx::Error| MigrateError::Unreachable(error.into());
    let options = connect_options(url, "leasehold-migrate").map_err(unreachable)?;
    let mut sessions = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        sessions.push((options.connect().await.map_err(unreachable)?, None));
    }
    let mut backends = BTreeMap::new();
    for look in 0..LOOKS {
        for turn in 0..SESSIONS {
            let number = (look + turn) % SESSIONS;
            let (session, known) = &mut sessions[number];
            let row = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(session).await.map_err(unreachable)?;
            let backend: i32 = row.get(0);
            if *backends.entry(backend).or_insert(number) != number || *known.get_or_insert(backend) != backend {
                return Err(MigrateError::Shared);
            }
        }
    }
    let (session, _) = sessions.swap_remove(0);
    for (other, _) in sessions {
        other.close().await.map_err(unreachable)?;
    }
    Ok(session)
}

/// Whether a table is not there.
fn is_absent(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42P01"))
}

/// Makes a database if it is not there. `admin` is the URL of another database of the same server.
pub async fn create_database(admin: &str, name: &str) -> Result<(), StoreError> {
    let mut connection = PgConnectOptions::from_str(admin)?.connect().await?;
    let there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(name)
        .fetch_one(&mut connection)
        .await?;
    if !there {
        // An identifier can't be a parameter; quoted, any name is one.
        let quoted = name.replace('"', "\"\"");
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE \"{quoted}\""))).execute(&mut connection).await?;
    }
    Ok(())
}
