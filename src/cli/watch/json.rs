//! What a watch shows, for programs: an object a line, with the names and forms of proto's own JSON (64-bit numbers are strings). What is
//! empty is left out.

use prost_types::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::proto::watch_response::Item;
use crate::api::proto::{Attempt, Cause, ErrorClass, Outcome, Task, TaskEvent, TaskRef, WatchResponse};

pub(super) fn line(response: &WatchResponse) -> String {
    let item = response.item.as_ref().map(|item| match item {
        Item::Snapshot(task) => ("snapshot", snapshot(task)),
        Item::SnapshotDone(_) => ("snapshotDone", json!({})),
        Item::Event(event) => ("event", change(event)),
        Item::Bookmark(_) => ("bookmark", json!({})),
    });
    let mut line = told([("cursor", text(&response.cursor))]);
    line.extend(item.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(line).to_string()
}

fn snapshot(task: &Task) -> Value {
    let spec = task.spec.clone().unwrap_or_default();
    let name = TaskRef { queue: spec.queue, task_id: spec.task_id, uid: task.uid.clone() };
    Value::Object(told([
        ("task", named(&name)),
        ("state", text(task.state().as_str_name())),
        ("terminal", if task.terminal { Value::Bool(true) } else { Value::Null }),
        ("revision", long(task.revision)),
        ("cause", cause(task.cause())),
        ("attempt", number(task.attempt)),
        ("fencingToken", long(task.fencing_token)),
        ("workerId", text(&task.worker_id)),
        ("updateTime", instant(task.update_time)),
        ("nextAttemptTime", instant(task.next_attempt_time)),
        ("labels", labels(&spec.labels)),
    ]))
}

fn change(event: &TaskEvent) -> Value {
    let previous = if event.previous_state == 0 { Value::Null } else { text(event.previous_state().as_str_name()) };
    Value::Object(told([
        ("kind", text(event.kind().as_str_name())),
        ("task", event.task.as_ref().map_or(Value::Null, named)),
        ("revision", long(event.revision)),
        ("eventTime", instant(event.event_time)),
        ("previousState", previous),
        ("state", text(event.state().as_str_name())),
        ("terminal", if event.terminal { Value::Bool(true) } else { Value::Null }),
        ("cause", cause(event.cause())),
        ("attempt", number(event.attempt)),
        ("fencingToken", long(event.fencing_token)),
        ("attemptDetail", event.attempt_detail.as_ref().map_or(Value::Null, attempt)),
        ("nextAttemptTime", instant(event.next_attempt_time)),
        ("labels", labels(&event.labels)),
    ]))
}

fn attempt(attempt: &Attempt) -> Value {
    let class = attempt.error_class();
    Value::Object(told([
        ("number", number(attempt.number)),
        ("workerId", text(&attempt.worker_id)),
        ("effectRef", text(&attempt.effect_ref)),
        ("outcome", if attempt.outcome() == Outcome::Unspecified { Value::Null } else { text(attempt.outcome().as_str_name()) }),
        ("errorClass", if class == ErrorClass::Unspecified { Value::Null } else { text(class.as_str_name()) }),
        ("code", text(&attempt.code)),
        ("message", text(&attempt.message)),
        ("receiptRef", text(&attempt.receipt_ref)),
    ]))
}

fn named(task: &TaskRef) -> Value {
    Value::Object(told([("queue", text(&task.queue)), ("taskId", text(&task.task_id)), ("uid", text(&task.uid))]))
}

fn told<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn text(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { Value::from(text) }
}

fn number(number: i32) -> Value {
    if number == 0 { Value::Null } else { Value::from(number) }
}

fn long(number: i64) -> Value {
    if number == 0 { Value::Null } else { Value::from(number.to_string()) }
}

fn cause(cause: Cause) -> Value {
    if cause == Cause::Unspecified { Value::Null } else { text(cause.as_str_name()) }
}

fn instant(instant: Option<Timestamp>) -> Value {
    instant.map_or(Value::Null, |instant| Value::from(instant.to_string()))
}

fn labels(labels: &std::collections::BTreeMap<String, String>) -> Value {
    if labels.is_empty() { Value::Null } else { json!(labels) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_object_without_what_is_empty() {
        let bookmark = WatchResponse { cursor: "c1-7".into(), item: Some(Item::Bookmark(Default::default())) };
        assert_eq!(line(&bookmark), r#"{"bookmark":{},"cursor":"c1-7"}"#);
        let event = TaskEvent { kind: 1, state: 3, revision: 1, ..TaskEvent::default() };
        let shown = line(&WatchResponse { cursor: "c1-8".into(), item: Some(Item::Event(event)) });
        assert_eq!(
            shown,
            r#"{"cursor":"c1-8","event":{"kind":"TASK_EVENT_KIND_SUBMITTED","revision":"1","state":"TASK_STATE_READY"}}"#
        );
    }
}
