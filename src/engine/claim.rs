//! Claim: calls wait in line, one line per queue; whoever serves the line takes READY tasks for all of them in one transaction.

mod ahead;
mod batch;
mod dispatch;
mod fresh;
mod full;
mod lows;
mod unread;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::batcher::WORTH_A_LANE;
use super::delivery::Leases;
use super::wake::held;
use super::{ClaimCommand, Engine};
use crate::domain::refusal::Refusal;
pub use ahead::Marks;
use batch::Call;
pub use full::Full;
pub use lows::Lows;
pub use unread::Unread;

/// The longest that a waiting call goes without a look at the database: every nudge may be lost.
const POLL: Duration = Duration::from_secs(1);
/// A line that nobody has stood in for so long is taken down.
const IDLE: Duration = Duration::from_secs(30);

/// The lines of waiting calls, by queue.
#[derive(Default)]
pub struct Dispatchers(Mutex<HashMap<i32, Arc<Line>>>);

#[derive(Default)]
struct Line {
    calls: Mutex<VecDeque<Waiting>>,
    /// A call came, or a task may have become READY.
    changed: Notify,
    /// How many calls the transaction under way is for; 0: there is none, or it takes in whoever comes.
    under_way: AtomicUsize,
    /// Whether a second transaction is.
    helped: AtomicBool,
    /// The last one compared shares or counted budgets, so a second one would only wait for it.
    fair: AtomicBool,
}

struct Waiting {
    call: Call,
    /// Whether it goes on waiting when there is nothing. Changes only under the line's lock.
    patient: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<Leases, Refusal>>,
}

impl Dispatchers {
    /// A task of the queue may have become READY.
    pub fn nudge(&self, queue_id: i32) {
        if let Some(line) = held(&self.0).get(&queue_id) {
            line.changed.notify_one();
        }
    }

    /// Something may have become READY anywhere.
    pub fn nudge_all(&self) {
        held(&self.0).values().for_each(|line| line.changed.notify_one());
    }

    /// Whether anybody waits for this queue's tasks on this server.
    pub fn anybody_waits(&self, queue_id: i32) -> bool {
        held(&self.0).get(&queue_id).is_some_and(|line| !held(&line.calls).is_empty())
    }
}

impl Engine {
    /// Leases up to `max_tasks` READY tasks; waits for the first one as long as asked, at most until `until`. Empty is a normal answer.
    pub async fn claim(&self, command: ClaimCommand, until: Option<Instant>) -> Result<Leases, Refusal> {
        if self.0.drain.is_cancelled() {
            return Ok(Leases::none(self));
        }
        let queue_id = self.named_queue(&command.queue).await?;
        let wait_end = Instant::now() + command.wait;
        let end = until.map_or(wait_end, |until| until.min(wait_end));
        let claim = command.request_id.as_ref().map(|request| claim_id(&command, request.as_str()));
        let call = Call {
            id: Uuid::now_v7(),
            claim,
            worker: command.worker.to_string(),
            slots: usize::try_from(command.max_tasks).unwrap_or(1),
            span: command.lease_duration,
            reports_effect: command.reports_effect,
        };
        let (id, waits) = (call.id, !command.wait.is_zero());
        let patient = Arc::new(AtomicBool::new(waits));
        let (answer, mut answered) = oneshot::channel();
        let line = self.stand_in_line(queue_id, Waiting { call, patient: patient.clone(), answer });
        if !waits {
            return answered.await.unwrap_or_else(|_| Ok(Leases::none(self)));
        }
        let drains = tokio::select! {
            biased;
            leases = &mut answered => return leases.unwrap_or_else(|_| Ok(Leases::none(self))),
            () = tokio::time::sleep_until(end) => false,
            () = self.0.drain.cancelled() => true,
        };
        // Whose turn has come takes what it brings: where a transaction takes longer than workers wait, each would lease for those who
        // have just gone, and nobody would ever get anything.
        if !leave(&line, id, &patient) && !drains {
            tokio::select! {
                biased;
                leases = &mut answered => return leases.unwrap_or_else(|_| Ok(Leases::none(self))),
                () = until_passed(until) => {}
                () = self.0.drain.cancelled() => {}
            }
        }
        // From here on nothing can be handed to this call; what was handed to it just now is taken.
        answered.close();
        answered.try_recv().unwrap_or_else(|_| Ok(Leases::none(self)))
    }

