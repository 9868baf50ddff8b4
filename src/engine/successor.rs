//! Who comes next in an ordering key when an open repair stops holding it.

use uuid::Uuid;

use super::Aftermath;
use crate::domain::names::QueueName;
use crate::domain::order::{Place as KeyPlace, settle_key};
use crate::domain::queue::{OnRepair, Policy};
use crate::domain::task::{Command, Context, Live, Standing, head_start, step};
use crate::domain::time::Timestamp;
use crate::store::{self, Changes, Place, StoreError, Tx};

/// The lowest BLOCKED task of a key, locked, if there is one.
pub(super) struct Successor {
    key: Option<(i32, i64)>,
    next: Option<(Place, Live)>,
}

impl Successor {
    /// The key must have been locked by an earlier statement; nobody else ends or unblocks a task of it meanwhile.
    pub(super) async fn lock(tx: &mut Tx, key: Option<(i32, i64)>) -> Result<Successor, StoreError> {
        let Some(key) = key else { return Ok(Successor { key: None, next: None }) };
        let mut places = store::key_places(tx, &[key], 1).await?;
        let lowest = places.remove(&key).and_then(|places| places.blocked.first().copied());
        let Some((uid, _)) = lowest else { return Ok(Successor { key: None, next: None }) };
        let row = store::lock_live(tx, &[key.0], &[uid]).await?.pop();
        let next = row.map(|row| {
            let place =
                Place { queue_id: row.queue_id, uid: row.uid, share_id: row.share_id, key_id: row.key_id, position: row.position };
            Ok::<_, StoreError>((place, row.live()?))
        });
        Ok(Successor { key: Some(key), next: next.transpose()? })
    }

    /// Lets it go, if nothing unfinished and no open repair stands before it. To be called when whatever changes that has been written.
    pub(super) async fn go(&self, tx: &mut Tx, name: &QueueName, policy: &Policy, now: Timestamp) -> Result<Aftermath, StoreError> {
        let (Some(key), Some((place, live))) = (self.key, &self.next) else { return Ok(Aftermath::default()) };
        let places = store::key_places(tx, &[key], 1).await?.remove(&key).unwrap_or_default();
        let at = |blocked| move |&(_, position): &(Uuid, i64)| KeyPlace { position, blocked };
        let unfinished: Vec<KeyPlace> = places.head.iter().map(at(false)).chain(places.blocked.iter().map(at(true))).collect();
        let hold = places.repair.filter(|_| policy.on_repair == OnRepair::Hold);
        if settle_key(&unfinished, hold) != Some(place.position) {
            return Ok(Aftermath::default());
        }
        let rows = store::specs_by_uid(tx.connection(), &[place.queue_id], &[place.uid]).await?;
        let row = rows.into_iter().next().ok_or_else(|| StoreError::absent(place.uid))?;
        let (spec, _) = row.spec(name)?;
        let ctx = Context {
            now,
            policy,
            retry: policy.retry_of(&spec.retry()),
            head_start: head_start(spec.priority, policy),
            stale: None,
            past: None,
            receipts: &[],
            chance: 0.0,
        };
        let decision = step(Standing::Live(live.clone()), &Command::Unblock, &ctx);
        let mut changes = Changes::default();
        let mut aftermath = Aftermath { changed: vec![place.uid], ..Aftermath::default() };
        if let Standing::Live(live) = &decision.after {
            changes.unblocked(place, live);
            aftermath.due = Some(live.due());
        }
        decision.events.iter().for_each(|event| changes.event(place.queue_id, place.uid, event));
        aftermath.openings.extend(changes.write(tx).await?.iter());
        Ok(aftermath)
    }
}
