//! Goes on with walks over stale tasks that a call has left: its time was over, or its server died.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::Engine;

/// Nothing to do is the rule, and one look at an empty index.
const EVERY: Duration = Duration::from_secs(2);

pub(super) struct Walks {
    engine: Engine,
}

impl Walks {
    pub(super) fn new(engine: Engine) -> Self {
        Walks { engine }
    }
}

impl Loop for Walks {
    const NAME: &'static str = "walks";

    async fn tick(&mut self) -> Tick {
        match self.engine.walk_left().await {
            Ok(true) => Tick::Again,
            Ok(false) => Tick::Rest(EVERY),
            Err(_) => Tick::Failed,
        }
    }
}