    fn stand_in_line(&self, queue_id: i32, waiting: Waiting) -> Arc<Line> {
        let mut lines = held(&self.0.dispatchers.0);
        let line = lines.entry(queue_id).or_insert_with(|| {
            let line = Arc::new(Line::default());
            self.0.unsettled.spawn(serve(self.clone(), queue_id, line.clone()));
            line
        });
        let mut calls = held(&line.calls);
        calls.push_back(waiting);
        let waiting = calls.len();
        drop(calls);
        line.changed.notify_one();
        // As many wait as the transaction under way is for, and enough: a second one has a batch of its own already.
        let under_way = line.under_way.load(Ordering::Relaxed);
        let worth_it = under_way > 0 && waiting >= under_way.max(WORTH_A_LANE) && !line.fair.load(Ordering::Relaxed);
        if worth_it && !line.helped.swap(true, Ordering::Relaxed) {
            self.0.unsettled.spawn(help(self.clone(), queue_id, line.clone()));
        }
        line.clone()
    }
}

/// Ends a call's wait; whether it stood in the line still. Otherwise a transaction is under way for it, whatever that brings.
fn leave(line: &Line, call: Uuid, patient: &AtomicBool) -> bool {
    let mut calls = held(&line.calls);
    patient.store(false, Ordering::Relaxed);
    let place = calls.iter().position(|waiting| waiting.call.id == call);
    place.is_some_and(|place| calls.remove(place).is_some())
}

/// Ends with the caller's patience, if that has an end.
async fn until_passed(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Names a Claim, so that the same `request_id` from the same worker finds its leases again.
fn claim_id(command: &ClaimCommand, request: &str) -> Uuid {
    let mut hash = Sha256::new();
    for part in [command.queue.as_str(), command.worker.as_str(), request] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    Uuid::from_slice(&hash[..16]).unwrap_or_default()
}

/// Serves one queue's line until nobody has stood in it for a while, or the server drains.
async fn serve(engine: Engine, queue_id: i32, line: Arc<Line>) {
    loop {
        if engine.0.drain.is_cancelled() {
            return break_up(&engine, queue_id, &line);
        }
        // Registered before looking: what changes in between is not missed.
        let changed = line.changed.notified();
        // Whoever is about to call gets in first: the answers of the batch before have just gone out.
        tokio::task::yield_now().await;
        let batch = Batch::of(&line, false);
        if batch.is_empty() {
            if rest(&engine, IDLE, changed).await && take_down(&engine, queue_id, &line) {
                return;
            }
            continue;
        }
        let (full, again) = serve_once(&engine, queue_id, batch).await;
        line.under_way.store(0, Ordering::Relaxed);
        if !full && !held(&line.calls).is_empty() {
            let poll = POLL.mul_f64(0.5 + 0.5 * fastrand::f64());
            let span = again.map_or(poll, |again| poll.min(again.saturating_duration_since(std::time::Instant::now())));
            rest(&engine, span, changed).await;
        }
    }
}

/// Serves the line once, beside the transaction under way.
async fn help(engine: Engine, queue_id: i32, line: Arc<Line>) {
    if !engine.0.drain.is_cancelled() {
        let batch = Batch::of(&line, true);
        if !batch.is_empty() {
            serve_once(&engine, queue_id, batch).await;
        }
    }
    line.helped.store(false, Ordering::SeqCst);
    // What it put back into the line has not seen what became READY meanwhile.
    line.changed.notify_one();
}

/// Waits for a change, or the drain, but not longer than `span`; whether that passed.
async fn rest(engine: &Engine, span: Duration, changed: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = changed => false,
        () = engine.0.drain.cancelled() => false,
        () = tokio::time::sleep(span) => true,
    }
}

