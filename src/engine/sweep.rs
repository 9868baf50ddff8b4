//! What time alone moves: lease ends, retries, starts, deadlines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::transition::{Item, Target};
use super::wake::{News, held};
use super::{Engine, refusal_of, timed};
use crate::domain::limits::BATCH;
use crate::domain::refusal::Refusal;
use crate::domain::stall::stalled;
use crate::domain::task::Command;
use crate::domain::time::Timestamp;
use crate::store::{self, DueLook, DueTask, Heard};

/// Tasks that could not be moved, until when they are left alone: one such row must not stop its neighbours.
#[derive(Default)]
pub struct Aside(Mutex<HashMap<Uuid, Instant>>);

/// For how long a task that could not be moved is left alone.
const LEFT_ALONE: Duration = Duration::from_secs(30);

/// How many leases of a queue are looked at to tell a stall: more would say the same.
const LEASES_LOOKED_AT: i64 = 2_000;

/// What a sweep found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// There may be more to do at once.
    Again,
    /// Nothing is due before so much time has passed (absent: nothing waits for time at all).
    Rest(Option<Duration>),
}

impl Engine {
    /// Moves what is due, one batch of it.
    pub async fn sweep(&self) -> Result<Sweep, Refusal> {
        let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let look = timed(store::look_at_due(self.db(), &self.0.aside.now(), limit)).await;
        let DueLook { now, due, tasks } = look.map_err(|error| refusal_of(&error))?;
        self.0.wakes.due_planned(due);
        if tasks.is_empty() {
            return Ok(Sweep::Rest(due.map(|due| due.since(now))));
        }
        self.look_for_stalls(&tasks).await?;
        let tasks: Vec<(i32, Uuid)> = tasks.iter().map(|task| (task.queue_id, task.uid)).collect();
        self.tick_all(&tasks).await?;
        Ok(Sweep::Again)
    }

    /// Before leases are ended: whether they end because the whole fleet of their queue has fallen silent.
    async fn look_for_stalls(&self, tasks: &[DueTask]) -> Result<(), Refusal> {
        let mut ends: BTreeMap<i32, Timestamp> = BTreeMap::new();
        for (queue_id, end) in tasks.iter().filter_map(|task| Some((task.queue_id, task.lease_expire?))) {
            let latest = ends.entry(queue_id).or_insert(end);
            *latest = end.max(*latest);
        }
        for (queue_id, at) in ends {
            let words =
                timed(store::words_of(self.db(), queue_id, at, LEASES_LOOKED_AT)).await.map_err(|error| refusal_of(&error))?;
            if stalled(&words, at) {
                tracing::warn!(queue_id, leases = words.len(), "most leases of a queue fell silent together: they end uncharged");
                timed(store::note_stall(self.db(), queue_id, at)).await.map_err(|error| refusal_of(&error))?;
            }
        }
        Ok(())
    }

    /// Applies to these tasks what time has decided, and settles their keys. What can't be moved is left to people; where even that fails, it
    /// is set aside for a while.
    pub(super) async fn tick_all(&self, tasks: &[(i32, Uuid)]) -> Result<(), Refusal> {
        let tick = |&(queue_id, uid): &(i32, Uuid)| Item { queue_id, target: Target::Uid(uid), command: Command::Tick };
        // One call each: a task that can't be moved is found by halving the calls of a batch.
        let moves = tasks.iter().map(|task| self.0.ticks.call(vec![tick(task)]));
        let answers = futures_util::future::join_all(moves).await;
        let mut away = None;
        for ((queue_id, uid), answer) in tasks.iter().zip(answers) {
            match answer.and_then(super::transition::only) {
                Ok(_) | Err(Refusal::NotFound { .. }) => {}
                Err(refusal @ (Refusal::DatabaseUnavailable | Refusal::Overloaded | Refusal::Draining)) => away = Some(refusal),
                Err(refusal) => {
                    tracing::error!(%uid, %refusal, "a task that is due can't be moved");
                    if !self.leave_to_people(*queue_id, *uid).await {
                        self.0.aside.add(*uid);
                    }
                }
            }
        }
        away.map_or(Ok(()), Err)
    }

    /// Resolves when something became due earlier than the last sweep knew.
    pub async fn due_earlier(&self) {
        self.0.wakes.due_earlier().await;
    }

    /// What other servers should be told; waits until there is something.
    pub async fn untold(&self) -> News {
        self.0.wakes.untold().await
    }

    /// Resolves when something is among it that has become READY.
    pub async fn untold_ready(&self) {
        self.0.wakes.untold_ready().await;
    }

    /// False: no other server listens.
    pub async fn tell_other_servers(&self, server: Uuid, news: &News) -> Result<bool, Refusal> {
        let told = store::tell_others(self.db(), server, &news.openings, news.events, news.watching);
        timed(told).await.map_err(|error| refusal_of(&error))
    }

    /// Makes the log's next partitions before they are needed.
    pub async fn ensure_partitions(&self) -> Result<(), Refusal> {
        let made = timed(store::ensure_partitions(self.db())).await.map_err(|error| refusal_of(&error))?;
        if made > 0 {
            tracing::info!(made, "made partitions of the event log");
        }
        Ok(())
    }

    /// What another server says; absent: something was missed, so look everywhere.
    pub fn told(&self, heard: Option<&Heard>) {
        match heard {
            Some(heard) => {
                self.opened(&heard.openings);
                if heard.events {
                    self.0.hub.nudge();
                }
                if heard.watching {
                    self.0.wakes.others_watch();
                }
            }
            None => {
                self.0.lows.forget();
                self.0.dispatchers.nudge_all();
                self.0.hub.nudge();
            }
        }
    }
}

impl Aside {
    fn now(&self) -> Vec<Uuid> {
        let mut aside = held(&self.0);
        let now = Instant::now();
        aside.retain(|_, until| *until > now);
        aside.keys().copied().collect()
    }

    fn add(&self, uid: Uuid) {
        held(&self.0).insert(uid, Instant::now() + LEFT_ALONE);
    }
}
