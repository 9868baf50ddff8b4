//! The replay of a repair, as a part of the transaction that accepts the new task: so there is never a new task beside an open repair,
//! nor a resolved repair without its new task.

use uuid::Uuid;

use super::batch::Submission;
use crate::domain::queue::OnRepair;
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::repair::{Action, RepairState, Standing, act};
use crate::domain::time::Timestamp;
use crate::engine::Aftermath;
use crate::engine::successor::Successor;
use crate::store::{self, By, KeyPlace, Policies, StoreError, Tx};

/// The repair that a submission replays.
#[derive(Clone, Debug)]
pub struct Replaying {
    /// Its task.
    pub original: Uuid,
    pub place: KeyPlace,
    pub by: By,
    /// Everything is done but the commit.
    pub rehearsal: bool,
}

impl Replaying {
    /// The ordering key of the original, which has to be locked too.
    pub(super) fn key(&self, queue_id: i32) -> Option<(i32, i64)> {
        self.place.key_id.map(|key_id| (queue_id, key_id))
    }
}

impl Submission {
    /// Whether everything but the commit is done.
    pub(super) fn rehearsal(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.rehearsal)
    }
}

/// Commits; a rehearsal, which has passed every gate by now, leaves nothing behind.
pub(super) async fn end(tx: Tx, rehearsal: bool) -> Result<(), StoreError> {
    if rehearsal {
        drop(tx);
        return Ok(());
    }
    tx.commit().await
}

/// A replay whose rows are locked.
pub(super) struct Replay<'a> {
    item: &'a Submission,
    replaying: &'a Replaying,
    /// Absent: there is no such repair.
    standing: Option<Standing>,
    successor: Successor,
    /// Whether something of the original's key stands before it: its head, or an open repair of a lower position.
    before: Before,
}

/// Who keeps the original's key, beside the original.
#[derive(Default)]
struct Before {
    head: bool,
    /// The lowest BLOCKED task.
    blocked: Option<i64>,
    /// The lowest open repair, which may be the original's own.
    repair: Option<i64>,
}

/// The place of a replay in a key that was held for it.
#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) position: i64,
    pub(super) busy: bool,
}

impl<'a> Replay<'a> {
    /// Absent: nothing is replayed, or its new task is known already. The keys must have been locked by an earlier statement.
    pub(super) async fn lock(tx: &mut Tx, items: &'a [Submission], fresh: &[usize]) -> Result<Option<Replay<'a>>, StoreError> {
        let item = fresh.first().map(|&i| &items[i]);
        let Some((item, replaying)) = item.and_then(|item| Some((item, item.replay.as_deref()?))) else { return Ok(None) };
        let key = replaying.key(item.queue_id);
        let mut before = Before::default();
        if let Some(key) = key
            && let Some(places) = store::key_places(tx, &[key], 1).await?.remove(&key)
        {
            before = Before {
                head: places.head.is_some(),
                blocked: places.blocked.first().map(|(_, position)| *position),
                repair: places.repair,
            };
        }
        let successor = Successor::lock(tx, key).await?;
        let standing = store::lock_repair(tx, item.queue_id, replaying.original).await?;
        Ok(Some(Replay { item, replaying, standing, successor, before }))
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        match &self.standing {
            None => Some(Refusal::NotFound { what: Missing::Repair, name: self.replaying.original.to_string() }),
            Some(standing) if standing.state != RepairState::Open => Some(Refusal::RepairResolved { state: standing.state }),
            Some(_) => None,
        }
    }

    /// In a key that is held for it the new task takes the old one's position. (Absent: it stands where every new task stands.)
    pub(super) fn seat(&self, key_id: Option<i64>, on_repair: OnRepair) -> Option<Seat> {
        let same = key_id.is_some() && key_id == self.replaying.place.key_id;
        let position = self.replaying.place.position;
        let lower = |other: Option<i64>| other.is_some_and(|other| other < position);
        let busy = self.before.head || lower(self.before.blocked) || lower(self.before.repair);
        (same && on_repair == OnRepair::Hold).then_some(Seat { position, busy })
    }

    /// Resolves the repair by the new task, which has been written, and lets the next task of its key go if nothing holds it any more.
    pub(super) async fn resolve(
        &self, tx: &mut Tx, uid: Uuid, policies: &Policies, now: Timestamp,
    ) -> Result<Aftermath, StoreError> {
        let queue_id = self.item.queue_id;
        let action = Action::Replay { uid, task_id: self.item.spec.task_id.clone() };
        if let Some(Ok(Some(after))) = self.standing.as_ref().map(|standing| act(standing, &action)) {
            store::write_repair(tx, (queue_id, self.replaying.original), &after, &action, &self.replaying.by, now).await?;
        }
        let (name, policy) = policies.get(&queue_id).ok_or_else(StoreError::silent)?;
        self.successor.go(tx, name, policy, now).await
    }
}
