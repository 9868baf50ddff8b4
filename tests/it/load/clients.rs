//! Those who call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::api::proto as pb;
use pb::complete_request::Outcome;
use pb::task_service_client::TaskServiceClient;
use pb::worker_service_client::WorkerServiceClient;
use pb::{TaskState, complete_result, heartbeat_result, submit_result};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{BATCH, Shared};
use crate::town::{QUEUE, id_of, item_status, micros, span};

/// How far producers may be ahead of workers, in tasks.
const AHEAD: usize = 200;
const KEYS: usize = 12;
const LEASE: Duration = Duration::from_secs(4);
const BACKOFF: Duration = Duration::from_millis(50);

fn spec(id: &str, number: usize) -> pb::TaskSpec {
    let fast = pb::RetryPolicy {
        max_attempts: Some(1_000),
        initial_backoff: Some(span(BACKOFF)),
        max_backoff: Some(span(BACKOFF)),
        ..Default::default()
    };
    pb::TaskSpec {
        queue: QUEUE.into(),
        task_id: id.into(),
        kind: "push".into(),
        payload: vec![b'x'; 100].into(),
        fairness_key: format!("tenant-{}", number % 3),
        ordering_key: if number.is_multiple_of(5) { format!("key-{}", number % KEYS) } else { String::new() },
        lease_duration: Some(span(LEASE)),
        retry: Some(fast),
        ..Default::default()
    }
}

pub async fn produce(shared: Arc<Shared>, client: usize) {
    let submitting = || shared.submitting.load(Ordering::Relaxed);
    for number in 0.. {
        while submitting() && shared.waiting.load(Ordering::Relaxed) > AHEAD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !submitting() {
            return;
        }
        let count = if client.is_multiple_of(3) { 1 } else { BATCH };
        let specs: Vec<_> = (0..count).map(|i| spec(&format!("m-{client}-{number}-{i}"), number * count + i)).collect();
        let ids: Vec<String> = specs.iter().map(|spec| spec.task_id.clone()).collect();
        shared.book(|book| {
            book.sent.extend(ids.iter().map(|id| (id.clone(), false)));
            if client % 3 == 2 {
                book.atomic.push(ids);
            }
        });
        while !submit(&shared, client, &specs).await && number % 2 == 0 && submitting() {}
    }
}

/// Whether all of it was acknowledged.
async fn submit(shared: &Shared, client: usize, specs: &[pb::TaskSpec]) -> bool {
    let mut tasks = TaskServiceClient::new(shared.channel(client));
    let acknowledged = |id: &String| {
        shared.waiting.fetch_add(1, Ordering::Relaxed);
        shared.book(|book| *book.sent.get_mut(id).expect("it was sent") = true);
    };
    if let [only] = specs {
        match tasks.submit(pb::SubmitRequest { spec: Some(only.clone()) }).await {
            Ok(_) => acknowledged(&only.task_id),
            Err(status) => {
                shared.failed("Submit", &status).await;
                return false;
            }
        }
        shared.answered();
        return true;
    }
    let request = pb::SubmitBatchRequest { specs: specs.to_vec(), atomic: client % 3 == 2 };
    let results = match tasks.submit_batch(request).await {
        Ok(answer) => answer.into_inner().results,
        Err(status) => {
            shared.failed("SubmitBatch", &status).await;
            return false;
        }
    };
    let mut whole = true;
    for (spec, result) in specs.iter().zip(results) {
        match result.result.expect("a result is always set") {
            submit_result::Result::Accepted(_) => acknowledged(&spec.task_id),
            submit_result::Result::Error(error) => {
                whole = false;
                shared.failed("SubmitBatch", &item_status(error)).await;
            }
        }
    }
    shared.answered();
    whole
}

pub async fn work(shared: Arc<Shared>, worker: usize) {
    let claim = pb::ClaimRequest {
        queue: QUEUE.into(),
        worker_id: format!("w{worker}"),
        max_tasks: Some(10),
        wait: Some(span(Duration::from_millis(300))),
        ..Default::default()
    };
    for round in 0.. {
        if !shared.working.load(Ordering::Relaxed) {
            return;
        }
        let mut client = WorkerServiceClient::new(shared.channel(worker));
        let mut leases = match client.claim(claim.clone()).await {
            Ok(answer) => answer.into_inner().leases,
            Err(status) => {
                shared.failed("Claim", &status).await;
                continue;
            }
        };
        shared.answered();
        for lease in &leases {
            promised(&shared, lease, lease.expire_time.as_ref());
        }
        if round % 2 == 0 && !leases.is_empty() {
            renew(&shared, worker, &leases).await;
        }
        // While there is plenty, the last one is forgotten.
        if leases.len() > 4 && shared.submitting.load(Ordering::Relaxed) {
            leases.pop();
        }
        if worker.is_multiple_of(2) {
            report_batch(&shared, worker, &leases).await;
        } else {
            for lease in &leases {
                report(&shared, worker, lease).await;
            }
        }
    }
}

