//! Calls as a client makes them: to one server or another, with an end to its patience, and written down with what was said.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::repair_service_client::RepairServiceClient;
use pb::task_service_client::TaskServiceClient;
use pb::worker_service_client::WorkerServiceClient;
use pb::{complete_request, heartbeat_result, raise_subject_request, resolve_repair_request, submit_result};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use super::history::{Call, Granted, History, Micros, Said, What};
use crate::town::{id_of, item_status, micros};

/// How many subjects there are, and so floors.
pub const SUBJECTS: usize = 6;
/// How long a client waits for an answer before it takes the call for lost.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// What all clients of a run share.
pub struct Shared {
    begin: Instant,
    history: Mutex<History>,
    servers: Mutex<Vec<Channel>>,
    /// New work is made, and workers misbehave.
    pub storming: AtomicBool,
    pub working: AtomicBool,
    /// Submits and Completes that were accepted so far.
    pub agreed: AtomicUsize,
    /// About how many tasks are unfinished.
    pub unfinished: AtomicUsize,
    /// What clients believe the floors to be.
    pub floors: [AtomicI64; SUBJECTS],
    /// Acknowledged ids, to be canceled.
    pub recent: Mutex<Vec<String>>,
}

impl Shared {
    pub fn new(servers: Vec<Channel>) -> Shared {
        Shared {
            begin: Instant::now(),
            history: Mutex::default(),
            servers: Mutex::new(servers),
            storming: AtomicBool::new(true),
            working: AtomicBool::new(true),
            agreed: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            floors: [const { AtomicI64::new(0) }; SUBJECTS],
            recent: Mutex::default(),
        }
    }

    pub fn now(&self) -> Micros {
        Micros::try_from(self.begin.elapsed().as_micros()).expect("a run is short")
    }

    pub fn storms(&self) -> bool {
        self.storming.load(Ordering::Relaxed)
    }

    pub fn write<T>(&self, write: impl FnOnce(&mut History) -> T) -> T {
        write(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on this is the server of that number.
    pub fn turn_to(&self, number: usize, server: Channel) {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)[number] = server;
    }
}

/// One client, with its own share of chance.
pub struct Client {
    pub shared: Arc<Shared>,
    pub chance: fastrand::Rng,
    /// The server that it calls.
    pub server: usize,
}

/// Without an answer: a decision, or nothing that could be relied upon.
fn unsaid<T>(status: &Status) -> Said<T> {
    let info = status.get_details_error_info();
    let open = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded);
    info.filter(|_| !open).map_or(Said::Nothing, |info| Said::No(info.reason))
}

impl Client {
    /// A part of this client that acts at the same time.
    pub fn fork(&mut self) -> Client {
        Client { shared: self.shared.clone(), chance: self.chance.fork(), server: self.server }
    }

    /// Whether something happens that happens in so many of a hundred cases.
    pub fn in_100(&mut self, cases: u8) -> bool {
        self.chance.u8(..100) < cases
    }

    fn channel(&self) -> Channel {
        let servers = self.shared.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers[self.server % servers.len()].clone()
    }

    fn tasks(&self) -> TaskServiceClient<Channel> {
        TaskServiceClient::new(self.channel())
    }

    fn workers(&self) -> WorkerServiceClient<Channel> {
        WorkerServiceClient::new(self.channel())
    }

