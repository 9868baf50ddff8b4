//! Batch while busy: calls that arrive while the database works are carried out together by the next transaction. No timer, and no
//! wait when idle.
//!
//! Several transactions may be under way at once, each on a *lane*. The first one leaves with whatever is there. Another one leaves
//! beside it only when at least as much waits as the largest of those under way carries: a second lane that left with every single
//! call would make of each flood a train of tiny batches, all of them paying for a commit of their own. A transaction that is stuck on
//! a held row with few items so never stops many others.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::oneshot;

use super::wake::held;
use crate::domain::limits::BATCH;
use crate::domain::refusal::Refusal;

/// How many items may wait in one batcher before it says that the server carries as much as it may.
const WAITING: usize = 50_000;

/// The items of one call, which stay together, and where their answers go.
pub struct Ticket<I, O> {
    pub items: Vec<I>,
    answer: oneshot::Sender<Vec<O>>,
}

impl<I, O> Ticket<I, O> {
    /// Answers the call. If it has gone away meanwhile, what was done stays done.
    pub fn answer(self, answers: Vec<O>) {
        drop(self.answer.send(answers));
    }
}

type Run<I, O> = dyn Fn(Vec<Ticket<I, O>>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Takes calls in, and runs them in batches on a bounded number of lanes.
pub struct Batcher<I, O>(Arc<Station<I, O>>);

struct Station<I, O> {
    kind: &'static str,
    lanes: usize,
    run: Box<Run<I, O>>,
    yard: Mutex<Yard<I, O>>,
}

/// Who waits, and who is under way.
struct Yard<I, O> {
    waiting: VecDeque<Ticket<I, O>>,
    /// Items of the tickets that wait.
    items: usize,
    /// How many items each transaction under way carries; 0 while it has yet to take them in.
    under_way: Vec<usize>,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `run` gets at least one ticket, and no more than [`BATCH`] items unless a single call has more. It runs in a task of its own, so
    /// a caller that goes away never stops it half-way.
    pub fn start<F, Fut>(kind: &'static str, lanes: usize, run: F) -> Self
    where
        F: Fn(Vec<Ticket<I, O>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let yard = Mutex::new(Yard { waiting: VecDeque::new(), items: 0, under_way: Vec::with_capacity(lanes) });
        let run: Box<Run<I, O>> = Box::new(move |tickets| Box::pin(run(tickets)));
        Batcher(Arc::new(Station { kind, lanes, run, yard }))
    }

    /// The answers to `items`, in their order. All of them go into one transaction.
    pub async fn call(&self, items: Vec<I>) -> Result<Vec<O>, Refusal> {
        let (answer, answers) = oneshot::channel();
        let leave = {
            let mut yard = held(&self.0.yard);
            if yard.items >= WAITING {
                return Err(Refusal::Overloaded);
            }
            yard.items += items.len();
            yard.waiting.push_back(Ticket { items, answer });
            yard.leaves(self.0.lanes)
        };
        if leave {
            tokio::spawn(self.0.clone().lane());
        }
        answers.await.map_err(|_| Refusal::Bug("a batch ended without an answer".into()))
    }
}

impl<I, O> Yard<I, O> {
    /// Whether another transaction may leave now; if so, its lane is taken.
    fn leaves(&mut self, lanes: usize) -> bool {
        // One that has yet to take its items in will take these too.
        let gathering = self.under_way.contains(&0);
        let largest = self.under_way.iter().copied().max().unwrap_or(0);
        let leaves = !self.waiting.is_empty() && !gathering && self.under_way.len() < lanes && self.items >= largest;
        if leaves {
            self.under_way.push(0);
        }
        leaves
    }

    /// The next batch, onto the lane that was taken for it.
    fn take(&mut self) -> Vec<Ticket<I, O>> {
        let (mut tickets, mut size) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            if !tickets.is_empty() && size + next.items.len() > BATCH {
                break;
            }
            size += next.items.len();
            tickets.extend(self.waiting.pop_front());
        }
        self.items -= size;
        if let Some(lane) = self.under_way.iter_mut().find(|carried| **carried == 0) {
            *lane = size;
        }
        tickets
    }

    fn arrives(&mut self, size: usize) {
        if let Some(lane) = self.under_way.iter().position(|carried| *carried == size) {
            self.under_way.swap_remove(lane);
        }
    }
}

impl<I: Send + 'static, O: Send + 'static> Station<I, O> {
    /// Carries out batches until no other may leave.
    async fn lane(self: Arc<Self>) {
        loop {
            // Whoever is about to call gets in first: the answers of the batch before have just gone out.
            tokio::task::yield_now().await;
            let tickets = held(&self.yard).take();
            let (calls, items) = (tickets.len(), tickets.iter().map(|ticket| ticket.items.len()).sum::<usize>());
            let lane = Lane { station: &self, items };
            let begin = Instant::now();
            (self.run)(tickets).await;
            tracing::debug!(kind = self.kind, calls, items, elapsed = ?begin.elapsed(), "a batch");
            drop(lane);
            if !held(&self.yard).leaves(self.lanes) {
                return;
            }
        }
    }
}

/// A lane that is free again when this is dropped, also by a panic.
struct Lane<'a, I, O> {
    station: &'a Station<I, O>,
    items: usize,
}

