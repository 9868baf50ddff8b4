//! The subject Leasehold: a client over gRPC, as a worker or producer in any language would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::Failure;
use super::load::Load;
use super::measure::Step;
use super::scenarios::{BATCH, FILL, PAYLOAD, task_name};
use crate::api::proto::admin_service_client::AdminServiceClient;
use crate::api::proto::task_service_client::TaskServiceClient;
use crate::api::proto::worker_service_client::WorkerServiceClient;
use crate::api::proto::{self as pb, complete_request, complete_result, submit_result};

/// The clients share a few connections, as the workers of one process do.
const CONNECTIONS: usize = 4;
/// How long a claim waits where something may hold tasks back. The queue counts as empty after that.
const HELD_BACK: Duration = Duration::from_secs(2);

/// The longest lease that there is.
const HELD: Duration = Duration::from_hours(12);

#[derive(Clone)]
pub struct Leasehold {
    connections: Arc<[Connection]>,
    load: Load,
}

struct Connection {
    tasks: TaskServiceClient<Channel>,
    workers: WorkerServiceClient<Channel>,
    admin: AdminServiceClient<Channel>,
}

impl Leasehold {
    /// The connections take turns at the servers' addresses.
    pub async fn connect(addresses: &[&str], load: Load) -> Result<Leasehold, Failure> {
        let mut connections = Vec::with_capacity(CONNECTIONS);
        for number in 0..CONNECTIONS.max(addresses.len()) {
            let channel = Endpoint::from_shared(addresses[number % addresses.len()].to_owned())?.connect().await?;
            connections.push(Connection {
                tasks: TaskServiceClient::new(channel.clone()),
                workers: WorkerServiceClient::new(channel.clone()),
                admin: AdminServiceClient::new(channel),
            });
        }
        Ok(Leasehold { connections: connections.into(), load })
    }

    /// The same clients, with other tasks.
    pub fn with_load(&self, load: Load) -> Leasehold {
        Leasehold { load, ..self.clone() }
    }

    fn connection(&self, client: usize) -> &Connection {
        &self.connections[client % self.connections.len()]
    }

    fn tasks(&self, client: usize) -> TaskServiceClient<Channel> {
        self.connection(client).tasks.clone()
    }

    fn workers(&self, client: usize) -> WorkerServiceClient<Channel> {
        self.connection(client).workers.clone()
    }

    pub async fn put_queue(&self, queue: pb::Queue) -> Result<(), Failure> {
        let request = pb::PutQueueRequest { queue: Some(queue), reason: "bench".into(), ..Default::default() };
        self.connection(0).admin.clone().put_queue(request).await?;
        Ok(())
    }

    /// Where the load has caps: each share may have its part of the clients in flight, and the queue as many as there are clients.
    pub async fn cap(&self, queue: &str, clients: usize) -> Result<(), Failure> {
        if !self.load.caps {
            return Ok(());
        }
        let max_in_flight = Some(u32::try_from(clients)?);
        self.put_queue(pb::Queue { name: queue.to_owned(), max_in_flight, ..Default::default() }).await?;
        let fairness_keys = self.load.fairness_keys();
        let max_in_flight = Some(u32::try_from(clients.div_ceil(fairness_keys.len()))?);
        for fairness_key in fairness_keys {
            let share = pb::Share { queue: queue.to_owned(), fairness_key, max_in_flight, ..Default::default() };
            let request = pb::PutShareRequest { share: Some(share), reason: "bench".into(), ..Default::default() };
            self.connection(0).admin.clone().put_share(request).await?;
        }
        Ok(())
    }

    pub fn spec(&self, queue: &str, task_id: String) -> pb::TaskSpec {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        pb::TaskSpec {
            queue: queue.to_owned(),
            task_id,
            kind: "bench".into(),
            payload: Bytes::from_static(PAYLOAD),
            ordering_key: self.load.ordering_key(number),
            fairness_key: self.load.fairness_key(number),
            ..Default::default()
        }
    }

    pub async fn submit(&self, client: usize, queue: &str, task_id: String) -> Result<(), Failure> {
        self.submit_spec(client, self.spec(queue, task_id)).await
    }

    pub async fn submit_spec(&self, client: usize, spec: pb::TaskSpec) -> Result<(), Failure> {
        let answer = self.tasks(client).submit(pb::SubmitRequest { spec: Some(spec) }).await?.into_inner();
        if answer.created { Ok(()) } else { Err("Submit says that the task was there".into()) }
    }

    async fn submit_batch(&self, client: usize, queue: &str, count: usize) -> Result<(), Failure> {
        let specs = (0..count).map(|_| self.spec(queue, task_name())).collect();
        let answer = self.tasks(client).submit_batch(pb::SubmitBatchRequest { specs, atomic: false }).await?.into_inner();
        let created =
            |r: &pb::SubmitResult| matches!(&r.result, Some(submit_result::Result::Accepted(accepted)) if accepted.created);
        if answer.results.iter().all(created) { Ok(()) } else { Err("SubmitBatch did not accept all".into()) }
    }

