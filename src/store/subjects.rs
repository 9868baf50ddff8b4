//! Subjects' floors, and walks over the tasks that they make stale.

use std::collections::HashMap;

use sqlx::PgExecutor;
use uuid::Uuid;

use super::pool::GATE;
use super::{Db, StoreError, Tx};
use crate::domain::subject::Floor;
use crate::domain::time::Timestamp;

/// Floors by queue and subject.
pub type FloorMap = HashMap<i32, HashMap<String, Floor>>;

/// Takes the gates of these queues (`true`: alone) until the transaction ends. To be called after every other lock: while it waits, a
/// claim that is under way may want none of what this transaction holds.
pub async fn lock_gates(tx: &mut Tx, gates: &[(i32, bool)]) -> Result<(), StoreError> {
    let (queues, alone): (Vec<i32>, Vec<bool>) = gates.iter().copied().unzip();
    sqlx::query_file!("src/store/sql/gates_for_floors.sql", GATE, &queues, &alone).fetch_all(tx.connection()).await?;
    Ok(())
}

/// The floors of these subjects. Where something is decided by them: in a later statement than the locks of what is decided.
pub async fn floors(at: impl PgExecutor<'_>, subjects: impl Iterator<Item = (i32, String)>) -> Result<FloorMap, StoreError> {
    let (queues, ids): (Vec<i32>, Vec<String>) = subjects.unzip();
    let rows = sqlx::query_file!("src/store/sql/floors_by_subject.sql", &queues, &ids).fetch_all(at).await?;
    let mut floors = FloorMap::new();
    for r in rows {
        let floor =
            Floor { min_version: r.min_version, revoked: r.revoked, reason: r.reason, updated: r.updated, walking: r.walking };
        floors.entry(r.queue_id).or_default().insert(r.subject_id, floor);
    }
    Ok(floors)
}

/// Writes raised floors. The gates of their queues must be held alone. `walk_due`: from when on the loop walks over what is stale now.
pub async fn write_floors(tx: &mut Tx, floors: &[(i32, String, Floor)], walk_due: Timestamp) -> Result<(), StoreError> {
    macro_rules! column {
        ($floor:ident => $value:expr) => {
            floors.iter().map(|$floor| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query_file!(
        "src/store/sql/floors_write.sql",
        &column!(f => f.0),
        &column!(f => f.1.as_str()) as _,
        &column!(f => f.2.min_version) as _,
        &column!(f => f.2.revoked),
        &column!(f => f.2.reason.as_str()) as _,
        &column!(f => f.2.updated) as _,
        &vec![walk_due; floors.len()] as _,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Says when the loop is to walk over what this floor made stale; absent: nothing is left. Does nothing if the floor is another by now.
pub async fn plan_walk(db: &Db, queue_id: i32, subject: &str, floor: &Floor, due: Option<Timestamp>) -> Result<(), StoreError> {
    sqlx::query_file!("src/store/sql/floor_walk_plan.sql", queue_id, subject, floor.min_version, floor.revoked, due as _)
        .execute(db.reads())
        .await?;
    Ok(())
}

/// Takes the walk that has been due for longest by `now`: nobody else begins it before `until`.
pub async fn take_walk(tx: &mut Tx, now: Timestamp, until: Timestamp) -> Result<Option<(i32, String, Floor)>, StoreError> {
    let row = sqlx::query_file!("src/store/sql/floor_walk_take.sql", now as _, until as _).fetch_optional(tx.connection()).await?;
    Ok(row.map(|r| {
        let floor = Floor { min_version: r.min_version, revoked: r.revoked, reason: r.reason, updated: r.updated, walking: true };
        (r.queue_id, r.subject_id, floor)
    }))
}

/// Running tasks on the subject below `limit` (absent: all of them) that were not told to stop yet.
pub async fn stale_running(db: &Db, queue_id: i32, subject: &str, limit: Option<i64>) -> Result<Vec<Uuid>, StoreError> {
    let mut tx = db.begin().await?;
    let rows = sqlx::query_file!("src/store/sql/stale_running.sql", queue_id, subject, limit).fetch_all(tx.connection()).await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| row.uid).collect())
}

/// Up to `length` tasks on the subject below `limit`, from behind `after` on, and which of them are to be canceled or told still.
pub async fn stale_page(
    db: &Db, queue_id: i32, subject: &str, after: Uuid, limit: Option<i64>, length: i64,
) -> Result<Vec<(Uuid, bool)>, StoreError> {
    let mut tx = db.begin().await?;
    let rows = sqlx::query_file!("src/store/sql/stale_page.sql", queue_id, subject, after, limit, length);
    let rows = rows.fetch_all(tx.connection()).await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.uid, row.open)).collect())
}

/// How many of these tasks have had their effect, or may have.
pub async fn effected(db: &Db, queue_id: i32, uids: &[Uuid]) -> Result<i64, StoreError> {
    let mut tx = db.begin().await?;
    let row = sqlx::query_file!("src/store/sql/effected_count.sql", queue_id, uids).fetch_one(tx.connection()).await?;
    tx.commit().await?;
    Ok(row.count)
}
