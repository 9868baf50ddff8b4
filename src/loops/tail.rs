//! Reads the end of the log for all who watch on this server; while nobody does, it waits and reads nothing.

use super::{Loop, Tick};
use crate::engine::{Engine, TailPlace};

pub(super) struct Tail {
    engine: Engine,
    place: TailPlace,
}

impl Tail {
    pub(super) fn new(engine: Engine) -> Self {
        Tail { engine, place: TailPlace::default() }
    }
}

impl Loop for Tail {
    const NAME: &'static str = "tail";

    async fn tick(&mut self) -> Tick {
        match self.engine.tail(&mut self.place).await {
            Ok(None) => Tick::Again,
            Ok(Some(rest)) => Tick::Rest(rest),
            Err(_) => Tick::Failed,
        }
    }

    async fn hint(&self) {
        self.engine.events_written().await;
    }
}
