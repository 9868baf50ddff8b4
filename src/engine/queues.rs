//! Queues: their names and numbers (which never change within one database and so may be remembered), and their policies (which change under the
//! queue's gate, so that no claim straddles a change).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use uuid::Uuid;

use super::{Engine, Page, PutQueueCommand, Queue, refusal_of, timed};
use crate::domain::limits::BATCH;
use crate::domain::names::QueueName;
use crate::domain::queue::{Edit, OnRepair};
use crate::domain::refusal::{Missing, Refusal};
use crate::store::{self, QueueRow, StoreError};

/// The numbers of queues. A new connection may lead to a database that has lost some of them, so all are forgotten then.
#[derive(Default)]
pub struct Queues(RwLock<Numbers>);

#[derive(Default)]
struct Numbers {
    /// How many connections had been made when the first of these was read.
    connections: u64,
    by_name: HashMap<QueueName, i32>,
}

impl Queues {
    fn recall(&self, name: &QueueName, connections: u64) -> Option<i32> {
        let numbers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        numbers.by_name.get(name).copied().filter(|_| numbers.connections == connections)
    }

    /// `connections`: how many had been made before the number was read.
    fn remember(&self, name: &QueueName, number: i32, connections: u64) {
        let mut numbers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if numbers.connections < connections {
            *numbers = Numbers { connections, by_name: HashMap::new() };
        }
        if numbers.connections == connections {
            numbers.by_name.insert(name.clone(), number);
        }
    }
}

/// How long PutQueue waits for the keys that it let go of before it answers; the rest of them go in the background.
const LETTING_GO: Duration = Duration::from_secs(2);

/// What a change of policy did.
struct Changed {
    queue: Queue,
    queue_id: i32,
    created: bool,
    /// What was held back may run now.
    freed: bool,
}

impl Engine {
    /// The queue's number; NOT_FOUND if nobody has named it yet. For reads.
    pub(super) async fn known_queue(&self, name: &QueueName) -> Result<i32, Refusal> {
        let connections = self.db().connections_made();
        if let Some(number) = self.0.queues.recall(name, connections) {
            return Ok(number);
        }
        let row = timed(store::find_queue(self.db().reads(), name)).await.map_err(|e| refusal_of(&e))?;
        let row = row.ok_or_else(|| Refusal::NotFound { what: Missing::Queue, name: name.to_string() })?;
        self.0.queues.remember(name, row.queue_id, connections);
        Ok(row.queue_id)
    }

    /// The queue's number; the first Submit or Claim that names it makes it.
    pub(super) async fn named_queue(&self, name: &QueueName) -> Result<i32, Refusal> {
        match self.known_queue(name).await {
            Err(Refusal::NotFound { .. }) => {
                timed(store::create_queue(self.db().reads(), name)).await.map_err(|e| refusal_of(&e))?;
                self.known_queue(name).await
            }
            other => other,
        }
    }

    pub async fn get_queue(&self, name: QueueName) -> Result<Queue, Refusal> {
        let row = timed(store::find_queue(self.db().reads(), &name)).await.map_err(|e| refusal_of(&e))?;
        let row = row.ok_or_else(|| Refusal::NotFound { what: Missing::Queue, name: name.to_string() })?;
        Ok(queue(name, row))
    }

    /// A page of queues, by name; the token is the last name of the page before.
    pub async fn list_queues(&self, page_size: i32, page_token: String) -> Result<Page<Queue>, Refusal> {
        let rows =
            timed(store::page_of_queues(self.db(), &page_token, i64::from(page_size) + 1)).await.map_err(|e| refusal_of(&e))?;
        let wanted = usize::try_from(page_size).unwrap_or(1);
        let more = rows.len() > wanted;
        let mut items = Vec::with_capacity(wanted);
        for row in rows.into_iter().take(wanted) {
            let name = QueueName::parse(&row.name).map_err(|e| Refusal::Bug(format!("queue {}: {e}", row.queue_id)))?;
            items.push(queue(name, row));
        }
        let next = items.last().filter(|_| more).map(|queue| queue.name.to_string());
        Ok(Page { items, next })
    }

    /// Makes or changes a queue; whether it was made. In force with the answer.
    pub async fn put_queue(&self, command: PutQueueCommand) -> Result<(Queue, bool), Refusal> {
        let engine = self.clone();
        // In a task of its own: once it is committed, those who wait are woken also when the caller has gone away.
        let work = tokio::spawn(async move { engine.change_policy(command).await });
        work.await.map_err(|error| Refusal::Bug(error.to_string()))?
    }

