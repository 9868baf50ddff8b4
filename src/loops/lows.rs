//! Looks in front of the low marks that claims begin at: what nobody told of waits there for no longer than this.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::Engine;

const EVERY: Duration = Duration::from_secs(1);

pub(super) struct Lows {
    engine: Engine,
}

impl Lows {
    pub(super) fn new(engine: Engine) -> Self {
        Lows { engine }
    }
}

impl Loop for Lows {
    const NAME: &'static str = "lows";

    async fn tick(&mut self) -> Tick {
        match self.engine.look_in_front().await {
            Ok(()) => Tick::Rest(EVERY),
            Err(_) => Tick::Failed,
        }
    }
}
