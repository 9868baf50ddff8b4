//! A watcher and the tail, step by step in every order, at the real hub.

use std::sync::Arc;

use uuid::Uuid;

use super::Place;
use crate::domain::event::{Event, EventKind, Evidence};
use crate::domain::names::QueueName;
use crate::domain::spec::tests::spec;
use crate::domain::task::State;
use crate::domain::time::Timestamp;
use crate::engine::watch::event::TaskEvent;
use crate::engine::watch::filter::EventFilter;
use crate::engine::watch::hub::{Hub, Ring, Seat, Topic};
use crate::store::LogRow;

const EVENTS: i64 = 4;
/// Steps whose order is tried out; afterwards the tail goes first.
const STEPS: u32 = 15;
const MINE: i32 = 1;
const OTHER: i32 = 2;

/// A log, some of whose events are of the queue that is watched.
#[derive(Clone, Copy)]
struct Log {
    mine: u32,
}

impl Log {
    fn queue(self, position: i64) -> i32 {
        if self.mine >> position & 1 == 1 { MINE } else { OTHER }
    }

    fn after(self, after: i64, upto: i64) -> Vec<i64> {
        (after + 1..=upto).filter(|position| self.queue(*position) == MINE).collect()
    }

    fn row(self, position: i64) -> LogRow {
        LogRow {
            position,
            queue_id: self.queue(position),
            uid: Uuid::nil(),
            revision: position,
            time: Timestamp(0),
            kind: EventKind::Ready.as_str().into(),
            previous_state: None,
            state: State::Ready.as_str().into(),
            cause: None,
            attempt: 0,
            token: 0,
            worker: None,
            evidence: None,
        }
    }
}

fn told(row: &LogRow) -> Arc<TaskEvent> {
    let event = Event {
        kind: EventKind::Ready,
        revision: row.revision,
        previous: None,
        state: State::Ready,
        cause: None,
        attempt: 0,
        token: 0,
        worker: None,
        time: row.time,
        evidence: Evidence::default(),
    };
    Arc::new(TaskEvent {
        position: row.position,
        queue_id: row.queue_id,
        uid: row.uid,
        spec: Arc::new(spec("", "")),
        event,
        attempt: None,
        encoded: std::sync::OnceLock::new(),
    })
}

/// As `tail` does it: who is interested in the next event, and then here it is.
#[derive(Default)]
struct Tail {
    done: i64,
    asked: Option<Vec<LogRow>>,
}

impl Tail {
    fn step(&mut self, hub: &Hub, log: Log) {
        if let Some(rows) = self.asked.take() {
            self.done += 1;
            hub.pass(rows.iter().map(told).collect(), self.done);
        } else if self.done < EVENTS {
            self.asked = Some(hub.interesting(vec![log.row(self.done + 1)]).0);
        }
    }

    fn over(&self) -> bool {
        self.done == EVENTS
    }
}

/// As `Watcher` looks, each part of a look by itself.
struct Watching {
    seat: Seat,
    place: Place,
    at: At,
    seen: Vec<i64>,
    /// Looks in a row that came to nothing.
    idle: u32,
}

enum At {
    Stable,
    Mark(i64),
    Look(i64, i64),
}

impl Watching {
    fn step(&mut self, hub: &Hub, log: Log) {
        self.at = match self.at {
            At::Stable => At::Mark(hub.stable()),
            At::Mark(stable) => match self.place.next(stable, self.seat.take_mark()) {
                Some(from) => At::Look(stable, from),
                None => {
                    self.idle += 1;
                    At::Stable
                }
            },
            At::Look(stable, from) => {
                self.idle = 0;
                self.look(log, stable, from);
                At::Stable
            }
        };
    }

    fn look(&mut self, log: Log, stable: i64, from: i64) {
        match self.seat.ring_from(from, 1) {
            Ring::Has { events, more } => {
                self.place.ring_had(events.last().map(|event| event.position), more);
                self.seen.extend(events.iter().map(|event| event.position));
            }
            Ring::Lost if from > stable => self.place.not_yet(from),
            Ring::Lost => {
                self.seen.extend(log.after(from - 1, stable));
                self.place.log_had(stable);
            }
        }
    }
}

/// What a watcher sees that comes after `before` steps of the tail and goes on after its cursor, in this order of steps (a set bit: the tail's).
fn seen(log: Log, before: u32, order: u32) -> (i64, Vec<i64>) {
    let hub = Arc::new(Hub::default());
    let _attendance = hub.attend();
    hub.begin(0);
    let mut tail = Tail::default();
    (0..before).for_each(|_| tail.step(&hub, log));
    let queue = QueueName::parse("q").unwrap();
    let seat = hub.join(&queue, Topic::Queue(MINE), EventFilter::all(), 1).unwrap();
    let cursor = i64::from(order & 1).min(tail.done);
    let mut watching = Watching { seat, place: Place::after(cursor), at: At::Stable, seen: Vec::new(), idle: 0 };
    for step in 0..STEPS {
        if order >> step & 1 == 1 { tail.step(&hub, log) } else { watching.step(&hub, log) }
    }
    while !tail.over() {
        tail.step(&hub, log);
    }
    watching.idle = 0;
    while watching.idle < 2 {
        watching.step(&hub, log);
    }
    (cursor, watching.seen)
}

#[test]
fn whatever_the_order_of_their_steps_a_watcher_sees_each_event_once_and_in_its_place() {
    for mine in [0b11110, 0b10110, 0b01000] {
        let log = Log { mine };
        for before in 0..6 {
            for order in 0..1 << STEPS {
                let (cursor, seen) = seen(log, before, order);
                assert_eq!(seen, log.after(cursor, EVENTS), "mine {mine:b}, {before} steps before, then {order:b}");
            }
        }
    }
}
