//! GetTask, ListTasks, ListAttempts: looking, without changing anything.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::transition::no_task;
use super::{Engine, Page, TaskFilter, TaskName, TaskRef, refusal_of, timed};
use crate::domain::attempt::{self, Attempt};
use crate::domain::limits;
use crate::domain::names::QueueName;
use crate::domain::record::{Repair, Task};
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::repair::RepairState;
use crate::domain::spec::TaskSpec;
use crate::domain::task::{Standing, State};
use crate::store::{self, Db, EndedRow, ListFilter, LiveRow, SpecRow, StoreError};

/// The longest that a call which waits for a task goes without a look at it.
const LOOK: Duration = Duration::from_secs(1);

/// What a task leaves for people at the moment when it ends.
pub(super) fn opened_repair(standing: &Standing) -> Option<Repair> {
    let needs_people = standing.state() == State::RepairRequired;
    let (owner, next_action) = (String::new(), String::new());
    needs_people.then_some(Repair { state: RepairState::Open, owner, next_action, replayed_by: None })
}

/// Tasks by queue and id, as they stand; those that there are.
pub(super) async fn tasks_by_id(db: &Db, names: &[(i32, QueueName, String)]) -> Result<HashMap<(i32, String), Task>, StoreError> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let queues: Vec<i32> = names.iter().map(|(queue_id, ..)| *queue_id).collect();
    let ids: Vec<String> = names.iter().map(|(.., id)| id.clone()).collect();
    let rows = store::specs_by_id(db.reads(), &queues, &ids).await?;
    let known: HashMap<i32, &QueueName> = names.iter().map(|(queue_id, name, _)| (*queue_id, name)).collect();
    let tasks = assemble(db, rows, |queue_id| known.get(&queue_id).copied()).await?;
    Ok(tasks.into_iter().map(|(queue_id, task)| ((queue_id, task.spec.task_id.to_string()), task)).collect())
}

/// Adds to what was asked where it stands now: in `live`, else in `ended`. In that order a task that ends in between is not missed.
async fn assemble<'a>(
    db: &Db, rows: Vec<SpecRow>, name: impl Fn(i32) -> Option<&'a QueueName>,
) -> Result<Vec<(i32, Task)>, StoreError> {
    let (queues, uids): (Vec<i32>, Vec<Uuid>) = rows.iter().map(|row| (row.queue_id, row.uid)).unzip();
    let mut standings: HashMap<Uuid, (i64, Standing)> = HashMap::with_capacity(rows.len());
    for row in store::live_by_uid(db.reads(), &queues, &uids).await? {
        standings.insert(row.uid, (row.position, Standing::Live(row.live()?)));
    }
    let over = queues.iter().zip(&uids).filter(|(_, uid)| !standings.contains_key(*uid));
    let (queues, uids): (Vec<i32>, Vec<Uuid>) = over.map(|(queue_id, uid)| (*queue_id, *uid)).unzip();
    if !uids.is_empty() {
        for row in store::ended_by_uid(db.reads(), &queues, &uids).await? {
            standings.insert(row.uid, (row.position, Standing::Ended(row.ended()?)));
        }
    }
    let mut tasks = Vec::with_capacity(rows.len());
    for row in rows {
        let (queue_id, uid) = (row.queue_id, row.uid);
        let (Some(name), Some((position, standing))) = (name(queue_id), standings.remove(&uid)) else { continue };
        let (spec, digest) = row.spec(name)?;
        tasks.push((queue_id, Task { uid, spec, digest, position, standing, result: None, repair: None }));
    }
    add_repairs(db, &mut tasks).await?;
    Ok(tasks)
}

async fn add_repairs(db: &Db, tasks: &mut [(i32, Task)]) -> Result<(), StoreError> {
    let open = tasks.iter().filter(|(_, task)| task.standing.state() == State::RepairRequired);
    let (queues, uids): (Vec<i32>, Vec<Uuid>) = open.map(|(queue_id, task)| (*queue_id, task.uid)).unzip();
    if !uids.is_empty() {
        let mut repairs = store::repairs_of(db, &queues, &uids).await?;
        tasks.iter_mut().for_each(|(_, task)| task.repair = repairs.remove(&task.uid));
    }
    Ok(())
}

pub(super) fn not_found(task: &TaskRef) -> Refusal {
    Refusal::NotFound { what: Missing::Task, name: task.name.to_string() }
}

