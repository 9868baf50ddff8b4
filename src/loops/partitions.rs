//! Makes the log's partitions before they are needed, and drops those in which nothing is left.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::Engine;

/// One partition holds five million events and two lie ahead, so this is often enough at any rate that Postgres can write.
const EVERY: Duration = Duration::from_secs(30);

pub(super) struct Partitions {
    engine: Engine,
}

impl Partitions {
    pub(super) fn new(engine: Engine) -> Self {
        Partitions { engine }
    }
}

impl Loop for Partitions {
    const NAME: &'static str = "partitions";

    async fn tick(&mut self) -> Tick {
        if self.engine.ensure_partitions().await.is_err() {
            return Tick::Failed;
        }
        match self.engine.drop_partitions().await {
            Ok(()) => Tick::Rest(EVERY),
            Err(_) => Tick::Failed,
        }
    }
}
