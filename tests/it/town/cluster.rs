//! One private Postgres per test run, and a migrated database in it to copy from.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use leasehold::embedded::{Cluster, Options};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};

const PREFIX: &str = "leasehold-it-";
const TEMPLATE: &str = "template_town";

/// `app_now()` with a hand on it.
const CLOCK: &str = "
    CREATE TABLE test_clock (ahead interval NOT NULL);
    INSERT INTO test_clock VALUES ('0');
    GRANT SELECT ON test_clock TO PUBLIC;
    CREATE OR REPLACE FUNCTION app_now() RETURNS timestamptz LANGUAGE sql VOLATILE
        AS 'SELECT clock_timestamp() + (SELECT ahead FROM test_clock)';
";

struct Ground {
    cluster: Mutex<Option<Cluster>>,
    folder: PathBuf,
}

static GROUND: OnceLock<Ground> = OnceLock::new();

impl Ground {
    fn url(&self, database: &str) -> String {
        let cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.as_ref().expect("the run is not over").url(database)
    }
}

/// A new database, with this version's schema and a clock that can be moved.
pub async fn new_database() -> (String, PgPool) {
    let ground = ground().await;
    let name = format!("town_{}", super::next_number());
    let mut admin = PgConnection::connect(&ground.url("postgres")).await.expect("Postgres answers");
    let create = format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}");
    sqlx::query(AssertSqlSafe(create)).execute(&mut admin).await.expect("the template can be copied");
    let url = ground.url(&name);
    let pool = PgPoolOptions::new().max_connections(8).connect(&url).await.expect("the new database answers");
    (url, pool)
}

/// A new database with nothing in it, of a new role that owns it and nothing else. Returns its URL as that role, and a pool of ours.
pub async fn empty_database() -> (String, PgPool) {
    let ground = ground().await;
    let name = format!("town_{}", super::next_number());
    let mut admin = PgConnection::connect(&ground.url("postgres")).await.expect("Postgres answers");
    for statement in [format!("CREATE ROLE {name} LOGIN"), format!("CREATE DATABASE {name} OWNER {name}")] {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut admin).await.expect("a database can be made");
    }
    let url = ground.url(&name);
    let pool = PgPoolOptions::new().max_connections(8).connect(&url).await.expect("the new database answers");
    (as_role(&url, &name), pool)
}

/// The same database for another role.
pub fn as_role(url: &str, role: &str) -> String {
    let (_, rest) = url.split_once('@').expect("a URL with a user");
    format!("postgres://{role}@{rest}")
}

/// Lets a test move a database's clock.
pub async fn replace_clock(database: &PgPool) {
    sqlx::raw_sql(CLOCK).execute(database).await.expect("the clock can be replaced");
}

/// Where this run keeps its files.
pub async fn folder() -> PathBuf {
    ground().await.folder.clone()
}

async fn ground() -> &'static Ground {
    tokio::task::spawn_blocking(|| GROUND.get_or_init(prepare)).await.expect("Postgres starts")
}

fn prepare() -> Ground {
    // Not waited for: runs that were killed may have left gigabytes.
    std::thread::spawn(remove_leftovers);
    let folder = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let settings = vec![("max_connections".to_owned(), "300".to_owned())];
    let options = Options { data_dir: folder.join("pg"), bin_dir: None, durable: false, settings };
    let cluster = Cluster::start(&options).unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        leasehold::store::create_database(&cluster.url("postgres"), TEMPLATE).await.expect("the template can be made");
        leasehold::store::migrate(&cluster.url(TEMPLATE)).await.expect("the template can be migrated");
        let mut template = PgConnection::connect(&cluster.url(TEMPLATE)).await.expect("the template answers");
        sqlx::raw_sql(CLOCK).execute(&mut template).await.expect("the clock can be replaced");
        // A template can be copied only while nobody is connected to it.
        template.close().await.expect("the template lets go");
    });
    // SAFETY: the handler takes no arguments, does not unwind, and uses only what lives as long as the process.
    unsafe { libc::atexit(clear) };
    Ground { cluster: Mutex::new(Some(cluster)), folder }
}

/// At the end of the run. (If the run is killed, Postgres ends with it, and the next run removes the folder.)
extern "C" fn clear() {
    let Some(ground) = GROUND.get() else { return };
    drop(ground.cluster.lock().unwrap_or_else(PoisonError::into_inner).take());
    drop(std::fs::remove_dir_all(&ground.folder));
}

fn remove_leftovers() {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !PathBuf::from(format!("/proc/{pid}")).exists()) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}
