//! Admission: how many unfinished tasks a queue and a share may have. Every road in passes this gate, in the transaction that accepts.
//!
//! A locked row holds the room that is left; only acceptance lowers it, and only a count of what is unfinished raises it again. So it can
//! be too low for a moment and never too high. What has no limit is not looked up at all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::Engine;
use super::submit::Submission;
use super::wake::held;
use crate::domain::pace::{self, Pace};
use crate::domain::refusal::Refusal;
use crate::store::{self, Bounded, NewTasksShare, StoreError, Tx};

/// Who is found full is not counted again for so long, and not for this many times what the count took: callers that don't give up
/// must not keep the database counting.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_PER_COUNT: u32 = 20;
/// How many queues and shares are remembered.
const REMEMBERED: usize = 4_096;

/// A queue, or the share of it with this key.
type Name = (i32, Option<String>);

/// What this server knows of those that were full. Hints only: the truth is in the database.
#[derive(Default)]
pub struct Admission(Mutex<HashMap<Name, Known>>);

#[derive(Clone, Copy)]
struct Known {
    pace: Pace,
    /// How many had ever finished at the last count, and when that was.
    finished: (i64, Instant),
    /// Until when it counts as full.
    full: Option<(Instant, i64)>,
    /// About how many were sent away and are not back, and when that was.
    away: (f64, Instant),
}

impl Known {
    /// Sends one more away: when it shall come back.
    fn send_away(&mut self, least: Duration, now: Instant) -> Duration {
        let (away, then) = self.away;
        let away = self.pace.one_more_away(away, now.saturating_duration_since(then));
        self.away = (away, now);
        self.pace.retry_after(least, away)
    }
}

impl Admission {
    /// A limit has changed: nobody is turned away by the old one.
    pub fn forget(&self, queue_id: i32) {
        held(&self.0).retain(|(queue, _), _| *queue != queue_id);
    }

    /// Notes a count.
    fn counted(&self, name: &Name, finished: i64) {
        let now = Instant::now();
        let mut known = held(&self.0);
        if known.len() > REMEMBERED {
            known.retain(|_, known| known.full.is_some_and(|(until, _)| until > now));
        }
        let one = known.entry(name.clone()).or_insert(Known {
            pace: Pace::default(),
            finished: (finished, now),
            full: None,
            away: (0.0, now),
        });
        let (before, then) = one.finished;
        let elapsed = now.duration_since(then);
        if elapsed >= pace::LEAST {
            // Fewer than before: the row began anew.
            one.pace = if finished < before { Pace::default() } else { one.pace.seen(finished - before, elapsed) };
            one.finished = (finished, now);
        }
    }

    /// How soon somebody who found no room shall come back.
    fn send_away(&self, name: &Name, least: Duration) -> Duration {
        let unknown = || Pace::default().retry_after(least, 1.0);
        held(&self.0).get_mut(name).map_or_else(unknown, |known| known.send_away(least, Instant::now()))
    }

    fn full(&self, name: &Name, limit: i64, pause: Duration) {
        if let Some(known) = held(&self.0).get_mut(name) {
            known.full = Some((Instant::now() + pause, limit));
        }
    }

    fn refusal(&self, name: &Name, now: Instant) -> Option<Refusal> {
        let mut all = held(&self.0);
        let known = all.get_mut(name)?;
        let (until, limit) = known.full.filter(|(until, _)| *until > now)?;
        Some(refusal(name.1.is_some(), limit, known.send_away(until - now, now)))
    }

    fn nobody_is_full(&self) -> bool {
        held(&self.0).is_empty()
    }
}

fn refusal(of_share: bool, limit: i64, retry_after: Duration) -> Refusal {
    if of_share { Refusal::ShareFull { limit, retry_after } } else { Refusal::QueueFull { limit, retry_after } }
}

/// Which of these are refused without a transaction: their queue or share was found full a moment ago, and their ids are not known.
pub(super) async fn turned_away(engine: &Engine, items: &[Submission]) -> Result<Vec<Option<Refusal>>, StoreError> {
    let admission = &engine.0.admission;
    let mut refusals = vec![None; items.len()];
    if admission.nobody_is_full() {
        return Ok(refusals);
    }
    let now = Instant::now();
    for (item, refusal) in items.iter().zip(&mut refusals) {
        let share = || admission.refusal(&(item.queue_id, Some(item.spec.fairness_key.as_str().to_owned())), now);
        *refusal = admission.refusal(&(item.queue_id, None), now).or_else(share);
    }
    let full = items.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_some());
    let (queues, ids): (Vec<i32>, Vec<String>) = full.map(|(item, _)| (item.queue_id, item.spec.task_id.to_string())).unzip();
    if ids.is_empty() {
        return Ok(refusals);
    }
    let known = store::specs_by_id(engine.db().reads(), &queues, &ids).await?;
    let known: HashSet<(i32, String)> = known.into_iter().map(|row| (row.queue_id, row.task_id)).collect();
    for (item, refusal) in items.iter().zip(&mut refusals) {
        if known.contains(&(item.queue_id, item.spec.task_id.to_string())) {
            *refusal = None;
        }
    }
    Ok(refusals)
}

