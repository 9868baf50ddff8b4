//! Hears from other servers which queues have new READY tasks, of which rank at least, and that there are new events. What was said while it
//! was away is lost, so it looks everywhere then.

use std::time::Duration;

use uuid::Uuid;

use super::{Loop, Tick};
use crate::engine::{Ear, Engine};

/// After so long without a word it asks whether the connection is still there.
const QUIET: Duration = Duration::from_secs(10);

pub(super) struct Listener {
    engine: Engine,
    database_url: String,
    server: Uuid,
    ear: Option<Ear>,
}

impl Listener {
    pub(super) fn new(engine: Engine, database_url: &str, server: Uuid) -> Self {
        Listener { engine, database_url: database_url.to_owned(), server, ear: None }
    }
}

impl Loop for Listener {
    const NAME: &'static str = "listener";

    async fn tick(&mut self) -> Tick {
        let ear = match &mut self.ear {
            Some(ear) => ear,
            none => {
                let Ok(ear) = Ear::open(&self.database_url).await else { return Tick::Failed };
                self.engine.told(None);
                none.insert(ear)
            }
        };
        let Ok(heard) = tokio::time::timeout(QUIET, ear.next()).await else {
            if ear.check().await.is_err() {
                self.ear = None;
                return Tick::Failed;
            }
            return Tick::Again;
        };
        match heard {
            Ok(Some(heard)) if heard.from == self.server => Tick::Again,
            Ok(Some(heard)) => {
                self.engine.told(Some(&heard));
                Tick::Again
            }
            // The connection was lost and made anew: what was sent meanwhile is lost.
            Ok(None) => {
                self.engine.told(None);
                Tick::Rest(Duration::from_millis(100))
            }
            Err(_) => {
                self.ear = None;
                Tick::Failed
            }
        }
    }
}
