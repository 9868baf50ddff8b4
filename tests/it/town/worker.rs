//! What workers of a town do.

use std::time::Duration;

use leasehold::api::proto as pb;
use pb::complete_request::Outcome;
use pb::worker_service_client::WorkerServiceClient;
use pb::{ErrorClass, complete_result, heartbeat_result};
use tonic::transport::Channel;

use super::answer::item_status;
use super::tasks::id_of;
use super::{Answer, PATIENCE, QUEUE, Town, span};

impl Town {
    /// A worker that promises nothing.
    pub fn worker(&self, name: &str) -> Worker {
        self.worker_at(0, name)
    }

    /// A worker of this server.
    pub fn worker_at(&self, server: usize, name: &str) -> Worker {
        let client = WorkerServiceClient::new(self.server(server).channel());
        Worker { client, claim: pb::ClaimRequest { queue: QUEUE.into(), worker_id: name.into(), ..pb::ClaimRequest::default() } }
    }
}

#[derive(Clone)]
pub struct Worker {
    client: WorkerServiceClient<Channel>,
    claim: pb::ClaimRequest,
}

impl Worker {
    /// A worker over a connection, of no server in particular.
    pub fn new(channel: Channel, name: &str) -> Worker {
        let claim = pb::ClaimRequest { queue: QUEUE.into(), worker_id: name.into(), ..pb::ClaimRequest::default() };
        Worker { client: WorkerServiceClient::new(channel), claim }
    }

    /// It promises to call BeginEffect before it acts outside.
    pub fn reporting_effects(mut self) -> Self {
        self.claim.reports_effect = true;
        self
    }

    /// It asks for leases of this length.
    pub fn for_a_lease_of(mut self, lease: Duration) -> Self {
        self.claim.lease_duration = Some(span(lease));
        self
    }

    pub fn on_queue(mut self, queue: &str) -> Self {
        self.claim.queue = queue.into();
        self
    }

    /// Its next claims carry this `request_id`.
    pub fn with_request_id(mut self, id: &str) -> Self {
        self.claim.request_id = id.into();
        self
    }

    /// It calls over this connection.
    pub fn over(mut self, channel: Channel) -> Self {
        self.client = WorkerServiceClient::new(channel);
        self
    }

    pub fn client(&self) -> WorkerServiceClient<Channel> {
        self.client.clone()
    }

    async fn ask(&self, max_tasks: i32, wait: Option<Duration>) -> Answer<Vec<Lease>> {
        let request = pb::ClaimRequest { max_tasks: Some(max_tasks), wait: wait.map(span), ..self.claim.clone() };
        let answer = Answer::from(self.client().claim(request).await);
        Answer(answer.0.map(|answer| answer.leases.into_iter().map(|lease| Lease { worker: self.clone(), lease }).collect()))
    }

    /// What can be leased at once, at most so many.
    pub async fn claim(&self, max_tasks: i32) -> Vec<Lease> {
        self.ask(max_tasks, None).await.ok()
    }

    pub async fn try_claim(&self, max_tasks: i32) -> Answer<Vec<Lease>> {
        self.ask(max_tasks, None).await
    }

    /// Waits for the first task for so long.
    pub async fn claim_within(&self, max_tasks: i32, wait: Duration) -> Vec<Lease> {
        self.ask(max_tasks, Some(wait)).await.ok()
    }

    pub async fn try_claim_within(&self, max_tasks: i32, wait: Duration) -> Answer<Vec<Lease>> {
        self.ask(max_tasks, Some(wait)).await
    }

    /// One lease, waited for if need be.
    pub async fn claim_one(&self) -> Lease {
        let mut leases = self.claim_within(1, PATIENCE).await;
        assert_eq!(leases.len(), 1, "nothing could be leased in {PATIENCE:?}");
        leases.remove(0)
    }

    /// So many leases, collected by as many claims as it takes.
    pub async fn claim_all(&self, count: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        while leases.len() < count {
            let missing = i32::try_from((count - leases.len()).min(500)).expect("few");
            let more = self.claim_within(missing, PATIENCE).await;
            assert!(!more.is_empty(), "only {} of {count} could be leased in {PATIENCE:?}", leases.len());
            leases.extend(more);
        }
        leases
    }