/// The rooms of everything that new tasks go into, locked until the transaction ends. Empty where nothing has a limit.
#[derive(Default)]
pub(super) struct Rooms(BTreeMap<Bounded, Room>);

struct Room {
    name: Name,
    limit: i64,
    left: i64,
    taken: i64,
    counted: bool,
    /// How soon to come back at the earliest if there is none.
    pause: Duration,
}

impl Rooms {
    /// Locks the rooms for new tasks (their queues, fairness keys and shares), and counts again where there is too little.
    ///
    /// The transaction must have begun with `begin_submit` and hold the shares; call it before the clock is read. Then `take` for each
    /// task in order, and `write` before the commit.
    pub(super) async fn hold<'a>(
        engine: &Engine, tx: &mut Tx, new: impl Iterator<Item = (i32, &'a str, NewTasksShare)>,
    ) -> Result<Rooms, StoreError> {
        let mut wanted: BTreeMap<Bounded, (Name, i64, i64)> = BTreeMap::new();
        for (queue_id, key, share) in new {
            if let Some(limit) = share.queue_limit {
                wanted.entry((queue_id, 0)).or_insert_with(|| ((queue_id, None), i64::from(limit), 0)).2 += 1;
            }
            if let Some(limit) = share.share_limit {
                let name = || (queue_id, Some(key.to_owned()));
                wanted.entry((queue_id, share.share_id)).or_insert_with(|| (name(), i64::from(limit), 0)).2 += 1;
            }
        }
        if wanted.is_empty() {
            return Ok(Rooms::default());
        }
        let locked = store::lock_rooms(tx, &wanted.keys().copied().collect::<Vec<_>>()).await?;
        let mut short = Vec::new();
        let mut rooms = Rooms::default();
        let mut accepted = HashMap::new();
        for room in locked {
            let Some((name, limit, count)) = wanted.remove(&room.of) else { continue };
            if room.room < count {
                short.push((room.of, limit));
                accepted.insert(room.of, room.taken);
            }
            rooms.0.insert(room.of, Room { name, limit, left: room.room, taken: 0, counted: false, pause: PAUSE });
        }
        rooms.count(engine, tx, &short, &accepted).await?;
        Ok(rooms)
    }

    async fn count(
        &mut self, engine: &Engine, tx: &mut Tx, short: &[(Bounded, i64)], accepted: &HashMap<Bounded, i64>,
    ) -> Result<(), StoreError> {
        if short.is_empty() {
            return Ok(());
        }
        let begin = Instant::now();
        let counts = store::count_unfinished(tx, short).await?;
        let pause = PAUSE.max(begin.elapsed() * PAUSE_PER_COUNT);
        for (of, unfinished) in counts {
            let Some(room) = self.0.get_mut(&of) else { continue };
            room.left = (room.limit - unfinished).max(0);
            room.counted = true;
            room.pause = pause;
            let finished = accepted.get(&of).copied().unwrap_or_default() - unfinished;
            engine.0.admission.counted(&room.name, finished);
        }
        Ok(())
    }

    /// Takes a place for one new task, in its queue and its share; a refusal if there is none, and then it takes none.
    pub(super) fn take(&mut self, engine: &Engine, queue_id: i32, share: &NewTasksShare) -> Option<Refusal> {
        let places = [(queue_id, 0), (queue_id, share.share_id)];
        let full = places.iter().filter_map(|of| self.0.get(of)).find(|room| room.left == 0);
        if let Some(room) = full {
            // Where others of this transaction have taken places, it is not full if they are rolled back.
            if room.taken == 0 {
                engine.0.admission.full(&room.name, room.limit, room.pause);
            }
            return Some(refusal(room.name.1.is_some(), room.limit, engine.0.admission.send_away(&room.name, room.pause)));
        }
        for of in places {
            if let Some(room) = self.0.get_mut(&of) {
                room.left -= 1;
                room.taken += 1;
            }
        }
        None
    }

    /// Writes what room is left.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let changed = self.0.iter().filter(|(_, room)| room.taken > 0 || room.counted);
        let changed: Vec<(Bounded, i64, i64)> = changed.map(|(of, room)| (*of, room.left, room.taken)).collect();
        if changed.is_empty() { Ok(()) } else { store::write_rooms(tx, &changed).await }
    }
}
