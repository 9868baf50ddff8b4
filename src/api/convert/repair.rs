//! RepairService, in and out.

use std::time::Duration;

use super::answers::{attempt, last_error, task, task_ref as name_of};
use super::enums;
use super::requests::{choices, filter, task_ref};
use super::spec::{subjects, to_subject};
use crate::api::fields::{Fields, read};
use crate::api::proto::{self as pb, replay_result, resolve_repair_request};
use crate::api::status::item_error;
use crate::api::times::to_instant;
use crate::domain::limits::{EVIDENCE_RETENTION, ID_BYTES, MESSAGE_BYTES, REFERENCE_BYTES, REPLAYS, REPLAYS_DEFAULT, SPREAD};
use crate::domain::names::{FairnessKey, OrderingKey, QueueName, TaskId};
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::repair::{Acted, Changes, Repair};
use crate::domain::task::State;
use crate::engine::{By, ListRepairsCommand, RepairInFull, ReplayRepairsCommand, Replayed, Resolution, TaskFilter, TaskRef};

const RATE: f64 = 1_000_000.0;

pub fn list_repairs(request: pb::ListRepairsRequest) -> Result<ListRepairsCommand, Refusal> {
    read(|f| {
        let picked = picked(f, request.filter);
        let states = choices(f, "states", request.states, enums::repair_state);
        let causes = choices(f, "causes", request.causes, enums::cause);
        let owner = request.owner.map_or(Some(None), |owner| f.text("owner", owner, ID_BYTES).map(Some));
        let min_age = f.optional_span("min_age", request.min_age, Duration::ZERO..=EVIDENCE_RETENTION);
        let page = f.page(request.page_size, request.page_token);
        let ((queue, filter), (page_size, page_token)) = picked.zip(page)?;
        Some(ListRepairsCommand {
            queue,
            filter,
            states: states?,
            causes: causes?,
            owner: owner?,
            min_age: min_age?,
            page_size,
            page_token,
        })
    })
}

pub fn get_repair(request: pb::GetRepairRequest) -> Result<TaskRef, Refusal> {
    read(|f| task_ref(f, request.task))
}

/// An AssignRepair: the task, the owner, what is next, and who says so.
pub type Assignment = (TaskRef, Option<String>, Option<String>, By);

pub fn assign_repair(request: pb::AssignRepairRequest) -> Result<Assignment, Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let owner = request.owner.map_or(Some(None), |owner| f.text("owner", owner, ID_BYTES).map(Some));
        let next = request.next_action.map_or(Some(None), |next| f.prose("next_action", next, MESSAGE_BYTES).map(Some));
        if let (Some(None), Some(None)) = (&owner, &next) {
            f.bad("owner", "must be given, or next_action");
        }
        let by = by(f, request.actor, request.reason);
        Some((task?, owner?, next?, by?))
    })
}

/// `payload_bytes`: the most that a payload may be.
pub fn resolve_repair(request: pb::ResolveRepairRequest, payload_bytes: usize) -> Result<(TaskRef, Resolution, By), Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let resolution = match f.required("resolution", request.resolution) {
            None => None,
            Some(resolve_repair_request::Resolution::Discard(pb::Discard {})) => Some(Resolution::Discard),
            Some(resolve_repair_request::Resolution::Confirm(confirm)) => {
                let receipt_ref = f.inside("confirm").some_text("receipt_ref", confirm.receipt_ref, REFERENCE_BYTES);
                receipt_ref.map(|receipt_ref| Resolution::Confirm { receipt_ref })
            }
            Some(resolve_repair_request::Resolution::Replay(replay)) => {
                changes(&mut f.inside("replay"), replay, payload_bytes).map(Resolution::Replay)
            }
        };
        let by = by(f, request.actor, request.reason);
        Some((task?, resolution?, by?))
    })
}

fn changes(f: &mut Fields<'_>, replay: pb::Replay, payload_bytes: usize) -> Option<Changes> {
    let new_task_id = f.optional_name("new_task_id", &replay.new_task_id, TaskId::parse);
    let payload = replay.payload.map_or(Some(None), |payload| f.bytes("payload", payload, payload_bytes).map(Some));
    let subjects = subjects(f, replay.subjects);
    let share = replay.fairness_key.map_or(Some(None), |key| f.name("fairness_key", &key, FairnessKey::parse).map(Some));
    let key = replay.ordering_key;
    let key = key.map_or(Some(None), |key| f.optional_name("ordering_key", &key, OrderingKey::parse).map(Some));
    let labels = f.labels("labels", replay.labels);
    Some(Changes {
        new_task_id: new_task_id?,
        payload: payload?,
        subjects: subjects?,
        fairness_key: share?,
        ordering_key: key?,
        labels: labels?,
    })
}

pub fn replay_repairs(request: pb::ReplayRepairsRequest) -> Result<ReplayRepairsCommand, Refusal> {
    read(|f| {
        let picked = picked(f, request.filter);
        let causes = choices(f, "causes", request.causes, enums::cause);
        let max_tasks = f.number("max_tasks", request.max_tasks.unwrap_or(REPLAYS_DEFAULT), 1..=REPLAYS);
        let rate = f.optional_number("rate", request.rate, f64::MIN_POSITIVE..=RATE);
        if let (Some(count), Some(Some(rate))) = (max_tasks, rate)
            && f64::from(count - 1) / rate > SPREAD.as_secs_f64()
        {
            f.bad("rate", "would spread max_tasks starts over more than 30 days");
        }
        let by = by(f, request.actor, request.reason);
        let (queue, filter) = picked?;
        Some(ReplayRepairsCommand {
            queue,
            filter,
            causes: causes?,
            max_tasks: max_tasks?,
            rate: rate?,
            validate_only: request.validate_only,
            by: by?,
        })
    })
}

