//! Erases what queues no longer keep. All servers run it; of one queue only one at a time erases.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Loop, Tick};
use crate::engine::{Engine, Erasure};

/// Between two rounds when nothing was left to do. A retention is counted in hours and days.
const EVERY: Duration = Duration::from_secs(5);
/// How long it rests after a page, as a multiple of what the page took: so it has a fifth of a processor at most.
const REST_PER_WORK: u32 = 4;
/// The same once it has not caught up for `LATE`: it must not fall behind for ever.
const REST_PER_WORK_LATE: u32 = 1;
const LATE: Duration = Duration::from_hours(1);

pub(super) struct Retention {
    engine: Engine,
    /// What is to be looked at still in this round; what had a full page comes last again.
    round: VecDeque<Erasure>,
    /// Since when there has been more to erase all the time.
    behind: Option<Instant>,
}

impl Retention {
    pub(super) fn new(engine: Engine) -> Self {
        Retention { engine, round: VecDeque::new(), behind: None }
    }
}

impl Loop for Retention {
    const NAME: &'static str = "retention";

    async fn tick(&mut self) -> Tick {
        let Some(erasure) = self.round.pop_front() else {
            return match self.engine.erasures().await {
                Ok(all) if all.is_empty() => Tick::Rest(EVERY),
                Ok(all) => {
                    self.round = all.into();
                    Tick::Again
                }
                Err(_) => Tick::Failed,
            };
        };
        let begin = Instant::now();
        match self.engine.erase(erasure).await {
            Ok(true) => {
                self.round.push_back(erasure);
                let late = self.behind.get_or_insert(begin).elapsed() > LATE;
                Tick::Rest(begin.elapsed() * if late { REST_PER_WORK_LATE } else { REST_PER_WORK })
            }
            Ok(false) if self.round.is_empty() => {
                self.behind = None;
                Tick::Rest(EVERY)
            }
            Ok(false) => Tick::Again,
            Err(_) => Tick::Failed,
        }
    }
}
