//! Fills a database with tasks by set-based SQL, in seconds where calls would take hours. The rows are those that the server would have
//! written: the doctor finds nothing in them.

use sqlx::PgConnection;
use uuid::Uuid;

use super::Failure;
use super::load::fairness_key;
use super::naive::EVIDENCE;
use super::say;
use super::scenarios::PAYLOAD;

/// Tasks in one statement.
const PAGE: usize = 5_000;
/// Tasks after which a line says how far it is.
const TELL: usize = 500_000;

/// Where unfinished tasks lie.
#[derive(Clone, Copy)]
pub struct Lying<'a> {
    pub state: &'static str,
    /// The tasks take turns at so many shares; 0: they are in the one without a name.
    pub shares: u64,
    /// Empty: none.
    pub key: &'a str,
    /// Absent: not SCHEDULED.
    pub starts_in_seconds: Option<f64>,
}

pub const READY: Lying<'_> = Lying { state: "READY", shares: 0, key: "", starts_in_seconds: None };

/// A queue that is being filled.
pub struct Filler<'a> {
    sql: &'a mut PgConnection,
    queue_id: i32,
}

impl<'a> Filler<'a> {
    /// The queue has the share without a name from now on.
    pub async fn open(sql: &'a mut PgConnection, queue: &str) -> Result<Filler<'a>, Failure> {
        let queue_id = sqlx::query_scalar(include_str!("sql/fill_queue.sql")).bind(queue).fetch_one(&mut *sql).await?;
        let mut filler = Filler { sql, queue_id };
        filler.put_shares(vec![String::new()], None).await?;
        Ok(filler)
    }

    async fn put_shares(&mut self, fairness_keys: Vec<String>, max_in_flight: Option<i32>) -> Result<(), Failure> {
        let shares = sqlx::query(include_str!("sql/fill_shares.sql")).bind(self.queue_id).bind(fairness_keys).bind(max_in_flight);
        shares.execute(&mut *self.sql).await?;
        Ok(())
    }

    /// Shares that are numbered from 0.
    pub async fn shares(&mut self, count: u64, max_in_flight: Option<i32>) -> Result<(), Failure> {
        self.put_shares((0..count).map(fairness_key).collect(), max_in_flight).await
    }

    pub async fn unfinished(&mut self, lying: Lying<'_>, count: usize) -> Result<(), Failure> {
        let key = sqlx::query(include_str!("sql/fill_key.sql")).bind(self.queue_id).bind(lying.key);
        if !lying.key.is_empty() {
            key.execute(&mut *self.sql).await?;
        }
        let mut number = 0;
        for page in pages(count) {
            let keys = (number..).map(|n: u64| n.checked_rem(lying.shares).map_or(String::new(), fairness_key));
            let keys: Vec<String> = keys.take(page).collect();
            number += u64::try_from(page)?;
            self.partitions().await?;
            let fill = sqlx::query(include_str!("sql/fill_unfinished.sql"))
                .bind(self.queue_id)
                .bind(uids(page))
                .bind(keys)
                .bind(lying.state)
                .bind(lying.key)
                .bind(PAYLOAD)
                .bind(lying.starts_in_seconds);
            fill.execute(&mut *self.sql).await?;
        }
        Ok(())
    }

    pub async fn finished(&mut self, count: usize, seconds_ago: f64) -> Result<(), Failure> {
        for (number, page) in pages(count).enumerate() {
            self.partitions().await?;
            let fill = sqlx::query(include_str!("sql/fill_finished.sql"))
                .bind(self.queue_id)
                .bind(uids(page))
                .bind(PAYLOAD)
                .bind(seconds_ago)
                .bind(EVIDENCE);
            fill.execute(&mut *self.sql).await?;
            if ((number + 1) * PAGE).is_multiple_of(TELL) {
                say!("bench: {} of {count} finished tasks are there", (number + 1) * PAGE);
            }
        }
        Ok(())
    }

    async fn partitions(&mut self) -> Result<(), Failure> {
        sqlx::query(include_str!("sql/fill_partitions.sql")).execute(&mut *self.sql).await?;
        Ok(())
    }
}

/// Whole pages, and what is left.
fn pages(count: usize) -> impl Iterator<Item = usize> {
    (0..count.div_ceil(PAGE)).map(move |page| PAGE.min(count - page * PAGE))
}

fn uids(count: usize) -> Vec<Uuid> {
    (0..count).map(|_| Uuid::now_v7()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_all_and_none_is_empty() {
        for count in [0, 1, PAGE, PAGE + 1, 3 * PAGE - 1] {
            assert_eq!(pages(count).sum::<usize>(), count);
            assert!(pages(count).all(|page| (1..=PAGE).contains(&page)));
        }
    }
}
