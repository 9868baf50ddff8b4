//! Watches: ten thousand of them on a hundred connections. A hundred are told of a thousand events a second, as many as are told stay
//! unread, ten for one, and all others are idle. Taken are the server's memory, and the time from the moment at which a task was *due to be
//! submitted* to its event in the watcher's hands. There is no peer to compare with: nothing else here has a watch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::counters::precise;
use super::errors::Errors;
use super::lab::Lab;
use super::measure::{Plan, Sample, line, millis, percentile};
use super::report::Outcome;
use super::scenarios::task_name;
use super::{Failure, say};
use crate::api::proto::task_service_client::TaskServiceClient;
use crate::api::proto::watch_response::Item;
use crate::api::proto::{self as pb, WatchResponse, WatchStart};

const QUEUE: &str = "watch";
const WATCHERS: usize = 10_000;
/// Those that are told of events and read them.
const ACTIVE: usize = 100;
/// Those that are told of the same, and never read. Their connections are theirs alone: a connection's window is one for all its streams.
const UNREAD: usize = 1_000;
const CONNECTIONS: usize = 90;
const UNREAD_CONNECTIONS: usize = 10;
/// So that they are stuck from the first events on.
const UNREAD_WINDOW: u32 = 1_024;
/// Events per second, and how many of them come with one call.
const PACE: u32 = 1_000;
const TOGETHER: u32 = 10;
/// How long the last events may take before they count as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// When each task was due to be submitted, and how long its event took.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<(HashMap<String, Instant>, Vec<Duration>)>>);

impl Board {
    fn planned(&self, task_id: String, at: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.insert(task_id, at);
    }

    fn seen(&self, task_id: &str) {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = board.0.remove(task_id).map(|planned| planned.elapsed());
        board.1.extend(taken);
    }

    fn missing(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }
}

pub async fn run(lab: &mut Lab<'_>, plan: Plan, rounds: u32) -> Result<Outcome, Failure> {
    let errors = Errors::default();
    let mut samples = Vec::new();
    for round in 0..rounds {
        let sample = measure(lab, plan, &errors).await?;
        say!("bench: watch round {}/{rounds}: {}", round + 1, line(&sample));
        samples.push(sample);
    }
    let watchers = ("watchers", [precise(i64::try_from(WATCHERS)?), f64::NAN]);
    let outcome = Outcome::new("watch", ["leasehold", "no peer"], &[samples, Vec::new()], &[watchers]);
    Ok(outcome.with_errors(&[errors, Errors::default()]))
}

async fn measure(lab: &mut Lab<'_>, plan: Plan, errors: &Errors) -> Result<Sample, Failure> {
    let address = lab.servers[0].address().to_owned();
    lab.leasehold.submit(0, QUEUE, task_name()).await?;
    let before = lab.servers[0].memory()?;
    let mut watches = JoinSet::new();
    let board = Board::default();
    let channels = connect(&address, CONNECTIONS, None).await?;
    for number in 0..WATCHERS - UNREAD {
        let share = if number < ACTIVE { active(number) } else { format!("idle-{number}") };
        let mut stream = watch(channels[number % CONNECTIONS].clone(), share).await?;
        let (board, errors) = (board.clone(), errors.clone());
        watches.spawn(async move {
            loop {
                match stream.message().await {
                    Ok(Some(WatchResponse { item: Some(Item::Event(event)), .. })) => {
                        board.seen(&event.task.unwrap_or_default().task_id);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return errors.note("a watch ended"),
                    Err(status) => return errors.note(status),
                }
            }
        });
    }
    let mut unread = Vec::with_capacity(UNREAD);
    for (number, channel) in
        connect(&address, UNREAD_CONNECTIONS, Some(UNREAD_WINDOW)).await?.iter().cycle().take(UNREAD).enumerate()
    {
        unread.push(watch(channel.clone(), active(number % ACTIVE)).await?);
    }
    let opened = lab.servers[0].memory()?;
    submit(&address, plan, &board, errors).await?;
    let last = Instant::now();
    while board.missing() > 0 && last.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if board.missing() > 0 {
        errors.note("an event was not delivered within ten seconds");
    }
    let after = lab.servers[0].memory()?;
    watches.shutdown().await;
    drop(unread);
    let mut times = std::mem::take(&mut board.0.lock().unwrap_or_else(PoisonError::into_inner).1);
    times.sort_unstable();
    Ok(vec![
        ("planned to seen p50, ms", millis(percentile(&times, 0.50))),
        ("planned to seen p99, ms", millis(percentile(&times, 0.99))),
        ("server before, MiB", before),
        ("server with watches, MiB", opened),
        ("server after events, MiB", after),
    ])
}

fn active(number: usize) -> String {
    format!("active-{number}")
}

/// `window`: how much of a stream the client takes in unread; absent: what is usual.
async fn connect(address: &str, count: usize, window: Option<u32>) -> Result<Vec<Channel>, Failure> {
    let mut channels = Vec::with_capacity(count);
    for _ in 0..count {
        channels.push(Endpoint::from_shared(address.to_owned())?.initial_stream_window_size(window).connect().await?);
    }
    Ok(channels)
}

async fn watch(channel: Channel, share: String) -> Result<Streaming<WatchResponse>, Failure> {
    let filter = pb::TaskFilter { queue: QUEUE.to_owned(), fairness_key: Some(share), ..pb::TaskFilter::default() };
    let request = pb::WatchRequest { filter: Some(filter), start: WatchStart::Now as i32, ..pb::WatchRequest::default() };
    Ok(TaskServiceClient::new(channel).watch(request).await?.into_inner())
}

/// Submits at the pace, whether earlier calls were answered or not, over a connection of its own.
async fn submit(address: &str, plan: Plan, board: &Board, errors: &Errors) -> Result<(), Failure> {
    let tasks = TaskServiceClient::new(Endpoint::from_shared(address.to_owned())?.connect().await?);
    let mut planned = Instant::now();
    let end = planned + plan.window;
    let mut calls = JoinSet::new();
    let mut next = 0;
    while planned < end {
        planned += Duration::from_secs(1) * TOGETHER / PACE;
        tokio::time::sleep_until(planned.into()).await;
        let mut specs = Vec::new();
        for _ in 0..TOGETHER {
            let task_id = task_name();
            board.planned(task_id.clone(), planned);
            next += 1;
            let (queue, fairness_key) = (QUEUE.to_owned(), active(next % ACTIVE));
            specs.push(pb::TaskSpec { queue, task_id, fairness_key, ..pb::TaskSpec::default() });
        }
        let (mut tasks, errors) = (tasks.clone(), errors.clone());
        calls.spawn(async move {
            if let Err(status) = tasks.submit_batch(pb::SubmitBatchRequest { specs, atomic: false }).await {
                errors.note(status);
            }
        });
    }
    drop(tokio::time::timeout(PATIENCE, calls.join_all()).await);
    Ok(())
}
