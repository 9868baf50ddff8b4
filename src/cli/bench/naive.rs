//! The naive subject: what an application writes by hand. A transaction per call, a round trip per statement, a connection per
//! client, each commit on disk. The statements lie in `sql`, unchecked at compile time; the session is set as Leasehold's own.

use std::sync::Arc;

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::types::time::OffsetDateTime;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _};
use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

use super::Failure;
use super::measure::Step;
use super::scenarios::PAYLOAD;

/// As the write path of `store::pool`: plans by key, whatever the statistics say.
const SESSION: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
];

/// What a success leaves behind, as Leasehold writes it.
pub const EVIDENCE: &str = r#"{"outcome": "SUCCEEDED", "report": 1234567890123456789, "receipt_ref": "r"}"#;

#[derive(Clone)]
pub struct Naive(Arc<[Mutex<PgConnection>]>);

/// A queue and its only share.
#[derive(Clone, Copy)]
pub struct Place {
    pub queue_id: i32,
    pub share_id: i32,
}

/// A task that a worker holds.
pub struct Held {
    uid: Uuid,
    pub task_id: String,
    token: i64,
}

impl Naive {
    pub async fn connect(options: &PgConnectOptions, clients: usize) -> Result<Naive, Failure> {
        let options = options.clone().application_name("leasehold-bench-naive").options(SESSION);
        let mut connections = Vec::with_capacity(clients);
        for _ in 0..clients {
            connections.push(Mutex::new(options.connect().await?));
        }
        Ok(Naive(connections.into()))
    }

    /// Lets each session hand in its statistics: one that has nothing to do keeps those of its last second, until a transaction ends.
    pub async fn hand_in(&self) -> Result<(), Failure> {
        for connection in self.0.iter() {
            sqlx::query("SELECT 1").execute(&mut *connection.lock().await).await?;
        }
        Ok(())
    }

    pub fn clients(&self) -> usize {
        self.0.len()
    }

