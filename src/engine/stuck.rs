//! A task whose row is at fault, so that nothing can move it: written by hand, or by a version that knew more. It is left to people, instead of
//! being tried for ever where nobody sees it.
//!
//! This is the one way out that does not go through `step`, because `step` can't be given what can't be read.

use uuid::Uuid;

use super::successor::Successor;
use super::{Engine, refusal_of, timed, transition};
use crate::store::{self, Draw, Moment, StoreError, Tx};

/// What people are told of it.
const REASON: &str = "the task's row can't be read or moved; the server's log says why";

/// How many BLOCKED tasks of its key a single transition takes along.
const TOGETHER: i64 = 2;

impl Engine {
    /// Ends the task as REPAIR_REQUIRED, if its own row is at fault. False: it is not, or even that can't be written.
    pub(super) async fn leave_to_people(&self, queue_id: i32, uid: Uuid) -> bool {
        if !transition::at_fault(self, queue_id, uid).await {
            return false;
        }
        match timed(end_once(self, queue_id, uid)).await {
            Ok(ended) => ended,
            Err(error) => {
                let refusal = refusal_of(&error);
                tracing::error!(%uid, %refusal, "a task that can't be moved can't be left to people either");
                false
            }
        }
    }
}

async fn end_once(engine: &Engine, queue_id: i32, uid: Uuid) -> Result<bool, StoreError> {
    let mut tx = engine.db().begin_patient().await?;
    let key = store::stuck_key(&mut tx, queue_id, uid).await?.map(|key_id| (queue_id, key_id));
    if let Some(key) = key {
        store::lock_keys(&mut tx, &[key]).await?;
    }
    let (culprit, blocked) = culprit(&mut tx, key, uid).await?;
    if !store::lock_stuck(&mut tx, queue_id, culprit).await? {
        return Ok(false);
    }
    // One that is BLOCKED itself keeps nobody waiting who would not wait all the same.
    let successor = Successor::lock(&mut tx, key.filter(|_| !blocked)).await?;
    let Moment { now, policies, .. } = store::moment(&mut tx, &[queue_id], Draw::Nothing).await?;
    let (name, policy) = policies.get(&queue_id).ok_or_else(StoreError::silent)?;
    store::end_stuck(&mut tx, queue_id, culprit, now, REASON).await?;
    let mut aftermath = successor.go(&mut tx, name, policy, now).await?;
    tx.commit().await?;
    aftermath.changed.push(culprit);
    engine.committed(aftermath);
    Ok(true)
}

/// Whose row it is, and whether that one is BLOCKED: a task is not moved without those that come next in its key, and one of them may be
/// at fault. (Then the task itself moves in the next sweep.)
async fn culprit(tx: &mut Tx, key: Option<(i32, i64)>, uid: Uuid) -> Result<(Uuid, bool), StoreError> {
    let Some(key) = key else { return Ok((uid, false)) };
    let places = store::key_places(tx, &[key], TOGETHER).await?.remove(&key).unwrap_or_default();
    for (next, _) in places.blocked.iter().filter(|(next, _)| *next != uid) {
        if let Err(StoreError::Data(_)) = store::lock_live(tx, &[key.0], &[*next]).await {
            return Ok((*next, true));
        }
    }
    Ok((uid, places.blocked.iter().any(|(next, _)| *next == uid)))
}
