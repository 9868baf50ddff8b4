//! What a watch shows, for people: a line a change, and nothing of what only programs need.

use prost_types::Timestamp;

use crate::api::proto::watch_response::Item;
use crate::api::proto::{Cause, Task, TaskEvent, TaskEventKind, TaskState, WatchResponse};

/// Absent: nothing that a person would want to read.
pub(super) fn line(response: &WatchResponse) -> Option<String> {
    match response.item.as_ref()? {
        Item::Snapshot(task) => Some(snapshot(task)),
        Item::Event(event) => Some(change(event)),
        Item::SnapshotDone(_) | Item::Bookmark(_) => None,
    }
}

fn snapshot(task: &Task) -> String {
    let id = task.spec.as_ref().map_or("", |spec| &spec.task_id);
    let parts = [attempt(task.attempt, task.fencing_token, &task.worker_id), cause(task.cause())];
    row(task.update_time, id, state(task.state()), &parts)
}

fn change(event: &TaskEvent) -> String {
    let id = event.task.as_ref().map_or("", |task| &task.task_id);
    let what = match event.kind() {
        TaskEventKind::Submitted => format!("{} ← new", state(event.state())),
        _ if event.state == event.previous_state => format!("{} · {}", state(event.state()), kind(event.kind())),
        _ => format!("{} ← {}", state(event.state()), state(event.previous_state())),
    };
    let worker = event.attempt_detail.as_ref().map_or("", |attempt| &attempt.worker_id);
    let code = event.attempt_detail.as_ref().filter(|_| event.kind() != TaskEventKind::LateReport);
    let code = code.map(|attempt| attempt.code.clone()).unwrap_or_default();
    row(event.event_time, id, &what, &[attempt(event.attempt, event.fencing_token, worker), cause(event.cause()), code])
}

fn row(time: Option<Timestamp>, id: &str, what: &str, parts: &[String]) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    format!("{}  {id:<26}  {what:<24}  {}", clock(time), parts.join("  ")).trim_end().to_owned()
}

/// The time of day, in UTC.
fn clock(time: Option<Timestamp>) -> String {
    let time = time.unwrap_or_default();
    let of_day = time.seconds.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}.{:03}", of_day / 3_600, of_day / 60 % 60, of_day % 60, time.nanos / 1_000_000)
}

fn attempt(number: i32, token: i64, worker: &str) -> String {
    if number == 0 { String::new() } else { format!("attempt {number}  token {token}  {worker}").trim_end().to_owned() }
}

fn state(state: TaskState) -> &'static str {
    state.as_str_name().trim_start_matches("TASK_STATE_")
}

fn kind(kind: TaskEventKind) -> &'static str {
    kind.as_str_name().trim_start_matches("TASK_EVENT_KIND_")
}

fn cause(cause: Cause) -> String {
    if cause == Cause::Unspecified { String::new() } else { cause.as_str_name().trim_start_matches("CAUSE_").to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::proto::{Attempt, TaskRef};

    #[test]
    fn a_change_is_one_line_with_what_changed_and_why() {
        let event = TaskEvent {
            kind: TaskEventKind::RetryPlanned as i32,
            task: Some(TaskRef { task_id: "m-9:v1".into(), ..TaskRef::default() }),
            event_time: Some(Timestamp { seconds: 86_400 + 3_661, nanos: 5_000_000 }),
            previous_state: TaskState::Leased as i32,
            state: TaskState::RetryAt as i32,
            attempt: 1,
            fencing_token: 41,
            attempt_detail: Some(Attempt { worker_id: "w1".into(), code: "LEASE_EXPIRED".into(), ..Attempt::default() }),
            ..TaskEvent::default()
        };
        let response = |item| WatchResponse { cursor: String::new(), item: Some(item) };
        let shown = line(&response(Item::Event(event.clone()))).unwrap();
        assert_eq!(
            shown,
            "01:01:01.005  m-9:v1                      RETRY_AT ← LEASED         attempt 1  token 41  w1  LEASE_EXPIRED"
        );
        let begun = TaskEvent { kind: TaskEventKind::EffectBegun as i32, previous_state: event.state, ..event };
        assert!(line(&response(Item::Event(begun))).unwrap().contains("RETRY_AT · EFFECT_BEGUN"));
        assert_eq!(line(&response(Item::Bookmark(Default::default()))), None);
    }
}