impl<I, O> Drop for Lane<'_, I, O> {
    fn drop(&mut self) {
        held(&self.station.yard).arrives(self.items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    /// A batcher whose transactions each wait for a permit, and the sizes of those that have begun.
    struct Held {
        batcher: Arc<Batcher<u32, u32>>,
        permits: Arc<Semaphore>,
        begun: Arc<Mutex<Vec<usize>>>,
    }

    impl Held {
        fn with_lanes(lanes: usize) -> Held {
            let (permits, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
            let (gate, sizes) = (permits.clone(), begun.clone());
            let batcher = Arc::new(Batcher::start("test", lanes, move |tickets: Vec<Ticket<u32, u32>>| {
                let (gate, sizes) = (gate.clone(), sizes.clone());
                async move {
                    held(&sizes).push(tickets.len());
                    gate.acquire().await.unwrap().forget();
                    for ticket in tickets {
                        let answers = ticket.items.iter().map(|item| item * 2).collect();
                        ticket.answer(answers);
                    }
                }
            }));
            Held { batcher, permits, begun }
        }

        fn call(&self, n: u32) -> tokio::task::JoinHandle<Result<Vec<u32>, Refusal>> {
            let batcher = self.batcher.clone();
            tokio::spawn(async move { batcher.call(vec![n]).await })
        }

        async fn until(&self, mut holds: impl FnMut(&Yard<u32, u32>, &[usize]) -> bool) {
            while !holds(&held(&self.batcher.0.yard), &held(&self.begun)) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn what_arrives_while_a_batch_runs_goes_into_the_next_one_together() {
        let held = Held::with_lanes(1);
        let first = held.call(1);
        held.until(|_, begun| begun == [1]).await;
        let others: Vec<_> = (2..10).map(|n| (n, held.call(n))).collect();
        held.until(|yard, _| yard.items == 8).await;
        held.permits.add_permits(2);
        assert_eq!(first.await.unwrap(), Ok(vec![2]));
        for (n, other) in others {
            assert_eq!(other.await.unwrap(), Ok(vec![n * 2]));
        }
        held.until(|yard, begun| yard.under_way.is_empty() && begun == [1, 8]).await;
    }

    #[tokio::test]
    async fn a_second_lane_leaves_with_as_much_as_the_first_one_carries_and_not_with_less() {
        let held = Held::with_lanes(2);
        let mut calls = vec![held.call(0)];
        held.until(|_, begun| begun == [1]).await;
        // One is stuck with a single item: the next one need not wait.
        calls.push(held.call(1));
        held.until(|_, begun| begun == [1, 1]).await;
        calls.extend((2..7).map(|n| held.call(n)));
        held.until(|yard, _| yard.items == 5).await;
        held.permits.add_permits(1);
        held.until(|yard, begun| begun == [1, 1, 5] && yard.under_way.len() == 2).await;
        held.permits.add_permits(1);
        held.until(|yard, _| yard.under_way == [5]).await;
        calls.extend((7..11).map(|n| held.call(n)));
        held.until(|yard, _| yard.items == 4).await;
        assert_eq!(held.batcher.0.yard.lock().unwrap().under_way, [5], "four left beside five");
        calls.push(held.call(11));
        held.until(|_, begun| begun == [1, 1, 5, 5]).await;
        held.permits.add_permits(2);
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap(), Ok(vec![n * 2]));
        }
    }
}
