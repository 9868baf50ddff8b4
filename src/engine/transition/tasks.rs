//! The tasks of one transition transaction: locked, stepped, and written.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use uuid::Uuid;

use super::batch::Item;
use super::round::{Decoded, Specs};
use crate::domain::attempt;
use crate::domain::event::{Event, EventKind};
use crate::domain::order::{Place as KeyPlace, settle_key};
use crate::domain::queue::OnRepair;
use crate::domain::receipt::Receipt;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::report::Report;
use crate::domain::task::{Command, Context, PastAttempt, Reply, Stale, Standing, State, head_start, step};
use crate::domain::time::Timestamp;
use crate::engine::{Aftermath, inspect};
use crate::store::{self, Changes, KeyPlaces, NewReceipt, Place, Policies, StoreError, Tx};

/// A task of the batch as it stands now.
pub(super) struct Entry {
    pub(super) place: Place,
    standing: Standing,
    /// It was leased before this transaction.
    leased: bool,
    /// It had ended before this transaction: `ended` is written once, only evidence may be added.
    over: bool,
    changed: bool,
    /// Written in a statement of its own, after the deletes.
    unblocked: bool,
    result: Bytes,
}

impl Entry {
    fn new(place: Place, standing: Standing) -> Entry {
        let over = matches!(standing, Standing::Ended(_));
        let leased = standing.state() == State::Leased;
        Entry { place, standing, leased, over, changed: false, unblocked: false, result: Bytes::new() }
    }

    pub(super) fn needs_late_round(&self, command: &Command) -> bool {
        match (&self.standing, command) {
            (Standing::Ended(ended), Command::Report { token, report }) => {
                self.over && !(*token == ended.token && ended.report == Some(report.digest()))
            }
            (Standing::Ended(_), Command::Record(_)) => self.over,
            _ => false,
        }
    }
}

#[derive(Default)]
pub(super) struct Tasks {
    pub(super) entries: HashMap<Uuid, Entry>,
    pub(super) pasts: HashMap<(Uuid, i64), PastAttempt>,
    /// Which tasks are below a floor.
    pub(super) stale: HashMap<Uuid, Stale>,
    /// The receipts of the tasks that are to have another one, and what is to be kept.
    pub(super) receipts: HashMap<Uuid, Vec<Receipt>>,
    new_receipts: Vec<NewReceipt>,
    events: Vec<(i32, Uuid, Event)>,
}

impl Tasks {
    /// Locks the live rows of the items and of their keys' successors, and reads those that have ended.
    pub(super) async fn lock(
        tx: &mut Tx, specs: &Specs, places: &HashMap<(i32, i64), KeyPlaces>, late: bool,
    ) -> Result<Tasks, StoreError> {
        let mut wanted: BTreeSet<(i32, Uuid)> = specs.known.keys().copied().collect();
        for ((queue_id, _), key) in places {
            wanted.extend(key.blocked.iter().map(|(uid, _)| (*queue_id, *uid)));
        }
        let (queues, uids): (Vec<i32>, Vec<Uuid>) = wanted.iter().copied().unzip();
        let mut entries = HashMap::with_capacity(uids.len());
        for row in store::lock_live(tx, &queues, &uids).await? {
            let standing = Standing::Live(row.live()?);
            let place =
                Place { queue_id: row.queue_id, uid: row.uid, share_id: row.share_id, key_id: row.key_id, position: row.position };
            entries.insert(row.uid, Entry::new(place, standing));
        }
        let ended = specs.known.keys().filter(|(_, uid)| !entries.contains_key(uid));
        let (queues, uids): (Vec<i32>, Vec<Uuid>) = ended.copied().unzip();
        if !uids.is_empty() {
            let revisions = if late { store::late_revisions(tx, &queues, &uids).await? } else { HashMap::new() };
            for row in store::ended_by_uid(tx.connection(), &queues, &uids).await? {
                let place = Place { queue_id: row.queue_id, uid: row.uid, share_id: 0, key_id: row.key_id, position: row.position };
                let mut ended = row.ended()?;
                ended.revision = revisions.get(&place.uid).copied().unwrap_or(ended.revision);
                entries.insert(place.uid, Entry::new(place, Standing::Ended(ended)));
            }
        }
        Ok(Tasks { entries, ..Tasks::default() })
    }

