//! The transaction that accepts tasks: ids → keys → shares → the clock → live rows, payloads and first events.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;

use uuid::Uuid;

use super::answer::finish;
use super::floors::Floors;
use super::replay::{Replay, Replaying};
use crate::domain::event::Event;
use crate::domain::limits;
use crate::domain::queue::{OnRepair, Policy};
use crate::domain::refusal::{BadField, Refusal};
use crate::domain::spec::{Digest, End, TaskSpec};
use crate::domain::task::{Live, State, accept};
use crate::domain::time::Timestamp;
use crate::engine::admission::{self, Rooms};
use crate::engine::batcher::Ticket;
use crate::engine::{Accepted, Aftermath, Engine, refusal_of, timed};
use crate::store::{self, AcceptedTask, Draw, Moment, NewTask, NewTasksShare, Place, StoreError, Tx};

/// One task to accept.
#[derive(Clone, Debug)]
pub struct Submission {
    pub queue_id: i32,
    pub spec: Arc<TaskSpec>,
    /// It replays a repair. Such a submission is always alone in its transaction.
    pub replay: Option<Arc<Replaying>>,
}

pub(super) type Answer = Result<Accepted, Refusal>;
type Tickets = Vec<Ticket<Submission, Answer>>;

/// Accepts a batch and answers everyone.
pub async fn run(engine: &Engine, tickets: Tickets) {
    let items: Vec<Submission> = tickets.iter().flat_map(|ticket| ticket.items.iter().cloned()).collect();
    match attempt_often(engine, &items, tickets.len() == 1, false).await {
        Ok(answers) => {
            let mut answers = answers.into_iter();
            for ticket in tickets {
                let own = answers.by_ref().take(ticket.items.len()).collect();
                ticket.answer(own);
            }
        }
        Err(StoreError::Locked(_) | StoreError::Data(_)) if tickets.len() > 1 => {
            // Somebody holds an id or a key, or a row is at fault: halving finds it, off the lane, and the neighbours go on.
            let mut first = tickets;
            let second = first.split_off(first.len() / 2);
            for half in [first, second] {
                let engine = engine.clone();
                tokio::spawn(run_boxed(engine, half));
            }
        }
        Err(error) => {
            let refusal = refusal_of(&error);
            for ticket in tickets {
                let count = ticket.items.len();
                ticket.answer(vec![Err(refusal.clone()); count]);
            }
        }
    }
}

/// `run`, for parts of a batch that it calls itself with.
fn run_boxed(engine: Engine, tickets: Tickets) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { run(&engine, tickets).await })
}

/// Accepts all of them in one transaction of their own, or none.
pub async fn run_atomic(engine: &Engine, items: Vec<Submission>) -> Result<Vec<Accepted>, Refusal> {
    let task_engine = engine.clone();
    // In a task of its own: a caller that goes away never stops it half-way.
    let work = tokio::spawn(async move { attempt_often(&task_engine, &items, true, true).await });
    let answers = work.await.map_err(|error| Refusal::Bug(error.to_string()))?.map_err(|error| refusal_of(&error))?;
    answers.into_iter().collect()
}

