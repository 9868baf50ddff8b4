//! `leasehold demo`: one notification, two workers, and what must hold when the first one freezes in the middle.
//!
//! Everything but the push provider is real: each step is a call to the server that `--server` names. What the demo says it checks
//! against the server's answers, and it fails if one promise does not hold. The waits are the server's (a long poll, `wait_until`);
//! nothing here sleeps, and each run has a queue of its own, so that it can be repeated.

mod promises;
mod provider;
mod show;
mod timeline;

use std::time::Duration;

use clap::Args;
use prost_types::Duration as Span;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::Failure;
use super::connection::{connect, reason, refused};
use crate::api::proto as pb;
use crate::api::proto::admin_service_client::AdminServiceClient;
use crate::api::proto::complete_request::Outcome as Report;
use crate::api::proto::task_service_client::TaskServiceClient;
use crate::api::proto::worker_service_client::WorkerServiceClient;
use crate::api::proto::{Lease, LeaseRef, TaskState};
use promises::Seen;
use provider::Provider;
use show::Show;

const TASK: &str = "notify:u-b:d-b1:m-9:v1";
const EVENT: &str = "evt:m-9:v1";
const DEVICE: &str = "d-b1";
const MESSAGE: &str = "m-9";
/// What completion is to prove, where the server lets a queue say so.
const BOUNDARY: &str = "provider_accepted";
/// The shortest lease there is: somebody watches.
const LEASE: Span = Span { seconds: 1, nanos: 0 };
/// The server's long poll. What is waited for comes after a second or two.
const WAIT: Span = Span { seconds: 30, nanos: 0 };
/// Longer than the longest wait.
const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Args)]
pub(super) struct Arguments {
    /// The server's gRPC address.
    #[arg(long, env = "LEASEHOLD_SERVER", default_value = "http://127.0.0.1:7233")]
    server: String,
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async move {
        let channel = connect(&arguments.server, PATIENCE).await?;
        let mut demo = Demo {
            admin: AdminServiceClient::new(channel.clone()),
            tasks: TaskServiceClient::new(channel.clone()),
            workers: WorkerServiceClient::new(channel),
            queue: format!("demo-{:08x}", fastrand::u32(..)),
            provider: Provider::default(),
            show: Show::on_stdout(),
        };
        demo.opening(&arguments.server).await?;
        let seen = demo.play().await?;
        demo.closing(&seen)
    })
}

struct Demo {
    admin: AdminServiceClient<Channel>,
    tasks: TaskServiceClient<Channel>,
    workers: WorkerServiceClient<Channel>,
    queue: String,
    provider: Provider,
    show: Show,
}

impl Demo {
    async fn opening(&mut self, server: &str) -> Result<(), Failure> {
        let info = self.admin.get_server_info(pb::GetServerInfoRequest::default()).await.map_err(refused("GetServerInfo"))?;
        let (version, queue) = (info.into_inner().version, self.queue.clone());
        self.show.heading("One notification, two workers")?;
        for line in [
            &format!("  A chat service committed message {MESSAGE} and, with it, the event {EVENT}: device {DEVICE} of user"),
            "  u-b shall show a hint. Worker w1 has the push accepted and freezes before it can say so.",
            "",
            &format!("  The push provider is simulated in here. All the rest is asked of Leasehold {version} at"),
            &format!("  {server}, queue {queue}."),
            "",
        ] {
            self.show.line(line)?;
        }
        self.name_the_boundary().await
    }

    /// What completion proves is the queue's to say; not every server, and not every caller, can set it.
    async fn name_the_boundary(&mut self) -> Result<(), Failure> {
        let queue = pb::Queue { name: self.queue.clone(), boundary: Some(BOUNDARY.to_owned()), ..pb::Queue::default() };
        let request = pb::PutQueueRequest { queue: Some(queue), reason: "the demo".to_owned(), ..pb::PutQueueRequest::default() };
        match self.admin.put_queue(request).await {
            Ok(_) => Ok(self.show.step("operator", &format!("makes the queue: its completion proves {BOUNDARY}, and no more"))?),
            Err(status) if matches!(status.code(), Code::Unimplemented | Code::PermissionDenied) => Ok(()),
            Err(status) => Err(refused("PutQueue")(status)),
        }
    }

