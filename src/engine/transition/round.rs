//! The transaction that changes tasks which are there: lock in the one order → read the clock → `step` each → write → commit.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use uuid::Uuid;

use super::batch::{Answer, Item, Outcome, Target};
use super::tasks::Tasks;
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::spec::{Digest, TaskSpec};
use crate::engine::{Engine, refusal_of};
use crate::store::{self, Draw, KeyPlaces, Moment, Policies, SpecRow, StoreError, Tx};

/// Two rounds: reports on tasks that have ended wait for the second, which locks those tasks before anything else. The first one runs in
/// the transaction that was `begun`, if one was.
pub(super) async fn carry_out(
    engine: &Engine, items: &[Item], patient: bool, begun: Option<Tx>,
) -> Result<Vec<Answer>, StoreError> {
    let all: Vec<usize> = (0..items.len()).collect();
    let mut answers: Vec<Option<Answer>> = vec![None; items.len()];
    let tx = match begun {
        Some(tx) => tx,
        None if patient => engine.db().begin_patient().await?,
        None => engine.db().begin().await?,
    };
    let late = round(engine, tx, items, &all, false, &mut answers).await?;
    if !late.is_empty() {
        // The first round is committed: from here on only these items may still fail.
        let mut result = late_round(engine, items, &late, &mut answers).await;
        for _ in 0..3 {
            let Err(StoreError::Conflict(_)) = result else { break };
            result = late_round(engine, items, &late, &mut answers).await;
        }
        if let Err(error) = result {
            let refusal = refusal_of(&error);
            late.iter().for_each(|&i| answers[i] = Some(Err(refusal.clone())));
        }
    }
    let missing = || Err(Refusal::Bug("an item was never carried out".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
}

async fn late_round(
    engine: &Engine, items: &[Item], chosen: &[usize], answers: &mut [Option<Answer>],
) -> Result<Vec<usize>, StoreError> {
    let tx = engine.db().begin_patient().await?;
    round(engine, tx, items, chosen, true, answers).await
}

/// One transaction over the items at `chosen`. Returns those that have to run again under `late`.
async fn round(
    engine: &Engine, mut tx: Tx, items: &[Item], chosen: &[usize], late: bool, answers: &mut [Option<Answer>],
) -> Result<Vec<usize>, StoreError> {
    let specs = Specs::read(engine, &mut tx, items, chosen).await?;
    if late {
        let uids: Vec<Uuid> = specs.known.keys().map(|(_, uid)| *uid).collect();
        store::lock_tasks(&mut tx, &uids).await?;
    }
    let (places, keys) = lock_keys(&mut tx, &specs).await?;
    let mut tasks = Tasks::lock(&mut tx, &specs, &places, late).await?;
    let queues: Vec<i32> = chosen.iter().map(|&i| items[i].queue_id).collect::<BTreeSet<_>>().into_iter().collect();
    let Moment { now, policies, .. } = store::moment(&mut tx, &queues, Draw::Nothing).await?;
    let read = Instant::now();
    let mut specs = specs.decode(&policies)?;
    specs.decode_more(&mut tx, &tasks, &policies).await?;
    tasks.read_pasts(&mut tx, items, chosen, &specs, now).await?;
    tasks.read_floors(&mut tx, &specs).await?;
    tasks.read_receipts(&mut tx, items, chosen, &specs).await?;

    let mut again = Vec::new();
    let mut replies: Vec<(usize, Answer)> = Vec::new();
    for &i in chosen {
        let item = &items[i];
        let Some(uid) = specs.find(item) else {
            answers[i] = Some(Err(not_found(item)));
            continue;
        };
        let Some(entry) = tasks.entries.get(&uid) else {
            answers[i] = Some(Err(not_found(item)));
            continue;
        };
        if !late && entry.needs_late_round(&item.command) {
            again.push(i);
            continue;
        }
        let reply = tasks.step(uid, &item.command, &specs, &policies, now)?;
        // As this item leaves the task, whatever a later one of the same batch makes of it.
        replies.push((i, reply.map(|reply| Outcome { task: tasks.task(uid, &specs), reply, now, read })));
    }
    tasks.settle(&places, &keys, &specs, &policies, now)?;
    let aftermath = tasks.write(&mut tx, &policies).await?;
    tx.commit().await?;
    engine.committed(aftermath);
    for (i, answer) in replies {
        answers[i] = Some(answer);
    }
    Ok(again)
}

fn not_found(item: &Item) -> Refusal {
    let name = match &item.target {
        Target::Id(id) => id.to_string(),
        Target::Uid(uid) => uid.to_string(),
    };
    Refusal::NotFound { what: Missing::Task, name }
}

/// What was asked, of the tasks that the items name.
pub(super) struct Specs {
    pub(super) known: BTreeMap<(i32, Uuid), Known>,
    by_id: HashMap<(i32, String), Uuid>,
}

/// A spec that was read just now, or one that is remembered.
#[expect(clippy::large_enum_variant, reason = "a box for each row that was read would be an allocation more for nothing")]
pub(super) enum Known {
    Read(SpecRow),
    Remembered(Arc<TaskSpec>, Digest),
}

impl Known {
    /// Absent: the task has none.
    fn ordering_key(&self) -> Option<&str> {
        match self {
            Known::Read(row) => Some(row.ordering_key.as_str()).filter(|key| !key.is_empty()),
            Known::Remembered(spec, _) => spec.ordering_key.as_ref().map(|key| key.as_str()),
        }
    }
}

impl Specs {
    async fn read(engine: &Engine, tx: &mut Tx, items: &[Item], chosen: &[usize]) -> Result<Specs, StoreError> {
        let (mut uids, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for item in chosen.iter().map(|&i| &items[i]) {
            match &item.target {
                Target::Uid(uid) => drop(uids.insert((item.queue_id, *uid))),
                Target::Id(id) => drop(ids.insert((item.queue_id, id.to_string()))),
            }
        }
        let remembered = engine.0.memory.recall(uids.iter().copied());
        uids.retain(|task| !remembered.contains_key(task));
        let mut rows = Vec::new();
        if !uids.is_empty() {
            let (queues, uids): (Vec<i32>, Vec<Uuid>) = uids.into_iter().unzip();
            rows.extend(store::specs_by_uid(tx.connection(), &queues, &uids).await?);
        }
        if !ids.is_empty() {
            let (queues, ids): (Vec<i32>, Vec<String>) = ids.into_iter().unzip();
            rows.extend(store::specs_by_id(tx.connection(), &queues, &ids).await?);
        }
        let by_id = rows.iter().map(|row| ((row.queue_id, row.task_id.clone()), row.uid)).collect();
        let mut known: BTreeMap<(i32, Uuid), Known> =
            rows.into_iter().map(|row| ((row.queue_id, row.uid), Known::Read(row))).collect();
        known.extend(remembered.into_iter().map(|(task, (spec, digest))| (task, Known::Remembered(spec, digest))));
        Ok(Specs { known, by_id })
    }

    fn decode(self, policies: &Policies) -> Result<Decoded, StoreError> {
        let named = self.known.keys().copied().collect();
        let mut decoded = Decoded { specs: HashMap::with_capacity(self.known.len()), named, by_id: self.by_id };
        for ((_, uid), known) in self.known {
            match known {
                Known::Read(row) => decoded.add(row, policies)?,
                Known::Remembered(spec, digest) => drop(decoded.specs.insert(uid, (spec, digest))),
            }
        }
        Ok(decoded)
    }
}

pub(super) struct Decoded {
    pub(super) specs: HashMap<Uuid, (Arc<TaskSpec>, Digest)>,
    /// Tasks that items name, by queue: nobody reaches another queue's task by its uid, whoever else of the batch names that.
    named: HashSet<(i32, Uuid)>,
    by_id: HashMap<(i32, String), Uuid>,
}

impl Decoded {
    fn add(&mut self, row: SpecRow, policies: &Policies) -> Result<(), StoreError> {
        if let Some((name, _)) = policies.get(&row.queue_id) {
            self.specs.insert(row.uid, row.spec(name)?);
        }
        Ok(())
    }

    /// The successors' specs, which no item names.
    async fn decode_more(&mut self, tx: &mut Tx, tasks: &Tasks, policies: &Policies) -> Result<(), StoreError> {
        let more = tasks.entries.iter().filter(|(uid, _)| !self.specs.contains_key(*uid));
        let (queues, uids): (Vec<i32>, Vec<Uuid>) = more.map(|(uid, entry)| (entry.place.queue_id, *uid)).unzip();
        if !uids.is_empty() {
            for row in store::specs_by_uid(tx.connection(), &queues, &uids).await? {
                self.add(row, policies)?;
            }
        }
        Ok(())
    }

    pub(super) fn find(&self, item: &Item) -> Option<Uuid> {
        match &item.target {
            Target::Uid(uid) => self.named.contains(&(item.queue_id, *uid)).then_some(*uid),
            Target::Id(id) => self.by_id.get(&(item.queue_id, id.to_string())).copied(),
        }
    }
}

/// Locks the ordering keys of the batch's tasks, then (in a later statement) reads who stands where in them.
async fn lock_keys(tx: &mut Tx, specs: &Specs) -> Result<(HashMap<(i32, i64), KeyPlaces>, Vec<(i32, i64)>), StoreError> {
    let mut named: BTreeMap<(i32, String), i64> = BTreeMap::new();
    for ((queue_id, _), known) in &specs.known {
        if let Some(key) = known.ordering_key() {
            *named.entry((*queue_id, key.to_owned())).or_default() += 1;
        }
    }
    // The batch may end that many tasks of one key; one more stands behind them.
    let Some(depth) = named.values().max().map(|most| most + 1) else { return Ok((HashMap::new(), Vec::new())) };
    let (queues, keys): (Vec<i32>, Vec<String>) = named.into_keys().unzip();
    let found = store::find_keys(tx, &queues, &keys).await?;
    let ids: BTreeSet<(i32, i64)> = found.into_iter().map(|((queue_id, _), key_id)| (queue_id, key_id)).collect();
    let ids: Vec<(i32, i64)> = ids.into_iter().collect();
    store::lock_keys(tx, &ids).await?;
    let places = store::key_places(tx, &ids, depth).await?;
    Ok((places, ids))
}
