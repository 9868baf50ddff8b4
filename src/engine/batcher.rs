//! Batch while busy: calls that arrive while the database works are carried out together by the next transaction. No timer, and no
//! wait when idle.
//!
//! Several transactions may be under way at once, each on a *lane*. The first one leaves with whatever is there. Another one leaves
//! beside it only when at least as much waits as the largest of those under way carries, and enough to be worth a transaction of its own:
//! a second lane that left with every few calls would make of each flood a train of tiny batches, all of them paying for a commit. Beside
//! one that is slow, stuck on a held row perhaps, it leaves with as much as that one carries, however little.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::wake::held;
use crate::domain::limits::BATCH;
use crate::domain::refusal::Refusal;

/// So many items are worth a transaction beside one that will soon be over: it costs about as much as ten items do.
pub(super) const WORTH_A_LANE: usize = 16;
/// What a transaction takes at most while all is well.
const SLOW: Duration = Duration::from_millis(20);

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

/// The batch that a lane is about to carry out: calls join it until it is taken, so whoever prepares something first loses nobody.
pub struct Load<I, O> {
    station: Arc<Station<I, O>>,
    lane: u64,
    taken: bool,
}

impl<I, O> Load<I, O> {
    /// No more than [`BATCH`] items, unless a single call has more. At least one ticket if it is taken at once; where it took long, another lane
    /// may have left with all.
    pub fn take(mut self) -> Vec<Ticket<I, O>> {
        self.taken = true;
        held(&self.station.yard).take(self.lane)
    }
}

impl<I, O> Drop for Load<I, O> {
    /// Who can't carry it out any more takes it along, or it would wait for nobody.
    fn drop(&mut self) {
        if !self.taken {
            drop(held(&self.station.yard).take(self.lane));
        }
    }
}