/// Nobody is served any more: who stands in the line gets nothing.
fn break_up(engine: &Engine, queue_id: i32, line: &Line) {
    let mut lines = held(&engine.0.dispatchers.0);
    lines.remove(&queue_id);
    held(&line.calls).clear();
}

fn take_down(engine: &Engine, queue_id: i32, line: &Line) -> bool {
    let mut lines = held(&engine.0.dispatchers.0);
    // In this order: who helps puts back first what it could not serve.
    let idle = !line.helped.load(Ordering::SeqCst) && held(&line.calls).is_empty();
    if idle {
        lines.remove(&queue_id);
    }
    idle
}

/// The calls that one transaction is for.
struct Batch<'a> {
    line: &'a Line,
    waiting: Vec<Waiting>,
    /// Its transaction runs beside another one.
    beside: bool,
}

impl Batch<'_> {
    fn of(line: &Line, beside: bool) -> Batch<'_> {
        let mut batch = Batch { line, waiting: Vec::new(), beside };
        batch.gather();
        batch
    }

    /// Takes in those at the head of the line that still have a caller, each claim id once, as long as there are places.
    fn gather(&mut self) {
        let mut calls = held(&self.line.calls);
        let (mut later, mut slots) = (VecDeque::new(), self.waiting.iter().map(|waiting| waiting.call.slots).sum::<usize>());
        while let Some(waiting) = calls.pop_front() {
            let claim = waiting.call.claim;
            let twice = claim.is_some() && self.waiting.iter().any(|other| other.call.claim == claim);
            if waiting.answer.is_closed() {
                continue;
            }
            if twice || (!self.waiting.is_empty() && slots + waiting.call.slots > crate::domain::limits::BATCH) {
                later.push_back(waiting);
                continue;
            }
            slots += waiting.call.slots;
            self.waiting.push(waiting);
        }
        *calls = later;
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The last to come are taken in, now that it is this transaction's turn; whoever comes later waits for the next one.
    fn close(&mut self) -> Vec<Call> {
        self.gather();
        if !self.beside {
            self.line.under_way.store(self.waiting.len(), Ordering::Relaxed);
        }
        self.waiting.iter().map(|waiting| waiting.call.clone()).collect()
    }
}

/// One transaction for the batch. Whoever got nothing and is patient goes back to the head of the line. Returns whether there may be
/// more to take at once, and else when a rate lets the next task go.
async fn serve_once(engine: &Engine, queue_id: i32, mut batch: Batch<'_>) -> (bool, Option<std::time::Instant>) {
    let begin = Instant::now();
    let run = batch::run(engine, queue_id, &mut batch).await;
    let Batch { line, waiting: batch, .. } = batch;
    tracing::debug!(kind = "claim", calls = batch.len(), elapsed = ?begin.elapsed(), "a batch");
    let batch::Served { leases: mut got, again, fair } = match run {
        Ok(served) => served,
        Err(refusal) => {
            for waiting in batch {
                drop(waiting.answer.send(Err(refusal.clone())));
            }
            return (false, None);
        }
    };
    line.fair.store(fair, Ordering::Relaxed);
    let mut unserved = Vec::new();
    let mut all_served = true;
    for waiting in batch {
        let leases = got.remove(&waiting.call.id);
        all_served &= leases.is_some();
        match leases {
            // If the caller is gone, the leases come back here and are given back when they are dropped.
            Some(leases) => drop(waiting.answer.send(Ok(leases))),
            None => unserved.push(waiting),
        }
    }
    let mut calls = held(&line.calls);
    for waiting in unserved.into_iter().rev() {
        if waiting.patient.load(Ordering::Relaxed) {
            calls.push_front(waiting);
        } else {
            drop(waiting.answer.send(Ok(Leases::none(engine))));
        }
    }
    (all_served, again)
}

#[cfg(test)]
mod tests;
