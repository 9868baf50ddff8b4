//! Repairs: the items, what was done with them, and their lists.

use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use super::rows::known;
use super::{Db, StoreError, Tx};
use crate::domain::names::{FairnessKey, OrderingKey, QueueName, SubjectId, TaskId};
use crate::domain::queue::OnRepair;
use crate::domain::repair::{Acted, Action, ActionKind, Repair, RepairState, Replay, Standing};
use crate::domain::spec::Subject;
use crate::domain::task::{Cause, Notes, State};
use crate::domain::time::Timestamp;

/// Who acts, and why.
#[derive(Clone, Debug)]
pub struct By {
    pub actor: String,
    pub reason: String,
}

#[derive(Debug)]
struct StandingRow {
    state: String,
    owner: String,
    next_action: String,
    receipt_ref: String,
    replayed_by: Option<Uuid>,
    last_refusal: String,
}

impl StandingRow {
    fn standing(self) -> Result<Standing, StoreError> {
        Ok(Standing {
            state: known("repairs.state", RepairState::parse(&self.state))?,
            owner: self.owner,
            next_action: self.next_action,
            receipt_ref: self.receipt_ref,
            replayed_by: self.replayed_by,
            last_refusal: self.last_refusal,
        })
    }
}

/// Locks a repair and reads it; absent: the task has none. To be called after every other lock, before the clock is read.
pub async fn lock_repair(tx: &mut Tx, queue_id: i32, uid: Uuid) -> Result<Option<Standing>, StoreError> {
    let row = sqlx::query_file_as!(StandingRow, "src/store/sql/repair_lock.sql", queue_id, uid);
    row.fetch_optional(tx.connection()).await?.map(StandingRow::standing).transpose()
}

