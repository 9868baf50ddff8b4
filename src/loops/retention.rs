//! Erases what queues no longer keep. All servers run it; of one queue only one at a time erases.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::Engine;

/// Between two rounds when nothing was left to do. A retention is counted in hours and days.
const EVERY: Duration = Duration::from_secs(5);
/// Between two pages while there is much to erase, so that it never crowds out the work that is live.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Retention {
    engine: Engine,
}

impl Retention {
    pub(super) fn new(engine: Engine) -> Self {
        Retention { engine }
    }
}

impl Loop for Retention {
    const NAME: &'static str = "retention";

    async fn tick(&mut self) -> Tick {
        match self.engine.erase().await {
            Ok(true) => Tick::Rest(PAUSE),
            Ok(false) => Tick::Rest(EVERY),
            Err(_) => Tick::Failed,
        }
    }
}
