//! Shares and ordering keys appear with their first task. What nothing is left of is removed, a page at a time.

use super::{Engine, refusal_of, timed};
use crate::domain::refusal::Refusal;
use crate::store;

/// How many rows one step looks at, and at most removes.
const PAGE: i64 = 200;

/// How far a walk over all shares and all keys has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleWalk {
    Shares(i32),
    Keys(i64),
}

impl IdleWalk {
    pub const START: IdleWalk = IdleWalk::Shares(0);
}

impl Engine {
    /// Removes the idle ones of a page; where the next page begins (absent: this was the last).
    pub async fn remove_idle(&self, at: IdleWalk) -> Result<Option<IdleWalk>, Refusal> {
        timed(self.remove_idle_once(at)).await.map_err(|error| refusal_of(&error))
    }

    async fn remove_idle_once(&self, at: IdleWalk) -> Result<Option<IdleWalk>, store::StoreError> {
        let (removed, next) = match at {
            IdleWalk::Shares(after) => {
                let page = store::idle_shares(self.db(), after, PAGE).await?;
                let removed = if page.idle.is_empty() { 0 } else { store::remove_shares(self.db(), &page.idle).await? };
                (removed, Some(page.next.map_or(IdleWalk::Keys(0), IdleWalk::Shares)))
            }
            IdleWalk::Keys(after) => {
                let page = store::idle_keys(self.db(), after, PAGE).await?;
                let removed = if page.idle.is_empty() { 0 } else { store::remove_keys(self.db(), &page.idle).await? };
                (removed, page.next.map(IdleWalk::Keys))
            }
        };
        if removed > 0 {
            tracing::debug!(removed, ?at, "removed what nothing is left of");
        }
        Ok(next)
    }
}
