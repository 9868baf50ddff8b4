//! Calls by chance from all sides, judged by the floors that had been answered before they began.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::api::proto::{self as pb, raise_subject_request::Floor};
use pb::task_service_client::TaskServiceClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::town::{Answer, Lease, QUEUE, Town, Worker, raise_by};

/// What chance plays with.
const PLAYERS: usize = 8;
const PLAYED: [&str; 3] = ["m-1", "m-2", "m-3"];
const MOVES: usize = 1_500;
const MOVES_MIN: usize = 200;
const TIME: Duration = Duration::from_secs(30);

/// The floors that were answered, and what was done below one that had been answered before the call began.
#[derive(Default)]
struct Game {
    floors: [AtomicI64; PLAYED.len()],
    moves: AtomicUsize,
    names: AtomicUsize,
    broken: Mutex<Vec<String>>,
    refused: Mutex<BTreeSet<String>>,
}

impl Game {
    fn plays(&self, begin: Instant) -> bool {
        self.moves.fetch_add(1, Ordering::Relaxed) < MOVES && begin.elapsed() < TIME
    }

    /// The answered floors at this moment.
    fn known(&self) -> [i64; PLAYED.len()] {
        std::array::from_fn(|subject| self.floors[subject].load(Ordering::SeqCst))
    }

    /// Something was done about a task that hangs on these versions, in a call that began when these floors had been answered.
    fn judge(&self, what: &str, subjects: &[pb::Subject], known: [i64; PLAYED.len()]) {
        for subject in subjects {
            let place = PLAYED.iter().position(|id| *id == subject.id).expect("a subject of the game");
            if subject.version < known[place] {
                let text = format!("{what} {} v{} below the floor {}", subject.id, subject.version, known[place]);
                self.broken.lock().unwrap().push(text);
            }
        }
    }

    fn note<T>(&self, answer: Answer<T>) -> bool {
        let Err(status) = answer.0 else { return true };
        let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
        self.refused.lock().unwrap().insert(reason);
        false
    }
}

async fn play(game: Arc<Game>, mut tasks: TaskServiceClient<Channel>, worker: Worker, begin: Instant) {
    let mut leases: Vec<Lease> = Vec::new();
    while game.plays(begin) {
        let known = game.known();
        let place = fastrand::usize(..PLAYED.len());
        match fastrand::u8(..10) {
            0..=3 => {
                let version = (known[place] + fastrand::i64(-1..=2)).max(0);
                let raise_floor = fastrand::u8(..6) == 0;
                let mut subjects = vec![pb::Subject { id: PLAYED[place].into(), version, raise_floor }];
                if fastrand::bool() {
                    let other = (place + 1) % PLAYED.len();
                    subjects.push(pb::Subject {
                        id: PLAYED[other].into(),
                        version: known[other] + fastrand::i64(0..=1),
                        raise_floor: false,
                    });
                }
                let task_id = format!("t-{}", game.names.fetch_add(1, Ordering::Relaxed));
                let key = if fastrand::bool() { format!("k-{}", fastrand::u8(..3)) } else { String::new() };
                let spec = pb::TaskSpec { queue: QUEUE.into(), task_id, subjects, ordering_key: key, ..Default::default() };
                if game.note(tasks.submit(pb::SubmitRequest { spec: Some(spec.clone()) }).await.into()) {
                    game.judge("submitted", &spec.subjects, known);
                    if raise_floor {
                        game.floors[place].fetch_max(version, Ordering::SeqCst);
                    }
                }
            }
            4..=5 => {
                for lease in worker.claim(2).await {
                    game.judge("leased", &lease.task().spec.as_ref().unwrap().subjects, known);
                    leases.push(lease);
                }
            }
            6 => {
                let floor = known[place] + 1;
                if game.note(raise_by(tasks.clone(), PLAYED[place], Floor::MinVersion(floor)).await) {
                    game.floors[place].fetch_max(floor, Ordering::SeqCst);
                }
            }
            7 => {
                if let Some(lease) = leases.last()
                    && game.note(lease.begin_effect("call").await)
                {
                    game.judge("begun", &lease.task().spec.as_ref().unwrap().subjects, known);
                }
            }
            _ => {
                if let Some(lease) = leases.pop()
                    && game.note(lease.complete().await)
                {
                    game.judge("completed", &lease.task().spec.as_ref().unwrap().subjects, known);
                }
            }
        }
    }
}

#[tokio::test]
async fn whatever_the_order_of_calls_nothing_stale_is_submitted_leased_begun_or_completed_after_its_floor_was_answered() {
    let town = Town::with_servers(2).await;
    let game = Arc::new(Game::default());
    let begin = Instant::now();
    let mut players = JoinSet::new();
    for number in 0..PLAYERS {
        let worker = town.worker_at(number % 2, &format!("w{number}")).reporting_effects();
        players.spawn(play(game.clone(), town.tasks_at(number % 2), worker, begin));
    }
    players.join_all().await;
    assert!(game.moves.load(Ordering::Relaxed) >= MOVES_MIN, "the game was over before it began");
    let broken = std::mem::take(&mut *game.broken.lock().unwrap());
    assert!(broken.is_empty(), "{}", broken[..broken.len().min(5)].join("\n"));
    let refused = std::mem::take(&mut *game.refused.lock().unwrap());
    let fair: BTreeSet<String> = ["SUBJECT_STALE", "TASK_TERMINAL", "LEASE_EXPIRED"].map(str::to_owned).into();
    assert!(refused.is_subset(&fair), "{refused:?}");
    assert!(refused.contains("SUBJECT_STALE"), "nothing stale was ever asked for");
    town.audit().await;
}