impl Engine {
    /// The task as it stands; `full`: with its payload and result.
    pub async fn get_task(&self, task: TaskRef, full: bool) -> Result<Task, Refusal> {
        let (queue_id, mut found) = self.find(&task).await?;
        if full {
            let read = async {
                let payloads = store::payloads_of(self.db().reads(), &[queue_id], &[found.uid]).await?;
                let results = store::results_of(self.db(), &[queue_id], &[found.uid]).await?;
                Ok::<_, StoreError>((payloads, results))
            };
            let (mut payloads, mut results) = timed(read).await.map_err(|error| refusal_of(&error))?;
            let payload = payloads.remove(&found.uid).unwrap_or_default();
            found.spec = std::sync::Arc::new(TaskSpec { payload, ..TaskSpec::clone(&found.spec) });
            found.result = results.remove(&found.uid);
        }
        Ok(found)
    }

    /// Waits until the task is in one of `states` (none: until it has ended); when the time is over, the task as it stands.
    pub async fn wait_for(
        &self, task: TaskRef, full: bool, states: Vec<State>, timeout: Duration, until: Option<Instant>,
    ) -> Result<Task, Refusal> {
        let wait_end = Instant::now() + timeout;
        let end = until.map_or(wait_end, |until| until.min(wait_end));
        let uid = self.find(&task).await?.1.uid;
        let changed = self.0.wakes.of_task(uid);
        // The tail runs while somebody waits: it brings what other servers do. The look once a second stays the truth.
        let _attendance = self.hub().attend();
        loop {
            let woken = changed.notified();
            let found = self.get_task(task.clone(), full).await?;
            let state = found.standing.state();
            let reached = if states.is_empty() { state.terminal() } else { states.contains(&state) };
            if reached || Instant::now() >= end {
                return Ok(found);
            }
            let look = Instant::now() + LOOK.mul_f64(0.5 + 0.5 * fastrand::f64());
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep_until(look.min(end)) => {}
                () = self.0.drain.cancelled() => return Err(Refusal::Draining),
            }
        }
    }

    pub(super) async fn find(&self, task: &TaskRef) -> Result<(i32, Task), Refusal> {
        let queue_id = self.known_queue(&task.queue).await.map_err(|refusal| no_task(refusal, task))?;
        let found = timed(self.find_stored(queue_id, task)).await.map_err(|error| refusal_of(&error))?;
        Ok((queue_id, found.ok_or_else(|| not_found(task))?))
    }

    /// The task that is meant, if it is there.
    pub(super) async fn find_stored(&self, queue_id: i32, task: &TaskRef) -> Result<Option<Task>, StoreError> {
        let rows = match &task.name {
            TaskName::Id(id) => store::specs_by_id(self.db().reads(), &[queue_id], &[id.to_string()]).await?,
            TaskName::Uid(uid) | TaskName::Both(_, uid) => store::specs_by_uid(self.db().reads(), &[queue_id], &[*uid]).await?,
        };
        let found = assemble(self.db(), rows, |_| Some(&task.queue)).await?.pop().map(|(_, found)| found);
        Ok(found.filter(|found| !matches!(&task.name, TaskName::Both(id, _) if *id != found.spec.task_id)))
    }

    /// A page of the queue's tasks, the newest first (by uid, so roughly by acceptance).
    pub async fn list_tasks(
        &self, queue: QueueName, filter: TaskFilter, page_size: i32, page_token: String,
    ) -> Result<Page<Task>, Refusal> {
        let queue_id = self.known_queue(&queue).await?;
        let below = parse_token(&page_token)?;
        let size = if page_size == 0 { limits::PAGE_DEFAULT } else { page_size };
        let wanted = usize::try_from(size).unwrap_or(1);
        let read = async {
            let (live, ended) = store::list(self.db(), &list_filter(queue_id, filter, below, i64::from(size) + 1)).await?;
            page(self.db(), &queue, live, ended, wanted).await
        };
        let (items, more) = timed(read).await.map_err(|error| refusal_of(&error))?;
        let next = items.last().filter(|_| more).map(|task| task.uid.to_string());
        Ok(Page { items, next })
    }

    /// A page of the task's attempts, in order.
    pub async fn list_attempts(&self, task: TaskRef, page_size: i32, page_token: String) -> Result<Page<Attempt>, Refusal> {
        let (queue_id, found) = self.find(&task).await?;
        let bad_token = |_| Refusal::field("page_token", "is not a token that this list gave");
        let after: i32 = if page_token.is_empty() { 0 } else { page_token.parse().map_err(bad_token)? };
        let size = if page_size == 0 { limits::PAGE_DEFAULT } else { page_size };
        let last = after.saturating_add(size);
        let log = timed(store::events_page(self.db(), queue_id, found.uid, after.saturating_add(1), last)).await;
        let mut items = attempt::fold(&log.map_err(|error| refusal_of(&error))?);
        if let Standing::Live(live) = &found.standing
            && let (Some(lease), Some(running)) = (&live.lease, items.iter_mut().find(|attempt| attempt.number == live.attempt))
            && running.end.is_none()
        {
            running.running(lease);
        }
        let next = (found.standing.attempt() > last).then(|| last.to_string());
        Ok(Page { items, next })
    }
}

