//! Replay: a new task takes over what the old one could not finish. It is submitted like any other, so it passes today's gates; and the
//! repair is resolved in the transaction that accepts it (`submit/replay.rs`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Found, picked};
use crate::domain::names::{QueueName, TaskId};
use crate::domain::record::Task;
use crate::domain::refusal::{BadField, Refusal};
use crate::domain::repair::{Action, Changes, RepairState, replay_spec, spread};
use crate::domain::spec::TaskSpec;
use crate::domain::task::{Cause, State};
use crate::engine::submit::{Replaying, Submission, run_atomic};
use crate::engine::transition::only;
use crate::engine::{Engine, TaskFilter, TaskName, TaskRef, refusal_of, timed};
use crate::store::{self, By};

/// Which open repairs to replay.
#[derive(Clone, Debug)]
pub struct ReplayRepairsCommand {
    pub queue: QueueName,
    pub filter: TaskFilter,
    /// Empty: every cause.
    pub causes: Vec<Cause>,
    /// 1 to 1,000.
    pub max_tasks: i32,
    /// How fast the new tasks may start, per second; absent: all at once.
    pub rate: Option<f64>,
    /// Only say what would be done.
    pub validate_only: bool,
    pub by: By,
}

/// What became of several replays.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Of each repair's task: the new task, or why there is none.
    pub results: Vec<(TaskId, uuid::Uuid, Result<Task, Refusal>)>,
    /// There are open repairs left that nobody has tried to replay.
    pub more: bool,
}

impl Engine {
    /// Replays open repairs one after the other, each as if alone. What has been done when the caller goes away stays done.
    pub async fn replay_repairs(&self, command: ReplayRepairsCommand) -> Result<Replayed, Refusal> {
        let queue_id = self.known_queue(&command.queue).await?;
        let needs_repair = command.filter.states.is_empty() || command.filter.states.contains(&State::RepairRequired);
        if !needs_repair || !command.filter.worker_id.is_empty() {
            return Ok(Replayed { results: Vec::new(), more: false });
        }
        let filter = picked(command.filter, &command.causes);
        let candidates = timed(store::repairs_to_replay(self.db(), queue_id, &filter, i64::from(command.max_tasks) + 1)).await;
        let mut candidates = candidates.map_err(|error| refusal_of(&error))?;
        let wanted = usize::try_from(command.max_tasks).unwrap_or(1);
        let mut more = candidates.get(wanted).is_some_and(|(_, refused)| !refused);
        candidates.truncate(wanted);
        let mut results = Vec::with_capacity(candidates.len());
        let mut started = 0;
        for (uid, _) in candidates {
            if self.0.drain.is_cancelled() {
                more = true;
                break;
            }
            let task = TaskRef { queue: command.queue.clone(), name: TaskName::Uid(uid) };
            let found = match self.find_repair(&task).await {
                // Somebody has resolved it, and retention has forgotten it.
                Err(Refusal::NotFound { .. }) => continue,
                other => other,
            };
            let found = match found {
                Ok(found) if found.repair.standing.state == RepairState::Open => found,
                Ok(_) => continue,
                Err(refusal) if results.is_empty() => return Err(refusal),
                Err(_) => {
                    more = true;
                    break;
                }
            };
            let delay = spread(started, command.rate);
            let done = self.replay(&found, &Changes::default(), delay, command.by.clone(), command.validate_only).await;
            let full = matches!(done, Err(Refusal::QueueFull { .. } | Refusal::ShareFull { .. }));
            let away = done.as_ref().is_err_and(|refusal| !lasting(refusal));
            started += usize::from(done.is_ok());
            results.push((found.repair.task_id, uid, done));
            if full || away {
                more = true;
                break;
            }
        }
        Ok(Replayed { results, more })
    }

    /// The new task. `delay`: how much later than at once it starts. `rehearsal`: it is not made after all.
    pub(super) async fn replay(
        &self, found: &Found, changes: &Changes, delay: Duration, by: By, rehearsal: bool,
    ) -> Result<Task, Refusal> {
        let tried = self.try_replay(found, changes, delay, by.clone(), rehearsal).await;
        let Err(refusal) = tried else { return tried };
        if lasting(&refusal) && !rehearsal {
            let told = Action::Refuse { refusal: in_words(&refusal) };
            // The refusal is the answer, whether or not it could be kept too.
            drop(self.act(found, told, by).await);
        }
        Err(refusal)
    }

