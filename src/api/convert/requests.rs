//! TaskService's requests, in; and what names and picks out tasks.

use std::time::Duration;

use super::enums;
use super::spec::{Door, spec};
use crate::api::fields::{Fields, read};
use crate::api::proto as pb;
use crate::domain::limits::{ID_BYTES, SUBMIT_BATCH, WAIT};
use crate::domain::names::{FairnessKey, QueueName, TaskId};
use crate::domain::refusal::Refusal;
use crate::domain::spec::TaskSpec;
use crate::domain::task::State;
use crate::engine::{TaskFilter, TaskName, TaskRef};

pub fn submit(request: pb::SubmitRequest, door: &Door) -> Result<TaskSpec, Refusal> {
    read(|f| {
        let asked = f.required("spec", request.spec)?;
        spec(&mut f.inside("spec"), asked, door)
    })
}

/// Each spec of the batch, or why it can't be read. Atomic: one bad spec fails them all, and all that is wrong is told.
pub fn submit_batch(request: pb::SubmitBatchRequest, door: &Door) -> Result<Vec<Result<TaskSpec, Refusal>>, Refusal> {
    let specs = request.specs;
    read(|f| f.count("specs", specs.len(), 1..=SUBMIT_BATCH))?;
    let numbered = specs.into_iter().enumerate();
    if !request.atomic {
        return Ok(numbered.map(|(index, one)| read(|f| spec(&mut f.item("specs", index), one, door))).collect());
    }
    let parsed = read(|f| {
        // The whole list first: collecting straight into an Option would stop at the first bad spec.
        let parsed: Vec<_> = numbered.map(|(index, one)| spec(&mut f.item("specs", index), one, door)).collect();
        parsed.into_iter().collect::<Option<Vec<_>>>()
    })?;
    Ok(parsed.into_iter().map(Ok).collect())
}

/// A GetTask.
#[derive(Debug, PartialEq)]
pub struct Look {
    pub task: TaskRef,
    pub full: bool,
    /// The states to wait for (none: any terminal one), and how long.
    pub wait: Option<(Vec<State>, Duration)>,
}

pub fn get_task(request: pb::GetTaskRequest) -> Result<Look, Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let full = f.choice("view", request.view, enums::full_view);
        let wait = match request.wait_until {
            None => Some(None),
            Some(until) => {
                let mut f = f.inside("wait_until");
                let states = states(&mut f, until.states);
                let timeout = f.optional_span("timeout", until.timeout, Duration::ZERO..=WAIT);
                states.zip(timeout).map(|(states, timeout)| Some((states, timeout.unwrap_or(WAIT))))
            }
        };
        Some(Look { task: task?, full: full?, wait: wait? })
    })
}

/// What is asked of a list: the queue, what to pick, the page's size and token.
pub type List = (QueueName, TaskFilter, i32, String);

pub fn list_tasks(request: pb::ListTasksRequest) -> Result<List, Refusal> {
    read(|f| {
        let picked = f.required("filter", request.filter).and_then(|picked| filter(&mut f.inside("filter"), picked));
        let page = f.page(request.page_size, request.page_token);
        let ((queue, filter), (size, token)) = picked.zip(page)?;
        Some((queue, filter, size, token))
    })
}

pub fn list_attempts(request: pb::ListAttemptsRequest) -> Result<(TaskRef, i32, String), Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let page = f.page(request.page_size, request.page_token);
        let (task, (size, token)) = task.zip(page)?;
        Some((task, size, token))
    })
}

pub fn explain(request: pb::ExplainRequest) -> Result<TaskRef, Refusal> {
    read(|f| task_ref(f, request.task))
}

pub fn cancel(request: pb::CancelRequest) -> Result<(TaskRef, String), Refusal> {
    read(|f| {
        let task = task_ref(f, request.task);
        let reason = f.reason(request.reason, false);
        task.zip(reason)
    })
}

/// The field `task`.
pub fn task_ref(f: &mut Fields<'_>, task: Option<pb::TaskRef>) -> Option<TaskRef> {
    let task = f.required("task", task)?;
    let mut f = f.inside("task");
    let queue = f.name("queue", &task.queue, QueueName::parse);
    let name = match (task.task_id.as_str(), task.uid.as_str()) {
        ("", "") => {
            f.bad("task_id", "must be given, or uid");
            None
        }
        (id, "") => f.name("task_id", id, TaskId::parse).map(TaskName::Id),
        ("", uid) => f.uuid("uid", uid).map(TaskName::Uid),
        (id, uid) => {
            let id = f.name("task_id", id, TaskId::parse);
            let uid = f.uuid("uid", uid);
            id.zip(uid).map(|(id, uid)| TaskName::Both(id, uid))
        }
    };
    Some(TaskRef { queue: queue?, name: name? })
}

fn states(f: &mut Fields<'_>, states: Vec<i32>) -> Option<Vec<State>> {
    choices(f, "states", states, enums::state)
}

/// How many values of a repeated enum are told to be bad: a request has room for millions of them.
const BAD_VALUES: usize = 100;

/// The values of a repeated enum, each once.
pub fn choices<T: PartialEq>(
    f: &mut Fields<'_>, name: &'static str, values: Vec<i32>, parse: fn(i32) -> Option<T>,
) -> Option<Vec<T>> {
    let mut parsed = Vec::new();
    let mut bad = 0;
    for (index, value) in values.into_iter().enumerate() {
        match parse(value) {
            // Bounded by the number of values, however often each is named.
            Some(state) if !parsed.contains(&state) => parsed.push(state),
            Some(_) => {}
            None => {
                f.item(name, index).bad_here("has a value that this server doesn't know");
                bad += 1;
            }
        }
        if bad == BAD_VALUES {
            break;
        }
    }
    (bad == 0).then_some(parsed)
}

pub fn filter(f: &mut Fields<'_>, filter: pb::TaskFilter) -> Option<(QueueName, TaskFilter)> {
    let queue = f.name("queue", &filter.queue, QueueName::parse);
    let states = states(f, filter.states);
    let kind = f.text("kind", filter.kind, ID_BYTES);
    let target = f.text("target", filter.target, ID_BYTES);
    let subject_id = f.text("subject_id", filter.subject_id, ID_BYTES);
    let fairness_key = match filter.fairness_key {
        None => Some(None),
        Some(key) => f.name("fairness_key", &key, FairnessKey::parse).map(|_| Some(key)),
    };
    let ordering_key = f.text("ordering_key", filter.ordering_key, ID_BYTES);
    let worker_id = f.text("worker_id", filter.worker_id, ID_BYTES);
    let event_id = f.text("event_id", filter.event_id, ID_BYTES);
    let labels = f.labels("labels", filter.labels);
    let picked = TaskFilter {
        states: states?,
        kind: kind?,
        target: target?,
        subject_id: subject_id?,
        fairness_key: fairness_key?,
        ordering_key: ordering_key?,
        worker_id: worker_id?,
        event_id: event_id?,
        labels: labels?,
    };
    Some((queue?, picked))
}