fn picked(f: &mut Fields<'_>, asked: Option<pb::TaskFilter>) -> Option<(QueueName, TaskFilter)> {
    let asked = f.required("filter", asked)?;
    let mut f = f.inside("filter");
    let (queue, picked) = filter(&mut f, asked)?;
    if picked.states.iter().any(|state| *state != State::RepairRequired) {
        f.bad("states", "may only name TASK_STATE_REPAIR_REQUIRED here");
    }
    Some((queue, picked))
}

fn by(f: &mut Fields<'_>, actor: String, reason: String) -> Option<By> {
    let actor = f.text("actor", actor, ID_BYTES);
    let reason = f.reason(reason, true);
    Some(By { actor: actor?, reason: reason? })
}

pub fn to_repair(repair: Repair) -> pb::Repair {
    let name = |task_id: String, uid| name_of(&repair.queue, task_id, uid);
    let last = repair.notes.last_error;
    let last_time = last.as_ref().map(|error| error.time);
    let replay = repair.replay.as_ref();
    pb::Repair {
        task: Some(name(repair.task_id.as_str().to_owned(), repair.uid)),
        state: enums::to_repair_state(repair.standing.state) as i32,
        cause: enums::to_cause(repair.cause) as i32,
        stage: last.as_ref().map_or(0, |error| enums::to_stage(error.stage) as i32),
        first_error_time: repair.notes.first_error.or(last_time).map(to_instant),
        last_error_time: last_time.map(to_instant),
        last_error: last.map(last_error),
        known_attempt_count: repair.attempts - repair.unknown_attempts,
        unknown_attempt_count: repair.unknown_attempts,
        owner: repair.standing.owner,
        next_action: repair.standing.next_action,
        kind: repair.kind,
        target: repair.target,
        event_id: repair.event_id,
        subjects: repair.subjects.into_iter().map(to_subject).collect(),
        fairness_key: repair.fairness_key.as_str().to_owned(),
        ordering_key: repair.ordering_key.as_ref().map_or_else(String::new, |key| key.as_str().to_owned()),
        holds_key: repair.holds_key,
        create_time: Some(to_instant(repair.opened)),
        update_time: Some(to_instant(repair.updated)),
        resolve_time: repair.resolved.map(to_instant),
        resolved_by: repair.resolved_by,
        reason: repair.reason,
        receipt_ref: repair.standing.receipt_ref,
        replayed_by: replay.map(|new| name(new.task_id.as_ref().map_or("", |id| id.as_str()).to_owned(), new.uid)),
        replay_state: replay.and_then(|new| new.state).map_or(0, |state| enums::to_state(state) as i32),
        replay_cause: replay.and_then(|new| new.cause).map_or(0, |cause| enums::to_cause(cause) as i32),
        replay_end_time: replay.and_then(|new| new.ended).map(to_instant),
        last_refusal: repair.standing.last_refusal,
        ..pb::Repair::default()
    }
}

pub fn in_full(found: RepairInFull) -> pb::Repair {
    pb::Repair {
        known_attempts: found.known.into_iter().map(attempt).collect(),
        unknown_attempts: found.unknown.into_iter().map(attempt).collect(),
        actions: found.actions.into_iter().map(action).collect(),
        ..to_repair(found.repair)
    }
}

fn action(acted: Acted) -> pb::RepairAction {
    pb::RepairAction {
        kind: enums::to_action_kind(acted.kind) as i32,
        action_time: Some(to_instant(acted.time)),
        actor: acted.actor,
        reason: acted.reason,
        detail: acted.detail,
    }
}

pub fn resolved((repair, replayed): (Repair, Option<Task>)) -> pb::ResolveRepairResponse {
    pb::ResolveRepairResponse { repair: Some(to_repair(repair)), replayed_task: replayed.map(|new| task(new, false)) }
}

/// `rehearsed`: nothing was made, so the new tasks have no uid.
pub fn replayed(replayed: Replayed, queue: &QueueName, rehearsed: bool) -> pb::ReplayRepairsResponse {
    let mut answer = pb::ReplayRepairsResponse { more: replayed.more, ..pb::ReplayRepairsResponse::default() };
    for (task_id, uid, done) in replayed.results {
        let result = match done {
            Ok(new) => {
                answer.replayed_count += 1;
                let name = name_of(queue, new.spec.task_id.as_str().to_owned(), new.uid);
                let uid = if rehearsed { String::new() } else { name.uid };
                replay_result::Result::Replayed(pb::TaskRef { uid, ..name })
            }
            Err(refusal) => {
                answer.refused_count += 1;
                replay_result::Result::Error(item_error(refusal))
            }
        };
        let task = Some(name_of(queue, task_id.as_str().to_owned(), uid));
        answer.results.push(pb::ReplayResult { task, result: Some(result) });
    }
    answer
}

#[cfg(test)]
mod tests;
