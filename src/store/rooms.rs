//! Rooms: how many more tasks bounded queues and shares may accept.

use super::pool::DOOR;
use super::{StoreError, Tx};

/// A queue (share 0) or a share with a limit on its unfinished tasks.
pub type Bounded = (i32, i32);

#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub of: Bounded,
    pub room: i64,
    /// All that was ever accepted under this limit.
    pub taken: i64,
}

/// Locks the rooms, in the one order; makes those that are not there yet. The door must be held (`begin_submit`).
pub async fn lock_rooms(tx: &mut Tx, of: &[Bounded]) -> Result<Vec<Room>, StoreError> {
    let (queues, shares): (Vec<i32>, Vec<i32>) = of.iter().copied().unzip();
    loop {
        let rows = sqlx::query_file!("src/store/sql/rooms_lock.sql", &queues, &shares).fetch_all(tx.connection()).await?;
        if rows.len() == of.len() {
            return Ok(rows.into_iter().map(|r| Room { of: (r.queue_id, r.share_id), room: r.room, taken: r.taken }).collect());
        }
        sqlx::query_file!("src/store/sql/rooms_make.sql", &queues, &shares).execute(tx.connection()).await?;
    }
}

/// How many unfinished tasks each has, counted up to its limit. To be called after `lock_rooms`.
pub async fn count_unfinished(tx: &mut Tx, limits: &[(Bounded, i64)]) -> Result<Vec<(Bounded, i64)>, StoreError> {
    let queues: Vec<i32> = limits.iter().map(|((queue_id, _), _)| *queue_id).collect();
    let shares: Vec<i32> = limits.iter().map(|((_, share_id), _)| *share_id).collect();
    let most: Vec<i64> = limits.iter().map(|(_, limit)| *limit).collect();
    let rows = sqlx::query_file!("src/store/sql/rooms_count.sql", &queues, &shares, &most).fetch_all(tx.connection()).await?;
    Ok(rows.into_iter().map(|row| ((row.queue_id, row.share_id), row.unfinished)).collect())
}

/// Writes what room is left, and adds what was taken.
pub async fn write_rooms(tx: &mut Tx, rooms: &[(Bounded, i64, i64)]) -> Result<(), StoreError> {
    let queues: Vec<i32> = rooms.iter().map(|((queue_id, _), ..)| *queue_id).collect();
    let shares: Vec<i32> = rooms.iter().map(|((_, share_id), ..)| *share_id).collect();
    let left: Vec<i64> = rooms.iter().map(|(_, left, _)| *left).collect();
    let taken: Vec<i64> = rooms.iter().map(|(.., taken)| *taken).collect();
    sqlx::query_file!("src/store/sql/rooms_write.sql", &queues, &shares, &left, &taken).execute(tx.connection()).await?;
    Ok(())
}

/// Waits until nobody is accepting tasks of the queue, and keeps it so until this transaction ends.
pub async fn lock_door(tx: &mut Tx, queue_id: i32) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/door_lock.sql", DOOR, super::pool::door(queue_id)).execute(tx.connection()).await?;
    Ok(())
}

/// Forgets what room a queue (share 0) or shares had.
pub async fn forget_rooms(tx: &mut Tx, queue_id: i32, shares: &[i32]) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/rooms_forget.sql", queue_id, shares).execute(tx.connection()).await?;
    Ok(())
}
