//! Leases that are lost beside the crowd, and how soon each of them is found.
//!
//! Each of them costs five transactions, so some are lost while the capacity is measured too. By workers of their own thread, runtime and connections, as on a machine of their own: what waits behind the crowd's calls in this process
//! was answered by the server long ago.

use std::sync::PoisonError;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Crowd, WAIT, task_name};
use crate::api::proto as pb;
use crate::cli::bench::Failure;
use crate::cli::bench::leasehold::{Leasehold, pb_duration, task_id};
use crate::cli::bench::load::Load;

const QUEUE: &str = "overload-lost";
/// Leases that are lost each second, how long they are, and who waits for those tasks to come back.
const PER_SECOND: u32 = 10;
const LEASE: Duration = Duration::from_secs(1);
const FINDERS: usize = 4;

/// Leases are lost at the server with this address until the crowd's work is over.
pub(super) fn start(crowd: Crowd, address: &str) -> JoinHandle<Result<(), Failure>> {
    let address = address.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let leasehold = Leasehold::connect(&[&address], Load::default()).await?;
            let crowd = Crowd { leasehold, ..crowd };
            let mut workers = JoinSet::new();
            (0..FINDERS).for_each(|client| drop(workers.spawn(find(crowd.clone(), client))));
            workers.spawn(lose(crowd));
            workers.join_all().await;
            Ok(())
        })
    })
}

/// Submits what will be claimed and forgotten.
async fn lose(crowd: Crowd) {
    let at_once = Some(prost_types::Duration::default());
    let retry = pb::RetryPolicy { initial_backoff: at_once, max_backoff: at_once, ..Default::default() };
    while !crowd.counts.over() {
        let spec = pb::TaskSpec { retry: Some(retry), ..crowd.leasehold.spec(QUEUE, task_name()) };
        if let Err(error) = crowd.leasehold.submit_spec(0, spec).await {
            crowd.obey(error).await;
        }
        tokio::time::sleep(Duration::from_secs(1) / PER_SECOND).await;
    }
}

/// Leases for one worker, who forgets each task once and completes it when it comes back. One worker that is silent is no stalled fleet.
async fn find(crowd: Crowd, client: usize) {
    let request = pb::ClaimRequest {
        queue: QUEUE.to_owned(),
        worker_id: "forgetful".into(),
        max_tasks: Some(1),
        wait: pb_duration(WAIT).ok(),
        lease_duration: pb_duration(LEASE).ok(),
        ..Default::default()
    };
    while !crowd.counts.over() {
        let leases = match crowd.leasehold.claim_with(client, request.clone()).await {
            Ok(leases) => leases,
            Err(error) => {
                crowd.obey(error).await;
                continue;
            }
        };
        for lease in leases {
            let now = Instant::now();
            let name = task_id(&lease);
            let ended = crowd.counts.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            if let Some(ended) = ended {
                let took = now.saturating_duration_since(ended);
                crowd.counts.found.lock().unwrap_or_else(PoisonError::into_inner).push(took);
                crowd.complete(client, lease).await;
            } else if let Some(remaining) = lease.remaining.and_then(|span| Duration::try_from(span).ok()) {
                crowd.counts.lost.lock().unwrap_or_else(PoisonError::into_inner).insert(name, now + remaining);
            }
        }
    }
}
