//! Connections and transactions.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::StoreError;

/// An open transaction: whoever needs one takes `&mut Tx`. Without a commit it leaves no trace.
pub struct Tx(Option<Session>);

/// A connection that somebody works on.
struct Session {
    connection: PoolConnection<Postgres>,
    /// Where it goes once it has ended its transaction; absent: back to its pool.
    at_hand: Option<Arc<AtHand>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// The write path's connections between two transactions. They stay out of their pool, whose checks would cost two round trips after
/// each commit: one that has just answered is well, and one that dies meanwhile shows at its next BEGIN.
struct AtHand {
    pool: PgPool,
    /// The one that was used last is at the end; and since when each has been idle.
    idle: Mutex<Vec<(PoolConnection<Postgres>, Instant)>>,
    /// One for each connection that may be in use.
    places: Arc<Semaphore>,
}

impl AtHand {
    fn new(pool: PgPool) -> AtHand {
        let places = Arc::new(Semaphore::new(pool.options().get_max_connections() as usize));
        AtHand { pool, idle: Mutex::default(), places }
    }

    /// A connection, and the place that it takes.
    async fn session(self: &Arc<Self>) -> Result<Session, sqlx::Error> {
        let place = tokio::time::timeout(ACQUIRE, self.places.clone().acquire_owned()).await;
        let place = place.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let idle = self.idle().pop().filter(|(_, since)| since.elapsed() < IDLE);
        let connection = match idle {
            Some((connection, _)) => connection,
            None => self.pool.acquire().await?,
        };
        Ok(Session { connection, at_hand: Some(self.clone()), _place: Some(place) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(PoolConnection<Postgres>, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Leaves the connection, on which nothing is under way, to whoever comes next.
    fn end(self) {
        if let Some(at_hand) = &self.at_hand {
            let mut idle = at_hand.idle();
            if !at_hand.pool.is_closed() {
                idle.push((self.connection, Instant::now()));
            }
        }
    }
}

impl Tx {
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.0.as_mut().expect("it is taken only by what consumes the transaction").connection
    }

    /// A commit without an answer is not repeated: the caller repeats its call, and identity absorbs it.
    pub async fn commit(self) -> Result<(), StoreError> {
        self.end_with("COMMIT").await
    }

    /// Lets go of the locks at once, and returns when the commit is on disk although it did not wait for that: a barrier follows it in the
    /// same round trip.
    pub async fn commit_behind_barrier(self) -> Result<(), StoreError> {
        self.end_with(COMMIT_AND_BARRIER).await
    }

    async fn end_with(mut self, statements: &'static str) -> Result<(), StoreError> {
        sqlx::raw_sql(statements).execute(self.connection()).await?;
        if let Some(session) = self.0.take() {
            session.end();
        }
        Ok(())
    }

    /// Ends the transaction without a trace, and makes the database's numbers leap unless somebody else has done it by now. On this very
    /// connection: another one may still lead to the database that was. Returns the reason to start over.
    pub(super) async fn follow_lineage(&mut self) -> Result<StoreError, StoreError> {
        let rows = sqlx::raw_sql("ROLLBACK; SELECT follow_lineage()").fetch_all(self.connection()).await?;
        if rows.last().is_some_and(|row| row.get(0)) {
            tracing::warn!("the database is another one than before: tokens and positions leap ahead of all that may be lost");
        }
        Ok(StoreError::Conflict(sqlx::Error::Io(std::io::Error::other("the database is another one than before"))))
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(mut session) = self.0.take() else { return };
        tokio::spawn(async move {
            let rollback = tokio::time::timeout(RETURN, sqlx::raw_sql("ROLLBACK").execute(&mut *session.connection));
            match rollback.await {
                Ok(Ok(_)) => session.end(),
                // It is gone, or silent: it must not keep its place.
                _ => drop(session.connection.detach()),
            }
        });
    }
}

#[derive(Clone, Copy)]
enum Part {
    Writes,
    Reads,
}

/// The write path and the readers have connections of their own, so that neither can starve the other.
#[derive(Clone)]
pub struct Db {
    writes: Arc<AtHand>,
    reads: PgPool,
    made: Arc<AtomicU64>,
}

/// How many connections each part may hold.
#[derive(Clone, Copy, Debug)]
pub struct Pools {
    pub writes: u32,
    pub reads: u32,
}

impl Default for Pools {
    fn default() -> Self {
        Pools { writes: 12, reads: 8 }
    }
}

/// How long a call waits for a connection before it says that the database is away.
const ACQUIRE: Duration = Duration::from_secs(3);
/// How long a connection may take to answer when it comes back to the pool. One that went silent, without a word of its end, must not
/// keep its place there for ever.
const RETURN: Duration = Duration::from_secs(2);

/// A connection that nobody has needed for so long goes back to its pool, which finds out whether it is still there: something on the way
/// may have forgotten it without a word.
const IDLE: Duration = Duration::from_secs(60);

/// What every session is limited to. A statement that waits for a lock gives up early, so that one held row never stops a batch.
const LIMITS: [(&str, &str); 5] = [
    ("statement_timeout", "5s"),
    ("idle_in_transaction_session_timeout", "2s"),
    ("lock_timeout", "200ms"),
    ("timezone", "UTC"),
    ("jit", "off"),
];

/// The write path and most reads only look up by key. Its plans must not depend on statistics, which lag behind a table that fills and empties:
/// with them frozen on an almost empty table, a join by 500 keys became a scan of everything. And what is wanted in an index's order,
/// the first few of many, must not be collected whole and sorted, which is what a bitmap scan does. (`tests/it/plans.rs` sets the same.)
const BY_KEY: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// For what is asked with filters that nobody foresees.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; \
                        SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL plan_cache_mode = force_custom_plan";
/// Statements of one message: COMMIT ends its transaction, and what follows is another one, which waits for the disk.
const COMMIT_AND_BARRIER: &str = concat!("COMMIT;\n", include_str!("sql/barrier.sql"));
const PATIENT: &str = "BEGIN; SET LOCAL lock_timeout = '4s'";

/// How we connect. Poolers know few startup parameters and refuse what they don't: settings are made once a session is there.
pub(super) fn connect_options(url: &str, name: &str) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(PgConnectOptions::from_str(url)?.application_name(name).extra_float_digits(None))
}

/// A connection that broke at once says so at its first statement, where it is dealt with.
fn unless_broken<T>(done: Result<T, sqlx::Error>) -> Result<(), sqlx::Error> {
    match done.map_err(StoreError::from) {
        Ok(_) | Err(StoreError::Unavailable(_)) => Ok(()),
        Err(StoreError::Conflict(e) | StoreError::Locked(e) | StoreError::Data(e) | StoreError::Bug(e)) => Err(e),
    }
}

impl Db {
    /// Prepares connections; makes none, so it also succeeds while the database is away.
    pub fn open(url: &str, pools: Pools) -> Result<Db, StoreError> {
        let options = connect_options(url, "leasehold")?;
        let made = Arc::new(AtomicU64::new(0));
        let pool = |count: u32, settings: &[(&str, &str)]| {
            let made = made.clone();
            let settings: String = settings.iter().map(|(name, value)| format!("SET {name} = '{value}'; ")).collect();
            PgPoolOptions::new()
                .after_connect(move |connection, _| {
                    made.fetch_add(1, Ordering::AcqRel);
                    let settings = settings.clone();
                    Box::pin(async move { unless_broken(sqlx::raw_sql(AssertSqlSafe(settings)).execute(connection).await) })
                })
                .max_connections(count)
                .acquire_timeout(ACQUIRE)
                // A ping before each use costs a third of the throughput; a dead connection shows at its first statement.
                .test_before_acquire(false)
                .after_release(|connection, _| Box::pin(answers(connection)))
                .connect_lazy_with(options.clone())
        };
        let settings = [&LIMITS[..], &BY_KEY[..]].concat();
        let (writes, reads) = (pool(pools.writes, &settings), pool(pools.reads, &settings));
        Ok(Db { writes: Arc::new(AtHand::new(writes)), reads, made })
    }

    /// How many connections were made so far. Each new one may lead to another database than those before it.
    pub fn connections_made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    pub fn reads(&self) -> &PgPool {
        &self.reads
    }

    /// A transaction of the write path.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        self.begin_with("BEGIN").await
    }

    /// A transaction that may wait longer for the one row that it is about.
    pub async fn begin_patient(&self) -> Result<Tx, StoreError> {
        self.begin_with(PATIENT).await
    }

    /// A transaction that accepts tasks of these queues: it holds their doors, so that no acceptance straddles a change of their limits.
    /// `patient`: as in `begin_patient`.
    pub async fn begin_submit(&self, queues: impl Iterator<Item = i32>, patient: bool) -> Result<Tx, StoreError> {
        let doors: BTreeSet<i32> = queues.map(door).collect();
        let mut begin = String::from(if patient { PATIENT } else { "BEGIN" });
        for door in doors {
            let _ = write!(begin, "; SELECT pg_advisory_xact_lock_shared({DOOR}, {door})");
        }
        self.begin_with(&begin).await
    }

    /// A claim's transaction: it holds the queue's gate shared, so that no claim straddles a change of policy.
    pub async fn begin_claim(&self, queue_id: i32) -> Result<Tx, StoreError> {
        self.begin_with(&format!("BEGIN; SELECT pg_advisory_xact_lock_shared({GATE}, {queue_id})")).await
    }

    /// A snapshot that several reads share: lists and counts, which the planner may carry out as it likes.
    pub async fn begin_read(&self) -> Result<Tx, StoreError> {
        self.begin_on(Part::Reads, SNAPSHOT).await
    }

    async fn begin_with(&self, statements: &str) -> Result<Tx, StoreError> {
        self.begin_on(Part::Writes, statements).await
    }

    /// A BEGIN on a connection that died meanwhile fails before anything was asked: another one is taken, as often as there may be dead
    /// ones.
    async fn begin_on(&self, part: Part, statements: &str) -> Result<Tx, StoreError> {
        let mut tries = 0;
        loop {
            let session = match part {
                Part::Writes => self.writes.session().await?,
                Part::Reads => Session { connection: self.reads.acquire().await?, at_hand: None, _place: None },
            };
            // What follows BEGIN may fail, or be given up: then it is rolled back.
            let mut tx = Tx(Some(session));
            let begun = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(tx.connection()).await;
            match begun.map_err(StoreError::from) {
                Ok(_) => return Ok(tx),
                Err(StoreError::Unavailable(sqlx::Error::Io(_) | sqlx::Error::Database(_) | sqlx::Error::Protocol(_)))
                    if tries < 16 =>
                {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the connections that nobody uses just now.
    pub fn forget_idle(&self) {
        for (connection, _) in self.writes.idle().drain(..) {
            drop(connection.detach());
        }
        for pool in [&self.writes.pool, &self.reads] {
            while let Some(connection) = pool.try_acquire() {
                drop(connection.detach());
            }
        }
    }

    /// Ends all connections once their work is done.
    pub async fn close(&self) {
        let closed = self.writes.pool.close();
        self.writes.idle().clear();
        closed.await;
        self.reads.close().await;
    }
}

/// Whether a connection that comes back is still good. What was under way on it is over, or rolled back, once it answers.
async fn answers(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    match tokio::time::timeout(RETURN, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}

/// The first half of the two-part advisory lock that is a queue's gate; the second half is the queue.
pub(super) const GATE: i32 = 7234;

/// The class of the advisory locks that whoever accepts tasks holds shared: whoever changes a limit on unfinished tasks waits for them
/// all, and so their tasks are counted under it.
pub(super) const DOOR: i32 = 7235;

/// The class of the advisory locks that a queue's retention runs under. One of its own: who erases must not keep anybody out.
pub(super) const RETENTION: i32 = 7236;
const _: () = assert!(GATE != DOOR && DOOR != RETENTION && RETENTION != GATE, "three locks, three classes");

/// Queues share doors, so that a batch over many queues holds few locks.
const DOORS: i32 = 64;

pub(super) fn door(queue_id: i32) -> i32 {
    queue_id.rem_euclid(DOORS)
}

/// Whether the write path's connections answer, and may write: a standby may not.
pub async fn ping(db: &Db) -> Result<(), StoreError> {
    let tx = db.begin_with("BEGIN READ WRITE").await?;
    tx.commit().await
}
