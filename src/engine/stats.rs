//! GetStats: figures of a queue and its shares, counted when somebody asks.
//!
//! A count reads what it counts, so its price grows with the queue. It is bounded: the log is read back over the latest events only
//! (the window is then shorter, and the answer says so), finished tasks and targets are counted up to a limit, and a count that took long is
//! answered again from memory, so that counting never takes more than a small part of one connection, however many ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{Engine, refusal_of, timed};
use crate::domain::event::EventKind;
use crate::domain::names::QueueName;
use crate::domain::refusal::Refusal;
use crate::domain::stats::{Fairness, Happened, Standing, Timing, Work, fairness};
use crate::domain::task::{Cause, ErrorClass, State};
use crate::domain::time::{Timestamp, micros};
use crate::store::{Count, LiveCount, Recent, ShareRow, StoreError};

/// Events that one count reads back, those of other queues among them.
const EVENTS: i64 = 50_000;
/// Unfinished tasks whose targets are counted, and the targets that are told.
const TARGETED: i64 = 100_000;
const TARGETS: usize = 100;
/// Finished tasks and open repairs are counted so far.
const COUNTED: i64 = 1_000_000;
/// A count that took longer than this is kept for so many times as long as it took.
const CHEAP: Duration = Duration::from_millis(20);
const KEPT_FOR: u32 = 20;

/// Whose figures.
#[derive(Clone, Debug, PartialEq)]
pub struct StatsCommand {
    pub queue: QueueName,
    /// Absent: all shares.
    pub fairness_key: Option<String>,
    pub window: Duration,
    pub page_size: i32,
    /// The last share of the page before; absent: the first page.
    pub after: Option<String>,
}

/// The figures.
#[derive(Clone, Debug)]
pub struct Stats {
    pub queue: QueueName,
    pub work: Work,
    pub active_shares: usize,
    /// A page of the shares with unfinished tasks, by key.
    pub shares: Vec<(String, Work, Fairness)>,
    /// The last one, if there are more.
    pub next: Option<String>,
    pub sampled: Timestamp,
    /// Shorter than asked if less is known.
    pub window: Duration,
}

/// Counts that are kept for a while, by queue and window. Locked while one is made: whoever asks meanwhile gets the same.
#[derive(Default)]
pub(super) struct Samples(Mutex<HashMap<(i32, Duration), Kept>>);

struct Kept {
    until: Instant,
    sample: Arc<Sample>,
}

struct Sample {
    work: Work,
    shares: BTreeMap<String, (Work, Fairness)>,
    taken: Timestamp,
    window: Duration,
}

impl Engine {
    pub async fn stats(&self, command: StatsCommand) -> Result<Stats, Refusal> {
        let queue_id = self.known_queue(&command.queue).await?;
        let sample = self.sample(queue_id, command.window).await?;
        let wanted = |key: &&String| {
            let asked = command.fairness_key.as_ref().is_none_or(|asked| asked == *key);
            asked && command.after.as_ref().is_none_or(|after| *key > after)
        };
        let size = usize::try_from(command.page_size).unwrap_or(1);
        let mut keys: Vec<&String> = sample.shares.keys().filter(wanted).take(size + 1).collect();
        let more = keys.len() > size;
        keys.truncate(size);
        let next = keys.last().filter(|_| more).map(|key| (*key).clone());
        let told = |key: &String| {
            let (work, fairness) = &sample.shares[key];
            (key.clone(), work.clone(), *fairness)
        };
        Ok(Stats {
            queue: command.queue,
            work: sample.work.clone(),
            active_shares: sample.shares.len(),
            shares: keys.into_iter().map(told).collect(),
            next,
            sampled: sample.taken,
            window: sample.window,
        })
    }

    async fn sample(&self, queue_id: i32, window: Duration) -> Result<Arc<Sample>, Refusal> {
        let mut kept = self.0.samples.0.lock().await;
        let begin = Instant::now();
        kept.retain(|_, kept| kept.until > begin);
        if let Some(kept) = kept.get(&(queue_id, window)) {
            return Ok(kept.sample.clone());
        }
        let sample = Arc::new(timed(count(self, queue_id, window)).await.map_err(|error| refusal_of(&error))?);
        let took = begin.elapsed();
        if took > CHEAP {
            kept.insert((queue_id, window), Kept { until: Instant::now() + took * KEPT_FOR, sample: sample.clone() });
        }
        Ok(sample)
    }
}

async fn count(engine: &Engine, queue_id: i32, asked: Duration) -> Result<Sample, StoreError> {
    let mut count = Count::begin(engine.db(), queue_id).await?;
    let live = count.live().await?;
    let ids: Vec<i32> = live.iter().map(|row| row.share_id).collect();
    let rows = count.shares(&ids).await?;
    let names: HashMap<i32, &str> = rows.iter().map(|row| (row.share_id, row.fairness_key.as_str())).collect();
    let mut tally = Tally::new(&rows);
    tally.live(count.now, &live, &names);
    tally.targets(count.targets(TARGETED).await?, &names);
    tally.ended(&count.ended(COUNTED).await?);
    tally.repairs(&count.repairs(COUNTED).await?);
    let (taken, virtual_time, from) = (count.now, count.virtual_time, count.position - EVENTS);
    let mut since = Timestamp(taken.0.saturating_sub(micros(asked)));
    if from > 0 {
        // What happened before is not read, so the window begins where reading does.
        since = since.max(count.first_after(from).await?.unwrap_or(since));
    }
    tally.window(&count.window(from, since).await?);
    count.end().await?;
    let window = taken.since(since).min(asked);
    tally.refused(engine.0.refused.within(queue_id, window));
    let (work, shares) = tally.told(&rows, &live, virtual_time);
    Ok(Sample { work, shares, taken, window })
}

