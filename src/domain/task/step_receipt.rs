//! Evidence that comes apart from the state: it is kept, and nothing else changes, not even what time has decided.

use super::Reply;
use super::step::Run;
use crate::domain::event::{Event, EventKind, Evidence};
use crate::domain::limits::RECEIPTS;
use crate::domain::receipt::Receipt;
use crate::domain::refusal::Refusal;

impl Run<'_> {
    pub(super) fn record(&mut self, receipt: &Receipt) -> Result<Reply, Refusal> {
        let kept = self.ctx.receipts;
        if kept.iter().any(|other| other.same(receipt)) {
            return Ok(Reply::AlreadyApplied);
        }
        if kept.len() >= RECEIPTS {
            return Err(Refusal::ReceiptsFull { limit: RECEIPTS });
        }
        let evidence = Evidence {
            receipt_kind: Some(receipt.kind.clone()),
            receipt_ref: Some(receipt.receipt_ref.clone()),
            effect_ref: (!receipt.effect_ref.is_empty()).then(|| receipt.effect_ref.clone()),
            occur_time: receipt.occurred,
            ..Evidence::default()
        };
        // It speaks of no attempt: only whoever knows the outside call can say which one that was.
        let event = Event { attempt: 0, token: 0, worker: None, ..self.event(EventKind::Receipt, evidence) };
        self.log(event);
        Ok(Reply::Applied)
    }
}
