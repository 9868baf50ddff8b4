//! Leases on their way to a caller: whoever drops them before they arrived gives them back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::transition::{Item, Target};
use super::{Engine, LeasedTask};
use crate::domain::refusal::Refusal;
use crate::domain::task::Command;

/// What a Claim is answered with.
#[derive(Clone)]
pub struct Leases {
    pub leases: Vec<LeasedTask>,
    /// To be kept until the answer has been handed to the transport.
    pub delivery: Delivery,
}

/// Gives leases back, uncharged, unless somebody says that they were delivered. Clones share one fate.
#[derive(Clone)]
pub struct Delivery(Arc<Guard>);

struct Guard {
    engine: Engine,
    leases: Vec<GivenBack>,
    delivered: AtomicBool,
}

/// One lease to be given back if nobody takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBack {
    pub queue_id: i32,
    pub uid: Uuid,
    pub token: i64,
    pub call: Uuid,
}

impl Leases {
    pub(super) fn none(engine: &Engine) -> Leases {
        Leases { leases: Vec::new(), delivery: Delivery::new(engine, Vec::new()) }
    }
}

impl Delivery {
    pub(super) fn new(engine: &Engine, leases: Vec<GivenBack>) -> Delivery {
        Delivery(Arc::new(Guard { engine: engine.clone(), leases, delivered: AtomicBool::new(false) }))
    }

    /// The answer was handed to the transport: it is delivered as far as a server can know.
    pub fn delivered(&self) {
        self.0.delivered.store(true, Ordering::Relaxed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.leases.is_empty() && !self.delivered.load(Ordering::Relaxed) {
            give_back(self.engine.clone(), std::mem::take(&mut self.leases));
        }
    }
}

/// Gives leases back in the background, and keeps trying for as long as the database may be away. What can't be given back ends
/// with its lease.
pub(super) fn give_back(engine: Engine, leases: Vec<GivenBack>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    if leases.is_empty() {
        return;
    }
    let unsettled = engine.0.unsettled.clone();
    unsettled.spawn_on(give_back_often(engine, leases), &runtime);
}

async fn give_back_often(engine: Engine, leases: Vec<GivenBack>) {
    tracing::debug!(count = leases.len(), "giving back leases that nobody took");
    let mut pause = Duration::from_millis(50);
    let mut left = leases;
    for _ in 0..12 {
        let items = left.iter().map(|lease| Item {
            queue_id: lease.queue_id,
            target: Target::Uid(lease.uid),
            command: Command::GiveBack { token: lease.token, call: lease.call },
        });
        let answers = engine.0.transitions.call(items.collect()).await;
        let answers = answers.unwrap_or_else(|refusal| vec![Err(refusal); left.len()]);
        let failed = |answer: &Result<_, Refusal>| matches!(answer, Err(Refusal::DatabaseUnavailable | Refusal::Overloaded));
        left = left.into_iter().zip(&answers).filter(|(_, answer)| failed(answer)).map(|(lease, _)| lease).collect();
        if left.is_empty() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