/// What is being counted.
struct Tally {
    queue: Counted,
    /// Those with unfinished tasks.
    shares: BTreeMap<String, Counted>,
}

#[derive(Default)]
struct Counted {
    work: Work,
    starts: Vec<Duration>,
    runs: Vec<Duration>,
    received: f64,
}

impl Tally {
    fn new(rows: &[ShareRow]) -> Tally {
        let shares = rows.iter().map(|row| (row.fairness_key.clone(), Counted::default())).collect();
        Tally { queue: Counted::default(), shares }
    }

    /// Counts for the queue, and for the share if it has unfinished tasks.
    fn both(&mut self, key: &str, count: impl Fn(&mut Counted)) {
        count(&mut self.queue);
        self.shares.get_mut(key).into_iter().for_each(count);
    }

    fn live(&mut self, now: Timestamp, live: &[LiveCount], names: &HashMap<i32, &str>) {
        for row in live {
            let (Some(key), Some(state)) = (names.get(&row.share_id), State::parse(&row.state)) else { continue };
            self.both(key, |counted| {
                *counted.work.states.entry(state).or_default() += row.count;
                counted.work.expired_leases += row.expired;
                counted.work.oldest = counted.work.oldest.max(Some(now.since(row.oldest)));
            });
        }
    }

    fn targets(&mut self, rows: Vec<(i32, String, i64)>, names: &HashMap<i32, &str>) {
        let mut whole: HashMap<String, i64> = HashMap::new();
        for (share_id, target, count) in rows {
            *whole.entry(target.clone()).or_default() += count;
            let counted = names.get(&share_id).and_then(|key| self.shares.get_mut(*key));
            counted.into_iter().for_each(|counted| counted.work.targets.push((target.clone(), count)));
        }
        self.queue.work.targets = whole.into_iter().collect();
        for counted in self.shares.values_mut().chain([&mut self.queue]) {
            counted.work.targets.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            counted.work.targets.truncate(TARGETS);
        }
    }

    /// The queue's alone: what has ended no longer stands in a share.
    fn ended(&mut self, rows: &[(String, i64)]) {
        let otherwise: i64 = rows.iter().filter(|(state, _)| !state.is_empty()).map(|(_, count)| count).sum();
        for (state, count) in rows {
            match State::parse(state) {
                Some(state) => self.queue.work.states.insert(state, *count),
                None => self.queue.work.states.insert(State::Completed, (count - otherwise).max(0)),
            };
        }
    }

    fn repairs(&mut self, rows: &[(String, String, i64)]) {
        for (key, cause, count) in rows {
            let Some(cause) = Cause::parse(cause) else { continue };
            self.both(key, |counted| *counted.work.repairs.entry(cause).or_default() += count);
        }
    }

    fn window(&mut self, events: &[Recent]) {
        for event in events {
            let (Some(kind), Some(state)) = (EventKind::parse(&event.kind), State::parse(&event.state)) else { continue };
            let ends = matches!(kind, EventKind::RetryPlanned | EventKind::Released | EventKind::Ended);
            let unknown = ends && event.error_class.as_deref() == Some(ErrorClass::Unknown.as_str());
            let happened = Happened {
                submitted: i64::from(kind == EventKind::Submitted),
                claimed: i64::from(kind == EventKind::Leased),
                completed: i64::from(kind == EventKind::Ended && state == State::Completed),
                retried: i64::from(kind == EventKind::RetryPlanned),
                unknown: i64::from(unknown),
                stale_refused: i64::from(kind == EventKind::LateReport),
                // They leave no event.
                full_refused: 0,
            };
            self.both(&event.fairness_key, |counted| {
                counted.work.happened.add(happened);
                counted.starts.extend(event.since_acceptance);
                counted.runs.extend(event.since_lease);
                counted.received += if kind == EventKind::Leased { f64::from(event.cost) } else { 0.0 };
            });
        }
    }

    fn refused(&mut self, counts: Vec<(Option<String>, i64)>) {
        for (key, full_refused) in counts {
            let happened = Happened { full_refused, ..Happened::default() };
            match key {
                Some(key) => self.both(&key, |counted| counted.work.happened.add(happened)),
                None => self.queue.work.happened.add(happened),
            }
        }
    }

    fn told(mut self, rows: &[ShareRow], live: &[LiveCount], virtual_time: f64) -> (Work, BTreeMap<String, (Work, Fairness)>) {
        let ready = live.iter().filter(|row| row.state == State::Ready.as_str());
        let costs: HashMap<i32, i32> = ready.map(|row| (row.share_id, row.cost)).collect();
        let standing = |row: &ShareRow| Standing {
            weight: row.weight,
            tag: row.tag,
            cost: costs.get(&row.share_id).copied().unwrap_or(0),
            received: self.shares.get(&row.fairness_key).map_or(0.0, |counted| counted.received),
        };
        let standings: Vec<Standing> = rows.iter().map(standing).collect();
        let fair: HashMap<&str, Fairness> = rows
            .iter()
            .zip(&standings)
            .map(|(row, standing)| (row.fairness_key.as_str(), fairness(*standing, virtual_time, &standings)))
            .collect();
        let shares = std::mem::take(&mut self.shares).into_iter();
        let shares = shares.map(|(key, counted)| (fair[key.as_str()], key, counted.work()));
        let shares = shares.map(|(fairness, key, work)| (key, (work, fairness))).collect();
        (self.queue.work(), shares)
    }
}

impl Counted {
    fn work(self) -> Work {
        Work { starts: Timing::of(self.starts), runs: Timing::of(self.runs), ..self.work }
    }
}
