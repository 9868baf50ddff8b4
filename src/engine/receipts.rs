//! RecordReceipt, and the receipts that GetTask shows.

use uuid::Uuid;

use super::transition::{Item, only};
use super::{Engine, TaskRef, refusal_of, timed};
use crate::domain::names::QueueName;
use crate::domain::receipt::{Receipt, Recorded};
use crate::domain::refusal::Refusal;
use crate::domain::task::{Command, Reply};
use crate::store;

impl Engine {
    /// Whether the receipt is new. It never changes the task's state.
    pub async fn record_receipt(&self, task: TaskRef, receipt: Receipt) -> Result<bool, Refusal> {
        let (queue_id, target) = self.target(&task).await?;
        let item = Item { queue_id, target, command: Command::Record(receipt) };
        Ok(only(self.0.transitions.call(vec![item]).await?)?.reply == Reply::Applied)
    }

    /// A task's receipts, in the order in which they came.
    pub async fn receipts(&self, queue: &QueueName, uid: Uuid) -> Result<Vec<Recorded>, Refusal> {
        let queue_id = self.known_queue(queue).await?;
        let receipts = timed(store::receipts_of(self.db().reads(), &[queue_id], &[uid])).await;
        Ok(receipts.map_err(|error| refusal_of(&error))?.remove(&uid).unwrap_or_default())
    }
}
