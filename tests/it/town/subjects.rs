//! Subjects, bulk cancels and receipts of a town.

use leasehold::api::proto as pb;
use pb::raise_subject_request::Floor;
use pb::task_service_client::TaskServiceClient;
use tonic::transport::Channel;

use super::{Answer, QUEUE, Spec, Town, task_ref};

/// Why floors rise in these tests.
pub const EDITED: &str = "the message was edited";

/// Raises a subject's floor by this client.
pub async fn raise_by(mut tasks: TaskServiceClient<Channel>, subject: &str, floor: Floor) -> Answer<pb::RaiseSubjectResponse> {
    let request =
        pb::RaiseSubjectRequest { queue: QUEUE.into(), subject_id: subject.into(), floor: Some(floor), reason: EDITED.into() };
    tasks.raise_subject(request).await.into()
}

impl Town {
    /// Versions of the subject below this one are stale.
    pub async fn raise(&self, subject: &str, min_version: i64) -> pb::RaiseSubjectResponse {
        raise_by(self.tasks(), subject, Floor::MinVersion(min_version)).await.ok()
    }

    /// Every version of the subject is stale.
    pub async fn revoke(&self, subject: &str) -> pb::RaiseSubjectResponse {
        raise_by(self.tasks(), subject, Floor::Revoked(true)).await.ok()
    }

    pub async fn floor(&self, subject: &str) -> Answer<pb::GetSubjectResponse> {
        self.tasks().get_subject(pb::GetSubjectRequest { queue: QUEUE.into(), subject_id: subject.into() }).await.into()
    }

    /// Cancels what the filter picks in the town's queue.
    pub async fn cancel_tasks(&self, request: pb::CancelTasksRequest) -> Answer<pb::CancelTasksResponse> {
        let filter = request.filter.map(|filter| pb::TaskFilter { queue: QUEUE.into(), ..filter });
        self.tasks().cancel_tasks(pb::CancelTasksRequest { filter, ..request }).await.into()
    }

    /// Records a receipt; whether it was new.
    pub async fn receipt(&self, id: &str, kind: &str, receipt_ref: &str) -> bool {
        self.try_receipt(id, kind, receipt_ref).await.ok().created
    }

    pub async fn try_receipt(&self, id: &str, kind: &str, receipt_ref: &str) -> Answer<pb::RecordReceiptResponse> {
        let request = pb::RecordReceiptRequest {
            task: Some(task_ref(id)),
            kind: kind.into(),
            receipt_ref: receipt_ref.into(),
            ..pb::RecordReceiptRequest::default()
        };
        self.tasks().record_receipt(request).await.into()
    }
}

impl Spec<'_> {
    /// It hangs on this version of the subject.
    pub fn about(self, subject: &str, version: i64) -> Self {
        self.with(|spec| spec.subjects.push(pb::Subject { id: subject.into(), version, raise_floor: false }))
    }

    /// It hangs on this version, and makes older ones stale.
    pub fn superseding(self, subject: &str, version: i64) -> Self {
        self.with(|spec| spec.subjects.push(pb::Subject { id: subject.into(), version, raise_floor: true }))
    }
}

/// Canceled, told, effected.
pub fn counts(raised: &pb::RaiseSubjectResponse) -> (i64, i64, i64) {
    (raised.canceled_count, raised.told_count, raised.effected_count)
}
