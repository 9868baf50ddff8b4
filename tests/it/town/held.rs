//! Rows held by another session, so that two meet where a test wants them to.

use sqlx::{AssertSqlSafe, Postgres, Transaction};

use super::{QUEUE, Town, eventually};

/// A transaction of a stranger that holds what it has locked until it is let go.
pub struct Held<'a> {
    town: &'a Town,
    transaction: Transaction<'static, Postgres>,
}

impl Town {
    /// Locks the row that changes while a task is unfinished.
    pub async fn hold_task(&self, id: &str) -> Held<'_> {
        let row = format!("SELECT FROM live l JOIN tasks t USING (queue_id, uid) WHERE t.task_id = '{id}' FOR UPDATE OF l");
        self.hold(&row).await
    }

    /// Keeps every claim of the queue from beginning. (A claim gives up after two seconds of that.)
    pub async fn hold_gate(&self) -> Held<'_> {
        self.hold(&format!("SELECT pg_advisory_xact_lock(7234, queue_id) FROM queues WHERE name = '{QUEUE}'")).await
    }

    /// Runs a statement in a transaction that stays open; it must find one row.
    pub async fn hold(&self, statement: &str) -> Held<'_> {
        let mut transaction = self.database().begin().await.expect("the database answers");
        let found =
            sqlx::query(AssertSqlSafe(statement.to_owned())).fetch_all(&mut *transaction).await.expect("the row can be locked");
        assert_eq!(found.len(), 1, "{statement}");
        Held { town: self, transaction }
    }
}

impl Held<'_> {
    /// Waits until a server's session stands before what is held.
    pub async fn until_waited_for(&mut self) {
        self.until_waited_for_by(1).await;
    }

    /// Waits until so many of them do.
    pub async fn until_waited_for_by(&mut self, sessions: i64) {
        self.until_waited_for_since(sessions, "0").await;
    }

    /// Waits until so many sessions stand in line: only the first one waits for us, the next one for it.
    pub async fn until_a_line_of(&mut self, sessions: i64) {
        let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let town = self.town;
        eventually("a line before the held row", async || (town.sql::<i64>(query).await >= sessions).then_some(())).await;
    }

    /// Waits until one stands there that will not give up soon: a server's first try ends after 200 ms, its second one is patient.
    pub async fn until_waited_for_patiently(&mut self) {
        self.until_waited_for_since(1, "0.3").await;
    }

    async fn until_waited_for_since(&mut self, sessions: i64, seconds: &str) {
        let ours: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *self.transaction).await.expect("we are connected");
        let query = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND {ours} = ANY (pg_blocking_pids(pid))
                                                    AND clock_timestamp() - query_start >= {seconds} * interval '1 second'"
        );
        let town = self.town;
        eventually("somebody waits for the held row", async || (town.sql::<i64>(query.as_str()).await >= sessions).then_some(()))
            .await;
    }

    /// A change within the transaction that holds.
    pub async fn execute(&mut self, statement: &str) {
        sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&mut *self.transaction).await.expect("it can be changed");
    }

    /// Takes back what was changed, and lets go.
    pub async fn take_back(self) {
        self.transaction.rollback().await.expect("a rollback");
    }

    pub async fn let_go(self) {
        self.transaction.commit().await.expect("a commit");
    }
}
