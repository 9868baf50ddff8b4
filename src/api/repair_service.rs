//! RepairService: what people do with tasks that can't go on. Each verb parses, asks the engine, and writes the answer; it decides nothing.

use tonic::{Request, Response, Status};

use super::convert::repair;
use super::proto as pb;
use super::proto::repair_service_server::RepairService;
use super::status::status;
use crate::engine::Engine;

pub struct Repairs {
    engine: Engine,
}

impl Repairs {
    pub fn new(engine: Engine) -> Self {
        Repairs { engine }
    }
}

#[tonic::async_trait]
impl RepairService for Repairs {
    async fn list_repairs(&self, request: Request<pb::ListRepairsRequest>) -> Result<Response<pb::ListRepairsResponse>, Status> {
        let command = repair::list_repairs(request.into_inner()).map_err(status)?;
        let page = self.engine.list_repairs(command).await.map_err(status)?;
        Ok(Response::new(pb::ListRepairsResponse {
            repairs: page.items.into_iter().map(repair::to_repair).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn get_repair(&self, request: Request<pb::GetRepairRequest>) -> Result<Response<pb::GetRepairResponse>, Status> {
        let task = repair::get_repair(request.into_inner()).map_err(status)?;
        let found = self.engine.get_repair(task).await.map_err(status)?;
        Ok(Response::new(pb::GetRepairResponse { repair: Some(repair::in_full(found)) }))
    }

    async fn assign_repair(&self, request: Request<pb::AssignRepairRequest>) -> Result<Response<pb::AssignRepairResponse>, Status> {
        let (task, owner, next, by) = repair::assign_repair(request.into_inner()).map_err(status)?;
        let assigned = self.engine.assign_repair(task, owner, next, by).await.map_err(status)?;
        Ok(Response::new(pb::AssignRepairResponse { repair: Some(repair::to_repair(assigned)) }))
    }

    async fn resolve_repair(
        &self, request: Request<pb::ResolveRepairRequest>,
    ) -> Result<Response<pb::ResolveRepairResponse>, Status> {
        let asked = repair::resolve_repair(request.into_inner(), self.engine.payload_limit());
        let (task, resolution, by) = asked.map_err(status)?;
        let resolved = self.engine.resolve_repair(task, resolution, by).await.map_err(status)?;
        Ok(Response::new(repair::resolved(resolved)))
    }

    async fn replay_repairs(
        &self, request: Request<pb::ReplayRepairsRequest>,
    ) -> Result<Response<pb::ReplayRepairsResponse>, Status> {
        let command = repair::replay_repairs(request.into_inner()).map_err(status)?;
        let (queue, rehearsed) = (command.queue.clone(), command.validate_only);
        let replayed = self.engine.replay_repairs(command).await.map_err(status)?;
        Ok(Response::new(repair::replayed(replayed, &queue, rehearsed)))
    }
}