async fn attempt_often(engine: &Engine, items: &[Submission], patient: bool, atomic: bool) -> Result<Vec<Answer>, StoreError> {
    let mut tries = 0;
    loop {
        match timed(attempt_once(engine, items, patient, atomic)).await {
            Err(StoreError::Conflict(error)) if tries < 10 => {
                tracing::debug!(%error, "a batch lost a race and runs again");
                tries += 1;
            }
            Ok(answers) => {
                engine.0.refused.note(items, &answers);
                return Ok(answers);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What becomes of one submission, before the answer is put together.
#[expect(clippy::large_enum_variant, reason = "nearly all of a batch are the large one; a box each would be 500 allocations more")]
pub(super) enum Fate {
    /// The task id was free and is now this one's.
    New {
        live: Live,
        event: Event,
        place: Place,
        /// Position of its first event.
        first: i64,
    },
    /// The same id stands earlier in this batch, at this index.
    Repeats(usize),
    /// The id was known before.
    Known,
    Refused(Refusal),
}

/// Who is known to find no room is answered without a transaction.
async fn attempt_once(engine: &Engine, items: &[Submission], patient: bool, atomic: bool) -> Result<Vec<Answer>, StoreError> {
    let refusals = admission::turned_away(engine, items).await?;
    if refusals.iter().any(Option::is_some) {
        return without(engine, items, refusals, patient, atomic).await;
    }
    accept_once(engine, items, patient, atomic).await
}

async fn accept_once(engine: &Engine, items: &[Submission], patient: bool, atomic: bool) -> Result<Vec<Answer>, StoreError> {
    let digests: Vec<Digest> = items.iter().map(|item| item.spec.digest()).collect();
    let firsts = first_of_each_id(items);
    let mut tx = engine.db().begin_submit(items.iter().map(|item| item.queue_id), patient).await?;
    let (uids, fresh) = take_ids(&mut tx, items, &firsts, &digests).await?;
    let keys = lock_keys(&mut tx, items, &fresh).await?;
    let shares = lock_shares(&mut tx, items, &fresh).await?;
    let mut floors = Floors::lock(&mut tx, items, &fresh).await?;
    let replay = Replay::lock(&mut tx, items, &fresh).await?;
    let queues: Vec<i32> = items.iter().map(|item| item.queue_id).collect::<BTreeSet<_>>().into_iter().collect();
    let mut busy = keys.busy(&mut tx).await?;
    let places = fresh
        .iter()
        .filter_map(|&i| Some((items[i].queue_id, items[i].spec.fairness_key.as_str(), *shares.get(&share_of(&items[i]))?)));
    let mut rooms = Rooms::hold(engine, &mut tx, places).await?;
    let Moment { now, policies, drawn } = store::moment(&mut tx, &queues, Draw::Positions(fresh.len())).await?;
    let mut positions = drawn.into_iter();

    let mut fates: Vec<Fate> =
        firsts.iter().enumerate().map(|(i, &f)| if f == i { Fate::Known } else { Fate::Repeats(f) }).collect();
    let mut asleep = BTreeSet::new();
    for &i in &fresh {
        let item = &items[i];
        let (_, policy) = policies.get(&item.queue_id).ok_or_else(StoreError::silent)?;
        let share = shares.get(&share_of(item)).ok_or_else(StoreError::silent)?;
        // Floor first and admission last: only what else would be accepted takes room.
        let refused = floors
            .refusal(item)
            .or_else(|| too_far(&item.spec, policy, now))
            .or_else(|| replay.as_ref().and_then(Replay::refusal))
            .or_else(|| rooms.take(engine, item.queue_id, share));
        if let Some(refusal) = refused {
            fates[i] = Fate::Refused(refusal);
            continue;
        }
        floors.raise(item, now);
        let key_id = keys.id(item);
        let seat = replay.as_ref().and_then(|replay| replay.seat(key_id, policy.on_repair));
        let key_busy = match seat {
            Some(seat) => seat.busy,
            None => key_id.is_some_and(|key| busy.take(item.queue_id, key, policy.on_repair)),
        };
        let (live, event) = accept(&item.spec, policy, now, key_busy);
        let share_id = share.share_id;
        if live.state == State::Ready && !share.awake {
            asleep.insert(share_id);
        }
        let first = positions.next().ok_or_else(StoreError::silent)?;
        let position = seat.map_or(first, |seat| seat.position);
        fates[i] =
            Fate::New { live, event, place: Place { queue_id: item.queue_id, uid: uids[&i], share_id, key_id, position }, first };
    }
    let refused = fates.iter().any(|fate| matches!(fate, Fate::Refused(_)));
    if refused {
        return without_refused(engine, items, fates, tx, patient, atomic).await;
    }
    rooms.write(&mut tx).await?;
    write(&mut tx, items, &fates).await?;
    floors.write(&mut tx, now).await?;
    store::wake_shares(&mut tx, asleep.into_iter()).await?;
    let freed = match (&replay, uids.values().next()) {
        (Some(replay), Some(uid)) => replay.resolve(&mut tx, *uid, &policies, now).await?,
        _ => Aftermath::default(),
    };
    finish(engine, items, &digests, fates, tx, atomic, freed).await
}

/// Takes the ids that are free: the uids that were made for the batch, by index, and who got the id that it asked for.
async fn take_ids(
    tx: &mut Tx, items: &[Submission], firsts: &[usize], digests: &[Digest],
) -> Result<(HashMap<usize, Uuid>, Vec<usize>), StoreError> {
    let new: Vec<NewTask<'_>> = items
        .iter()
        .enumerate()
        .filter(|(i, _)| firsts[*i] == *i)
        .map(|(i, item)| NewTask { queue_id: item.queue_id, uid: Uuid::now_v7(), digest: digests[i], spec: &item.spec })
        .collect();
    let uids: HashMap<usize, Uuid> =
        (0..items.len()).filter(|&i| firsts[i] == i).zip(&new).map(|(i, task)| (i, task.uid)).collect();
    let taken: BTreeSet<Uuid> = store::insert_tasks(tx, &new).await?.into_iter().collect();
    let fresh = (0..items.len()).filter(|i| uids.get(i).is_some_and(|uid| taken.contains(uid))).collect();
    Ok((uids, fresh))
}

/// The index of the first submission in the batch with the same id, for each.
fn first_of_each_id(items: &[Submission]) -> Vec<usize> {
    let mut seen = HashMap::with_capacity(items.len());
    items.iter().enumerate().map(|(i, item)| *seen.entry((item.queue_id, &item.spec.task_id)).or_insert(i)).collect()
}

fn share_of(item: &Submission) -> (i32, String) {
    (item.queue_id, item.spec.fairness_key.as_str().to_owned())
}

/// A deadline further ahead than may be is refused here, because only the database's clock can say so.
fn too_far(spec: &TaskSpec, policy: &Policy, now: Timestamp) -> Option<Refusal> {
    let latest = now.plus(limits::DEADLINE);
    if spec.deadline(policy, now) > latest {
        let path = if matches!(spec.options.end, Some(End::At(_))) { "spec.deadline_time" } else { "spec.ttl" };
        return Some(Refusal::InvalidField(vec![BadField { path: path.into(), text: "must be at most one year ahead".into() }]));
    }
    None
}

/// Rolls back and starts over without the refused ones (or, if all must stand together, refuses everything).
async fn without_refused(
    engine: &Engine, items: &[Submission], fates: Vec<Fate>, tx: Tx, patient: bool, atomic: bool,
) -> Result<Vec<Answer>, StoreError> {
    drop(tx);
    let refusal = |i: usize| match &fates[i] {
        Fate::Refused(refusal) => Some(refusal.clone()),
        Fate::Repeats(first) => match &fates[*first] {
            Fate::Refused(refusal) => Some(refusal.clone()),
            _ => None,
        },
        _ => None,
    };
    let refusals: Vec<Option<Refusal>> = (0..items.len()).map(refusal).collect();
    without(engine, items, refusals, patient, atomic).await
}

/// Accepts those that are not refused already.
async fn without(
    engine: &Engine, items: &[Submission], refusals: Vec<Option<Refusal>>, patient: bool, atomic: bool,
) -> Result<Vec<Answer>, StoreError> {
    if atomic {
        let first = refusals.iter().flatten().next().cloned();
        return Ok(vec![Err(first.unwrap_or(Refusal::Overloaded)); items.len()]);
    }
    let rest: Vec<Submission> = items.iter().zip(&refusals).filter(|(_, r)| r.is_none()).map(|(item, _)| item.clone()).collect();
    let mut answers =
        if rest.is_empty() { Vec::new() } else { Box::pin(accept_once(engine, &rest, patient, atomic)).await? }.into_iter();
    let answer = |refusal: Option<Refusal>| match refusal {
        Some(refusal) => Err(refusal),
        None => answers.next().unwrap_or_else(|| Err(Refusal::Bug("a batch answered too little".into()))),
    };
    Ok(refusals.into_iter().map(answer).collect())
}

/// The ordering keys of the new tasks, locked.
struct Keys {
    ids: HashMap<(i32, String), i64>,
}

/// Which keys have somebody unfinished, or an open repair.
struct Busy {
    unfinished: BTreeSet<(i32, i64)>,
    repaired: BTreeSet<(i32, i64)>,
}

async fn lock_keys(tx: &mut Tx, items: &[Submission], fresh: &[usize]) -> Result<Keys, StoreError> {
    let keyed = fresh.iter().filter_map(|&i| Some((items[i].queue_id, items[i].spec.ordering_key.as_ref()?.as_str().to_owned())));
    let named: BTreeSet<(i32, String)> = keyed.collect();
    // The key that an open repair may hold, whatever key its replay has.
    let replayed: Vec<(i32, i64)> = fresh.iter().filter_map(|&i| items[i].replay.as_ref()?.key(items[i].queue_id)).collect();
    if named.is_empty() && replayed.is_empty() {
        return Ok(Keys { ids: HashMap::new() });
    }
    let (queues, keys): (Vec<i32>, Vec<String>) = named.into_iter().unzip();
    loop {
        let mut ids = store::find_keys(tx, &queues, &keys).await?;
        if ids.len() < keys.len() {
            let missing = queues.iter().copied().zip(keys.iter().cloned()).filter(|key| !ids.contains_key(key));
            let (queues, keys): (Vec<i32>, Vec<String>) = missing.unzip();
            store::make_keys(tx, &queues, &keys).await?;
            ids.extend(store::find_keys(tx, &queues, &keys).await?);
        }
        let mut sorted: BTreeSet<(i32, i64)> = ids.iter().map(|((queue_id, _), id)| (*queue_id, *id)).collect();
        sorted.extend(replayed.iter().copied());
        let sorted: Vec<(i32, i64)> = sorted.into_iter().collect();
        // One that nothing was left of may have been removed between finding and locking it. (What a repair remembers is not.)
        if store::lock_keys(tx, &sorted).await? == sorted.len() {
            return Ok(Keys { ids });
        }
    }
}

impl Keys {
    fn id(&self, item: &Submission) -> Option<i64> {
        let key = item.spec.ordering_key.as_ref()?;
        self.ids.get(&(item.queue_id, key.as_str().to_owned())).copied()
    }

    /// In a later statement than the one that locked the keys.
    async fn busy(&self, tx: &mut Tx) -> Result<Busy, StoreError> {
        let mut busy = Busy { unfinished: BTreeSet::new(), repaired: BTreeSet::new() };
        if self.ids.is_empty() {
            return Ok(busy);
        }
        let keys: Vec<(i32, i64)> = self.ids.iter().map(|((queue_id, _), id)| (*queue_id, *id)).collect();
        for (key, places) in store::key_places(tx, &keys, 1).await? {
            if places.head.is_some() || !places.blocked.is_empty() {
                busy.unfinished.insert(key);
            }
            if places.repair.is_some() {
                busy.repaired.insert(key);
            }
        }
        Ok(busy)
    }
}

impl Busy {
    /// Whether the key is busy for the next task, which from now on keeps it busy itself.
    fn take(&mut self, queue_id: i32, key_id: i64, on_repair: OnRepair) -> bool {
        let held = on_repair == OnRepair::Hold && self.repaired.contains(&(queue_id, key_id));
        !self.unfinished.insert((queue_id, key_id)) || held
    }
}

async fn lock_shares(
    tx: &mut Tx, items: &[Submission], fresh: &[usize],
) -> Result<HashMap<(i32, String), NewTasksShare>, StoreError> {
    let named: BTreeSet<(i32, String)> = fresh.iter().map(|&i| share_of(&items[i])).collect();
    if named.is_empty() {
        return Ok(HashMap::new());
    }
    let (queues, keys): (Vec<i32>, Vec<String>) = named.into_iter().unzip();
    store::shares_for(tx, &queues, &keys).await
}

async fn write(tx: &mut Tx, items: &[Submission], fates: &[Fate]) -> Result<(), StoreError> {
    let accepted: Vec<AcceptedTask<'_>> = items
        .iter()
        .zip(fates)
        .filter_map(|(item, fate)| match fate {
            Fate::New { live, event, place, first } => {
                Some(AcceptedTask { place: *place, first: *first, spec: &item.spec, live, event })
            }
            _ => None,
        })
        .collect();
    if accepted.is_empty() { Ok(()) } else { store::insert_accepted(tx, &accepted).await }
}
