//! Events as watchers are told of them: with the task they are of, and what its attempt had come to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use uuid::Uuid;

use super::filter::EventFilter;
use crate::domain::attempt::{self, Attempt};
use crate::domain::event::{Event, EventKind};
use crate::domain::names::QueueName;
use crate::domain::spec::TaskSpec;
use crate::store::{self, AttemptAt, Db, LogRow, StoreError};

/// How far back the beginning of an attempt is looked for in its task's log. Heartbeats leave no events, so this is far; only a late report
/// can be of an attempt long past.
const ATTEMPT_EVENTS: i64 = 64;

/// One event of the log.
#[derive(Debug)]
pub struct TaskEvent {
    pub position: i64,
    pub queue_id: i32,
    pub uid: Uuid,
    /// Without its payload.
    pub spec: Arc<TaskSpec>,
    pub event: Event,
    /// The attempt after the event, where it concerns one.
    pub attempt: Option<Attempt>,
    /// What the edge makes of it, once for all who watch.
    pub(super) encoded: OnceLock<Bytes>,
}

impl TaskEvent {
    /// The event as the edge writes it, written at the first call.
    pub fn encoded(&self, write: impl FnOnce(&TaskEvent) -> Bytes) -> Bytes {
        self.encoded.get_or_init(|| write(self)).clone()
    }

    /// Roughly what it takes in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let evidence = &self.event.evidence;
        2 * (self.spec.weight() + text(&evidence.message) + text(&evidence.reason) + text(&evidence.result_ref))
    }
}

/// Makes events of rows; those that the filter leaves out, and those whose task is forgotten, are not among them. `name`: a queue's name by
/// its number; a row of a queue without a name is left out.
pub(super) async fn events<'a>(
    db: &Db, rows: Vec<LogRow>, name: impl Fn(i32) -> Option<&'a QueueName>, filter: &EventFilter,
) -> Result<Vec<Arc<TaskEvent>>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let of: BTreeMap<Uuid, i32> = rows.iter().map(|row| (row.uid, row.queue_id)).collect();
    let (uids, queues): (Vec<Uuid>, Vec<i32>) = of.into_iter().unzip();
    let mut specs: HashMap<Uuid, Arc<TaskSpec>> = HashMap::with_capacity(uids.len());
    for row in store::specs_by_uid(db.reads(), &queues, &uids).await? {
        if let Some(name) = name(row.queue_id) {
            specs.insert(row.uid, row.spec(name)?.0);
        }
    }
    let mut told = Vec::with_capacity(rows.len());
    for row in rows {
        let (position, queue_id, uid) = (row.position, row.queue_id, row.uid);
        let Some(spec) = specs.get(&uid).cloned() else { continue };
        let event = match row.event() {
            Ok(event) => event,
            Err(error) => {
                // A newer version's. Whoever waited for it would wait for ever.
                tracing::error!(position, error = %error.describe(), "an event can't be read and is passed over");
                continue;
            }
        };
        if filter.passes(&spec, &event) {
            told.push(TaskEvent { position, queue_id, uid, spec, event, attempt: None, encoded: OnceLock::new() });
        }
    }
    add_attempts(db, &mut told).await?;
    Ok(told.into_iter().map(Arc::new).collect())
}

async fn add_attempts(db: &Db, events: &mut [TaskEvent]) -> Result<(), StoreError> {
    let concerned = |event: &TaskEvent| {
        use EventKind::{EffectBegun, Ended, LateReport, Leased, Released, RetryPlanned};
        event.event.attempt > 0 && matches!(event.event.kind, Leased | EffectBegun | RetryPlanned | Released | LateReport | Ended)
    };
    let indices: Vec<usize> = (0..events.len()).filter(|&index| concerned(&events[index])).collect();
    if indices.is_empty() {
        return Ok(());
    }
    let at = |&index: &usize| {
        let TaskEvent { queue_id, uid, event, .. } = &events[index];
        let depth = if event.kind == EventKind::LateReport { i64::MAX } else { ATTEMPT_EVENTS };
        AttemptAt { queue_id: *queue_id, uid: *uid, attempt: event.attempt, revision: event.revision, depth }
    };
    let of: Vec<AttemptAt> = indices.iter().map(at).collect();
    let logs = store::log_attempts(db, &of).await?;
    for (index, log) in logs {
        let event = &mut events[indices[index]];
        event.attempt = attempt::fold(&log).into_iter().find(|attempt| attempt.number == event.event.attempt);
    }
    Ok(())
}