/// Writes what an action made of a repair that this transaction has locked.
pub async fn write_repair(
    tx: &mut Tx, (queue_id, uid): (i32, Uuid), after: &Standing, action: &Action, by: &By, now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query_file!(
        "src/store/sql/repair_write.sql",
        queue_id,
        uid,
        after.state.as_str(),
        after.owner,
        after.next_action,
        after.receipt_ref,
        after.replayed_by,
        after.last_refusal,
        now as _,
        action.kind().as_str(),
        by.actor,
        by.reason,
        action.detail(),
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Which repairs; absent parts ask for nothing.
#[derive(Clone, Debug, Default)]
pub struct RepairFilter {
    pub kind: Option<String>,
    pub target: Option<String>,
    pub event_id: Option<String>,
    pub fairness_key: Option<String>,
    pub ordering_key: Option<String>,
    pub labels: Option<Value>,
    pub subject_id: Option<String>,
    pub causes: Option<Vec<String>>,
}

/// Which page of them.
#[derive(Clone, Debug)]
pub struct RepairPage {
    /// The one of this task only.
    pub uid: Option<Uuid>,
    pub states: Vec<String>,
    pub owner: Option<String>,
    /// Opened at this moment or before.
    pub until: Option<Timestamp>,
    /// The page goes on behind this place.
    pub after: (Timestamp, Uuid),
    pub limit: i64,
}

#[derive(Debug)]
struct RepairRow {
    uid: Uuid,
    state: String,
    cause: String,
    owner: String,
    next_action: String,
    receipt_ref: String,
    replayed_by: Option<Uuid>,
    last_refusal: String,
    resolved_by: String,
    reason: String,
    key_id: Option<i64>,
    position: i64,
    opened: Timestamp,
    updated: Option<Timestamp>,
    resolved: Option<Timestamp>,
    task_id: String,
    kind: String,
    target: String,
    event_id: String,
    fairness_key: String,
    ordering_key: String,
    subjects: Option<Json<Vec<(String, i64)>>>,
    attempt: i32,
    unknown_attempts: i32,
    notes: Option<Json<Notes>>,
    on_repair: String,
    replay_id: Option<String>,
    replay_state: Option<String>,
    replay_cause: Option<String>,
    replay_ended: Option<Timestamp>,
}

/// Where a repair stands in its ordering key: what never changes of it.
#[derive(Clone, Copy, Debug)]
pub struct KeyPlace {
    pub key_id: Option<i64>,
    pub position: i64,
}

impl RepairRow {
    fn repair(self, queue: &QueueName) -> Result<(Repair, KeyPlace), StoreError> {
        let replay = match self.replayed_by {
            None => None,
            Some(uid) => Some(Replay {
                task_id: self.replay_id.map(|id| known("task_id", TaskId::parse(&id).ok())).transpose()?,
                uid,
                state: self.replay_state.map(|state| known("state", State::parse(&state))).transpose()?,
                cause: self.replay_cause.map(|cause| known("cause", Cause::parse(&cause))).transpose()?,
                ended: self.replay_ended,
            }),
        };
        let subject = |(id, version): (String, i64)| {
            Ok(Subject { id: known("subjects", SubjectId::parse(&id).ok())?, version, raise_floor: false })
        };
        let standing = StandingRow {
            state: self.state,
            owner: self.owner,
            next_action: self.next_action,
            receipt_ref: self.receipt_ref,
            replayed_by: self.replayed_by,
            last_refusal: self.last_refusal,
        }
        .standing()?;
        let place = KeyPlace { key_id: self.key_id, position: self.position };
        let holds = standing.state == RepairState::Open && OnRepair::parse(&self.on_repair) == Some(OnRepair::Hold);
        let repair = Repair {
            queue: queue.clone(),
            task_id: known("task_id", TaskId::parse(&self.task_id).ok())?,
            uid: self.uid,
            standing,
            cause: known("repairs.cause", Cause::parse(&self.cause))?,
            kind: self.kind,
            target: self.target,
            event_id: self.event_id,
            subjects: self.subjects.map_or(Ok(Vec::new()), |s| s.0.into_iter().map(subject).collect::<Result<_, StoreError>>())?,
            fairness_key: known("fairness_key", FairnessKey::parse(&self.fairness_key).ok())?,
            ordering_key: match self.ordering_key.as_str() {
                "" => None,
                key => Some(known("ordering_key", OrderingKey::parse(key).ok())?),
            },
            holds_key: holds && self.key_id.is_some(),
            attempts: self.attempt,
            unknown_attempts: self.unknown_attempts,
            notes: self.notes.map(|notes| notes.0).unwrap_or_default(),
            opened: self.opened,
            updated: self.updated.unwrap_or(self.opened),
            resolved: self.resolved,
            resolved_by: self.resolved_by,
            reason: self.reason,
            replay,
        };
        Ok((repair, place))
    }
}

/// A page of repairs of one snapshot, the oldest first.
pub async fn repairs_page(
    db: &Db, queue_id: i32, queue: &QueueName, filter: &RepairFilter, page: &RepairPage,
) -> Result<Vec<(Repair, KeyPlace)>, StoreError> {
    let mut tx = db.begin_read().await?;
    let open = page.states == [RepairState::Open.as_str()];
    let rows = sqlx::query_file_as!(
        RepairRow,
        "src/store/sql/repairs_page.sql",
        queue_id,
        page.uid,
        page.after.0 as _,
        page.after.1,
        page.until as _,
        open,
        &page.states,
        filter.causes.as_deref(),
        page.owner,
        filter.kind,
        filter.target,
        filter.event_id,
        filter.fairness_key,
        filter.ordering_key,
        filter.labels,
        filter.subject_id,
        page.limit,
    );
    let rows = rows.fetch_all(tx.connection()).await?;
    tx.commit().await?;
    rows.into_iter().map(|row| row.repair(queue)).collect()
}

/// Open repairs to replay, and whether a replay of it was refused before: those of which none was first, then the oldest.
pub async fn repairs_to_replay(db: &Db, queue_id: i32, filter: &RepairFilter, limit: i64) -> Result<Vec<(Uuid, bool)>, StoreError> {
    let mut tx = db.begin_read().await?;
    let rows = sqlx::query_file!(
        "src/store/sql/repairs_to_replay.sql",
        queue_id,
        filter.causes.as_deref(),
        filter.kind,
        filter.target,
        filter.event_id,
        filter.fairness_key,
        filter.ordering_key,
        filter.labels,
        filter.subject_id,
        limit,
    );
    let rows = rows.fetch_all(tx.connection()).await?;
    tx.commit().await?;
    Ok(rows.into_iter().map(|row| (row.uid, row.refused)).collect())
}

/// The latest `limit` actions on a repair, the newest last.
pub async fn repair_actions(db: &Db, queue_id: i32, uid: Uuid, limit: i64) -> Result<Vec<Acted>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/repair_actions.sql", queue_id, uid, limit).fetch_all(db.reads()).await?;
    let mut actions = Vec::with_capacity(rows.len());
    for row in rows.into_iter().rev() {
        let kind = known("repair_actions.action", ActionKind::parse(&row.action))?;
        actions.push(Acted { kind, time: row.time, actor: row.actor, reason: row.reason, detail: row.detail });
    }
    Ok(actions)
}
