//! Ordering keys: their rows are the locks, and `live` says who stands where.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Db, StoreError, Tx};

/// Who stands where in one key.
#[derive(Debug, Default)]
pub struct KeyPlaces {
    /// The unfinished task outside BLOCKED, if there is one.
    pub head: Option<(Uuid, i64)>,
    /// The lowest BLOCKED ones, as many as were asked for.
    pub blocked: Vec<(Uuid, i64)>,
    /// Position of the lowest open repair.
    pub repair: Option<i64>,
}

/// Numbers of the keys that are there, by queue and key.
pub async fn find_keys(tx: &mut Tx, queues: &[i32], keys: &[String]) -> Result<HashMap<(i32, String), i64>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/keys_find.sql", queues, keys).fetch_all(tx.connection()).await?;
    Ok(rows.into_iter().map(|row| ((row.queue_id, row.key), row.key_id)).collect())
}

pub async fn make_keys(tx: &mut Tx, queues: &[i32], keys: &[String]) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/keys_make.sql", queues, keys).execute(tx.connection()).await?;
    Ok(())
}

/// Locks the keys' rows, in the order of their numbers; how many are still there.
pub async fn lock_keys(tx: &mut Tx, keys: &[(i32, i64)]) -> Result<usize, StoreError> {
    let ids: Vec<i64> = keys.iter().map(|(_, key_id)| *key_id).collect();
    Ok(sqlx::query_file!("src/store/sql/keys_lock.sql", &ids).fetch_all(tx.connection()).await?.len())
}

/// Head and the lowest `depth` BLOCKED tasks of each key. The keys must have been locked by an earlier statement.
pub async fn key_places(tx: &mut Tx, keys: &[(i32, i64)], depth: i64) -> Result<HashMap<(i32, i64), KeyPlaces>, StoreError> {
    let (queues, ids): (Vec<i32>, Vec<i64>) = keys.iter().copied().unzip();
    let rows = sqlx::query_file!("src/store/sql/key_places.sql", &queues, &ids, depth).fetch_all(tx.connection()).await?;
    let mut places: HashMap<_, KeyPlaces> = HashMap::with_capacity(keys.len());
    for row in rows {
        let key = places.entry((row.queue_id, row.key_id)).or_default();
        key.repair = row.hold;
        match (row.uid, row.position, row.blocked) {
            (Some(uid), Some(position), Some(true)) => key.blocked.push((uid, position)),
            (Some(uid), Some(position), _) => key.head = Some((uid, position)),
            _ => {}
        }
    }
    Ok(places)
}

/// A key with an open repair.
#[derive(Debug)]
pub struct HeldKey {
    pub queue_id: i32,
    pub key_id: i64,
    /// Its lowest BLOCKED task, if nothing but the repair is in front of it although the queue says CONTINUE.
    pub stranded: Option<Uuid>,
}

/// Up to `limit` keys with open repairs from behind `after` on, in order, of queues up to number `last`.
pub async fn held_keys(db: &Db, after: (i32, i64), last: i32, limit: i64) -> Result<Vec<HeldKey>, StoreError> {
    Ok(sqlx::query_file_as!(HeldKey, "src/store/sql/keys_held.sql", after.0, after.1, last, limit).fetch_all(db.reads()).await?)
}
