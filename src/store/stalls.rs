//! Stalls: what is known of a queue's leases, and what was concluded.

use super::{Db, StoreError};
use crate::domain::stall::Word;
use crate::domain::time::Timestamp;

/// At most `limit` of the queue's leases that had begun by `at`, and when their workers were last heard of.
pub async fn words_of(db: &Db, queue_id: i32, at: Timestamp, limit: i64) -> Result<Vec<Word>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/stall_leases.sql", queue_id, at as _, limit).fetch_all(db.reads()).await?;
    let span = |us: i64| std::time::Duration::from_micros(us.unsigned_abs());
    Ok(rows.into_iter().map(|row| Word { worker: row.worker, heard: row.heard, span: span(row.lease_us) }).collect())
}

/// Notes that the queue's fleet had stalled by `at`. Decisions of transactions that read the clock later go by it.
pub async fn note_stall(db: &Db, queue_id: i32, at: Timestamp) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/stall_note.sql", queue_id, at as _).execute(db.reads()).await?;
    Ok(())
}