    async fn play(&mut self) -> Result<Seen, Failure> {
        let (first, again) =
            (self.submit("submits").await?, self.submit("submits it again, as an outbox does after a crash").await?);
        let w1 = self.w1_begins_and_freezes().await?;
        let lost = self.lease_ends().await?;
        let w2 = self.w2_claims().await?;
        let (completed, receipt) = self.w2_looks_and_completes(&w2).await?;
        let late = self.w1_wakes_up(&w1, &receipt).await?;
        let task = self.get_task(None).await?;
        let request = pb::ListAttemptsRequest { task: Some(self.task_ref()), ..pb::ListAttemptsRequest::default() };
        let attempts = self.tasks.list_attempts(request).await.map_err(refused("ListAttempts"))?.into_inner().attempts;
        let pushes = self.provider.pushes();
        Ok(Seen { first, again, w1, lost, w2, completed, receipt, late, task, attempts, pushes })
    }

    async fn submit(&mut self, does: &str) -> Result<pb::SubmitResponse, Failure> {
        let retry = pb::RetryPolicy {
            // Half a second, exactly: long enough to be seen, and nobody waits long.
            initial_backoff: Some(Span { seconds: 0, nanos: 500_000_000 }),
            jitter: Some(0.0),
            ..pb::RetryPolicy::default()
        };
        let spec = pb::TaskSpec {
            queue: self.queue.clone(),
            task_id: TASK.to_owned(),
            kind: "notify".to_owned(),
            event_id: EVENT.to_owned(),
            target: DEVICE.to_owned(),
            subjects: vec![pb::Subject { id: MESSAGE.to_owned(), version: 1, raise_floor: false }],
            retry: Some(retry),
            ..pb::TaskSpec::default()
        };
        let answer = self.tasks.submit(pb::SubmitRequest { spec: Some(spec) }).await.map_err(refused("Submit"))?.into_inner();
        let what = if answer.created { "a new task" } else { "the same task, and no second one" };
        let state = answer.task.as_ref().map_or("", |task| timeline::state(task.state()));
        self.show.step("producer", &format!("{does}: {TASK}"))?;
        self.show.more(&format!("→ {what}, {state}, created = {}", answer.created))?;
        Ok(answer)
    }

    async fn claim(&mut self, worker: &str, wait: Option<Span>, lease: Option<Span>) -> Result<Lease, Failure> {
        let request = pb::ClaimRequest {
            queue: self.queue.clone(),
            worker_id: worker.to_owned(),
            wait,
            lease_duration: lease,
            // The promise to call BeginEffect before acting outside.
            reports_effect: true,
            ..pb::ClaimRequest::default()
        };
        let leases = self.workers.claim(request).await.map_err(refused("Claim"))?.into_inner().leases;
        leases.into_iter().next().ok_or_else(|| format!("{worker} was given no lease").into())
    }

    async fn w1_begins_and_freezes(&mut self) -> Result<Lease, Failure> {
        let lease = self.claim("w1", None, Some(LEASE)).await?;
        let token = token(&lease);
        self.show.step("w1", &format!("claims it for {} s → attempt {}, fencing token {token}", LEASE.seconds, lease.attempt))?;
        let request_id = format!("push-{token}");
        let begin = pb::BeginEffectRequest { lease: lease.lease_ref.clone(), effect_ref: request_id.clone(), ..Default::default() };
        self.workers.begin_effect(begin).await.map_err(refused("BeginEffect"))?;
        self.show.step("w1", &format!("says, before it acts outside: the effect {request_id} is about to begin → it may"))?;
        let receipt = self.provider.push(&request_id);
        self.show.step("provider", &format!("(simulated) accepts {request_id} and answers with {receipt}"))?;
        self.show.step("w1", "freezes: it reads no answer, sends no heartbeat, reports nothing")?;
        Ok(lease)
    }

    /// Waits for the lease's end to be seen, which time alone brings about.
    async fn lease_ends(&mut self) -> Result<pb::Task, Failure> {
        let next = [TaskState::RetryAt as i32, TaskState::Ready as i32];
        let task = self.get_task(Some(pb::WaitUntil { states: next.to_vec(), timeout: Some(WAIT) })).await?;
        let state = timeline::state(task.state());
        let class = task.last_error.as_ref().map_or("not told", |error| timeline::error_class(error.error_class()));
        self.show.step("server", &format!("ends the lease. What became of the push: {class} → {state}"))?;
        Ok(task)
    }

