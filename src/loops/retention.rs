//! Erases what queues no longer keep. All servers run it; of one queue only one at a time erases.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Loop, Tick};
use crate::engine::{Engine, Erased, Erasure};

/// Between two rounds when nothing was left to do. A retention is counted in hours and days.
const EVERY: Duration = Duration::from_secs(5);
/// How long it rests after a page, as a multiple of what the page took: so it has a fifth of a processor at most.
const REST_PER_WORK: u32 = 4;
/// The same once it has not caught up for `LATE`: it must not fall behind for ever.
const REST_PER_WORK_LATE: u32 = 1;
const LATE: Duration = Duration::from_hours(1);

pub(super) struct Retention {
    engine: Engine,
    /// What is to be looked at still in this round: a page of everything, so that nothing that is far behind keeps another waiting.
    round: VecDeque<Erasure>,
    /// A page of this round was full.
    more: bool,
    /// Since when there has been more to erase all the time.
    behind: Option<Instant>,
}

impl Retention {
    pub(super) fn new(engine: Engine) -> Self {
        Retention { engine, round: VecDeque::new(), more: false, behind: None }
    }
}

impl Loop for Retention {
    const NAME: &'static str = "retention";

    async fn tick(&mut self) -> Tick {
        let Some(erasure) = self.round.pop_front() else { return self.next_round().await };
        let begin = Instant::now();
        let Ok(erased) = self.engine.erase(erasure).await else { return Tick::Failed };
        self.more |= erased == Erased::Page;
        if self.round.is_empty() && !self.more {
            self.behind = None;
            return Tick::Rest(EVERY);
        }
        if erased == Erased::Nothing {
            return Tick::Again;
        }
        let late = self.behind.is_some_and(|since| since.elapsed() > LATE);
        Tick::Rest(begin.elapsed() * if late { REST_PER_WORK_LATE } else { REST_PER_WORK })
    }
}

impl Retention {
    async fn next_round(&mut self) -> Tick {
        match self.engine.erasures().await {
            Ok(all) => {
                self.round = all.into();
                if std::mem::take(&mut self.more) {
                    self.behind.get_or_insert_with(Instant::now);
                }
                if self.round.is_empty() { Tick::Rest(EVERY) } else { Tick::Again }
            }
            Err(_) => Tick::Failed,
        }
    }
}
