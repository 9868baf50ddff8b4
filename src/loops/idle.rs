//! Removes shares and ordering keys that nothing is left of.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::{Engine, IdleWalk};

/// Between two walks over all of them.
const EVERY: Duration = Duration::from_secs(60);
/// Between two pages of a walk: it is in no hurry.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Idle {
    engine: Engine,
    /// Where the next page begins; absent: no walk has begun yet.
    at: Option<IdleWalk>,
}

impl Idle {
    pub(super) fn new(engine: Engine) -> Self {
        Idle { engine, at: None }
    }
}

impl Loop for Idle {
    const NAME: &'static str = "idle";

    async fn tick(&mut self) -> Tick {
        // A server that starts does not begin with this.
        let Some(at) = self.at else {
            self.at = Some(IdleWalk::START);
            return Tick::Rest(EVERY);
        };
        match self.engine.remove_idle(at).await {
            Ok(Some(next)) => {
                self.at = Some(next);
                Tick::Rest(PAUSE)
            }
            Ok(None) => {
                self.at = None;
                Tick::Rest(Duration::from_millis(1))
            }
            Err(_) => Tick::Failed,
        }
    }
}
