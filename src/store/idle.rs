//! Shares and ordering keys that nothing is left of: found unlocked, removed under their locks.

use super::{Db, StoreError};

/// A page of what was looked at, in order: which of it seemed idle, and where the next page begins (absent: there is none).
pub struct IdlePage<N> {
    pub idle: Vec<N>,
    pub next: Option<N>,
}

fn page<N: Copy>(rows: Vec<(N, bool)>, limit: i64) -> IdlePage<N> {
    let full = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= limit;
    let next = rows.last().filter(|_| full).map(|(number, _)| *number);
    IdlePage { idle: rows.into_iter().filter(|(_, idle)| *idle).map(|(number, _)| number).collect(), next }
}

/// Up to `limit` shares from behind `after` on.
pub async fn idle_shares(db: &Db, after: i32, limit: i64) -> Result<IdlePage<i32>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/shares_idle.sql", after, limit).fetch_all(db.reads()).await?;
    Ok(page(rows.into_iter().map(|row| (row.share_id, row.idle)).collect(), limit))
}

/// Removes those that are idle still, and that nobody holds; how many.
pub async fn remove_shares(db: &Db, shares: &[i32]) -> Result<u64, StoreError> {
    let mut tx = db.begin().await?;
    let rows = sqlx::query_file!("src/store/sql/shares_idle_lock.sql", shares).fetch_all(tx.connection()).await?;
    let ids: Vec<i32> = rows.into_iter().map(|row| row.share_id).collect();
    let removed = sqlx::query_file!("src/store/sql/shares_remove.sql", &ids).execute(tx.connection()).await?;
    tx.commit().await?;
    Ok(removed.rows_affected())
}

/// Up to `limit` ordering keys from behind `after` on.
pub async fn idle_keys(db: &Db, after: i64, limit: i64) -> Result<IdlePage<i64>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/keys_idle.sql", after, limit).fetch_all(db.reads()).await?;
    Ok(page(rows.into_iter().map(|row| (row.key_id, row.idle)).collect(), limit))
}

/// Removes those that are idle still, and that nobody holds; how many.
pub async fn remove_keys(db: &Db, keys: &[i64]) -> Result<u64, StoreError> {
    let mut tx = db.begin().await?;
    let rows = sqlx::query_file!("src/store/sql/keys_idle_lock.sql", keys).fetch_all(tx.connection()).await?;
    let ids: Vec<i64> = rows.into_iter().map(|row| row.key_id).collect();
    let removed = sqlx::query_file!("src/store/sql/keys_remove.sql", &ids).execute(tx.connection()).await?;
    tx.commit().await?;
    Ok(removed.rows_affected())
}
