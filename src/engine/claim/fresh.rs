//! What a claim leaves where it is: tasks below the floor of one of their subjects. Canceling them is the walk's, in transitions.
//!
//! A claim holds its queue's gate, so no floor rises while it is under way: what is stale can be found out before anything is locked.
//! That matters, for what a claim locks, the walk has to wait for.

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

use super::batch::Round;
use crate::domain::spec::Subject;
use crate::domain::subject;
use crate::store::{self, LiveRow, StoreError};

impl Round {
    /// Finds out which of these tasks are stale; how many of them are that nobody knew of yet. Costs nothing but a look at what was asked,
    /// which is needed anyway, where no task has subjects.
    pub(super) async fn judge(&mut self, uids: &[Uuid]) -> Result<usize, StoreError> {
        let new: Vec<Uuid> = uids.iter().copied().filter(|uid| self.judged.insert(*uid)).collect();
        if new.is_empty() {
            return Ok(0);
        }
        let subjects = self.subjects(&new).await?;
        let named: BTreeSet<(i32, String)> =
            subjects.values().flatten().map(|subject| (self.queue_id, subject.id.to_string())).collect();
        if named.is_empty() {
            return Ok(0);
        }
        let mut floors = store::floors(self.tx.connection(), named.into_iter()).await?;
        let Some(floors) = floors.remove(&self.queue_id) else { return Ok(0) };
        let stale = subjects.iter().filter(|(_, of)| subject::stale(of, |id| floors.get(id.as_str())).is_some());
        let before = self.stale.len();
        self.stale.extend(stale.map(|(uid, _)| *uid));
        Ok(self.stale.len() - before)
    }

    /// What these tasks are about, those that are about anything.
    async fn subjects(&mut self, uids: &[Uuid]) -> Result<HashMap<Uuid, Vec<Subject>>, StoreError> {
        let remembered = self.engine.0.memory.recall(uids.iter().map(|uid| (self.queue_id, *uid)));
        let unknown: Vec<Uuid> = uids.iter().copied().filter(|uid| !remembered.contains_key(&(self.queue_id, *uid))).collect();
        let mut subjects: HashMap<Uuid, Vec<Subject>> = HashMap::new();
        for ((_, uid), (spec, _)) in remembered.iter().filter(|(_, (spec, _))| !spec.subjects.is_empty()) {
            subjects.insert(*uid, spec.subjects.clone());
        }
        if !unknown.is_empty() {
            for (row, payload) in store::specs_in_full(&mut self.tx, self.queue_id, &unknown).await? {
                let of = row.subjects()?;
                if !of.is_empty() {
                    subjects.insert(row.uid, of);
                }
                self.read.insert(row.uid, (row, payload));
            }
        }
        Ok(subjects)
    }

    /// Those of the tasks that are not stale.
    pub(super) async fn fresh(&mut self, rows: Vec<LiveRow>) -> Result<Vec<LiveRow>, StoreError> {
        let uids: Vec<Uuid> = rows.iter().map(|row| row.uid).collect();
        self.judge(&uids).await?;
        let shares: Vec<i32> = rows.iter().filter(|row| self.stale.contains(&row.uid)).map(|row| row.share_id).collect();
        shares.into_iter().for_each(|share_id| self.meets(share_id));
        Ok(rows.into_iter().filter(|row| !self.stale.contains(&row.uid)).collect())
    }
}
