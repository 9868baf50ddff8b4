//! WorkerService: what workers call. Each verb parses, asks the engine, and writes the answer; it decides nothing.

use tonic::{Request, Response, Status};

use super::convert::{answers, lease, split, weave, work};
use super::in_flight::Place;
use super::proto::worker_service_server::WorkerService;
use super::proto::{self as pb, complete_result, heartbeat_result};
use super::services::answer_by;
use super::status::{item_error, status};
use crate::engine::Engine;

pub struct Workers {
    engine: Engine,
}

impl Workers {
    pub fn new(engine: Engine) -> Self {
        Workers { engine }
    }
}

#[tonic::async_trait]
impl WorkerService for Workers {
    async fn claim(&self, request: Request<pb::ClaimRequest>) -> Result<Response<pb::ClaimResponse>, Status> {
        let (_, extensions, message) = request.into_parts();
        let until = answer_by(&extensions);
        let command = work::claim(message).map_err(status)?;
        if !command.wait.is_zero() {
            Place::waits(&extensions).map_err(status)?;
        }
        let taken = self.engine.claim(command, until).await.map_err(status)?;
        let leases = taken.leases.into_iter().map(lease::lease).collect();
        let mut response = Response::new(pb::ClaimResponse { leases });
        // From here on the leases are given back unless `delivery.rs` sees the answer taken.
        response.extensions_mut().insert(taken.delivery);
        Ok(response)
    }

    async fn begin_effect(&self, request: Request<pb::BeginEffectRequest>) -> Result<Response<pb::BeginEffectResponse>, Status> {
        let (lease, effect_ref, span) = work::begin_effect(request.into_inner()).map_err(status)?;
        let begun = self.engine.begin_effect(lease, effect_ref, span).await.map_err(status)?;
        Ok(Response::new(lease::begun(begun)))
    }

    async fn heartbeat(&self, request: Request<pb::HeartbeatRequest>) -> Result<Response<pb::HeartbeatResponse>, Status> {
        let (items, refused) = split(work::heartbeat(request.into_inner()).map_err(status)?);
        let held = if items.is_empty() { Vec::new() } else { self.engine.heartbeat(items).await };
        let results = weave(refused, held).map(|result| pb::HeartbeatResult {
            result: Some(match result {
                Ok(held) => heartbeat_result::Result::Held(lease::held(held)),
                Err(refusal) => heartbeat_result::Result::Error(item_error(refusal)),
            }),
        });
        Ok(Response::new(pb::HeartbeatResponse { results: results.collect() }))
    }

    async fn complete(&self, request: Request<pb::CompleteRequest>) -> Result<Response<pb::CompleteResponse>, Status> {
        let (lease, report) = work::complete(request.into_inner()).map_err(status)?;
        let settled = self.engine.complete(lease, report).await.map_err(status)?;
        Ok(Response::new(answers::settled(settled)))
    }

    async fn complete_batch(
        &self, request: Request<pb::CompleteBatchRequest>,
    ) -> Result<Response<pb::CompleteBatchResponse>, Status> {
        let (reports, refused) = split(work::complete_batch(request.into_inner()).map_err(status)?);
        let settled = if reports.is_empty() { Vec::new() } else { self.engine.complete_batch(reports).await };
        let results = weave(refused, settled).map(|result| pb::CompleteResult {
            result: Some(match result {
                Ok(settled) => complete_result::Result::Accepted(answers::settled(settled)),
                Err(refusal) => complete_result::Result::Error(item_error(refusal)),
            }),
        });
        Ok(Response::new(pb::CompleteBatchResponse { results: results.collect() }))
    }
}
