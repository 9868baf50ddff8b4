//! Shares and their policies, which change under the queue's gate as the queue's own does.

use super::{Engine, Page, PutShareCommand, Share, refusal_of, timed};
use crate::domain::names::{FairnessKey, QueueName};
use crate::domain::queue::Edit;
use crate::domain::refusal::Refusal;
use crate::store::{self, Openings, SharePolicyRow, StoreError};

impl Engine {
    /// Makes or changes a share; whether it was made. In force with the answer.
    pub async fn put_share(&self, command: PutShareCommand) -> Result<(Share, bool), Refusal> {
        let queue_id = self.known_queue(&command.queue).await?;
        let engine = self.clone();
        // In a task of its own: once it is committed, those who wait are woken also when the caller has gone away.
        let work = tokio::spawn(async move { engine.change_share(queue_id, command).await });
        work.await.map_err(|error| Refusal::Bug(error.to_string()))?
    }

    async fn change_share(&self, queue_id: i32, command: PutShareCommand) -> Result<(Share, bool), Refusal> {
        let mut tries = 0;
        let (share, created) = loop {
            match timed(change_once(self, queue_id, &command)).await {
                Err(StoreError::Conflict(_)) if tries < 10 => tries += 1,
                Err(error) => return Err(refusal_of(&error)),
                Ok(answer) => break answer?,
            }
        };
        let (queue, key, etag, reason) = (share.queue.as_str(), share.key.as_str(), share.etag, command.reason);
        tracing::info!(?queue, ?key, etag, created, ?reason, "a share's policy was set");
        self.budgets_changed(queue_id);
        Ok((share, created))
    }

    /// What was held back by a budget may run now.
    pub(super) fn budgets_changed(&self, queue_id: i32) {
        self.0.admission.forget(queue_id);
        let mut openings = Openings::default();
        openings.add_place(queue_id);
        self.opened(&openings);
        self.0.wakes.tell_others(&openings);
    }

    /// A page of a queue's shares, by key; the token is `=` and the last key of the page before.
    pub async fn list_shares(&self, queue: QueueName, page_size: i32, page_token: String) -> Result<Page<Share>, Refusal> {
        let queue_id = self.known_queue(&queue).await?;
        let after = page_token.strip_prefix('=');
        if after.is_none() && !page_token.is_empty() {
            return Err(Refusal::field("page_token", "is none of this server's"));
        }
        let rows = timed(store::page_of_shares(self.db(), queue_id, after, i64::from(page_size) + 1)).await;
        let rows = rows.map_err(|error| refusal_of(&error))?;
        let wanted = usize::try_from(page_size).unwrap_or(1);
        let more = rows.len() > wanted;
        let shares = rows.into_iter().take(wanted).map(|row| share(&queue, &row));
        let items = shares.collect::<Result<Vec<Share>, Refusal>>()?;
        let next = items.last().filter(|_| more).map(|share| format!("={}", share.key.as_str()));
        Ok(Page { items, next })
    }
}

fn share(queue: &QueueName, row: &SharePolicyRow) -> Result<Share, Refusal> {
    let key = FairnessKey::parse(&row.fairness_key).map_err(|e| Refusal::Bug(format!("share {}: {e}", row.share_id)))?;
    Ok(Share { queue: queue.clone(), key, policy: row.policy(), etag: row.etag })
}

/// One transaction: take the door, then the gate → read → merge → write. The door first: a Submit that holds it may hold the share and wait
/// for the gate.
async fn change_once(
    engine: &Engine, queue_id: i32, command: &PutShareCommand,
) -> Result<Result<(Share, bool), Refusal>, StoreError> {
    let mut tx = engine.db().begin_patient().await?;
    store::lock_door(&mut tx, queue_id).await?;
    store::lock_gate(&mut tx, &command.queue).await?;
    let created = store::create_share(&mut tx, queue_id, &command.key).await?;
    let row = store::find_share(&mut tx, queue_id, &command.key).await?.ok_or_else(StoreError::silent)?;
    let stored = if created { String::new() } else { row.etag.to_string() };
    if command.etag.as_ref().is_some_and(|given| *given != stored) {
        return Ok(Err(Refusal::EtagMismatch { current: stored }));
    }
    let policy = row.policy().edited(&command.edit);
    let etag = if created { row.etag } else { row.etag + 1 };
    if command.edit.budgets.max_unfinished != Edit::Keep {
        store::forget_rooms(&mut tx, queue_id, &[row.share_id]).await?;
    }
    store::write_share(&mut tx, queue_id, row.share_id, &policy, etag).await?;
    tx.commit().await?;
    Ok(Ok((Share { queue: command.queue.clone(), key: command.key.clone(), policy, etag }, created)))
}