    async fn change_policy(&self, command: PutQueueCommand) -> Result<(Queue, bool), Refusal> {
        let mut tries = 0;
        let changed = loop {
            match timed(change_once(self, &command)).await {
                Err(StoreError::Conflict(_)) if tries < 10 => tries += 1,
                Err(error) => return Err(refusal_of(&error)),
                Ok(answer) => break answer?,
            }
        };
        let Changed { queue, queue_id, created, freed } = changed;
        let (name, etag, reason) = (queue.name.as_str(), queue.etag, command.reason);
        tracing::info!(queue = ?name, etag, created, ?reason, "a queue's policy was set");
        if freed {
            self.budgets_changed(queue_id);
        }
        // Also when it said CONTINUE before: whoever changed it may have died in between, and then this is the repetition.
        if queue.policy.on_repair == OnRepair::Continue && !created {
            let engine = self.clone();
            let letting_go = tokio::spawn(async move {
                let mut after = Some((queue_id, 0));
                while let Some(from) = after {
                    // What fails here is the loop's.
                    after = engine.let_keys_go(from, queue_id).await.ok().flatten();
                }
            });
            drop(tokio::time::timeout(LETTING_GO, letting_go).await);
        }
        Ok((queue, created))
    }

    /// Lets go of keys that only an open repair holds although their queue says CONTINUE: its policy has changed, or a transaction
    /// that still went by the old one came after the change. Looks at one page of keys with open repairs, from behind `after` on, of
    /// queues up to number `last`; returns where the next page begins.
    pub async fn let_keys_go(&self, after: (i32, i64), last: i32) -> Result<Option<(i32, i64)>, Refusal> {
        let keys = timed(store::held_keys(self.db(), after, last, i64::try_from(BATCH).unwrap_or(i64::MAX))).await;
        let keys = keys.map_err(|error| refusal_of(&error))?;
        let next = keys.last().filter(|_| keys.len() >= BATCH).map(|key| (key.queue_id, key.key_id));
        let stranded: Vec<(i32, Uuid)> = keys.iter().filter_map(|key| Some((key.queue_id, key.stranded?))).collect();
        // Whatever touches a task settles its key, so a tick is enough.
        self.tick_all(&stranded).await?;
        Ok(next)
    }
}

fn queue(name: QueueName, row: QueueRow) -> Queue {
    let etag = row.etag;
    Queue { name, policy: row.policy(), etag }
}

/// One transaction: where a limit changes take the door, then the gate → read → merge → write. The door first: a Submit that holds it may
/// wait for the gate.
async fn change_once(engine: &Engine, command: &PutQueueCommand) -> Result<Result<Changed, Refusal>, StoreError> {
    let name = &command.queue;
    let mut tx = engine.db().begin_patient().await?;
    let mut created = false;
    let limits = command.edit.budgets.max_unfinished != Edit::Keep;
    if limits {
        let known = store::find_queue(tx.connection(), name).await?;
        created = known.is_none() && store::create_queue(tx.connection(), name).await?;
        let row = store::find_queue(tx.connection(), name).await?.ok_or_else(StoreError::silent)?;
        store::lock_door(&mut tx, row.queue_id).await?;
    }
    if !store::lock_gate(&mut tx, name).await? {
        created = store::create_queue(tx.connection(), name).await?;
        store::lock_gate(&mut tx, name).await?;
    }
    let row = store::find_queue(tx.connection(), name).await?.ok_or_else(StoreError::silent)?;
    let queue_id = row.queue_id;
    let before = queue(name.clone(), row);
    let stored = if created { String::new() } else { before.etag.to_string() };
    if command.etag.as_ref().is_some_and(|given| *given != stored) {
        return Ok(Err(Refusal::EtagMismatch { current: stored }));
    }
    let (paused, budgets) = (before.policy.paused, before.policy.budgets);
    let policy = match before.policy.edited(&command.edit) {
        Ok(policy) => policy,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let etag = if created { before.etag } else { before.etag + 1 };
    if limits {
        store::forget_rooms(&mut tx, queue_id, &[0]).await?;
    }
    store::write_policy(&mut tx, queue_id, &policy, etag).await?;
    tx.commit().await?;
    let freed = (paused && !policy.paused) || budgets != policy.budgets;
    Ok(Ok(Changed { queue: Queue { name: before.name, policy, etag }, queue_id, created, freed }))
}
