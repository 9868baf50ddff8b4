//! The doctor: every promise about the database, recounted from its rows. One statement a promise; the first line of its header is the
//! promise. Tests ask the same at their end.
//!
//! All statements of an examination see one snapshot, so work that goes on meanwhile can't look like a fault. They may scan everything:
//! no server runs them. Nothing is put right here.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use super::StoreError;
use super::pool::connect_options;

/// Findings that are told of one rule; more are only counted.
const TOLD: i64 = 20;
/// How much longer than its own limit a statement may take to answer before the database counts as silent.
const GRACE: Duration = Duration::from_secs(5);

/// A promise, and the statement that finds what breaks it.
pub struct Rule {
    path: &'static str,
    text: &'static str,
    look: Look,
}

type Look = for<'c> fn(&'c mut PgConnection) -> BoxFuture<'c, Result<Vec<Row>, sqlx::Error>>;

struct Row {
    finding: String,
    count: i64,
}

/// What breaks a rule. Nothing: it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    pub count: i64,
    /// The first 20 of them.
    pub told: Vec<String>,
}

impl Rule {
    /// A word for it, e.g. `free_key`.
    pub fn name(&self) -> &'static str {
        let file = self.path.rsplit('/').next().unwrap_or(self.path);
        file.trim_start_matches("doctor_").trim_end_matches(".sql")
    }

    /// The sentence that must be true.
    pub fn promise(&self) -> &'static str {
        let line = self.text.lines().next().unwrap_or_default();
        line.split_once(".sql: ").map_or(line, |(_, promise)| promise.trim_end_matches('.'))
    }
}

macro_rules! query_file_rule {
    ($path:literal) => {
        Rule {
            path: $path,
            text: include_str!(concat!("../../", $path)),
            look: |at| Box::pin(sqlx::query_file_as!(Row, $path, TOLD).fetch_all(at)),
        }
    };
}

/// All of them.
pub static RULES: [Rule; 35] = [
    query_file_rule!("src/store/sql/doctor_one_standing.sql"),
    query_file_rule!("src/store/sql/doctor_standing_task.sql"),
    query_file_rule!("src/store/sql/doctor_one_head.sql"),
    query_file_rule!("src/store/sql/doctor_free_key.sql"),
    query_file_rule!("src/store/sql/doctor_held_key.sql"),
    query_file_rule!("src/store/sql/doctor_key_order.sql"),
    query_file_rule!("src/store/sql/doctor_event_numbers.sql"),
    query_file_rule!("src/store/sql/doctor_event_chain.sql"),
    query_file_rule!("src/store/sql/doctor_event_times.sql"),
    query_file_rule!("src/store/sql/doctor_last_event.sql"),
    query_file_rule!("src/store/sql/doctor_after_end.sql"),
    query_file_rule!("src/store/sql/doctor_task_tokens.sql"),
    query_file_rule!("src/store/sql/doctor_key_tokens.sql"),
    query_file_rule!("src/store/sql/doctor_one_token.sql"),
    query_file_rule!("src/store/sql/doctor_attempt_numbers.sql"),
    query_file_rule!("src/store/sql/doctor_attempt_ends.sql"),
    query_file_rule!("src/store/sql/doctor_attempt_counts.sql"),
    query_file_rule!("src/store/sql/doctor_budget.sql"),
    query_file_rule!("src/store/sql/doctor_share_asleep.sql"),
    query_file_rule!("src/store/sql/doctor_share_parked.sql"),
    query_file_rule!("src/store/sql/doctor_room.sql"),
    query_file_rule!("src/store/sql/doctor_share_and_key.sql"),
    query_file_rule!("src/store/sql/doctor_kept_key.sql"),
    query_file_rule!("src/store/sql/doctor_repair.sql"),
    query_file_rule!("src/store/sql/doctor_floor.sql"),
    query_file_rule!("src/store/sql/doctor_floor_lease.sql"),
    query_file_rule!("src/store/sql/doctor_subjects.sql"),
    query_file_rule!("src/store/sql/doctor_receipt.sql"),
    query_file_rule!("src/store/sql/doctor_acceptance.sql"),
    query_file_rule!("src/store/sql/doctor_replay.sql"),
    query_file_rule!("src/store/sql/doctor_repair_record.sql"),
    query_file_rule!("src/store/sql/doctor_forgotten_task.sql"),
    query_file_rule!("src/store/sql/doctor_numbers.sql"),
    query_file_rule!("src/store/sql/doctor_queue.sql"),
    query_file_rule!("src/store/sql/doctor_unreadable.sql"),
];

/// A snapshot that is being examined. While it lasts, the database keeps what is updated and deleted meanwhile.
pub struct Examination {
    at: PgConnection,
    patience: Duration,
}

impl Examination {
    /// Takes the snapshot, on a connection of its own. No rule's statement may take longer than `patience`.
    pub async fn begin(url: &str, patience: Duration) -> Result<Examination, StoreError> {
        let options = connect_options(url, "leasehold-doctor")?;
        let mut at = tokio::time::timeout(GRACE, options.connect()).await.map_err(|_| StoreError::silent())??;
        // The first statement that reads takes the snapshot.
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}; SET LOCAL jit = off; \
             SELECT FROM queues LIMIT 1",
            patience.as_millis()
        );
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut at).await?;
        Ok(Examination { at, patience })
    }

    /// What breaks the rule. An error leaves the snapshot as it was: other rules can still be asked for.
    pub async fn ask(&mut self, rule: &Rule) -> Result<Findings, StoreError> {
        let asking = async {
            sqlx::raw_sql("SAVEPOINT rule").execute(&mut self.at).await?;
            let found = (rule.look)(&mut self.at).await;
            sqlx::raw_sql("ROLLBACK TO SAVEPOINT rule").execute(&mut self.at).await?;
            Ok::<_, StoreError>(found?)
        };
        let rows = tokio::time::timeout(self.patience + GRACE, asking).await.map_err(|_| StoreError::silent())??;
        let count = rows.first().map_or(0, |row| row.count);
        Ok(Findings { count, told: rows.into_iter().map(|row| row.finding).collect() })
    }

    /// Lets the snapshot go.
    pub async fn end(self) -> Result<(), StoreError> {
        Ok(self.at.close().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_name_and_a_promise_of_its_own() {
        for (number, rule) in RULES.iter().enumerate() {
            assert!(!rule.promise().is_empty() && !rule.promise().contains(".sql"), "{}", rule.path);
            assert!(rule.text.starts_with(&format!("-- doctor_{}.sql: ", rule.name())), "{}", rule.path);
            assert!(RULES[..number].iter().all(|other| other.promise() != rule.promise()), "{}", rule.path);
        }
        assert_eq!(RULES[3].name(), "free_key");
    }
}