    /// What the log knows of the attempts that reports speak of, where the running lease does not say it all.
    pub(super) async fn read_pasts(
        &mut self, tx: &mut Tx, items: &[Item], chosen: &[usize], specs: &Decoded, now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut wanted: BTreeSet<(i32, Uuid)> = BTreeSet::new();
        for item in chosen.iter().map(|&i| &items[i]) {
            let Command::Report { token, .. } = &item.command else { continue };
            let Some(uid) = specs.find(item) else { continue };
            let needed = self.entries.get(&uid).is_some_and(|entry| match &entry.standing {
                Standing::Live(live) => live.needs_past(*token, now),
                Standing::Ended(_) => true,
            });
            if needed {
                wanted.insert((item.queue_id, uid));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let (queues, uids): (Vec<i32>, Vec<Uuid>) = wanted.into_iter().unzip();
        for (uid, log) in store::events_of_tasks(tx.connection(), &queues, &uids).await? {
            for attempt in attempt::fold(&log) {
                self.pasts.insert((uid, attempt.token), attempt.past());
            }
        }
        Ok(())
    }

    pub(super) fn step(
        &mut self, uid: Uuid, command: &Command, specs: &Decoded, policies: &Policies, now: Timestamp,
    ) -> Result<Result<Reply, Refusal>, StoreError> {
        let gone = || StoreError::absent(uid);
        let entry = self.entries.get_mut(&uid).ok_or_else(gone)?;
        let (_, policy) = policies.get(&entry.place.queue_id).ok_or_else(gone)?;
        let (spec, _) = specs.specs.get(&uid).ok_or_else(gone)?;
        let past = match command {
            Command::Report { token, .. } => self.pasts.get(&(uid, *token)),
            _ => None,
        };
        let ctx = Context {
            now,
            policy,
            retry: policy.retry_of(&spec.retry()),
            head_start: head_start(spec.priority, policy),
            stale: self.stale.get(&uid),
            past,
            receipts: self.receipts.get(&uid).map_or(&[], Vec::as_slice),
            chance: fastrand::f64(),
        };
        let decision = step(entry.standing.clone(), command, &ctx);
        entry.changed |= decision.changed;
        entry.unblocked |= *command == Command::Unblock && decision.changed;
        if let (State::Completed, Command::Report { report: Report::Succeeded(success), .. }, true) =
            (decision.after.state(), command, decision.changed)
        {
            entry.result = success.result.clone();
        }
        entry.standing = decision.after;
        for event in decision.events {
            if let (EventKind::LateReport, Some(digest)) = (event.kind, event.evidence.report) {
                let past = self.pasts.entry((uid, event.token)).or_default();
                past.number = event.attempt;
                past.late.push(digest);
            }
            if let Command::Record(receipt) = command {
                self.receipts.entry(uid).or_default().push(receipt.clone());
                let (queue_id, receipt) = (entry.place.queue_id, receipt.clone());
                self.new_receipts.push(NewReceipt { queue_id, uid, receipt, recorded: now, revision: event.revision });
            }
            self.events.push((entry.place.queue_id, uid, event));
        }
        Ok(decision.reply)
    }

    /// Lets the next task of each key go, where none stands outside BLOCKED any more.
    pub(super) fn settle(
        &mut self, places: &HashMap<(i32, i64), KeyPlaces>, keys: &[(i32, i64)], specs: &Decoded, policies: &Policies,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for key in keys {
            let Some(places) = places.get(key) else { continue };
            let Some((_, policy)) = policies.get(&key.0) else { continue };
            let mut unfinished = BTreeMap::new();
            for (uid, position) in places.head.iter().chain(&places.blocked) {
                let state = self.entries.get(uid).map(|entry| entry.standing.state());
                // A head that no item names was not locked, and stays what it is.
                let blocked = state.map_or(places.head.is_none_or(|head| head.0 != *uid), |state| state == State::Blocked);
                if !state.is_some_and(State::terminal) {
                    unfinished.insert(*position, (*uid, blocked));
                }
            }
            let own = self.entries.values().filter(|e| e.place.key_id == Some(key.1) && e.place.queue_id == key.0);
            let new_repair =
                own.filter(|e| e.changed && e.standing.state() == State::RepairRequired).map(|e| e.place.position).min();
            let hold = match policy.on_repair {
                OnRepair::Hold => places.repair.into_iter().chain(new_repair).min(),
                OnRepair::Continue => None,
            };
            let standing: Vec<KeyPlace> =
                unfinished.iter().map(|(&position, &(_, blocked))| KeyPlace { position, blocked }).collect();
            if let Some((uid, _)) = settle_key(&standing, hold).and_then(|position| unfinished.get(&position).copied()) {
                drop(self.step(uid, &Command::Unblock, specs, policies, now)?);
            }
        }
        Ok(())
    }

    pub(super) async fn write(&self, tx: &mut Tx, policies: &Policies) -> Result<Aftermath, StoreError> {
        let mut changes = Changes::default();
        let mut aftermath = Aftermath::default();
        let mut changed: Vec<&Entry> = self.entries.values().filter(|entry| entry.changed).collect();
        changed.sort_by_key(|entry| (entry.place.queue_id, entry.place.uid));
        for entry in changed {
            aftermath.changed.push(entry.place.uid);
            if entry.leased && entry.standing.state() != State::Leased {
                changes.freed(&entry.place);
                // A place came free under the queue's own cap.
                let capped = policies.get(&entry.place.queue_id).is_some_and(|(_, policy)| policy.budgets.max_in_flight.is_some());
                if capped {
                    aftermath.openings.add_place(entry.place.queue_id);
                }
            }
            match &entry.standing {
                Standing::Ended(_) if entry.over => {}
                Standing::Ended(ended) => changes.ended(&entry.place, ended, entry.result.clone()),
                Standing::Live(live) => {
                    aftermath.due = Some(aftermath.due.map_or(live.due(), |due| due.min(live.due())));
                    if entry.unblocked { changes.unblocked(&entry.place, live) } else { changes.live(&entry.place, live) }
                }
            }
        }
        for (queue_id, uid, event) in &self.events {
            changes.event(*queue_id, *uid, event);
        }
        if !self.new_receipts.is_empty() {
            store::write_receipts(tx, &self.new_receipts).await?;
        }
        aftermath.openings.extend(changes.write(tx).await?.iter());
        Ok(aftermath)
    }

    pub(super) fn task(&self, uid: Uuid, specs: &Decoded) -> Task {
        let entry = &self.entries[&uid];
        let (spec, digest) = &specs.specs[&uid];
        Task {
            uid,
            spec: spec.clone(),
            digest: *digest,
            position: entry.place.position,
            standing: entry.standing.clone(),
            result: None,
            repair: inspect::opened_repair(&entry.standing),
        }
    }
}