fn name(lease: &pb::Lease) -> (String, i64) {
    let token = lease.lease_ref.as_ref().expect("a lease has its name").fencing_token;
    (id_of(lease.task.as_ref().expect("a lease has its task")).to_owned(), token)
}

fn promised(shared: &Shared, lease: &pb::Lease, until: Option<&prost_types::Timestamp>) {
    shared.book(|book| book.promised.insert(name(lease), micros(until)));
}

async fn renew(shared: &Shared, worker: usize, leases: &[pb::Lease]) {
    let item = |lease: &pb::Lease| pb::HeartbeatItem { lease: lease.lease_ref.clone(), ..Default::default() };
    let request = pb::HeartbeatRequest { worker_id: format!("w{worker}"), items: leases.iter().map(item).collect() };
    let results = match WorkerServiceClient::new(shared.channel(worker)).heartbeat(request).await {
        Ok(answer) => answer.into_inner().results,
        Err(status) => return shared.failed("Heartbeat", &status).await,
    };
    shared.answered();
    for (lease, result) in leases.iter().zip(results) {
        match result.result.expect("a result is always set") {
            heartbeat_result::Result::Held(held) => promised(shared, lease, held.expire_time.as_ref()),
            heartbeat_result::Result::Error(error) => refused(shared, "Heartbeat", &item_status(error)).await,
        }
    }
}

/// What the worker says of this lease: mostly that it succeeded. The same, however often it is said.
fn said(lease: &pb::Lease) -> (TaskState, String, pb::CompleteRequest) {
    let (id, token) = name(lease);
    let (state, receipt_ref, outcome) = if id.ends_with('7') {
        (TaskState::Skipped, String::new(), Outcome::Skipped(pb::Skipped { reason: "the device is offline".into() }))
    } else {
        let receipt_ref = format!("{id}:{token}");
        let succeeded = pb::Succeeded { receipt_ref: receipt_ref.clone(), ..Default::default() };
        (TaskState::Completed, receipt_ref, Outcome::Succeeded(succeeded))
    };
    (state, receipt_ref, pb::CompleteRequest { lease: lease.lease_ref.clone(), outcome: Some(outcome) })
}

fn ended(shared: &Shared, lease: &pb::Lease) {
    let (id, _) = name(lease);
    let (state, receipt, _) = said(lease);
    let one_less = |waiting: usize| Some(waiting.saturating_sub(1));
    let _ = shared.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    shared.book(|book| {
        let end = (state, receipt);
        if let Some(other) = book.ended.insert(id.clone(), end.clone()).filter(|other| *other != end) {
            book.broken.push(format!("{id} was acknowledged to end twice: {other:?}, {end:?}"));
        }
    });
}

/// A refusal of a lease that may have run out while the service was away is no broken promise.
async fn refused(shared: &Shared, call: &str, status: &Status) {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    if !["LEASE_EXPIRED", "LEASE_SUPERSEDED", "TASK_TERMINAL"].contains(&reason.as_str()) {
        shared.failed(call, status).await;
    }
}

async fn report(shared: &Shared, worker: usize, lease: &pb::Lease) {
    let (_, _, request) = said(lease);
    shared.book(|book| book.promised.remove(&name(lease)));
    for tries in 0.. {
        match WorkerServiceClient::new(shared.channel(worker)).complete(request.clone()).await {
            Ok(_) => {
                shared.answered();
                return ended(shared, lease);
            }
            Err(status) if status.code() == Code::FailedPrecondition => return refused(shared, "Complete", &status).await,
            Err(status) => shared.failed("Complete", &status).await,
        }
        if tries == 0 && name(lease).1 % 2 == 0 || !shared.working.load(Ordering::Relaxed) {
            return;
        }
    }
}

async fn report_batch(shared: &Shared, worker: usize, leases: &[pb::Lease]) {
    if leases.is_empty() {
        return;
    }
    shared.book(|book| {
        leases.iter().for_each(|lease| {
            book.promised.remove(&name(lease));
        })
    });
    let requests = leases.iter().map(|lease| said(lease).2).collect();
    let results = match WorkerServiceClient::new(shared.channel(worker)).complete_batch(pb::CompleteBatchRequest { requests }).await
    {
        Ok(answer) => answer.into_inner().results,
        Err(status) => return shared.failed("CompleteBatch", &status).await,
    };
    shared.answered();
    for (lease, result) in leases.iter().zip(results) {
        match result.result.expect("a result is always set") {
            complete_result::Result::Accepted(_) => ended(shared, lease),
            complete_result::Result::Error(error) => refused(shared, "CompleteBatch", &item_status(error)).await,
        }
    }
}