fn parse_token(token: &str) -> Result<Uuid, Refusal> {
    let bad = |_| Refusal::field("page_token", "is not a token that this list gave");
    if token.is_empty() { Ok(Uuid::max()) } else { Uuid::parse_str(token).map_err(bad) }
}

pub(super) fn list_filter(queue_id: i32, filter: TaskFilter, below: Uuid, limit: i64) -> ListFilter {
    let given = |text: String| (!text.is_empty()).then_some(text);
    let states = if filter.states.is_empty() { State::ALL } else { &filter.states };
    ListFilter {
        queue_id,
        below,
        states: states.iter().map(|state| state.as_str().to_owned()).collect(),
        kind: given(filter.kind),
        target: given(filter.target),
        event_id: given(filter.event_id),
        fairness_key: filter.fairness_key,
        ordering_key: given(filter.ordering_key),
        worker: given(filter.worker_id),
        labels: (!filter.labels.is_empty()).then(|| serde_json::json!(filter.labels)),
        subject_id: given(filter.subject_id),
        limit,
    }
}

/// Merges unfinished and finished tasks by uid, up to one page; whether there are more.
pub(super) async fn page(
    db: &Db, queue: &QueueName, live: Vec<LiveRow>, ended: Vec<EndedRow>, wanted: usize,
) -> Result<(Vec<Task>, bool), StoreError> {
    let mut standings: Vec<(Uuid, i32, i64, Standing)> = Vec::with_capacity(live.len() + ended.len());
    for row in live {
        standings.push((row.uid, row.queue_id, row.position, Standing::Live(row.live()?)));
    }
    for row in ended {
        standings.push((row.uid, row.queue_id, row.position, Standing::Ended(row.ended()?)));
    }
    standings.sort_by_key(|(uid, ..)| std::cmp::Reverse(*uid));
    let more = standings.len() > wanted;
    standings.truncate(wanted);
    let (uids, queues): (Vec<Uuid>, Vec<i32>) = standings.iter().map(|(uid, queue_id, ..)| (*uid, *queue_id)).unzip();
    let rows = store::specs_by_uid(db.reads(), &queues, &uids).await?;
    let mut specs: HashMap<Uuid, SpecRow> = rows.into_iter().map(|row| (row.uid, row)).collect();
    let mut tasks = Vec::with_capacity(standings.len());
    for (uid, queue_id, position, standing) in standings {
        let Some(row) = specs.remove(&uid) else { continue };
        let (spec, digest) = row.spec(queue)?;
        tasks.push((queue_id, Task { uid, spec, digest, position, standing, result: None, repair: None }));
    }
    add_repairs(db, &mut tasks).await?;
    let tasks: Vec<Task> = tasks.into_iter().map(|(_, task)| task).collect();
    let fitting = fitting(&tasks);
    let more = more || fitting < tasks.len();
    Ok((tasks.into_iter().take(fitting).collect(), more))
}

/// How many of these tasks fit into an answer that clients accept; at least one.
fn fitting(tasks: &[Task]) -> usize {
    let mut bytes = 0;
    let fits = |task: &&Task| {
        let (reason, notes) = match &task.standing {
            Standing::Live(live) => (live.cancel.as_ref().map_or(0, |cancel| cancel.reason.len()), &live.notes),
            Standing::Ended(ended) => (ended.reason.len(), &ended.notes),
        };
        bytes += task.spec.weight() + reason + notes.last_error.as_ref().map_or(0, |error| error.message.len());
        bytes <= limits::CLAIM_BYTES
    };
    tasks.iter().take_while(fits).count().max(1)
}