    /// Does something else for so many milliseconds, so that clients, faults and the ends of leases meet at all times. (Nothing is waited for.)
    pub async fn pause(&mut self, range: Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.chance.u64(range))).await;
    }

    /// Waits for an answer. Whoever gets none turns to another server.
    async fn ask<T>(&mut self, call: impl Future<Output = Result<Response<T>, Status>>) -> Said<T> {
        let said = match tokio::time::timeout(ANSWER_WAIT, call).await {
            Ok(Ok(answer)) => Said::Yes(answer.into_inner()),
            Ok(Err(status)) => unsaid(&status),
            Err(_) => Said::Nothing,
        };
        if matches!(said, Said::Nothing) {
            self.server += 1;
            // Not to knock at a dead server's port without end.
            self.pause(5..30).await;
        }
        said
    }

    fn note(&self, before: Micros, what: What) {
        let after = self.shared.now();
        if matches!(what, What::Submit { said: Said::Yes(_), .. } | What::Complete { said: Said::Yes(()), .. }) {
            self.shared.agreed.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.write(|history| history.calls.push(Call { before, after, what }));
    }

    /// Each with its own answer; whether all of them were answered.
    pub async fn submit(&mut self, specs: &[pb::TaskSpec], atomic: bool) -> bool {
        let before = self.shared.now();
        let said: Vec<Said<bool>> = if let [only] = specs {
            let mut client = self.tasks();
            let said = self.ask(client.submit(pb::SubmitRequest { spec: Some(only.clone()) })).await;
            vec![map(said, |accepted| accepted.created)]
        } else {
            let mut client = self.tasks();
            match self.ask(client.submit_batch(pb::SubmitBatchRequest { specs: specs.to_vec(), atomic })).await {
                Said::Yes(answer) => answer.results.into_iter().map(submitted).collect(),
                Said::No(reason) => vec![Said::No(reason); specs.len()],
                Said::Nothing => vec![Said::Nothing; specs.len()],
            }
        };
        let answered = said.iter().all(|said| !matches!(said, Said::Nothing));
        for (spec, said) in specs.iter().zip(said) {
            if said.yes().is_some() {
                self.shared.unfinished.fetch_add(1, Ordering::Relaxed);
                self.shared.recent.lock().unwrap_or_else(PoisonError::into_inner).push(spec.task_id.clone());
            }
            self.note(before, What::Submit { id: spec.task_id.clone(), said });
        }
        answered
    }

    /// Nothing: no answer.
    pub async fn claim(&mut self, request: &pb::ClaimRequest) -> Option<Vec<pb::Lease>> {
        let (before, mut client) = (self.shared.now(), self.workers());
        let said = map(self.ask(client.claim(request.clone())).await, |answer| answer.leases);
        let granted = |lease: &pb::Lease| {
            let (id, token) = name(lease);
            Granted { id, token, until: micros(lease.expire_time.as_ref()) }
        };
        let told = match &said {
            Said::Yes(leases) => Said::Yes(leases.iter().map(granted).collect()),
            Said::No(reason) => Said::No(reason.clone()),
            Said::Nothing => Said::Nothing,
        };
        self.note(before, What::Claim { said: told });
        said.yes().cloned()
    }

    /// What the service wants of the holder.
    pub async fn heartbeat(&mut self, worker: &str, lease: &pb::Lease) -> Said<pb::LeaseHeld> {
        let (before, mut client) = (self.shared.now(), self.workers());
        let item = pb::HeartbeatItem { lease: lease.lease_ref.clone(), ..Default::default() };
        let request = pb::HeartbeatRequest { worker_id: worker.into(), items: vec![item] };
        let said = match self.ask(client.heartbeat(request)).await {
            Said::Yes(mut answer) => match answer.results.remove(0).result.expect("a result is always set") {
                heartbeat_result::Result::Held(held) => Said::Yes(held),
                heartbeat_result::Result::Error(error) => unsaid(&item_status(error)),
            },
            Said::No(reason) => Said::No(reason),
            Said::Nothing => Said::Nothing,
        };
        let (id, token) = name(lease);
        let until = map(said.clone(), |held| micros(held.expire_time.as_ref()));
        self.note(before, What::Heartbeat { id, token, said: until });
        said
    }

    pub async fn begin_effect(&mut self, lease: &pb::Lease) -> Said<()> {
        let (before, mut client) = (self.shared.now(), self.workers());
        let (id, token) = name(lease);
        let effect_ref = format!("call-{id}-{token}");
        let request = pb::BeginEffectRequest { lease: lease.lease_ref.clone(), effect_ref, lease_duration: None };
        let said = map(self.ask(client.begin_effect(request)).await, drop);
        self.note(before, What::BeginEffect { id, token, said: said.clone() });
        said
    }

    /// The worker acts outside, without anybody's leave.
    pub fn act(&self, lease: &pb::Lease) {
        let (id, token) = name(lease);
        self.note(self.shared.now(), What::Effect { id, token });
    }

    pub async fn report(&mut self, lease: &pb::Lease, outcome: complete_request::Outcome) -> Said<()> {
        let (before, mut client) = (self.shared.now(), self.workers());
        let (outcome_name, receipt) = outcome_of(&outcome);
        let request = pb::CompleteRequest { lease: lease.lease_ref.clone(), outcome: Some(outcome) };
        let said = map(self.ask(client.complete(request)).await, drop);
        let (id, token) = name(lease);
        if said.yes().is_some() {
            let one_less = |unfinished: usize| Some(unfinished.saturating_sub(1));
            let _ = self.shared.unfinished.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
        self.note(before, What::Complete { id, token, outcome: outcome_name, receipt, said: said.clone() });
        said
    }

    pub async fn cancel(&mut self, task: pb::TaskRef) {
        let (before, mut client, id) = (self.shared.now(), self.tasks(), task.task_id.clone());
        let said = map(self.ask(client.cancel(pb::CancelRequest { task: Some(task), reason: "recalled".into() })).await, drop);
        self.note(before, What::Cancel { id, said });
    }

    pub async fn raise(&mut self, queue: &str, subject: &str, version: i64) {
        let (before, mut client) = (self.shared.now(), self.tasks());
        let request = pb::RaiseSubjectRequest {
            queue: queue.into(),
            subject_id: subject.into(),
            floor: Some(raise_subject_request::Floor::MinVersion(version)),
            reason: "edited".into(),
        };
        let said = map(self.ask(client.raise_subject(request)).await, drop);
        self.note(before, What::Raise { subject: subject.into(), version, said });
    }

    /// The queue's open repairs.
    pub async fn repairs(&mut self, queue: &str) -> Vec<pb::Repair> {
        let mut client = RepairServiceClient::new(self.channel());
        let filter = Some(pb::TaskFilter { queue: queue.into(), ..Default::default() });
        let asked = pb::ListRepairsRequest { filter, ..Default::default() };
        match self.ask(client.list_repairs(asked)).await {
            Said::Yes(page) => page.repairs,
            _ => Vec::new(),
        }
    }

    pub async fn discard(&mut self, task: pb::TaskRef) {
        let (before, id) = (self.shared.now(), task.task_id.clone());
        let mut client = RepairServiceClient::new(self.channel());
        let request = pb::ResolveRepairRequest {
            task: Some(task),
            resolution: Some(resolve_repair_request::Resolution::Discard(pb::Discard {})),
            reason: "nobody needs it".into(),
            actor: "ann".into(),
        };
        let said = map(self.ask(client.resolve_repair(request)).await, drop);
        self.note(before, What::Discard { id, said });
    }
}

fn map<T, U>(said: Said<T>, change: impl FnOnce(T) -> U) -> Said<U> {
    match said {
        Said::Yes(told) => Said::Yes(change(told)),
        Said::No(reason) => Said::No(reason),
        Said::Nothing => Said::Nothing,
    }
}

fn submitted(result: pb::SubmitResult) -> Said<bool> {
    match result.result.expect("a result is always set") {
        submit_result::Result::Accepted(accepted) => Said::Yes(accepted.created),
        submit_result::Result::Error(error) => unsaid(&item_status(error)),
    }
}

/// The task and the token.
pub fn name(lease: &pb::Lease) -> (String, i64) {
    let token = lease.lease_ref.as_ref().expect("a lease has its name").fencing_token;
    (id_of(lease.task.as_ref().expect("a lease has its task")).to_owned(), token)
}

/// As the log tells it, and the receipt with it.
fn outcome_of(outcome: &complete_request::Outcome) -> (&'static str, String) {
    match outcome {
        complete_request::Outcome::Succeeded(succeeded) => ("SUCCEEDED", succeeded.receipt_ref.clone()),
        complete_request::Outcome::Failed(_) => ("FAILED", String::new()),
        complete_request::Outcome::Skipped(_) => ("SKIPPED", String::new()),
        complete_request::Outcome::Canceled(_) => ("CANCELED", String::new()),
        complete_request::Outcome::Released(_) => ("RELEASED", String::new()),
    }
}
