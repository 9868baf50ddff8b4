//! Repairs: list, look up, assign, resolve. Replays are in `repair/replay.rs`.

mod replay;

use uuid::Uuid;

use super::successor::Successor;
use super::{Aftermath, Engine, Page, TaskFilter, TaskRef, refusal_of, timed};
use crate::domain::attempt::{self, Attempt};
use crate::domain::limits::{self, REPAIR_ACTIONS, REPAIR_ATTEMPTS};
use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::repair::{Acted, Action, Changes, Repair, RepairState, act};
use crate::domain::task::{Cause, State};
use crate::domain::time::Timestamp;
use crate::store::{self, By, Draw, KeyPlace, Moment, RepairFilter, RepairPage, StoreError};

pub use replay::{ReplayRepairsCommand, Replayed};

/// How many attempts a look reads at a time, from the latest backwards.
const ATTEMPTS_AT_ONCE: i32 = 500;

/// Which repairs a list is of.
#[derive(Clone, Debug)]
pub struct ListRepairsCommand {
    pub queue: QueueName,
    pub filter: TaskFilter,
    /// Empty: OPEN.
    pub states: Vec<RepairState>,
    /// Empty: every cause.
    pub causes: Vec<Cause>,
    /// Present and empty: nobody's.
    pub owner: Option<String>,
    /// Opened at least so long ago.
    pub min_age: Option<std::time::Duration>,
    pub page_size: i32,
    pub page_token: String,
}

/// What resolves a repair.
#[derive(Clone, Debug)]
pub enum Resolution {
    Replay(Changes),
    Discard,
    Confirm { receipt_ref: String },
}

/// A repair with its attempts and its actions, the latest ones, the newest last.
#[derive(Clone, Debug)]
pub struct RepairInFull {
    pub repair: Repair,
    pub known: Vec<Attempt>,
    pub unknown: Vec<Attempt>,
    pub actions: Vec<Acted>,
}

/// A task that needs repair, and its item.
struct Found {
    queue_id: i32,
    task: Task,
    repair: Repair,
    place: KeyPlace,
}

