//! CancelTasks: what a filter picks is canceled, or told to stop, in short transactions.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::inspect::list_filter;
use super::transition::{Item, Target, only};
use super::{CancelTasksCommand, Engine, Met, refusal_of, timed};
use crate::domain::limits::BATCH;
use crate::domain::names::TaskId;
use crate::domain::refusal::Refusal;
use crate::domain::task::{Cause, Command, Reply, Standing};
use crate::store::{self, LiveRow};

/// How many of the tasks an answer names.
const SAMPLE: usize = 20;

/// How long a transaction should be at most: others wait for what it holds.
const LONG: Duration = Duration::from_millis(400);
/// The fewest that one takes along, however long it takes.
const FEW: usize = 50;

/// How many tasks one transaction takes along, so that none is long on this machine, as busy as it is.
pub(super) struct Stride(AtomicUsize);

impl Default for Stride {
    fn default() -> Self {
        Stride(AtomicUsize::new(BATCH / 2))
    }
}

impl Stride {
    fn length(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// So many took so long.
    fn took(&self, count: usize, time: Duration) {
        let length = self.length();
        if time > LONG {
            self.0.store((length / 2).max(FEW), Ordering::Relaxed);
        } else if time < LONG / 4 && count >= length {
            self.0.store((length * 2).min(BATCH), Ordering::Relaxed);
        }
    }
}

/// What became of tasks that were to be canceled.
#[derive(Default)]
pub(super) struct Stopped {
    pub(super) canceled: i64,
    pub(super) told: i64,
    /// Those that were canceled or told by this call.
    pub(super) uids: Vec<Uuid>,
    pub(super) ids: Vec<TaskId>,
    /// Why some could not be moved.
    pub(super) away: Option<Refusal>,
}

impl Engine {
    /// Cancels these tasks, or tells whoever runs them: one call each, so that one which can't be moved is found by halving the calls of
    /// a batch, and no transaction is longer than others can wait. What has ended meanwhile is left as it is.
    pub(super) async fn cancel_each(&self, queue_id: i32, uids: &[Uuid], cause: Cause, reason: &str) -> Stopped {
        let mut stopped = Stopped::default();
        let mut rest = uids;
        while !rest.is_empty() {
            let part;
            (part, rest) = rest.split_at(self.0.stride.length().min(rest.len()));
            let begin = Instant::now();
            let calls = part.iter().map(|&uid| {
                let command = Command::Cancel { cause, reason: reason.to_owned() };
                self.0.transitions.call(vec![Item { queue_id, target: Target::Uid(uid), command }])
            });
            let answers = futures_util::future::join_all(calls).await;
            self.0.stride.took(part.len(), begin.elapsed());
            for (uid, answer) in part.iter().zip(answers) {
                match answer.and_then(only) {
                    Ok(outcome) if outcome.reply == Reply::Applied => {
                        let told = matches!(outcome.task.standing, Standing::Live(_));
                        stopped.told += i64::from(told);
                        stopped.canceled += i64::from(!told);
                        stopped.uids.push(*uid);
                        if stopped.ids.len() < SAMPLE {
                            stopped.ids.push(outcome.task.spec.task_id.clone());
                        }
                    }
                    Ok(_) | Err(Refusal::TaskTerminal { .. } | Refusal::NotFound { .. }) => {}
                    Err(refusal) => {
                        if matches!(refusal, Refusal::Bug(_)) {
                            tracing::error!(%uid, %refusal, "a task can't be canceled");
                        }
                        stopped.away = Some(refusal);
                    }
                }
            }
        }
        stopped
    }

    /// Cancels what the filter picks, at most `max_tasks`; or says only what would happen.
    pub async fn cancel_tasks(&self, command: CancelTasksCommand) -> Result<(Met, Vec<TaskId>), Refusal> {
        let queue_id = self.known_queue(&command.queue).await?;
        let engine = self.clone();
        // In a task of its own: a caller that goes away does not stop it between two tasks of a page.
        let work = tokio::spawn(async move { engine.cancel_pages(queue_id, command).await });
        work.await.map_err(|error| Refusal::Bug(error.to_string()))?
    }

    async fn cancel_pages(&self, queue_id: i32, command: CancelTasksCommand) -> Result<(Met, Vec<TaskId>), Refusal> {
        let wanted = usize::try_from(command.max_tasks).unwrap_or(1);
        let mut filter = list_filter(queue_id, command.filter, Uuid::max(), 0);
        let (mut met, mut sample, mut done) = (Met::default(), Vec::new(), 0);
        loop {
            let room = (wanted - done).min(BATCH);
            filter.limit = i64::try_from(room).unwrap_or(i64::MAX) + 1;
            let rows = timed(store::list_untold(self.db(), &filter)).await.map_err(|error| refusal_of(&error))?;
            let more = rows.len() > room;
            let page = &rows[..room.min(rows.len())];
            let Some(last) = page.last() else { return Ok((met, sample)) };
            filter.below = last.uid;
            let (uids, ids) = if command.validate_only {
                self.would_stop(queue_id, page, &mut met).await?
            } else {
                let uids: Vec<Uuid> = page.iter().map(|row| row.uid).collect();
                let stopped = self.cancel_each(queue_id, &uids, Cause::Requested, &command.reason).await;
                met.canceled += stopped.canceled;
                met.told += stopped.told;
                if let Some(away) = stopped.away {
                    if met.canceled + met.told == 0 {
                        return Err(away);
                    }
                    // What was done is told; the rest can be asked for again.
                    met.more = true;
                }
                (stopped.uids, stopped.ids)
            };
            met.effected += timed(store::effected(self.db(), queue_id, &uids)).await.map_err(|error| refusal_of(&error))?;
            sample.extend(ids.into_iter().take(SAMPLE - sample.len()));
            done += page.len();
            if met.more || !more || done >= wanted {
                met.more |= more;
                return Ok((met, sample));
            }
        }
    }

    async fn would_stop(&self, queue_id: i32, page: &[LiveRow], met: &mut Met) -> Result<(Vec<Uuid>, Vec<TaskId>), Refusal> {
        let told = i64::try_from(page.iter().filter(|row| row.worker.is_some()).count()).unwrap_or(i64::MAX);
        met.told += told;
        met.canceled += i64::try_from(page.len()).unwrap_or(i64::MAX) - told;
        let uids: Vec<Uuid> = page.iter().map(|row| row.uid).collect();
        let some = &uids[..uids.len().min(SAMPLE)];
        let specs = timed(store::specs_by_uid(self.db().reads(), &vec![queue_id; some.len()], some)).await;
        let specs = specs.map_err(|error| refusal_of(&error))?;
        Ok((uids, specs.iter().filter_map(|row| TaskId::parse(&row.task_id).ok()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_is_as_long_as_the_machine_is_quick() {
        let stride = Stride::default();
        (0..9).for_each(|_| stride.took(stride.length(), LONG * 2));
        assert_eq!(stride.length(), FEW);
        stride.took(FEW - 1, LONG / 8);
        assert_eq!(stride.length(), FEW, "fewer than a stride prove nothing");
        (0..9).for_each(|_| stride.took(stride.length(), LONG / 8));
        assert_eq!(stride.length(), BATCH);
        stride.took(BATCH, LONG);
        assert_eq!(stride.length(), BATCH);
    }
}
