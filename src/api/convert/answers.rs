//! Tasks, attempts and obstacles, out. What is not known or does not apply stays empty, as the contract's comments say.

use std::sync::Arc;

use uuid::Uuid;

use super::enums::{to_cause, to_error_class, to_obstacle, to_outcome, to_repair_state, to_stage, to_state};
use super::spec::to_spec;
use crate::api::cursor;
use crate::api::proto as pb;
use crate::api::times::to_instant;
use crate::domain::attempt::Attempt;
use crate::domain::event::Evidence;
use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::task::{Ended, LastError, Live, Notes, Progress, Standing, State};
use crate::domain::time::Timestamp;
use crate::engine::{Accepted, Obstacle, Settled};

pub fn accepted(accepted: Accepted) -> pb::SubmitResponse {
    pb::SubmitResponse {
        task: Some(task(accepted.task, false)),
        created: accepted.created,
        cursor: cursor::encode(accepted.cursor),
    }
}

pub fn settled(settled: Settled) -> pb::CompleteResponse {
    pb::CompleteResponse { task: Some(task(settled.task, false)), already_applied: settled.already_applied }
}

/// A task in BASIC or FULL view.
pub fn task(task: Task, full: bool) -> pb::Task {
    let payload_erased = full && task.payload_erased();
    let queue = task.spec.queue.clone();
    let (replay_of, replayed_by) = relatives(&task, &queue);
    let result = if full { task.result.unwrap_or_default() } else { bytes::Bytes::new() };
    let shown = pb::Task {
        uid: task.uid.to_string(),
        // A spec that nobody else holds is taken apart rather than copied.
        spec: Some(to_spec(Arc::unwrap_or_clone(task.spec), full)),
        result,
        payload_erased,
        replay_of,
        replayed_by,
        repair: task.repair.map(|repair| pb::RepairSummary {
            state: to_repair_state(repair.state) as i32,
            owner: repair.owner,
            next_action: repair.next_action,
        }),
        ..pb::Task::default()
    };
    match task.standing {
        Standing::Live(one) => live(shown, one),
        Standing::Ended(one) => ended(shown, one),
    }
}

/// The task that this one replays, and the one that replayed it.
fn relatives(task: &Task, queue: &QueueName) -> (Option<pb::TaskRef>, Option<pb::TaskRef>) {
    let older = task.spec.options.replay_of.clone();
    let newer = task.repair.as_ref().and_then(|repair| repair.replayed_by.clone());
    let older = older.map(|older| *older).map(|[task_id, uid]| pb::TaskRef { queue: queue.as_str().to_owned(), task_id, uid });
    (older, newer.map(|(task_id, uid)| task_ref(queue, task_id.unwrap_or_default(), uid)))
}

pub fn task_ref(queue: &QueueName, task_id: String, uid: Uuid) -> pb::TaskRef {
    pb::TaskRef { queue: queue.as_str().to_owned(), task_id, uid: uid.to_string() }
}

fn live(shown: pb::Task, live: Live) -> pb::Task {
    let (progress, last_error) = notes(live.notes);
    let mut shown = pb::Task {
        state: to_state(live.state) as i32,
        terminal: live.state.terminal(),
        revision: live.revision,
        attempt: live.attempt,
        attempts_charged: live.charged,
        unknown_attempts: live.unknown_attempts,
        fencing_token: live.token,
        create_time: Some(to_instant(live.accepted)),
        update_time: Some(to_instant(live.updated)),
        first_lease_time: live.first_lease.map(to_instant),
        deadline_time: Some(to_instant(live.deadline)),
        // A BLOCKED one becomes READY with its key, whatever the time.
        next_attempt_time: live.wake.filter(|_| matches!(live.state, State::Scheduled | State::RetryAt)).map(to_instant),
        progress,
        last_error,
        ..shown
    };
    if let Some(lease) = live.lease {
        shown.stage = to_stage(lease.stage) as i32;
        shown.worker_id = lease.worker;
        shown.lease_expire_time = Some(to_instant(lease.expire));
    }
    if let Some(cancel) = live.cancel {
        shown.cancel_requested = true;
        shown.cause = to_cause(cancel.cause) as i32;
        shown.reason = cancel.reason;
    }
    shown
}