    async fn w2_claims(&mut self) -> Result<Lease, Failure> {
        let lease = self.claim("w2", Some(WAIT), None).await?;
        let what = format!("gets it by long poll, after the backoff → attempt {}, fencing token {}", lease.attempt, token(&lease));
        self.show.step("w2", &what)?;
        for attempt in &lease.unknown_attempts {
            let class = timeline::error_class(attempt.error_class());
            self.show.more(&format!("and is told: attempt {} is {class}, effect_ref {}", attempt.number, attempt.effect_ref))?;
        }
        Ok(lease)
    }

    async fn w2_looks_and_completes(&mut self, lease: &Lease) -> Result<(pb::Task, String), Failure> {
        let earlier = lease.unknown_attempts.last().ok_or("w2 was not told of the unknown attempt")?.effect_ref.clone();
        let receipt = self.provider.find_receipt(&earlier).ok_or_else(|| format!("the provider knows no {earlier}"))?;
        self.show.step("w2", &format!("does not push. It asks the provider (simulated) what became of {earlier}"))?;
        self.show.more(&format!("→ accepted, {receipt}"))?;
        let answer = self.complete(lease, &receipt, &earlier).await.map_err(refused("w2's Complete"))?;
        let task = answer.task.unwrap_or_default();
        let state = timeline::state(task.state());
        self.show.step("w2", &format!("completes with that receipt → {state}; what that proves: {}", task.boundary))?;
        Ok((task, receipt))
    }

    /// The late report. That it be refused is the point.
    async fn w1_wakes_up(&mut self, lease: &Lease, receipt: &str) -> Result<Status, Failure> {
        self.show.step("w1", &format!("wakes up, reads the provider's answer, and reports: accepted, {receipt}"))?;
        let own = token(lease);
        let Err(status) = self.complete(lease, receipt, &format!("push-{own}")).await else {
            return Err("w1's late report was accepted although its lease was over".into());
        };
        self.show.more(&format!("→ refused: {}", reason(&status)))?;
        self.show.more(&format!("  {}", status.message()))?;
        Ok(status)
    }

    async fn complete(&mut self, lease: &Lease, receipt: &str, effect: &str) -> Result<pb::CompleteResponse, Status> {
        let succeeded =
            pb::Succeeded { receipt_ref: receipt.to_owned(), effect_ref: effect.to_owned(), ..pb::Succeeded::default() };
        let request = pb::CompleteRequest { lease: lease.lease_ref.clone(), outcome: Some(Report::Succeeded(succeeded)) };
        Ok(self.workers.complete(request).await?.into_inner())
    }

    async fn get_task(&mut self, wait_until: Option<pb::WaitUntil>) -> Result<pb::Task, Failure> {
        let request = pb::GetTaskRequest { task: Some(self.task_ref()), wait_until, ..pb::GetTaskRequest::default() };
        let answer = self.tasks.get_task(request).await.map_err(refused("GetTask"))?.into_inner();
        answer.task.ok_or_else(|| "GetTask answered no task".into())
    }

    fn task_ref(&self) -> pb::TaskRef {
        pb::TaskRef { queue: self.queue.clone(), task_id: TASK.to_owned(), ..pb::TaskRef::default() }
    }

    /// The record, and the promises checked against it.
    fn closing(&mut self, seen: &Seen) -> Result<(), Failure> {
        self.show.heading("The server's record (GetTask, ListAttempts)")?;
        for line in timeline::timeline(&seen.task, &seen.attempts) {
            self.show.line(&line)?;
        }
        self.show.line(&format!("\n  {}", timeline::summary(&seen.task)))?;
        self.show.heading("What must hold")?;
        for (text, kept) in seen.promises() {
            self.show.promise(&text, kept)?;
        }
        self.show.line("")?;
        match self.show.broken() {
            0 => Ok(()),
            1 => Err("one promise does not hold".into()),
            several => Err(format!("{several} promises do not hold").into()),
        }
    }
}

fn token(lease: &Lease) -> i64 {
    lease.lease_ref.as_ref().map_or(0, |lease: &LeaseRef| lease.fencing_token)
}
