//! What runs in the background on every server; none leads. A loop is a `tick`; one runner gives them all shutdown, back-off and a
//! sign of life.

mod due;
mod health;
mod idle;
mod keys;
mod listener;
mod lows;
mod notify;
mod partitions;
mod retention;
mod tail;
mod walks;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Engine;

/// The most that a failing loop waits before it tries again.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// A loop that must work and has not done so for so long makes the server unfit to serve.
const SILENCE: Duration = Duration::from_secs(10);
/// A tick that takes longer is given up and counts as failed, so that nothing that hangs in it ends a loop. Longer than a tick works,
/// or waits for a word.
const STUCK: Duration = Duration::from_secs(60);
/// Any other loop that has not finished a tick for so long, well or badly, hangs where no time limit reaches it. None rests for longer than
/// a minute.
const HANGS: Duration = Duration::from_secs(180);

const _: () = assert!(HANGS.as_secs() >= 2 * STUCK.as_secs(), "a tick that is given up is no loop that hangs");

/// Signs of life of all loops. Whoever reads it learns of those that are not fit; one that has ended in any other way than by being told to
/// is never fit again, and the server is told at once that it does not serve: the loop that would tell it may be the one that ended.
#[derive(Clone)]
pub struct Pulse(Arc<Hearts>);

struct Hearts {
    loops: Mutex<HashMap<&'static str, Heart>>,
    serving: watch::Sender<bool>,
}

#[derive(Clone, Copy)]
enum Heart {
    Beats { last: Instant, patience: Duration },
    Dead,
}

impl Pulse {
    fn new(serving: watch::Sender<bool>) -> Self {
        Pulse(Arc::new(Hearts { loops: Mutex::default(), serving }))
    }

    fn note(&self, name: &'static str, heart: Heart) {
        self.0.loops.lock().unwrap_or_else(PoisonError::into_inner).insert(name, heart);
    }

    fn beat(&self, name: &'static str, patience: Duration) {
        self.note(name, Heart::Beats { last: Instant::now(), patience });
    }

    fn died(&self, name: &'static str) {
        tracing::error!(name, "a loop has died: the server does not serve until it is started anew");
        self.note(name, Heart::Dead);
        self.0.serving.send_replace(false);
    }

    /// The loops that have been silent for too long, or are dead.
    pub fn silent(&self) -> Vec<&'static str> {
        let loops = self.0.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let unfit = |heart: &Heart| match heart {
            Heart::Beats { last, patience } => last.elapsed() > *patience,
            Heart::Dead => true,
        };
        loops.iter().filter(|(_, heart)| unfit(heart)).map(|(name, _)| *name).collect()
    }
}

/// Says that its loop has died, if it goes before it was told to.
struct Life {
    name: &'static str,
    pulse: Pulse,
    shutdown: CancellationToken,
}

impl Drop for Life {
    fn drop(&mut self) {
        if !self.shutdown.is_cancelled() {
            self.pulse.died(self.name);
        }
    }
}

/// How a tick went.
enum Tick {
    Again,
    /// Sleep so long, or until the loop's own hint comes.
    Rest(Duration),
    /// Something is away; back off.
    Failed,
}

/// One background loop.
trait Loop: Send + 'static {
    const NAME: &'static str;
    /// Whether the service breaks its promises while the ticks fail, whatever else works.
    const MUST_WORK: bool = false;

    fn tick(&mut self) -> impl Future<Output = Tick> + Send;

    /// Resolves when there may be something to do earlier than the last tick knew.
    fn hint(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// Everything the loops need.
#[derive(Clone)]
pub struct Context {
    pub engine: Engine,
    /// For the listener's own connection.
    pub database_url: String,
    /// Told whether the server should say that it serves.
    pub serving: watch::Sender<bool>,
}

/// Starts all loops. They end when `shutdown` is cancelled.
pub fn start(ctx: &Context, tracker: &TaskTracker, shutdown: &CancellationToken) -> Pulse {
    let pulse = Pulse::new(ctx.serving.clone());
    let server = uuid::Uuid::now_v7();
    let engine = || ctx.engine.clone();
    // A macro, since the loops are of different types.
    macro_rules! start {
        ($($loop:expr),+ $(,)?) => { $(tracker.spawn(run($loop, pulse.clone(), shutdown.clone()));)+ };
    }
    start![
        due::Due::new(engine()),
        partitions::Partitions::new(engine()),
        keys::Keys::new(engine()),
        idle::Idle::new(engine()),
        retention::Retention::new(engine()),
        tail::Tail::new(engine()),
        walks::Walks::new(engine()),
        lows::Lows::new(engine()),
        notify::Notify::new(engine(), server),
        listener::Listener::new(engine(), &ctx.database_url, server),
        health::Health::new(engine(), pulse.clone(), ctx.serving.clone()),
    ];
    pulse
}

async fn run<L: Loop>(mut this: L, pulse: Pulse, shutdown: CancellationToken) {
    let patience = if L::MUST_WORK { SILENCE } else { HANGS };
    pulse.beat(L::NAME, patience);
    let _life = Life { name: L::NAME, pulse: pulse.clone(), shutdown: shutdown.clone() };
    let mut failures: u32 = 0;
    loop {
        let tick = tokio::select! {
            () = shutdown.cancelled() => return,
            tick = tokio::time::timeout(STUCK, this.tick()) => tick.unwrap_or(Tick::Failed),
        };
        let rest = match tick {
            Tick::Again => Duration::ZERO,
            Tick::Rest(rest) => rest,
            Tick::Failed => {
                failures = failures.saturating_add(1);
                let backoff = Duration::from_millis(100).saturating_mul(1 << failures.min(5)).min(BACKOFF_MAX);
                backoff.mul_f64(0.5 + 0.5 * fastrand::f64())
            }
        };
        if !matches!(tick, Tick::Failed) {
            if failures > 0 {
                tracing::info!(name = L::NAME, failures, "the loop works again");
            }
            failures = 0;
        }
        if !L::MUST_WORK || failures == 0 {
            pulse.beat(L::NAME, patience);
        }
        if rest.is_zero() {
            continue;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(rest) => {}
            // While something is away, hints would only make the loop knock faster.
            () = this.hint(), if failures == 0 => {}
        }
    }
}

#[cfg(test)]
mod tests;
