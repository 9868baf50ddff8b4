//! Receipts: kept beside the tasks, insert-only.

use std::collections::HashMap;

use sqlx::PgExecutor;
use uuid::Uuid;

use super::{StoreError, Tx};
use crate::domain::receipt::{Receipt, Recorded};
use crate::domain::time::Timestamp;

/// The receipts of these tasks, each task's in the order in which they came.
pub async fn receipts_of(
    at: impl PgExecutor<'_>, queues: &[i32], uids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<Recorded>>, StoreError> {
    let rows = sqlx::query_file!("src/store/sql/receipts_by_uid.sql", queues, uids).fetch_all(at).await?;
    let mut receipts: HashMap<Uuid, Vec<Recorded>> = HashMap::new();
    for r in rows {
        let receipt = Receipt { kind: r.kind, receipt_ref: r.receipt_ref, effect_ref: r.effect_ref, occurred: r.occurred };
        receipts.entry(r.uid).or_default().push(Recorded { receipt, recorded: r.recorded });
    }
    Ok(receipts)
}

/// A receipt to be kept.
pub struct NewReceipt {
    pub queue_id: i32,
    pub uid: Uuid,
    pub receipt: Receipt,
    pub recorded: Timestamp,
    /// Its event's.
    pub revision: i64,
}

pub async fn write_receipts(tx: &mut Tx, receipts: &[NewReceipt]) -> Result<(), StoreError> {
    macro_rules! column {
        ($new:ident => $value:expr) => {
            receipts.iter().map(|$new| $value).collect::<Vec<_>>()
        };
    }
    sqlx::query_file!(
        "src/store/sql/write_receipts.sql",
        &column!(r => r.queue_id),
        &column!(r => r.uid),
        &column!(r => r.receipt.kind.as_str()) as _,
        &column!(r => r.receipt.receipt_ref.as_str()) as _,
        &column!(r => r.receipt.effect_ref.as_str()) as _,
        &column!(r => r.receipt.occurred) as _,
        &column!(r => r.recorded) as _,
        &column!(r => r.revision),
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}