    /// The connection of a client: its own in a closed loop.
    pub async fn connection(&self, client: usize) -> MutexGuard<'_, PgConnection> {
        self.0[client % self.0.len()].lock().await
    }

    pub async fn queue(&self, name: &str) -> Result<Place, Failure> {
        let mut connection = self.connection(0).await;
        let (queue_id, share_id) =
            sqlx::query_as(include_str!("sql/naive_queue.sql")).bind(name).fetch_one(&mut *connection).await?;
        Ok(Place { queue_id, share_id })
    }

    pub async fn submit(&self, client: usize, place: Place, task_id: &str) -> Result<(), Failure> {
        let uid = Uuid::now_v7();
        let mut connection = self.connection(client).await;
        let mut tx = connection.begin().await?;
        let task = sqlx::query(include_str!("sql/naive_task.sql")).bind(place.queue_id).bind(uid).bind(task_id).bind(digest(uid));
        if task.execute(&mut *tx).await?.rows_affected() == 0 {
            return Err("the task was there".into());
        }
        let live = sqlx::query_scalar(include_str!("sql/naive_live.sql")).bind(place.queue_id).bind(uid).bind(place.share_id);
        let position: i64 = live.fetch_one(&mut *tx).await?;
        let payload = sqlx::query(include_str!("sql/naive_payload.sql")).bind(place.queue_id).bind(uid).bind(PAYLOAD);
        payload.execute(&mut *tx).await?;
        let event = Event { position: Some(position), revision: 1, kind: "SUBMITTED", state: "READY", ..Event::default() };
        event.write(&mut tx, place, uid).await?;
        Ok(tx.commit().await?)
    }

    /// The next task, if there is one that nobody holds.
    pub async fn claim(&self, client: usize, place: Place) -> Result<Option<Held>, Failure> {
        let mut connection = self.connection(client).await;
        let mut tx = connection.begin().await?;
        let pick = sqlx::query(include_str!("sql/naive_pick.sql")).bind(place.share_id);
        let Some(picked) = pick.fetch_optional(&mut *tx).await? else { return Ok(None) };
        let (uid, task_id, payload): (Uuid, String, Vec<u8>) =
            (picked.try_get("uid")?, picked.try_get("task_id")?, picked.try_get("payload")?);
        if payload.len() != PAYLOAD.len() {
            return Err("a task has lost its payload".into());
        }
        let worker = format!("w{client}");
        let lease =
            sqlx::query(include_str!("sql/naive_lease.sql")).bind(place.queue_id).bind(uid).bind(&worker).bind(Uuid::now_v7());
        let leased: PgRow = lease.fetch_one(&mut *tx).await?;
        let token = leased.try_get("token")?;
        let event = Event {
            revision: leased.try_get("revision")?,
            kind: "LEASED",
            previous: Some("READY"),
            state: "LEASED",
            attempt: leased.try_get("attempt")?,
            token,
            worker: Some(&worker),
            ..Event::default()
        };
        event.write(&mut tx, place, uid).await?;
        tx.commit().await?;
        Ok(Some(Held { uid, task_id, token }))
    }

    pub async fn complete(&self, client: usize, place: Place, held: &Held) -> Result<(), Failure> {
        let mut connection = self.connection(client).await;
        let mut tx = connection.begin().await?;
        let hold = sqlx::query(include_str!("sql/naive_hold.sql")).bind(place.queue_id).bind(held.uid).bind(held.token);
        let live: PgRow = hold.fetch_optional(&mut *tx).await?.ok_or("the lease is lost")?;
        let gone = sqlx::query(include_str!("sql/naive_gone.sql")).bind(place.queue_id).bind(held.uid);
        gone.execute(&mut *tx).await?;
        let (revision, attempt): (i64, i32) = (live.try_get::<i64, _>("revision")? + 1, live.try_get("attempt")?);
        let worker: String = live.try_get("worker")?;
        let ended = sqlx::query(include_str!("sql/naive_ended.sql"))
            .bind(place.queue_id)
            .bind(held.uid)
            .bind(live.try_get::<i64, _>("position")?)
            .bind(revision)
            .bind(attempt)
            .bind(live.try_get::<i32, _>("charged")?)
            .bind(live.try_get::<i32, _>("max_attempts")?)
            .bind(held.token)
            .bind(live.try_get::<OffsetDateTime, _>("accepted")?)
            .bind(live.try_get::<OffsetDateTime, _>("deadline")?)
            .bind(live.try_get::<Option<OffsetDateTime>, _>("first_lease")?)
            .bind(&worker)
            .bind(EVIDENCE);
        ended.execute(&mut *tx).await?;
        let event = Event {
            revision,
            kind: "ENDED",
            previous: Some("LEASED"),
            state: "COMPLETED",
            attempt,
            token: held.token,
            worker: Some(&worker),
            evidence: Some(EVIDENCE),
            ..Event::default()
        };
        event.write(&mut tx, place, held.uid).await?;
        Ok(tx.commit().await?)
    }

    pub async fn lifecycle(&self, client: usize, place: Place) -> Result<Step, Failure> {
        let Some(held) = self.claim(client, place).await? else { return Ok(Step::Dry) };
        self.complete(client, place, &held).await?;
        Ok(Step::Done(1))
    }
}

/// As many bytes as a digest has; nobody compares them here.
pub fn digest(uid: Uuid) -> Vec<u8> {
    uid.as_bytes().repeat(2)
}

#[derive(Default)]
struct Event<'a> {
    /// Absent: drawn by the insert.
    position: Option<i64>,
    revision: i64,
    kind: &'a str,
    previous: Option<&'a str>,
    state: &'a str,
    attempt: i32,
    token: i64,
    worker: Option<&'a str>,
    evidence: Option<&'a str>,
}

impl Event<'_> {
    async fn write(&self, connection: &mut PgConnection, place: Place, uid: Uuid) -> Result<(), Failure> {
        let event = sqlx::query(include_str!("sql/naive_event.sql"))
            .bind(self.position)
            .bind(place.queue_id)
            .bind(uid)
            .bind(self.revision)
            .bind(self.kind)
            .bind(self.previous)
            .bind(self.state)
            .bind(self.attempt)
            .bind(self.token)
            .bind(self.worker)
            .bind(self.evidence);
        event.execute(connection).await?;
        Ok(())
    }
}
