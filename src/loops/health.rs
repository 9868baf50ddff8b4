//! Asks the database whether it is there, and the loops whether they live; the answer is what health checks are told.

use std::time::Duration;

use tokio::sync::watch;

use super::{Loop, Pulse, Tick};
use crate::engine::Engine;

const EVERY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Health {
    engine: Engine,
    pulse: Pulse,
    serving: watch::Sender<bool>,
}

impl Health {
    pub(super) fn new(engine: Engine, pulse: Pulse, serving: watch::Sender<bool>) -> Self {
        Health { engine, pulse, serving }
    }
}

impl Loop for Health {
    const NAME: &'static str = "health";

    async fn tick(&mut self) -> Tick {
        let answers = self.engine.check_health(PATIENCE).await;
        let silent = self.pulse.silent();
        let serving = answers && silent.is_empty();
        let changed = self.serving.send_if_modified(|before| std::mem::replace(before, serving) != serving);
        match (changed, serving) {
            (true, true) => tracing::info!("serving"),
            (true, false) => tracing::warn!(database = answers, ?silent, "not serving"),
            _ => {}
        }
        Tick::Rest(EVERY)
    }
}