    async fn try_replay(
        &self, found: &Found, changes: &Changes, delay: Duration, by: By, rehearsal: bool,
    ) -> Result<Task, Refusal> {
        let policy = self.get_queue(found.repair.queue.clone()).await?.policy;
        let old = self.with_payload(found, changes).await;
        let spec = match (&old, found.repair.standing.state) {
            (Ok(old), _) => replay_spec(old, found.task.uid, changes, &policy, delay)?,
            // Resolved already: then the old payload may be gone, and only the new task's name says whether this is the same replay.
            (Err(Refusal::PayloadErased), RepairState::Replayed) => {
                replay_spec(&found.task.spec, found.task.uid, changes, &policy, delay)?
            }
            (Err(refusal), _) => return Err(refusal.clone()),
        };
        let spec = Arc::new(spec);
        let name = |task_id: &TaskId| TaskRef { queue: spec.queue.clone(), name: TaskName::Id(task_id.clone()) };
        if found.repair.standing.state != RepairState::Open {
            return self.replayed_before(found, &spec, old.is_ok()).await;
        }
        let replaying = Replaying { original: found.task.uid, place: found.place, by, rehearsal };
        let submission = Submission { queue_id: found.queue_id, spec: spec.clone(), replay: Some(Arc::new(replaying)) };
        let refusal = match run_atomic(self, vec![submission]).await.and_then(|answers| only(answers.into_iter().map(Ok).collect()))
        {
            Ok(accepted) if accepted.created => return Ok(accepted.task),
            // Its id is taken: by the same replay, which came first, or by a task that has nothing to do with it.
            Ok(accepted) => Refusal::TaskIdConflict {
                digest: accepted.task.digest.to_string(),
                state: accepted.task.standing.state(),
                uid: accepted.task.uid,
            },
            Err(refusal @ (Refusal::TaskIdConflict { .. } | Refusal::RepairResolved { .. })) => refusal,
            Err(refusal) => return Err(refusal.inside("spec", "replay")),
        };
        let original = TaskRef { queue: spec.queue.clone(), name: TaskName::Uid(found.task.uid) };
        let now = self.find_repair(&original).await?;
        match now.repair.standing.state {
            RepairState::Open => match refusal {
                Refusal::TaskIdConflict { digest, uid, .. } => {
                    let state = self.find(&name(&spec.task_id)).await?.1.standing.state();
                    Err(Refusal::TaskIdConflict { digest, state, uid })
                }
                other => Err(other),
            },
            _ => self.replayed_before(&now, &spec, true).await,
        }
    }

    /// The answer to a replay of what has been resolved: the same, if it was resolved by the same. `whole`: the spec has its payload.
    async fn replayed_before(&self, found: &Found, spec: &TaskSpec, whole: bool) -> Result<Task, Refusal> {
        let resolved = Refusal::RepairResolved { state: found.repair.standing.state };
        let same = found.repair.replay.as_ref().filter(|replay| replay.task_id.as_ref() == Some(&spec.task_id));
        let Some(replay) = same else { return Err(resolved) };
        let task = TaskRef { queue: spec.queue.clone(), name: TaskName::Uid(replay.uid) };
        let (_, task) = self.find(&task).await?;
        if whole && task.digest != spec.digest() { Err(resolved) } else { Ok(task) }
    }

    /// The old spec with its payload, unless a new one takes its place.
    async fn with_payload(&self, found: &Found, changes: &Changes) -> Result<TaskSpec, Refusal> {
        let mut old = TaskSpec::clone(&found.task.spec);
        if changes.payload.is_some() {
            return Ok(old);
        }
        let payloads = timed(store::payloads_of(self.db().reads(), &[found.queue_id], &[found.task.uid])).await;
        let mut payloads = payloads.map_err(|error| refusal_of(&error))?;
        old.payload = payloads.remove(&found.task.uid).unwrap_or_else(Bytes::new);
        // Whether there never was one, the digest knows.
        if old.digest() == found.task.digest { Ok(old) } else { Err(Refusal::PayloadErased) }
    }
}

/// Whether a refusal says something about the repair, and not only about this moment.
fn lasting(refusal: &Refusal) -> bool {
    !matches!(
        refusal,
        Refusal::DatabaseUnavailable
            | Refusal::Overloaded
            | Refusal::Draining
            | Refusal::CallerDeadline
            | Refusal::Bug(_)
            | Refusal::RepairResolved { .. }
    )
}

/// The refusal as the repair keeps it, after the reason that the caller was told.
fn in_words(refusal: &Refusal) -> String {
    let reason = match refusal {
        Refusal::InvalidField(_) => "INVALID_FIELD",
        Refusal::TaskIdConflict { .. } => "TASK_ID_CONFLICT",
        Refusal::SubjectStale { .. } => "SUBJECT_STALE",
        Refusal::QueueFull { .. } => "QUEUE_FULL",
        Refusal::ShareFull { .. } => "SHARE_FULL",
        Refusal::PayloadErased => "PAYLOAD_ERASED",
        _ => "REFUSED",
    };
    match refusal {
        Refusal::InvalidField(bad) => {
            let bad: Vec<String> = bad.iter().map(|BadField { path, text }| format!("{path} {text}")).collect();
            format!("{reason}: {}", bad.join("; "))
        }
        other => format!("{reason}: {other}"),
    }
}
