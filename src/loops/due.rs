//! Moves what time alone moves. All servers run it; who comes second finds nothing left to do.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::{Engine, Sweep};

/// The longest sleep: hints may be lost, and another server may have written something that is due earlier.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Due {
    engine: Engine,
}

impl Due {
    pub(super) fn new(engine: Engine) -> Self {
        Due { engine }
    }
}

impl Loop for Due {
    const NAME: &'static str = "due";
    const MUST_WORK: bool = true;

    async fn tick(&mut self) -> Tick {
        match self.engine.sweep().await {
            Ok(Sweep::Again) => Tick::Again,
            Ok(Sweep::Rest(rest)) => Tick::Rest(rest.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK)),
            Err(_) => Tick::Failed,
        }
    }

    async fn hint(&self) {
        self.engine.due_earlier().await;
    }
}
