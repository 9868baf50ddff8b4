//! The floors that a Submit goes by, and those that it raises.
//!
//! Whoever submits a task with subjects holds its queue's gate shared until the commit, and reads the floors in a later statement; who
//! raises one holds it alone. So a task is either there when a floor rises, and the walk over the stale ones finds it, or it is judged by
//! the new floor. The gate is the last lock of a Submit although it is the first of a claim: waiting for it first would let every claim
//! of the queue wait for whatever this batch waits for. No circle can come of it, because whoever holds a gate wants nothing that a
//! Submit holds by then: neither task ids nor keys, and of shares no more than KEY SHARE leaves free.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::Submission;
use crate::domain::refusal::Refusal;
use crate::domain::subject::{self, Floor, Raise};
use crate::domain::time::Timestamp;
use crate::engine::subjects::WALK_PATIENCE;
use crate::store::{self, FloorMap, StoreError, Tx};

#[derive(Default)]
pub(super) struct Floors {
    known: FloorMap,
    raised: BTreeSet<(i32, String)>,
}

impl Floors {
    /// Takes the gates, then reads the floors. Free of charge where no task has a subject.
    pub(super) async fn lock(tx: &mut Tx, items: &[Submission], fresh: &[usize]) -> Result<Floors, StoreError> {
        let mut gates: BTreeMap<i32, bool> = BTreeMap::new();
        let mut named: BTreeSet<(i32, String)> = BTreeSet::new();
        for item in fresh.iter().map(|&i| &items[i]) {
            for subject in &item.spec.subjects {
                *gates.entry(item.queue_id).or_default() |= subject.raise_floor;
                named.insert((item.queue_id, subject.id.to_string()));
            }
        }
        if named.is_empty() {
            return Ok(Floors::default());
        }
        store::lock_gates(tx, &gates.into_iter().collect::<Vec<_>>()).await?;
        let known = store::floors(tx.connection(), named.into_iter()).await?;
        Ok(Floors { known, raised: BTreeSet::new() })
    }

    fn floor(&self, queue_id: i32, subject: &str) -> Option<&Floor> {
        self.known.get(&queue_id)?.get(subject)
    }

    /// Why the task is refused, if one of its subjects is stale: by what is stored, or by what an earlier task of the batch raised.
    pub(super) fn refusal(&self, item: &Submission) -> Option<Refusal> {
        let stale = subject::stale(&item.spec.subjects, |id| self.floor(item.queue_id, id.as_str()))?;
        Some(Refusal::SubjectStale { subject: stale.subject, version: stale.version, floor: stale.floor })
    }

    /// The task is accepted: what it raises is raised, for those behind it in the batch too.
    pub(super) fn raise(&mut self, item: &Submission, now: Timestamp) {
        for subject in item.spec.subjects.iter().filter(|subject| subject.raise_floor) {
            let id = subject.id.as_str();
            if let Some(floor) = subject::raised(self.floor(item.queue_id, id), Raise::To(subject.version), "", now) {
                self.known.entry(item.queue_id).or_default().insert(id.to_owned(), floor);
                self.raised.insert((item.queue_id, id.to_owned()));
            }
        }
    }

    pub(super) async fn write(&self, tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
        let raised =
            self.raised.iter().filter_map(|(queue_id, id)| Some((*queue_id, id.clone(), self.floor(*queue_id, id)?.clone())));
        let raised: Vec<_> = raised.collect();
        if raised.is_empty() { Ok(()) } else { store::write_floors(tx, &raised, now.plus(WALK_PATIENCE)).await }
    }
}