    /// Nothing can be leased this instant.
    #[track_caller]
    pub fn finds_nothing(&self) -> impl Future<Output = ()> + '_ {
        let at = std::panic::Location::caller();
        async move {
            let leases = self.claim(1).await;
            assert!(leases.is_empty(), "{at}: leased {}", leases[0].id());
        }
    }

    pub async fn heartbeat_all(&self, leases: &[&Lease]) -> Vec<Answer<pb::LeaseHeld>> {
        let item =
            |lease: &&Lease| pb::HeartbeatItem { lease: lease.lease.lease_ref.clone(), lease_duration: None, progress: None };
        let items = leases.iter().map(item).collect();
        self.beat(items).await
    }

    /// One report for each of these leases, in one call.
    pub async fn report_all(&self, reports: Vec<(&Lease, Outcome)>) -> Vec<Answer<pb::CompleteResponse>> {
        let request = |(lease, outcome): (&Lease, Outcome)| pb::CompleteRequest {
            lease: lease.lease.lease_ref.clone(),
            outcome: Some(outcome),
        };
        let requests = reports.into_iter().map(request).collect();
        let results = Answer::from(self.client().complete_batch(pb::CompleteBatchRequest { requests }).await).ok().results;
        let answer = |result: pb::CompleteResult| match result.result.expect("a result is always set") {
            complete_result::Result::Accepted(accepted) => Answer(Ok(accepted)),
            complete_result::Result::Error(error) => Answer(Err(item_status(error))),
        };
        results.into_iter().map(answer).collect()
    }

    async fn beat(&self, items: Vec<pb::HeartbeatItem>) -> Vec<Answer<pb::LeaseHeld>> {
        let request = pb::HeartbeatRequest { worker_id: self.claim.worker_id.clone(), items };
        let results = Answer::from(self.client().heartbeat(request).await).ok().results;
        let answer = |result: pb::HeartbeatResult| match result.result.expect("a result is always set") {
            heartbeat_result::Result::Held(held) => Answer(Ok(held)),
            heartbeat_result::Result::Error(error) => Answer(Err(item_status(error))),
        };
        results.into_iter().map(answer).collect()
    }
}

/// A lease in a worker's hands.
#[derive(Clone)]
pub struct Lease {
    worker: Worker,
    pub lease: pb::Lease,
}

pub fn succeeded() -> pb::Succeeded {
    pb::Succeeded { receipt_ref: "receipt-1".into(), ..pb::Succeeded::default() }
}

pub fn failed(class: ErrorClass) -> pb::Failed {
    pb::Failed { error_class: class as i32, code: "provider_busy".into(), message: "try later".into(), ..pb::Failed::default() }
}

pub fn released(delay: Option<Duration>) -> pb::Released {
    pb::Released { delay: delay.map(span), reason: "shutting down".into() }
}

impl Lease {
    /// The task's id.
    pub fn id(&self) -> &str {
        id_of(self.task())
    }

    pub fn task(&self) -> &pb::Task {
        self.lease.task.as_ref().expect("a lease has its task")
    }

    pub fn token(&self) -> i64 {
        self.lease.lease_ref.as_ref().expect("a lease has its name").fencing_token
    }

    pub fn attempt(&self) -> i32 {
        self.lease.attempt
    }

    /// The same lease, in the hands of a worker of another server.
    pub fn at(&self, worker: &Worker) -> Lease {
        Lease { worker: worker.clone(), lease: self.lease.clone() }
    }

    pub async fn report(&self, outcome: Outcome) -> Answer<pb::CompleteResponse> {
        let request = pb::CompleteRequest { lease: self.lease.lease_ref.clone(), outcome: Some(outcome) };
        self.worker.client().complete(request).await.into()
    }

    /// It succeeded.
    pub async fn complete(&self) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Succeeded(succeeded())).await
    }

    pub async fn fail(&self, class: ErrorClass) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Failed(failed(class))).await
    }

    pub async fn skip(&self, reason: &str) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Skipped(pb::Skipped { reason: reason.into() })).await
    }

    /// The worker agrees to stop, or stops by its own policy.
    pub async fn stop(&self, reason: &str) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Canceled(pb::Canceled { reason: reason.into() })).await
    }

    pub async fn release(&self) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Released(released(None))).await
    }

    pub async fn release_for(&self, delay: Duration) -> Answer<pb::CompleteResponse> {
        self.report(Outcome::Released(released(Some(delay)))).await
    }

    pub async fn begin_effect(&self, effect_ref: &str) -> Answer<pb::BeginEffectResponse> {
        let lease = self.lease.lease_ref.clone();
        let request = pb::BeginEffectRequest { lease, effect_ref: effect_ref.into(), lease_duration: None };
        self.worker.client().begin_effect(request).await.into()
    }

    pub async fn heartbeat(&self) -> Answer<pb::LeaseHeld> {
        self.worker.heartbeat_all(&[self]).await.remove(0)
    }

    /// A heartbeat that says how far the work is.
    pub async fn heartbeat_with(&self, progress: pb::Progress) -> Answer<pb::LeaseHeld> {
        let lease = self.lease.lease_ref.clone();
        let item = pb::HeartbeatItem { lease, lease_duration: None, progress: Some(progress) };
        self.worker.beat(vec![item]).await.remove(0)
    }

    /// A heartbeat that asks for this much from now on.
    pub async fn heartbeat_for(&self, lease: Duration) -> Answer<pb::LeaseHeld> {
        let item = pb::HeartbeatItem { lease: self.lease.lease_ref.clone(), lease_duration: Some(span(lease)), progress: None };
        self.worker.beat(vec![item]).await.remove(0)
    }
}