    /// Leases for a worker of the client's number; none when there are none, after `wait`.
    pub async fn claim(&self, client: usize, queue: &str, count: usize, wait: Option<Duration>) -> Result<Vec<pb::Lease>, Failure> {
        let request = pb::ClaimRequest {
            queue: queue.to_owned(),
            worker_id: format!("w{client}"),
            max_tasks: Some(i32::try_from(count)?),
            wait: wait.map(pb_duration).transpose()?,
            reports_effect: true,
            ..Default::default()
        };
        let leases = self.claim_with(client, request).await?;
        let whole =
            |lease: &pb::Lease| lease.task.as_ref().and_then(|t| t.spec.as_ref()).is_some_and(|s| s.payload.len() == PAYLOAD.len());
        if leases.iter().all(whole) { Ok(leases) } else { Err("a lease came without its task's payload".into()) }
    }

    pub async fn claim_with(&self, client: usize, request: pb::ClaimRequest) -> Result<Vec<pb::Lease>, Failure> {
        Ok(self.workers(client).claim(request).await?.into_inner().leases)
    }

    pub async fn complete(&self, client: usize, lease: pb::Lease) -> Result<(), Failure> {
        if self.report(client, lease).await? { Err("Complete says that it was applied before".into()) } else { Ok(()) }
    }

    /// Completes; whether it was applied before.
    pub async fn report(&self, client: usize, lease: pb::Lease) -> Result<bool, Failure> {
        Ok(self.workers(client).complete(succeeded(lease)).await?.into_inner().already_applied)
    }

    /// Submit, Claim(1) and Complete.
    pub async fn cycle(&self, client: usize, queue: &str) -> Result<Step, Failure> {
        self.submit(client, queue, task_name()).await?;
        self.lifecycle(client, queue).await
    }

    /// Leases what it can for as long as it may: nobody comes back for these.
    pub async fn hold(&self, queue: &str) -> Result<usize, Failure> {
        let request = pb::ClaimRequest {
            queue: queue.to_owned(),
            worker_id: "holder".into(),
            max_tasks: Some(500),
            lease_duration: Some(pb_duration(HELD)?),
            ..Default::default()
        };
        Ok(self.claim_with(0, request).await?.len())
    }

    /// Claim(1) and Complete.
    pub async fn lifecycle(&self, client: usize, queue: &str) -> Result<Step, Failure> {
        let wait = (!self.load.plain()).then_some(HELD_BACK);
        let Some(lease) = self.claim(client, queue, 1, wait).await?.pop() else { return Ok(Step::Dry) };
        self.complete(client, lease).await?;
        Ok(Step::Done(1))
    }

    /// SubmitBatch, Claim and CompleteBatch of [`BATCH`] tasks.
    pub async fn batch(&self, client: usize, queue: &str) -> Result<Step, Failure> {
        self.submit_batch(client, queue, BATCH).await?;
        let leases = self.claim(client, queue, BATCH, None).await?;
        let count = u32::try_from(leases.len())?;
        if count == 0 {
            return Ok(Step::Dry);
        }
        let requests = leases.into_iter().map(succeeded).collect();
        let answer = self.workers(client).complete_batch(pb::CompleteBatchRequest { requests }).await?.into_inner();
        let accepted = |r: &pb::CompleteResult| matches!(r.result, Some(complete_result::Result::Accepted(_)));
        if answer.results.iter().all(accepted) { Ok(Step::Done(count)) } else { Err("CompleteBatch did not accept all".into()) }
    }

    /// Puts tasks into a queue, not measured.
    pub async fn fill(&self, queue: &'static str, count: usize) -> Result<(), Failure> {
        let mut fillers = JoinSet::new();
        for client in 0..CONNECTIONS {
            let (subject, batches) = (self.clone(), count.div_ceil(FILL * CONNECTIONS));
            fillers.spawn(async move {
                for _ in 0..batches {
                    subject.submit_batch(client, queue, FILL).await?;
                }
                Ok::<(), Failure>(())
            });
        }
        while let Some(filled) = fillers.join_next().await {
            filled??;
        }
        Ok(())
    }
}

pub fn pb_duration(time: Duration) -> Result<prost_types::Duration, Failure> {
    Ok(prost_types::Duration::try_from(time)?)
}

/// The name that the task was submitted by.
pub fn task_id(lease: &pb::Lease) -> String {
    lease.task.as_ref().and_then(|task| task.spec.as_ref()).map_or(String::new(), |spec| spec.task_id.clone())
}

fn succeeded(lease: pb::Lease) -> pb::CompleteRequest {
    let success = pb::Succeeded { receipt_ref: "r".into(), ..Default::default() };
    pb::CompleteRequest { lease: lease.lease_ref, outcome: Some(complete_request::Outcome::Succeeded(success)) }
}
