//! Pickup: tasks are submitted at a fixed pace, whether earlier ones were answered or not, while workers wait. Two times are taken of
//! each task: from Submit's answer to the lease in the worker's hands, and from the moment at which the task was *due to be
//! submitted*, so that no stall of whatever part hides itself by delaying the next submit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Failure;
use super::counters::{Meter, precise};
use super::errors::Errors;
use super::measure::{Plan, Sample, millis, percentile};
use super::scenarios::task_name;

/// Tasks per second.
pub const PACE: u32 = 300;
/// Workers that wait.
pub const WORKERS: usize = 16;
/// How long the naive workers sleep when they found nothing.
pub const POLL: Duration = Duration::from_millis(100);
/// How long the last tasks may take before they count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was noted of each task, by its name.
#[derive(Clone, Default)]
pub struct Board(Arc<Mutex<HashMap<String, Marks>>>);

#[derive(Default)]
struct Marks {
    planned: Option<Instant>,
    answered: Option<Instant>,
    leased: Option<Instant>,
}

impl Board {
    fn marks(&self) -> MutexGuard<'_, HashMap<String, Marks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker has it in its hands now.
    pub fn leased(&self, task_id: &str) {
        let now = Instant::now();
        // Tasks of an earlier round that failed half-way are nobody's.
        if let Some(marks) = self.marks().get_mut(task_id) {
            marks.leased.get_or_insert(now);
        }
    }

    fn all_leased(&self) -> bool {
        self.marks().values().all(|marks| marks.leased.is_some() && marks.answered.is_some())
    }
}

/// `submit` gets the number of the task and its name; `work` is one turn of a worker: take, note on the board, complete.
pub async fn run<S, SFut, W, WFut>(meter: &mut Meter, errors: &Errors, plan: Plan, submit: S, work: W) -> Result<Sample, Failure>
where
    S: Fn(usize, String) -> SFut,
    SFut: Future<Output = Result<(), Failure>> + Send + 'static,
    W: Fn(usize, Board) -> WFut + Clone + Send + 'static,
    WFut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let board = Board::default();
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let (work, board, errors) = (work.clone(), board.clone(), errors.clone());
        workers.spawn(async move {
            loop {
                if let Err(error) = work(number, board.clone()).await {
                    errors.note(error);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    let before = meter.read().await?;
    let begin = Instant::now();
    let mut submits = JoinSet::new();
    let count = ((plan.warm_up + plan.window).as_secs_f64() * f64::from(PACE)).round();
    let mut planned = begin;
    for number in 0.. {
        planned += Duration::from_secs(1) / PACE;
        if precise(number) >= count {
            break;
        }
        tokio::time::sleep_until(planned.into()).await;
        let name = task_name();
        board.marks().insert(name.clone(), Marks { planned: Some(planned), ..Marks::default() });
        let submit = submit(usize::try_from(number)?, name.clone());
        let (board, errors) = (board.clone(), errors.clone());
        submits.spawn(async move {
            match submit.await {
                Ok(()) => drop(board.marks().entry(name).and_modify(|marks| marks.answered = Some(Instant::now()))),
                Err(error) => errors.note(error),
            }
        });
    }
    drop(tokio::time::timeout(PATIENCE, submits.join_all()).await);
    let last = Instant::now();
    while !board.all_leased() && last.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Whoever holds a lease still completes it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let after = meter.read().await?;
    workers.shutdown().await;
    let mut sample = times(&board, begin + plan.warm_up, errors);
    sample.extend(after.each(before, count));
    Ok(sample)
}

fn times(board: &Board, warm: Instant, errors: &Errors) -> Sample {
    let (mut pickups, mut wholes) = (Vec::new(), Vec::new());
    for marks in board.marks().values() {
        match (marks.planned, marks.answered, marks.leased) {
            (Some(planned), Some(answered), Some(leased)) if planned >= warm => {
                // A worker may have it before the producer was answered.
                pickups.push(leased.saturating_duration_since(answered));
                wholes.push(leased.saturating_duration_since(planned));
            }
            (_, _, None) => errors.note("a task was not leased within five seconds"),
            _ => {}
        }
    }
    pickups.sort_unstable();
    wholes.sort_unstable();
    vec![
        ("pickup p50, ms", millis(percentile(&pickups, 0.50))),
        ("pickup p95, ms", millis(percentile(&pickups, 0.95))),
        ("pickup p99, ms", millis(percentile(&pickups, 0.99))),
        ("planned to leased p50, ms", millis(percentile(&wholes, 0.50))),
        ("planned to leased p95, ms", millis(percentile(&wholes, 0.95))),
        ("planned to leased p99, ms", millis(percentile(&wholes, 0.99))),
    ]
}
