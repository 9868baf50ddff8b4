//! Clients that keep servers busy, write down what they were promised, and call it in at the end.
//!
//! Producers submit one task, a batch, or an atomic batch at a time; workers claim, renew, report one by one or in batches, and now and
//! then forget a lease. Of the calls that fail half are repeated until they are answered; the others are left as they are.

mod book;
mod clients;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::town::{PATIENCE, Town, eventually};
use book::Book;
use clients::{produce, work};

const PRODUCERS: usize = 6;
const WORKERS: usize = 6;
/// Tasks in a SubmitBatch.
const BATCH: usize = 12;

/// What may go wrong with a call without anybody having broken a promise.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// Connections to servers break.
    pub servers: bool,
    /// Servers say that the database is away.
    pub database: bool,
}

pub struct Load {
    shared: Arc<Shared>,
    producers: JoinSet<()>,
    workers: JoinSet<()>,
}

struct Shared {
    faults: Faults,
    servers: Mutex<Vec<Channel>>,
    book: Mutex<Book>,
    submitting: AtomicBool,
    working: AtomicBool,
    /// Calls that were answered OK.
    answered: AtomicUsize,
    failed: AtomicUsize,
    /// About how many tasks are accepted and not finished.
    waiting: AtomicUsize,
}

impl Shared {
    fn book<T>(&self, write: impl FnOnce(&mut Book) -> T) -> T {
        write(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn channel(&self, client: usize) -> Channel {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers[client % servers.len()].clone()
    }

    fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Judges a failure: it must be one that the test provokes.
    async fn failed(&self, call: &str, status: &Status) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let details = status.get_error_details();
        let expected = match details.error_info() {
            None => self.faults.servers,
            Some(info) => {
                let away = status.code() == Code::Unavailable && info.reason == "DATABASE_UNAVAILABLE";
                self.faults.database && away && details.retry_info().is_some_and(|retry| retry.retry_delay.is_some())
            }
        };
        if !expected {
            self.book(|book| book.broken.push(format!("{call} failed: {status:?}")));
        }
        // Not to knock a dead server's port without end.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Load {
    pub fn start(servers: Vec<Channel>, faults: Faults) -> Load {
        let shared = Arc::new(Shared {
            faults,
            servers: Mutex::new(servers),
            book: Mutex::default(),
            submitting: AtomicBool::new(true),
            working: AtomicBool::new(true),
            answered: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        });
        let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
        (0..PRODUCERS).for_each(|client| drop(producers.spawn(produce(shared.clone(), client))));
        (0..WORKERS).for_each(|client| drop(workers.spawn(work(shared.clone(), client))));
        Load { shared, producers, workers }
    }

    /// From now on these servers are called; so many tasks are unfinished.
    pub fn turn_to(&self, servers: Vec<Channel>, unfinished: i64) {
        self.go_on(unfinished);
        *self.shared.servers.lock().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// So many tasks are unfinished.
    pub fn go_on(&self, unfinished: i64) {
        self.shared.waiting.store(usize::try_from(unfinished).expect("a count"), Ordering::Relaxed);
    }

    /// Waits until so many more calls have been answered OK.
    pub async fn until_answered(&self, more: usize) {
        let goal = self.shared.answered.load(Ordering::Relaxed) + more;
        eventually("calls are answered", async || (self.shared.answered.load(Ordering::Relaxed) >= goal).then_some(())).await;
    }

    /// How many calls have failed so far.
    pub fn failures(&self) -> usize {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Lets everything that was accepted be finished, and calls in every promise.
    pub async fn settle(mut self, town: &Town) {
        self.shared.submitting.store(false, Ordering::Relaxed);
        while let Some(ended) = self.producers.join_next().await {
            ended.expect("a producer ends in order");
        }
        all_finished(town).await;
        self.shared.working.store(false, Ordering::Relaxed);
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker ends in order");
        }
        let book = self.shared.book(std::mem::take);
        assert!(
            book.broken.is_empty(),
            "{} promises broken, first:\n{}",
            book.broken.len(),
            book.broken[..book.broken.len().min(5)].join("\n")
        );
        book.holds_in(town).await;
    }
}

/// Waits until no task is unfinished; tells what stands still when that takes too long.
async fn all_finished(town: &Town) {
    let begin = Instant::now();
    while town.sql::<i64>("SELECT count(*) FROM live").await > 0 {
        if begin.elapsed() > PATIENCE {
            let rows = "SELECT string_agg(format('%s tasks %s, due in %s', count, state, due), E'\n') FROM (
                            SELECT count(*), state, min(due) - app_now() AS due FROM live GROUP BY state) rows";
            panic!("not finished in {PATIENCE:?}:\n{}", town.sql::<String>(rows).await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
