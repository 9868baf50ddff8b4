//! TaskService: what producers and watchers call. Each verb parses, asks the engine, and writes the answer; it decides nothing.

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::convert::spec::Door;
use super::convert::{answers, bulk, requests, split, weave};
use super::in_flight::Place;
use super::proto::task_service_server::TaskService;
use super::proto::{self as pb, submit_result};
use super::services::{answer_by, traceparent};
use super::status::{item_error, status};
use super::watch;
use crate::engine::Engine;

pub struct Tasks {
    engine: Engine,
}

impl Tasks {
    pub fn new(engine: Engine) -> Self {
        Tasks { engine }
    }

    fn door<T>(&self, request: &Request<T>) -> Door {
        Door { payload_bytes: self.engine.payload_limit(), traceparent: traceparent(request.metadata()) }
    }
}

#[tonic::async_trait]
impl TaskService for Tasks {
    async fn submit(&self, request: Request<pb::SubmitRequest>) -> Result<Response<pb::SubmitResponse>, Status> {
        let door = self.door(&request);
        let spec = requests::submit(request.into_inner(), &door).map_err(status)?;
        let accepted = self.engine.submit(spec).await.map_err(status)?;
        Ok(Response::new(answers::accepted(accepted)))
    }

    async fn submit_batch(&self, request: Request<pb::SubmitBatchRequest>) -> Result<Response<pb::SubmitBatchResponse>, Status> {
        let door = self.door(&request);
        let request = request.into_inner();
        let atomic = request.atomic;
        let (specs, refused) = split(requests::submit_batch(request, &door).map_err(status)?);
        let accepted = if specs.is_empty() { Vec::new() } else { self.engine.submit_batch(specs, atomic).await.map_err(status)? };
        let results = weave(refused, accepted).enumerate().map(|(index, result)| pb::SubmitResult {
            result: Some(match result {
                Ok(accepted) => submit_result::Result::Accepted(answers::accepted(accepted)),
                Err(refusal) => submit_result::Result::Error(item_error(refusal.inside("spec", &format!("specs[{index}]")))),
            }),
        });
        Ok(Response::new(pb::SubmitBatchResponse { results: results.collect() }))
    }

    async fn get_task(&self, request: Request<pb::GetTaskRequest>) -> Result<Response<pb::GetTaskResponse>, Status> {
        let (_, extensions, message) = request.into_parts();
        let until = answer_by(&extensions);
        let look = requests::get_task(message).map_err(status)?;
        if look.wait.is_some() {
            Place::waits(&extensions).map_err(status)?;
        }
        let task = match look.wait {
            None => self.engine.get_task(look.task, look.full).await,
            Some((states, timeout)) => self.engine.wait_for(look.task, look.full, states, timeout, until).await,
        };
        let task = task.map_err(status)?;
        let receipts = self.engine.receipts(&task.spec.queue, task.uid).await.map_err(status)?;
        let receipts = receipts.into_iter().map(bulk::to_receipt).collect();
        Ok(Response::new(pb::GetTaskResponse { task: Some(pb::Task { receipts, ..answers::task(task, look.full) }) }))
    }

    async fn list_tasks(&self, request: Request<pb::ListTasksRequest>) -> Result<Response<pb::ListTasksResponse>, Status> {
        let (queue, filter, size, token) = requests::list_tasks(request.into_inner()).map_err(status)?;
        let page = self.engine.list_tasks(queue, filter, size, token).await.map_err(status)?;
        Ok(Response::new(pb::ListTasksResponse {
            tasks: page.items.into_iter().map(|task| answers::task(task, false)).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn list_attempts(&self, request: Request<pb::ListAttemptsRequest>) -> Result<Response<pb::ListAttemptsResponse>, Status> {
        let (task, size, token) = requests::list_attempts(request.into_inner()).map_err(status)?;
        let page = self.engine.list_attempts(task, size, token).await.map_err(status)?;
        Ok(Response::new(pb::ListAttemptsResponse {
            attempts: page.items.into_iter().map(answers::attempt).collect(),
            next_page_token: page.next.unwrap_or_default(),
        }))
    }

    async fn explain(&self, request: Request<pb::ExplainRequest>) -> Result<Response<pb::ExplainResponse>, Status> {
        let task = requests::explain(request.into_inner()).map_err(status)?;
        let queue = task.queue.clone();
        let obstacles = self.engine.explain(task).await.map_err(status)?;
        let obstacles = obstacles.into_iter().map(|obstacle| answers::obstacle(obstacle, &queue)).collect();
        Ok(Response::new(pb::ExplainResponse { obstacles }))
    }

    async fn cancel(&self, request: Request<pb::CancelRequest>) -> Result<Response<pb::CancelResponse>, Status> {
        let (task, reason) = requests::cancel(request.into_inner()).map_err(status)?;
        let task = self.engine.cancel(task, reason).await.map_err(status)?;
        Ok(Response::new(pb::CancelResponse { task: Some(answers::task(task, false)) }))
    }

    async fn cancel_tasks(&self, request: Request<pb::CancelTasksRequest>) -> Result<Response<pb::CancelTasksResponse>, Status> {
        let command = bulk::cancel_tasks(request.into_inner()).map_err(status)?;
        let (met, sample) = self.engine.cancel_tasks(command).await.map_err(status)?;
        Ok(Response::new(bulk::canceled(met, sample)))
    }

    async fn raise_subject(&self, request: Request<pb::RaiseSubjectRequest>) -> Result<Response<pb::RaiseSubjectResponse>, Status> {
        let until = answer_by(request.extensions());
        let command = bulk::raise_subject(request.into_inner()).map_err(status)?;
        let raised = self.engine.raise_subject(command, until).await.map_err(status)?;
        Ok(Response::new(bulk::raised(raised)))
    }

    async fn get_subject(&self, request: Request<pb::GetSubjectRequest>) -> Result<Response<pb::GetSubjectResponse>, Status> {
        let (queue, subject) = bulk::get_subject(request.into_inner()).map_err(status)?;
        let floor = self.engine.get_subject(&queue, &subject).await.map_err(status)?;
        Ok(Response::new(pb::GetSubjectResponse { subject: Some(bulk::to_floor(&queue, &subject, floor)) }))
    }

    async fn record_receipt(
        &self, request: Request<pb::RecordReceiptRequest>,
    ) -> Result<Response<pb::RecordReceiptResponse>, Status> {
        let (task, receipt) = bulk::record_receipt(request.into_inner()).map_err(status)?;
        let created = self.engine.record_receipt(task, receipt).await.map_err(status)?;
        Ok(Response::new(pb::RecordReceiptResponse { created }))
    }

    type WatchStream = BoxStream<pb::WatchResponse>;

    /// `watch::TaskServer` answers it before it comes here, with the same stream.
    async fn watch(&self, request: Request<pb::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        watch::messages(&self.engine, request.into_inner()).await.map(Response::new)
    }
}