fn ended(shown: pb::Task, ended: Ended) -> pb::Task {
    let (progress, last_error) = notes(ended.notes);
    // Only a completion publishes; what another end left behind is on its attempt.
    let published = if ended.state == State::Completed { ended.evidence } else { Evidence::default() };
    pb::Task {
        state: to_state(ended.state) as i32,
        terminal: ended.state.terminal(),
        cause: ended.cause.map_or(0, |cause| to_cause(cause) as i32),
        reason: ended.reason,
        revision: ended.revision,
        attempt: ended.attempt,
        attempts_charged: ended.charged,
        unknown_attempts: ended.unknown_attempts,
        fencing_token: ended.token,
        boundary: ended.boundary,
        create_time: Some(to_instant(ended.accepted)),
        update_time: Some(to_instant(ended.ended)),
        first_lease_time: ended.first_lease.map(to_instant),
        end_time: Some(to_instant(ended.ended)),
        deadline_time: Some(to_instant(ended.deadline)),
        progress,
        last_error,
        receipt_ref: published.receipt_ref.unwrap_or_default(),
        result_ref: published.result_ref.unwrap_or_default(),
        result_digest: published.result_digest.unwrap_or_default(),
        result_size: published.result_size,
        ..shown
    }
}

fn notes(notes: Notes) -> (Option<pb::Progress>, Option<pb::TaskError>) {
    (notes.progress.map(progress), notes.last_error.map(last_error))
}

pub(super) fn progress(progress: Progress) -> pb::Progress {
    // The domain says 0 for a total that nobody knows.
    pb::Progress { done: progress.done, total: Some(progress.total).filter(|total| *total > 0), note: progress.note }
}

pub fn last_error(error: LastError) -> pb::TaskError {
    pb::TaskError {
        error_class: to_error_class(error.class) as i32,
        code: error.code,
        message: error.message,
        stage: to_stage(error.stage) as i32,
        error_time: Some(to_instant(error.time)),
    }
}

pub fn attempt(attempt: Attempt) -> pb::Attempt {
    let evidence = attempt.evidence;
    let outcome = match attempt.outcome {
        Some(outcome) => to_outcome(outcome),
        None if attempt.end.is_none() => pb::Outcome::Running,
        None => pb::Outcome::Unspecified,
    };
    pb::Attempt {
        number: attempt.number,
        charged: attempt.charged,
        fencing_token: attempt.token,
        worker_id: attempt.worker,
        stage: attempt.stage.map_or(0, |stage| to_stage(stage) as i32),
        effect_ref: attempt.effect_ref.unwrap_or_default(),
        start_time: attempt.start.map(to_instant),
        effect_begun_time: attempt.effect_begun.map(to_instant),
        last_heartbeat_time: attempt.heartbeat.map(to_instant),
        end_time: attempt.end.map(to_instant),
        outcome: outcome as i32,
        error_class: evidence.error_class.map_or(0, |class| to_error_class(class) as i32),
        code: evidence.code.unwrap_or_default(),
        message: evidence.message.or(evidence.reason).unwrap_or_default(),
        receipt_ref: evidence.receipt_ref.unwrap_or_default(),
        result_ref: evidence.result_ref.unwrap_or_default(),
        result_digest: evidence.result_digest.unwrap_or_default(),
        late_reports: attempt.late.into_iter().map(late_report).collect(),
    }
}

fn late_report((time, evidence): (Timestamp, Evidence)) -> pb::LateReport {
    pb::LateReport {
        report_time: Some(to_instant(time)),
        outcome: evidence.outcome.map_or(0, |outcome| to_outcome(outcome) as i32),
        error_class: evidence.error_class.map_or(0, |class| to_error_class(class) as i32),
        code: evidence.code.unwrap_or_default(),
        effect_ref: evidence.effect_ref.unwrap_or_default(),
        receipt_ref: evidence.receipt_ref.unwrap_or_default(),
        result_ref: evidence.result_ref.unwrap_or_default(),
    }
}

/// `queue`: of the task that was asked about; what stands in its way is of the same one.
pub fn obstacle(obstacle: Obstacle, queue: &QueueName) -> pb::Obstacle {
    pb::Obstacle {
        kind: to_obstacle(obstacle.kind) as i32,
        text: obstacle.text,
        blocker: obstacle.blocker.map(|(task_id, uid)| task_ref(queue, task_id.as_str().to_owned(), uid)),
        until_time: obstacle.until.map(to_instant),
        ahead: obstacle.ahead,
    }
}