impl Engine {
    /// A page of repairs, the oldest first.
    pub async fn list_repairs(&self, command: ListRepairsCommand) -> Result<Page<Repair>, Refusal> {
        let queue_id = self.known_queue(&command.queue).await?;
        let after = parse_token(&command.page_token)?;
        let until = match command.min_age {
            None => None,
            Some(age) => Some(self.clock().await?.minus(age)),
        };
        let needs_repair = command.filter.states.is_empty() || command.filter.states.contains(&State::RepairRequired);
        // A task that needs repair is leased by nobody.
        if !needs_repair || !command.filter.worker_id.is_empty() {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let states = if command.states.is_empty() { vec![RepairState::Open] } else { command.states };
        let page = RepairPage {
            uid: None,
            states: states.into_iter().map(|state| state.as_str().to_owned()).collect(),
            owner: command.owner,
            until,
            after,
            limit: i64::from(command.page_size) + 1,
        };
        let filter = picked(command.filter, &command.causes);
        let found = timed(store::repairs_page(self.db(), queue_id, &command.queue, &filter, &page)).await;
        let mut items: Vec<Repair> = found.map_err(|error| refusal_of(&error))?.into_iter().map(|(repair, _)| repair).collect();
        let all = items.len();
        items.truncate(usize::try_from(command.page_size).unwrap_or(1));
        let mut bytes = 0;
        let fits = |repair: &&Repair| {
            bytes += repair.weight();
            bytes <= limits::CLAIM_BYTES
        };
        let fitting = items.iter().take_while(fits).count().max(1);
        items.truncate(fitting);
        let next = items.last().filter(|_| items.len() < all).map(|last| format!("{}.{}", last.opened.0, last.uid));
        Ok(Page { items, next })
    }

    pub async fn get_repair(&self, task: TaskRef) -> Result<RepairInFull, Refusal> {
        let found = self.find_repair(&task).await?;
        let actions = timed(store::repair_actions(self.db(), found.queue_id, found.repair.uid, REPAIR_ACTIONS)).await;
        let actions = actions.map_err(|error| refusal_of(&error))?;
        let (known, unknown) = self.told_apart(&found).await.map_err(|error| refusal_of(&error))?;
        Ok(RepairInFull { repair: found.repair, known, unknown, actions })
    }

    /// Says who looks after it and what is next.
    pub async fn assign_repair(
        &self, task: TaskRef, owner: Option<String>, next_action: Option<String>, by: By,
    ) -> Result<Repair, Refusal> {
        let found = self.find_repair(&task).await?;
        self.act(&found, Action::Assign { owner, next_action }, by).await?;
        Ok(self.find_repair(&task).await?.repair)
    }

    /// Resolves it; and the new task, if it was replayed.
    pub async fn resolve_repair(&self, task: TaskRef, resolution: Resolution, by: By) -> Result<(Repair, Option<Task>), Refusal> {
        let found = self.find_repair(&task).await?;
        let replayed = match resolution {
            Resolution::Replay(changes) => Some(self.replay(&found, &changes, std::time::Duration::ZERO, by, false).await?),
            Resolution::Discard => {
                self.act(&found, Action::Discard, by).await?;
                None
            }
            Resolution::Confirm { receipt_ref } => {
                self.act(&found, Action::Confirm { receipt_ref }, by).await?;
                None
            }
        };
        Ok((self.find_repair(&task).await?.repair, replayed))
    }

    async fn clock(&self) -> Result<Timestamp, Refusal> {
        Ok(timed(store::look_at_due(self.db(), &[], 0)).await.map_err(|error| refusal_of(&error))?.now)
    }

    async fn find_repair(&self, task: &TaskRef) -> Result<Found, Refusal> {
        let (queue_id, found) = self.find(task).await?;
        let none = || Refusal::NotFound { what: Missing::Repair, name: task.name.to_string() };
        if found.standing.state() != State::RepairRequired {
            return Err(none());
        }
        let page = RepairPage {
            uid: Some(found.uid),
            states: RepairState::ALL.iter().map(|state| state.as_str().to_owned()).collect(),
            owner: None,
            until: None,
            after: (Timestamp(i64::MIN), Uuid::nil()),
            limit: 1,
        };
        let repairs = timed(store::repairs_page(self.db(), queue_id, &task.queue, &RepairFilter::default(), &page)).await;
        let (repair, place) = repairs.map_err(|error| refusal_of(&error))?.pop().ok_or_else(none)?;
        Ok(Found { queue_id, task: found, repair, place })
    }

    /// The latest attempts with a known and with an unknown outcome, the newest last.
    async fn told_apart(&self, found: &Found) -> Result<(Vec<Attempt>, Vec<Attempt>), StoreError> {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let mut last = found.task.standing.attempt();
        while last > 0 && (known.len() < REPAIR_ATTEMPTS || unknown.len() < REPAIR_ATTEMPTS) {
            let first = (last - ATTEMPTS_AT_ONCE + 1).max(1);
            let log = timed(store::events_page(self.db(), found.queue_id, found.task.uid, first, last)).await?;
            for attempt in attempt::fold(&log).into_iter().rev() {
                let side = if attempt.unknown() { &mut unknown } else { &mut known };
                if side.len() < REPAIR_ATTEMPTS {
                    side.push(attempt);
                }
            }
            last = first - 1;
        }
        known.reverse();
        unknown.reverse();
        Ok((known, unknown))
    }

    /// Everything but a replay.
    async fn act(&self, found: &Found, action: Action, by: By) -> Result<(), Refusal> {
        let (engine, id, key_id) = (self.clone(), (found.queue_id, found.repair.uid), found.place.key_id);
        // In a task of its own: once it is committed, those who wait are woken also when the caller has gone away.
        let work = tokio::spawn(async move {
            let mut tries = 0;
            loop {
                match timed(act_once(&engine, id, key_id, &action, &by)).await {
                    Err(StoreError::Conflict(_)) if tries < 10 => tries += 1,
                    Err(error) => return Err(refusal_of(&error)),
                    Ok(answer) => return answer,
                }
            }
        });
        work.await.map_err(|error| Refusal::Bug(error.to_string()))?
    }
}

/// One transaction: the key → its next task → the repair → the clock → decide → write → let the next task go.
async fn act_once(
    engine: &Engine, (queue_id, uid): (i32, Uuid), key_id: Option<i64>, action: &Action, by: &By,
) -> Result<Result<(), Refusal>, StoreError> {
    let mut tx = engine.db().begin_patient().await?;
    let key = key_id.filter(|_| action.resolves()).map(|key_id| (queue_id, key_id));
    if let Some(key) = key {
        store::lock_keys(&mut tx, &[key]).await?;
    }
    let successor = Successor::lock(&mut tx, key).await?;
    let Some(before) = store::lock_repair(&mut tx, queue_id, uid).await? else {
        return Ok(Err(Refusal::NotFound { what: Missing::Repair, name: uid.to_string() }));
    };
    let Moment { now, policies, .. } = store::moment(&mut tx, &[queue_id], Draw::Nothing).await?;
    let after = match act(&before, action) {
        Ok(Some(after)) => after,
        Ok(None) => return Ok(Ok(())),
        Err(refusal) => return Ok(Err(refusal)),
    };
    store::write_repair(&mut tx, (queue_id, uid), &after, action, by, now).await?;
    let (name, policy) = policies.get(&queue_id).ok_or_else(StoreError::silent)?;
    let mut aftermath: Aftermath = successor.go(&mut tx, name, policy, now).await?;
    tx.commit().await?;
    // Whoever waits for the task looks again: its summary has changed.
    aftermath.changed.push(uid);
    engine.committed(aftermath);
    Ok(Ok(()))
}

fn picked(filter: TaskFilter, causes: &[Cause]) -> RepairFilter {
    let given = |text: String| (!text.is_empty()).then_some(text);
    RepairFilter {
        kind: given(filter.kind),
        target: given(filter.target),
        event_id: given(filter.event_id),
        fairness_key: filter.fairness_key,
        ordering_key: given(filter.ordering_key),
        labels: (!filter.labels.is_empty()).then(|| serde_json::json!(filter.labels)),
        subject_id: given(filter.subject_id),
        causes: (!causes.is_empty()).then(|| causes.iter().map(|cause| cause.as_str().to_owned()).collect()),
    }
}

/// `opened.uid` of the last repair of the page before.
fn parse_token(token: &str) -> Result<(Timestamp, Uuid), Refusal> {
    if token.is_empty() {
        return Ok((Timestamp(i64::MIN), Uuid::nil()));
    }
    let parsed = token.split_once('.').and_then(|(opened, uid)| Some((opened.parse().ok()?, Uuid::parse_str(uid).ok()?)));
    let bad = || Refusal::field("page_token", "is not a token that this list gave");
    // No repair is that old, and what lies long before the calendar begins the database can't compare with.
    parsed.filter(|(opened, _)| *opened >= 0).map(|(opened, uid)| (Timestamp(opened), uid)).ok_or_else(bad)
}
