//! AdminService: queues, shares and their policies and figures, and what this server is.

use tonic::{Request, Response, Status};

use super::convert::{queue, share, stats};
use super::proto as pb;
use super::proto::admin_service_server::AdminService;
use super::status::status;
use super::times::to_span;
use crate::domain::limits as l;
use crate::engine::Engine;

/// What a client can count on beside the contract's core, by name.
const FEATURES: &[&str] = &[
    "submit_batch_atomic",
    "claim_request_id",
    "wait_until",
    "explain",
    "stats",
    "subject_floors",
    "cancel_tasks",
    "receipts",
    "watch",
    "repair",
    "retention",
    "put_share",
    "budgets",
];

pub struct Admin {
    engine: Engine,
}

impl Admin {
    pub fn new(engine: Engine) -> Self {
        Admin { engine }
    }

    fn limits(&self) -> pb::Limits {
        pb::Limits {
            id_max_bytes: count(l::ID_BYTES),
            ref_max_bytes: count(l::REFERENCE_BYTES),
            labels_max_count: count(l::LABELS),
            label_key_max_bytes: count(l::LABEL_KEY_BYTES),
            label_value_max_bytes: count(l::LABEL_VALUE_BYTES),
            subjects_max_count: count(l::SUBJECTS),
            payload_max_bytes: count(self.engine.payload_limit()),
            result_max_bytes: count(l::RESULT_BYTES),
            message_max_bytes: count(l::MESSAGE_BYTES),
            note_max_bytes: count(l::NOTE_BYTES),
            submit_batch_max_count: count(l::SUBMIT_BATCH),
            claim_max_tasks: l::CLAIM_TASKS,
            claim_max_bytes: count(l::CLAIM_BYTES),
            heartbeat_max_items: count(l::HEARTBEAT_BATCH),
            complete_batch_max_count: count(l::COMPLETE_BATCH),
            page_max_size: l::PAGE,
            wait_max: Some(to_span(l::WAIT)),
            lease_min: Some(to_span(l::LEASE_MIN)),
            lease_max: Some(to_span(l::LEASE_MAX)),
            deadline_max: Some(to_span(l::DEADLINE)),
            attempts_max: l::ATTEMPTS,
            releases_max_count: l::RELEASES_UNCHARGED,
            late_reports_max_count: count(l::LATE_REPORTS),
            bulk_max_tasks: l::BULK,
            receipts_max_count: count(l::RECEIPTS),
            priority_min: -l::PRIORITY,
            priority_max: l::PRIORITY,
            cost_max: l::COST.unsigned_abs(),
            bookmark_interval_min: Some(to_span(l::BOOKMARK_MIN)),
            bookmark_interval_max: Some(to_span(l::BOOKMARK_MAX)),
            weight_min: l::WEIGHT_MIN,
            weight_max: l::WEIGHT_MAX,
            // What isn't offered yet has no limit yet: schedules.
            ..pb::Limits::default()
        }
    }
}

fn count(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn get_server_info(&self, _: Request<pb::GetServerInfoRequest>) -> Result<Response<pb::GetServerInfoResponse>, Status> {
        Ok(Response::new(pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: Some(self.limits()),
            features: FEATURES.iter().map(|&feature| feature.to_owned()).collect(),
        }))
    }

    async fn put_queue(&self, request: Request<pb::PutQueueRequest>) -> Result<Response<pb::PutQueueResponse>, Status> {
        let command = queue::put_queue(request.into_inner()).map_err(status)?;
        let (stored, created) = self.engine.put_queue(command).await.map_err(status)?;
        Ok(Response::new(pb::PutQueueResponse { queue: Some(queue::to_queue(stored)), created }))
    }

    async fn put_share(&self, request: Request<pb::PutShareRequest>) -> Result<Response<pb::PutShareResponse>, Status> {
        let command = share::put_share(request.into_inner()).map_err(status)?;
        let (stored, created) = self.engine.put_share(command).await.map_err(status)?;
        Ok(Response::new(pb::PutShareResponse { share: Some(share::to_share(stored)), created }))
    }

    async fn get_queue(&self, request: Request<pb::GetQueueRequest>) -> Result<Response<pb::GetQueueResponse>, Status> {
        let name = queue::get_queue(request.into_inner()).map_err(status)?;
        let stored = self.engine.get_queue(name).await.map_err(status)?;
        Ok(Response::new(pb::GetQueueResponse { queue: Some(queue::to_queue(stored)) }))
    }

    async fn list_queues(&self, request: Request<pb::ListQueuesRequest>) -> Result<Response<pb::ListQueuesResponse>, Status> {
        let (size, token) = queue::list_queues(request.into_inner()).map_err(status)?;
        let page = self.engine.list_queues(size, token).await.map_err(status)?;
        Ok(Response::new(pb::ListQueuesResponse {
            queues: page.items.into_iter().map(queue::to_queue).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn list_shares(&self, request: Request<pb::ListSharesRequest>) -> Result<Response<pb::ListSharesResponse>, Status> {
        let (queue, size, token) = share::list_shares(request.into_inner()).map_err(status)?;
        let page = self.engine.list_shares(queue, size, token).await.map_err(status)?;
        Ok(Response::new(pb::ListSharesResponse {
            shares: page.items.into_iter().map(share::to_share).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn get_stats(&self, request: Request<pb::GetStatsRequest>) -> Result<Response<pb::GetStatsResponse>, Status> {
        let command = stats::get_stats(request.into_inner()).map_err(status)?;
        let counted = self.engine.stats(command).await.map_err(status)?;
        Ok(Response::new(stats::to_stats(counted)))
    }
}
