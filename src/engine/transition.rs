//! Heartbeat, BeginEffect, Complete and Cancel: commands on tasks that are there. Each is one item of a transition batch.

mod batch;
mod beside;
mod round;
mod tasks;

use std::time::Duration;

pub(super) use batch::{Item, Outcome, Target, run};

use uuid::Uuid;

use super::{Begun, Engine, HeartbeatCommand, Held, LeaseRef, Settled, TaskName, TaskRef, timed};
use crate::domain::limits::BATCH;
use crate::domain::record::Task;
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::report::Report;
use crate::domain::task::{Cause, Command, Reply, Standing};
use crate::store::StoreError;

type Answer = Result<Outcome, Refusal>;

/// Whether nothing can move this task, not even alone, because of what is stored of it.
pub(super) async fn at_fault(engine: &Engine, queue_id: i32, uid: Uuid) -> bool {
    let tick = Item { queue_id, target: Target::Uid(uid), command: Command::Tick };
    matches!(timed(round::carry_out(engine, &[tick], true, None)).await, Err(StoreError::Data(_)))
}

impl Engine {
    /// One answer per item, in their order.
    pub async fn heartbeat(&self, items: Vec<HeartbeatCommand>) -> Vec<Result<Held, Refusal>> {
        let command = |h: HeartbeatCommand| {
            let token = h.lease.token;
            (h.lease, Command::Heartbeat { token, span: h.span, progress: h.progress })
        };
        let answers = self.on_leases(items.into_iter().map(command).collect(), true).await;
        answers.into_iter().map(|answer| answer.and_then(|outcome| held(&outcome))).collect()
    }

    pub async fn begin_effect(&self, lease: LeaseRef, effect_ref: String, span: Option<Duration>) -> Result<Begun, Refusal> {
        let command = Command::BeginEffect { token: lease.token, effect_ref, span };
        let outcome = only(self.on_leases(vec![(lease, command)], true).await)?;
        let held = held(&outcome)?;
        Ok(Begun {
            remaining: held.remaining,
            deadline_remaining: held.deadline_remaining,
            already_applied: outcome.reply == Reply::AlreadyApplied,
        })
    }

    pub async fn complete(&self, lease: LeaseRef, report: Report) -> Result<Settled, Refusal> {
        only(self.complete_batch(vec![(lease, report)]).await)
    }

    /// One answer per report, in their order.
    pub async fn complete_batch(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<Result<Settled, Refusal>> {
        let command = |(lease, report): (LeaseRef, Report)| {
            let token = lease.token;
            (lease, Command::Report { token, report })
        };
        let answers = self.on_leases(reports.into_iter().map(command).collect(), false).await;
        let settled = |outcome: Outcome| Settled { already_applied: outcome.reply == Reply::AlreadyApplied, task: outcome.task };
        answers.into_iter().map(|answer| answer.map(settled)).collect()
    }

    pub async fn cancel(&self, task: TaskRef, reason: String) -> Result<Task, Refusal> {
        let (queue_id, target) = self.target(&task).await?;
        let command = Command::Cancel { cause: Cause::Requested, reason };
        Ok(only(self.0.transitions.call(vec![Item { queue_id, target, command }]).await?)?.task)
    }

    /// The queue and the name by which a batch finds the task.
    pub(super) async fn target(&self, task: &TaskRef) -> Result<(i32, Target), Refusal> {
        let queue_id = self.known_queue(&task.queue).await.map_err(|refusal| no_task(refusal, task))?;
        let target = match &task.name {
            TaskName::Id(id) => Target::Id(id.clone()),
            TaskName::Uid(uid) => Target::Uid(*uid),
            TaskName::Both(..) => Target::Uid(self.find(task).await?.1.uid),
        };
        Ok((queue_id, target))
    }

    /// Carries out commands under leases: together, in their order, as many to a transaction as it takes.
    async fn on_leases(&self, commands: Vec<(LeaseRef, Command)>, hold: bool) -> Vec<Answer> {
        let batcher = if hold { &self.0.holds } else { &self.0.transitions };
        let mut answers: Vec<Answer> = Vec::with_capacity(commands.len());
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let mut items = Vec::new();
            // Where each answer comes from: an item of the batch, or a refusal before it.
            let mut places: Vec<Result<(), Refusal>> = Vec::new();
            for (lease, command) in commands.by_ref().take(BATCH) {
                match self.known_queue(&lease.queue).await {
                    Ok(queue_id) => {
                        items.push(Item { queue_id, target: Target::Uid(lease.uid), command });
                        places.push(Ok(()));
                    }
                    Err(Refusal::NotFound { .. }) => {
                        places.push(Err(Refusal::NotFound { what: Missing::Task, name: lease.uid.to_string() }));
                    }
                    Err(refusal) => places.push(Err(refusal)),
                }
            }
            let count = items.len();
            let got = if items.is_empty() { Ok(Vec::new()) } else { batcher.call(items).await };
            let mut got = got.unwrap_or_else(|refusal| vec![Err(refusal); count]).into_iter();
            answers.extend(places.into_iter().map(|place| {
                place.and_then(|()| got.next().unwrap_or_else(|| Err(Refusal::Bug("a batch answered too little".into()))))
            }));
        }
        answers
    }
}

/// A queue that nobody named has no tasks: the caller asked for a task, so that is what was not found.
pub(super) fn no_task(refusal: Refusal, task: &TaskRef) -> Refusal {
    match refusal {
        Refusal::NotFound { .. } => Refusal::NotFound { what: Missing::Task, name: task.name.to_string() },
        other => other,
    }
}

pub(super) fn only<T>(answers: Vec<Result<T, Refusal>>) -> Result<T, Refusal> {
    answers.into_iter().next().unwrap_or_else(|| Err(Refusal::Bug("a batch answered nothing".into())))
}

/// What is left of a lease: lease end − the transaction's now − what passed since on our own clock.
fn held(outcome: &Outcome) -> Result<Held, Refusal> {
    let Standing::Live(live) = &outcome.task.standing else { return Err(Refusal::Bug("a held lease has no task".into())) };
    let Some(lease) = &live.lease else { return Err(Refusal::Bug("a held lease is not there".into())) };
    let passed = outcome.read.elapsed();
    Ok(Held {
        remaining: lease.expire.since(outcome.now).saturating_sub(passed),
        deadline_remaining: live.deadline.since(outcome.now).saturating_sub(passed),
        expire: lease.expire,
        stop: match &outcome.reply {
            Reply::Stop { cause, reason } => Some((*cause, reason.clone())),
            _ => None,
        },
    })
}
