//! Tells other servers which queues have new READY tasks, of which rank at least, and, while somebody watches there, that there are new
//! events: hints only, sent outside the write transactions, and not more often than `DEBOUNCE`, `EVENTS` and `PLACES` say.

use std::time::Duration;

use uuid::Uuid;

use super::{Loop, Tick};
use crate::engine::Engine;

const DEBOUNCE: Duration = Duration::from_millis(5);
/// How long a server that found itself alone takes that for granted: no longer than the polls of a server that has just come.
const ALONE: Duration = Duration::from_secs(1);
const EVENTS: Duration = Duration::from_millis(10);
/// Places that came free are mostly taken by those who wait here; the others hear of them all the same.
const PLACES: Duration = Duration::from_millis(20);

/// How long a tick waits for something to tell.
const QUIET: Duration = Duration::from_secs(30);

pub(super) struct Notify {
    engine: Engine,
    server: Uuid,
    /// It rests after it told of places alone.
    places: bool,
}

impl Notify {
    pub(super) fn new(engine: Engine, server: Uuid) -> Self {
        Notify { engine, server, places: false }
    }
}

impl Loop for Notify {
    const NAME: &'static str = "notify";

    async fn tick(&mut self) -> Tick {
        let Ok(news) = tokio::time::timeout(QUIET, self.engine.untold()).await else { return Tick::Again };
        let told = self.engine.tell_other_servers(self.server, &news).await;
        self.places = !news.events && !news.openings.is_empty() && news.openings.only_places();
        match told {
            Ok(false) => Tick::Rest(ALONE),
            // Events alone are less urgent than work that somebody waits for, and there are more of them.
            Ok(true) if news.openings.is_empty() => Tick::Rest(EVENTS),
            Ok(true) if self.places => Tick::Rest(PLACES),
            Ok(true) => Tick::Rest(DEBOUNCE),
            Err(_) => Tick::Failed,
        }
    }

    /// What has become READY does not wait for places.
    async fn hint(&self) {
        if self.places { self.engine.untold_ready().await } else { std::future::pending().await }
    }
}
