//! What a batch must know beside the tasks themselves: the floors of their subjects, and receipts. Read after the tasks were locked.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::batch::Item;
use super::round::Decoded;
use super::tasks::Tasks;
use crate::domain::subject;
use crate::domain::task::Command;
use crate::store::{self, StoreError, Tx};

impl Tasks {
    /// Finds out which tasks are stale. A floor that rises after this look met the task as it stood before: the walk over the stale ones
    /// waits for this transaction at the task's row.
    pub(super) async fn read_floors(&mut self, tx: &mut Tx, specs: &Decoded) -> Result<(), StoreError> {
        let of = |uid: &Uuid| specs.specs.get(uid).map_or(&[][..], |(spec, _)| &spec.subjects);
        let named: BTreeSet<(i32, String)> = self
            .entries
            .iter()
            .flat_map(|(uid, entry)| of(uid).iter().map(|subject| (entry.place.queue_id, subject.id.to_string())))
            .collect();
        if named.is_empty() {
            return Ok(());
        }
        let floors = store::floors(tx.connection(), named.into_iter()).await?;
        for (uid, entry) in &self.entries {
            let Some(floors) = floors.get(&entry.place.queue_id) else { continue };
            if let Some(stale) = subject::stale(of(uid), |id| floors.get(id.as_str())) {
                self.stale.insert(*uid, stale);
            }
        }
        Ok(())
    }

    /// The receipts that tasks have to which another one comes.
    pub(super) async fn read_receipts(
        &mut self, tx: &mut Tx, items: &[Item], chosen: &[usize], specs: &Decoded,
    ) -> Result<(), StoreError> {
        let recording = chosen.iter().map(|&i| &items[i]).filter(|item| matches!(item.command, Command::Record(_)));
        let named: BTreeSet<(i32, Uuid)> = recording.filter_map(|item| Some((item.queue_id, specs.find(item)?))).collect();
        if named.is_empty() {
            return Ok(());
        }
        let (queues, uids): (Vec<i32>, Vec<Uuid>) = named.into_iter().unzip();
        for (uid, kept) in store::receipts_of(tx.connection(), &queues, &uids).await? {
            self.receipts.insert(uid, kept.into_iter().map(|one| one.receipt).collect());
        }
        Ok(())
    }
}
