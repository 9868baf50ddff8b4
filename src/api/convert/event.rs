//! What a watch shows, out; and what it is asked, in.

use std::time::Duration;

use super::answers::{attempt, progress};
use super::enums::{to_cause, to_event_kind, to_state};
use super::requests::{filter, task_ref};
use crate::api::cursor;
use crate::api::fields::{Fields, read};
use crate::api::proto::{self as pb, watch_response::Item};
use crate::api::times::to_instant;
use crate::domain::event::{Event, EventKind};
use crate::domain::limits::{BOOKMARK_DEFAULT, BOOKMARK_MAX, BOOKMARK_MIN, REFERENCE_BYTES};
use crate::domain::refusal::Refusal;
use crate::domain::task::State;
use crate::engine::{Begin, TaskEvent, WatchCommand, Watched};

pub fn watch(request: pb::WatchRequest) -> Result<WatchCommand, Refusal> {
    read(|f| {
        let until_terminal = request.until_terminal;
        if until_terminal && request.filter.is_some() {
            f.bad("until_terminal", "goes only with `task`");
        }
        let begin = begin(f, request.start, request.after_cursor);
        let bookmark_interval = f.optional_span("bookmark_interval", request.bookmark_interval, BOOKMARK_MIN..=BOOKMARK_MAX);
        let watched = match (request.filter, request.task) {
            (Some(picked), None) => filter(&mut f.inside("filter"), picked).map(|(queue, picked)| Watched::Tasks(queue, picked)),
            (None, Some(task)) => task_ref(f, Some(task)).map(Watched::Task),
            (Some(_), Some(_)) => {
                f.bad("task", "can't be given beside `filter`");
                None
            }
            (None, None) => {
                f.bad("filter", "must be given, or task");
                None
            }
        };
        let bookmark_interval: Duration = bookmark_interval?.unwrap_or(BOOKMARK_DEFAULT);
        Some(WatchCommand { watched: watched?, begin: begin?, until_terminal, bookmark_interval })
    })
}

fn begin(f: &mut Fields<'_>, start: i32, after_cursor: String) -> Option<Begin> {
    let start = f.choice("start", start, |value| pb::WatchStart::try_from(value).ok());
    if after_cursor.is_empty() {
        return Some(if start? == pb::WatchStart::Now { Begin::Now } else { Begin::Snapshot });
    }
    let text = f.text("after_cursor", after_cursor, REFERENCE_BYTES)?;
    let position = cursor::decode(&text);
    if position.is_none() {
        f.bad("after_cursor", "is not a cursor that this service gave");
    }
    if start? == pb::WatchStart::Now {
        f.bad("start", "can't be NOW beside `after_cursor`");
    }
    position.map(Begin::After)
}

/// An event with its cursor, as every watcher of it is told.
pub fn event(event: &TaskEvent) -> pb::WatchResponse {
    let told = &event.event;
    let evidence = &told.evidence;
    let waits = matches!(told.state, State::Scheduled | State::RetryAt);
    let shown = pb::TaskEvent {
        kind: to_event_kind(told.kind) as i32,
        task: Some(pb::TaskRef {
            queue: event.spec.queue.to_string(),
            task_id: event.spec.task_id.to_string(),
            uid: event.uid.to_string(),
        }),
        revision: told.revision,
        event_time: Some(to_instant(told.time)),
        previous_state: told.previous.map_or(0, |state| to_state(state) as i32),
        state: to_state(told.state) as i32,
        terminal: told.state.terminal(),
        cause: told.cause.map_or(0, |cause| to_cause(cause) as i32),
        attempt: told.attempt,
        fencing_token: if told.attempt > 0 { told.token } else { 0 },
        attempt_detail: event.attempt.clone().map(attempt),
        receipt: (told.kind == EventKind::Receipt).then(|| receipt(told)),
        progress: evidence.progress.clone().map(progress),
        next_attempt_time: evidence.next_attempt_time.filter(|_| waits).map(to_instant),
        labels: event.spec.labels.clone(),
    };
    at(event.position, Item::Event(shown))
}

fn receipt(told: &Event) -> pb::Receipt {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let evidence = &told.evidence;
    pb::Receipt {
        kind: text(&evidence.receipt_kind),
        receipt_ref: text(&evidence.receipt_ref),
        effect_ref: text(&evidence.effect_ref),
        occur_time: evidence.occur_time.map(to_instant),
        record_time: Some(to_instant(told.time)),
    }
}

/// An item after which everything up to `position` has been delivered.
pub fn at(position: i64, item: Item) -> pb::WatchResponse {
    pb::WatchResponse { cursor: cursor::encode(position), item: Some(item) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(request: pb::WatchRequest) -> Vec<String> {
        match watch(request) {
            Err(Refusal::InvalidField(bad)) => bad.into_iter().map(|field| field.path).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn task() -> Option<pb::TaskRef> {
        Some(pb::TaskRef { queue: "q".into(), task_id: "t".into(), uid: String::new() })
    }

    fn picked() -> Option<pb::TaskFilter> {
        Some(pb::TaskFilter { queue: "q".into(), ..pb::TaskFilter::default() })
    }

    fn span(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    #[test]
    fn a_watch_is_of_a_filter_or_a_task_and_only_a_task_can_end_it() {
        assert_eq!(bad(pb::WatchRequest::default()), ["filter"]);
        assert_eq!(bad(pb::WatchRequest { task: task(), filter: picked(), ..pb::WatchRequest::default() }), ["task"]);
        let ending = pb::WatchRequest { filter: picked(), until_terminal: true, ..pb::WatchRequest::default() };
        assert_eq!(bad(ending), ["until_terminal"]);
        let command = watch(pb::WatchRequest { task: task(), until_terminal: true, ..pb::WatchRequest::default() }).unwrap();
        assert_eq!((command.begin, command.bookmark_interval), (Begin::Snapshot, BOOKMARK_DEFAULT));
    }

    #[test]
    fn cursors_starts_and_intervals_are_read_at_the_door() {
        let request = pb::WatchRequest { task: task(), ..pb::WatchRequest::default() };
        let after = |after_cursor: &str| pb::WatchRequest { after_cursor: after_cursor.into(), ..request.clone() };
        assert_eq!(watch(after("c1-7")).unwrap().begin, Begin::After(7));
        for rubbish in ["7", "c1-", "c1--1", "\0", &"c".repeat(REFERENCE_BYTES + 1)] {
            assert_eq!(bad(after(rubbish)), ["after_cursor"], "{rubbish:?}");
        }
        let now = pb::WatchStart::Now as i32;
        assert_eq!(watch(pb::WatchRequest { start: now, ..request.clone() }).unwrap().begin, Begin::Now);
        assert_eq!(bad(pb::WatchRequest { start: now, ..after("c1-7") }), ["start"]);
        assert_eq!(bad(pb::WatchRequest { start: 9, ..request.clone() }), ["start"]);
        for seconds in [0, 61, -1] {
            assert_eq!(bad(pb::WatchRequest { bookmark_interval: span(seconds), ..request.clone() }), ["bookmark_interval"]);
        }
        let command = watch(pb::WatchRequest { bookmark_interval: span(1), ..request }).unwrap();
        assert_eq!(command.bookmark_interval, Duration::from_secs(1));
    }
}
