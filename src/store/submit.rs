//! Statements of the submit transaction.

use std::collections::HashMap;

use serde_json::Value;
use uuid::Uuid;

use super::columns::Place;
use super::rows::documents;
use super::{StoreError, Tx};
use crate::domain::event::Event;
use crate::domain::spec::{Digest, TaskSpec};
use crate::domain::task::{Live, State};

/// A task that somebody wants to submit; its uid is used only if its id is free.
pub struct NewTask<'a> {
    pub queue_id: i32,
    pub uid: Uuid,
    pub digest: Digest,
    pub spec: &'a TaskSpec,
}

/// Takes the ids that are free and returns the uids of the tasks that got theirs.
pub async fn insert_tasks(tx: &mut Tx, tasks: &[NewTask<'_>]) -> Result<Vec<Uuid>, StoreError> {
    fn text<'a>(tasks: &'a [NewTask<'a>], part: impl Fn(&'a TaskSpec) -> &'a str) -> Vec<&'a str> {
        tasks.iter().map(|task| part(task.spec)).collect()
    }
    let queues: Vec<i32> = tasks.iter().map(|task| task.queue_id).collect();
    let uids: Vec<Uuid> = tasks.iter().map(|task| task.uid).collect();
    let costs: Vec<i32> = tasks.iter().map(|task| task.spec.cost).collect();
    let priorities: Vec<i16> = tasks.iter().map(|task| i16::try_from(task.spec.priority).unwrap_or(0)).collect();
    let digests: Vec<&[u8]> = tasks.iter().map(|task| task.digest.0.as_slice()).collect();
    let (mut subjects, mut labels, mut options) = (Vec::new(), Vec::new(), Vec::new());
    for task in tasks {
        let (of_subjects, of_labels, of_options): (Option<Value>, Option<Value>, Option<Value>) = documents(task.spec);
        subjects.push(of_subjects);
        labels.push(of_labels);
        options.push(of_options);
    }
    let rows = sqlx::query_file!(
        "src/store/sql/submit_tasks.sql",
        &queues,
        &uids,
        &text(tasks, |s| s.task_id.as_str()) as _,
        &text(tasks, |s| &s.kind) as _,
        &text(tasks, |s| &s.content_type) as _,
        &text(tasks, |s| &s.target) as _,
        &text(tasks, |s| &s.event_id) as _,
        &text(tasks, |s| s.fairness_key.as_str()) as _,
        &text(tasks, |s| s.ordering_key.as_ref().map_or("", |key| key.as_str())) as _,
        &costs,
        &priorities,
        &subjects as _,
        &labels as _,
        &options as _,
        &digests as _,
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(rows.into_iter().map(|row| row.uid).collect())
}

/// The share of a new task.
#[derive(Clone, Copy, Debug)]
pub struct NewTasksShare {
    pub share_id: i32,
    /// Whether claims know that it may have READY tasks.
    pub awake: bool,
    /// How many unfinished tasks its queue and it may have.
    pub queue_limit: Option<i32>,
    pub share_limit: Option<i32>,
}

/// The shares of new tasks, by queue and fairness key. Makes those that are not there, and holds them all: none is put to sleep or
/// removed before this transaction ends.
pub async fn shares_for(
    tx: &mut Tx, queues: &[i32], fairness_keys: &[String],
) -> Result<HashMap<(i32, String), NewTasksShare>, StoreError> {
    loop {
        let rows = sqlx::query_file!("src/store/sql/shares_lock.sql", queues, fairness_keys).fetch_all(tx.connection()).await?;
        if rows.len() == queues.len() {
            let shares = rows.into_iter().map(|r| {
                let share = NewTasksShare {
                    share_id: r.share_id,
                    awake: r.ready,
                    queue_limit: r.max_unfinished,
                    share_limit: r.share_max_unfinished,
                };
                ((r.queue_id, r.fairness_key), share)
            });
            return Ok(shares.collect());
        }
        sqlx::query_file!("src/store/sql/shares_make.sql", queues, fairness_keys).execute(tx.connection()).await?;
    }
}

/// A task that was accepted, ready to be written.
pub struct AcceptedTask<'a> {
    pub place: Place,
    /// Position of its first event: its place, unless it is a replay that takes the old task's.
    pub first: i64,
    pub spec: &'a TaskSpec,
    pub live: &'a Live,
    pub event: &'a Event,
}

/// Writes accepted tasks: live rows, payloads, subjects and first events.
pub async fn insert_accepted(tx: &mut Tx, tasks: &[AcceptedTask<'_>]) -> Result<(), StoreError> {
    macro_rules! column {
        ($task:ident => $value:expr) => {
            tasks.iter().map(|$task| $value).collect::<Vec<_>>()
        };
    }
    let with_payload: Vec<_> = tasks.iter().filter(|task| !task.spec.payload.is_empty()).collect();
    let subjects: Vec<_> = tasks.iter().flat_map(|task| task.spec.subjects.iter().map(move |subject| (task, subject))).collect();
    let evidence: Vec<Option<Value>> = column!(t => (!t.event.evidence.is_empty()).then(|| serde_json::json!(t.event.evidence)));
    sqlx::query_file!(
        "src/store/sql/submit_live.sql",
        &column!(t => t.place.queue_id),
        &column!(t => t.place.uid),
        &column!(t => t.place.share_id),
        &column!(t => t.place.key_id) as _,
        &column!(t => t.place.position),
        &column!(t => t.live.state.as_str()) as _,
        &column!(t => t.live.max_attempts),
        &column!(t => t.live.rank),
        &column!(t => t.spec.cost),
        &column!(t => i32::try_from(t.spec.payload.len() + t.spec.weight()).unwrap_or(i32::MAX)),
        &column!(t => t.live.wake) as _,
        &column!(t => t.live.deadline) as _,
        &column!(t => t.live.due()) as _,
        &column!(t => t.live.accepted) as _,
        &with_payload.iter().map(|t| t.place.queue_id).collect::<Vec<_>>(),
        &with_payload.iter().map(|t| t.place.uid).collect::<Vec<_>>(),
        &with_payload.iter().map(|t| &t.spec.payload[..]).collect::<Vec<_>>() as _,
        &subjects.iter().map(|(t, _)| t.place.queue_id).collect::<Vec<_>>(),
        &subjects.iter().map(|(_, s)| s.id.as_str()).collect::<Vec<_>>() as _,
        &subjects.iter().map(|(t, _)| t.place.uid).collect::<Vec<_>>(),
        &subjects.iter().map(|(_, s)| s.version).collect::<Vec<_>>(),
        &evidence as _,
        &column!(t => t.first),
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

impl AcceptedTask<'_> {
    pub fn ready(&self) -> bool {
        self.live.state == State::Ready
    }
}
