//! Lets go of ordering keys that only an open repair holds although their queue says CONTINUE. PutQueue does it at once; this finds
//! what a server left undone that died in between, and what was still decided by the policy before.

use std::time::Duration;

use super::{Loop, Tick};
use crate::engine::Engine;

/// Between two walks over all keys with open repairs. Nothing to do is the rule, and a page is cheap.
const EVERY: Duration = Duration::from_secs(10);
const START: (i32, i64) = (0, 0);

pub(super) struct Keys {
    engine: Engine,
    after: (i32, i64),
}

impl Keys {
    pub(super) fn new(engine: Engine) -> Self {
        Keys { engine, after: START }
    }
}

impl Loop for Keys {
    const NAME: &'static str = "keys";

    async fn tick(&mut self) -> Tick {
        match self.engine.let_keys_go(self.after, i32::MAX).await {
            Ok(Some(after)) => {
                self.after = after;
                Tick::Again
            }
            Ok(None) => {
                self.after = START;
                Tick::Rest(EVERY)
            }
            Err(_) => Tick::Failed,
        }
    }
}