type Run<I, O> = dyn Fn(Load<I, O>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Takes calls in, and runs them in batches on a bounded number of lanes.
pub struct Batcher<I, O>(Arc<Station<I, O>>);

struct Station<I, O> {
    kind: &'static str,
    lanes: usize,
    /// A transaction that takes longer holds up nobody.
    slow: Duration,
    run: Box<Run<I, O>>,
    yard: Mutex<Yard<I, O>>,
}

/// Who waits, and who is under way.
struct Yard<I, O> {
    waiting: VecDeque<Ticket<I, O>>,
    /// Items of the tickets that wait.
    items: usize,
    under_way: Vec<UnderWay>,
    next: u64,
}

/// A transaction under way.
struct UnderWay {
    number: u64,
    /// How many items it carries; 0 while it has yet to take them in.
    items: usize,
    slow: bool,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `run` takes its batch and answers it. It runs in a task of its own, so a caller that goes away never stops it half-way.
    pub fn start<F, Fut>(kind: &'static str, lanes: usize, run: F) -> Self
    where
        F: Fn(Load<I, O>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::start_with(kind, lanes, SLOW, run)
    }

    fn start_with<F, Fut>(kind: &'static str, lanes: usize, slow: Duration, run: F) -> Self
    where
        F: Fn(Load<I, O>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let yard = Mutex::new(Yard { waiting: VecDeque::new(), items: 0, under_way: Vec::with_capacity(lanes), next: 0 });
        let run: Box<Run<I, O>> = Box::new(move |load| Box::pin(run(load)));
        Batcher(Arc::new(Station { kind, lanes, slow, run, yard }))
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
        if let Some(lane) = leave {
            self.0.clone().open_lane(lane);
        }
        answers.await.map_err(|_| Refusal::Bug("a batch ended without an answer".into()))
    }
}

impl<I, O> Yard<I, O> {
    /// The lane on which another transaction may leave now, if there is one. It is taken.
    fn leaves(&mut self, lanes: usize) -> Option<u64> {
        // One that has yet to take its items in will take these too, unless it is stuck before it came to that.
        let gathering = self.under_way.iter().any(|other| other.items == 0 && !other.slow);
        let largest = self.under_way.iter().map(|other| other.items).max().unwrap_or(0);
        let least = if self.under_way.iter().all(|other| other.slow) { largest } else { largest.max(WORTH_A_LANE) };
        let leaves = !self.waiting.is_empty() && !gathering && self.under_way.len() < lanes && self.items >= least;
        leaves.then(|| {
            self.next += 1;
            self.under_way.push(UnderWay { number: self.next, items: 0, slow: false });
            self.next
        })
    }

    /// The next batch, onto this lane.
    fn take(&mut self, lane: u64) -> Vec<Ticket<I, O>> {
        let (mut tickets, mut size) = (Vec::new(), 0);
        while let Some(next) = self.waiting.front() {
            if !tickets.is_empty() && size + next.items.len() > BATCH {
                break;
            }
            size += next.items.len();
            tickets.extend(self.waiting.pop_front());
        }
        self.items -= size;
        self.under_way.iter_mut().filter(|one| one.number == lane).for_each(|one| one.items = size);
        tickets
    }

    fn is_slow(&mut self, number: u64) {
        self.under_way.iter_mut().filter(|lane| lane.number == number).for_each(|lane| lane.slow = true);
    }

    fn arrives(&mut self, number: u64) {
        self.under_way.retain(|lane| lane.number != number);
    }
}

impl<I: Send + 'static, O: Send + 'static> Station<I, O> {
    fn open_lane(self: Arc<Self>, number: u64) {
        // Boxed, for a lane may open another one.
        let lane: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(self.lane(number));
        tokio::spawn(lane);
    }

    /// Carries out batches until no other may leave.
    async fn lane(self: Arc<Self>, mut number: u64) {
        loop {
            let lane = Lane { station: &self, number };
            // Whoever is about to call gets in first: the answers of the batch before have just gone out.
            tokio::task::yield_now().await;
            let begin = Instant::now();
            let mut run = (self.run)(Load { station: self.clone(), lane: number, taken: false });
            if tokio::time::timeout(self.slow, &mut run).await.is_err() {
                let leaves = {
                    let mut yard = held(&self.yard);
                    yard.is_slow(number);
                    yard.leaves(self.lanes)
                };
                if let Some(other) = leaves {
                    self.clone().open_lane(other);
                }
                run.await;
            }
            let items = held(&self.yard).under_way.iter().find(|one| one.number == number).map_or(0, |one| one.items);
            tracing::debug!(kind = self.kind, items, elapsed = ?begin.elapsed(), "a batch");
            drop(lane);
            match held(&self.yard).leaves(self.lanes) {
                Some(next) => number = next,
                None => return,
            }
        }
    }
}

/// A lane that is free again when this is dropped, also by a panic.
struct Lane<'a, I, O> {
    station: &'a Station<I, O>,
    number: u64,
}

impl<I, O> Drop for Lane<'_, I, O> {
    fn drop(&mut self) {
        held(&self.station.yard).arrives(self.number);
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
        fn with_lanes(lanes: usize, slow: Duration) -> Held {
            let (permits, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
            let (gate, sizes) = (permits.clone(), begun.clone());
            let batcher = Arc::new(Batcher::start_with("test", lanes, slow, move |load: Load<u32, u32>| {
                let (gate, sizes) = (gate.clone(), sizes.clone());
                async move {
                    let tickets = load.take();
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
        let held = Held::with_lanes(1, Duration::MAX);
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
    async fn a_call_joins_the_batch_that_prepares_until_that_is_taken() {
        let (ready, taken) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (gate, sizes) = (ready.clone(), taken.clone());
        let batcher = Arc::new(Batcher::start_with("test", 2, Duration::MAX, move |load: Load<u32, u32>| {
            let (gate, sizes) = (gate.clone(), sizes.clone());
            async move {
                gate.acquire().await.unwrap().forget();
                let tickets = load.take();
                held(&sizes).push(tickets.len());
                tickets.into_iter().for_each(|ticket| ticket.answer(vec![7]));
            }
        }));
        let calls: Vec<_> = (0..20)
            .map(|n| {
                let batcher = batcher.clone();
                tokio::spawn(async move { batcher.call(vec![n]).await })
            })
            .collect();
        while held(&batcher.0.yard).items < 20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(held(&batcher.0.yard).under_way.len(), 1, "enough for a lane of their own, but one is about to take them");
        ready.add_permits(1);
        for call in calls {
            assert_eq!(call.await.unwrap(), Ok(vec![7]));
        }
        assert_eq!(*held(&taken), [20]);
    }

    /// What the transactions under way carry.
    fn carried(yard: &Yard<u32, u32>) -> Vec<usize> {
        yard.under_way.iter().map(|lane| lane.items).collect()
    }

    #[tokio::test]
    async fn a_second_lane_leaves_with_as_much_as_the_first_one_carries_and_enough_to_be_worth_it() {
        let held = Held::with_lanes(2, Duration::MAX);
        let mut calls = vec![held.call(0)];
        held.until(|_, begun| begun == [1]).await;
        calls.extend((1..16).map(|n| held.call(n)));
        held.until(|yard, _| yard.items == 15).await;
        assert_eq!(carried(&held.batcher.0.yard.lock().unwrap()), [1], "fifteen left beside one");
        calls.push(held.call(16));
        held.until(|_, begun| begun == [1, 16]).await;
        calls.extend((17..37).map(|n| held.call(n)));
        held.until(|yard, _| yard.items == 20).await;
        // The first one is over, so its lane takes all.
        held.permits.add_permits(1);
        held.until(|yard, begun| begun == [1, 16, 20] && yard.under_way.len() == 2).await;
        held.permits.add_permits(1);
        held.until(|yard, _| carried(yard) == [20]).await;
        calls.extend((37..56).map(|n| held.call(n)));
        held.until(|yard, _| yard.items == 19).await;
        assert_eq!(carried(&held.batcher.0.yard.lock().unwrap()), [20], "nineteen left beside twenty");
        calls.push(held.call(56));
        held.until(|_, begun| begun == [1, 16, 20, 20]).await;
        held.permits.add_permits(2);
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap(), Ok(vec![n * 2]));
        }
    }

    #[tokio::test]
    async fn beside_one_that_is_slow_a_single_call_leaves() {
        let held = Held::with_lanes(2, Duration::from_millis(1));
        let first = held.call(1);
        held.until(|yard, begun| begun == [1] && yard.under_way.iter().all(|lane| lane.slow)).await;
        let second = held.call(2);
        held.until(|_, begun| begun == [1, 1]).await;
        held.permits.add_permits(2);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(vec![2]), Ok(vec![4])));
        // And one that waited already, as soon as it turns out to be.
        let calls = [held.call(3), held.call(4)];
        held.until(|_, begun| begun.iter().sum::<usize>() == 4).await;
        held.permits.add_permits(2);
        for (n, call) in (3..).zip(calls) {
            assert_eq!(call.await.unwrap(), Ok(vec![n * 2]));
        }
    }
}
