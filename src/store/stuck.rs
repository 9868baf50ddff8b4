//! Tasks whose rows can't be moved as others are.

use uuid::Uuid;

use super::{StoreError, Tx};
use crate::domain::time::Timestamp;

/// The key of an unfinished task, if it has one.
pub async fn stuck_key(tx: &mut Tx, queue_id: i32, uid: Uuid) -> Result<Option<i64>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/stuck_key.sql", queue_id, uid).fetch_optional(tx.connection()).await?;
    Ok(row.and_then(|row| row.key_id))
}

/// Locks it; false: it is not unfinished any more.
pub async fn lock_stuck(tx: &mut Tx, queue_id: i32, uid: Uuid) -> Result<bool, StoreError> {
    Ok(sqlx::query_file!("src/store/sql/stuck_lock.sql", queue_id, uid).fetch_optional(tx.connection()).await?.is_some())
}

/// Ends it as REPAIR_REQUIRED.
pub async fn end_stuck(tx: &mut Tx, queue_id: i32, uid: Uuid, now: Timestamp, reason: &str) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/stuck_end.sql", queue_id, uid, now as _, reason).execute(tx.connection()).await?;
    Ok(())
}
