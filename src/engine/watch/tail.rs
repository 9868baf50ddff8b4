//! The tail: one reader of the log's end per server, while anybody there needs it. It delivers up to the stable position, and nothing that a
//! crash of the database could take back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::event;
use super::filter::EventFilter;
use crate::domain::frontier::Frontier;
use crate::domain::refusal::Refusal;
use crate::engine::{Engine, refusal_of, timed};
use crate::store::{self, LogRow, StoreError};

/// Events in one read.
const PAGE: i64 = 500;
/// The longest that the log goes without a look: every nudge may be lost.
const POLL: Duration = Duration::from_millis(500);
/// After a read that found something the next one waits a little, so that a busy log is read in pages, not in single events.
const PACE: Duration = Duration::from_millis(3);
/// Between two looks at a gap.
const GAP_MIN: Duration = Duration::from_millis(5);
const GAP_MAX: Duration = Duration::from_millis(50);
/// How often other servers are told that somebody here wants to hear of events.
const ANNOUNCE: Duration = Duration::from_secs(10);

/// How long one call waits for somebody who needs the tail.
const QUIET: Duration = Duration::from_secs(30);

/// How far the tail has come.
#[derive(Default)]
pub struct TailPlace {
    at: At,
    /// Looks at the present gap so far.
    looks: u32,
    announced: Option<std::time::Instant>,
}

#[derive(Default)]
enum At {
    #[default]
    Nowhere,
    /// The log begins after this position once these transactions are over: they may have drawn a lower one.
    Starting(i64, BTreeSet<String>),
    Running(Running),
}

struct Running {
    frontier: Frontier,
    /// What has been read up to here is on disk.
    durable: i64,
}

/// When to look again; absent: at once.
pub type Rest = Option<Duration>;

impl Engine {
    /// Reads what was written since, and passes it on. While nobody needs it, waits until somebody does.
    pub async fn tail(&self, tail: &mut TailPlace) -> Result<Rest, Refusal> {
        let hub = self.hub();
        if !hub.attended() && hub.end() {
            *tail = TailPlace::default();
            drop(tokio::time::timeout(QUIET, hub.nudged()).await);
            return Ok(None);
        }
        if tail.announced.is_none_or(|told| told.elapsed() > ANNOUNCE) {
            tail.announced = Some(std::time::Instant::now());
            self.0.wakes.tell_watching();
        }
        let rest = match &mut tail.at {
            At::Running(running) => timed(self.read_on(running)).await,
            _ => timed(self.find_the_end(&mut tail.at)).await,
        };
        let rest = rest.map_err(|error| refusal_of(&error))?;
        tail.looks = if rest == Some(GAP_MIN) { (tail.looks + 1).min(8) } else { 0 };
        Ok(rest.map(|rest| if tail.looks > 0 { (rest * tail.looks).min(GAP_MAX) } else { rest }))
    }

    /// Resolves when an event may have been written.
    pub async fn events_written(&self) {
        self.hub().nudged().await;
    }

    /// Where the log ends: the last visible position, as soon as nothing can appear below it any more.
    async fn find_the_end(&self, at: &mut At) -> Result<Rest, StoreError> {
        if !matches!(at, At::Starting(..)) {
            let end = store::log_end(self.db()).await?;
            store::barrier(self.db()).await?;
            *at = At::Starting(end, store::log_holders(self.db()).await?);
        }
        let At::Starting(end, open) = at else { return Ok(None) };
        if !open.is_empty() {
            let now = store::log_holders(self.db()).await?;
            open.retain(|holder| now.contains(holder));
            if !open.is_empty() {
                return Ok(Some(GAP_MIN));
            }
        }
        let end = *end;
        self.hub().begin(end);
        *at = At::Running(Running { frontier: Frontier::new(end), durable: end });
        Ok(None)
    }

    async fn read_on(&self, at: &mut Running) -> Result<Rest, StoreError> {
        let after = at.frontier.stable();
        let mut rows = store::log_read(self.db(), after, PAGE).await?;
        let Some(last) = rows.last().map(|row| row.position) else { return Ok(Some(POLL)) };
        if last > at.durable {
            // Visible is not yet durable. And numbers up to one that is on disk are never drawn again, whatever crashes.
            store::barrier(self.db()).await?;
            at.durable = last;
        }
        let found: Vec<i64> = rows.iter().map(|row| row.position).collect();
        let full = i64::try_from(rows.len()) == Ok(PAGE);
        let mut ahead = Frontier::clone(&at.frontier);
        let count = ahead.pass(&found);
        let gap = count < rows.len();
        rows.truncate(count);
        if !rows.is_empty() {
            self.pass_on(rows, ahead.stable()).await?;
        }
        // Only now: what could not be passed on is read again.
        at.frontier = ahead;
        if gap {
            let further = at.frontier.note(last, store::log_holders(self.db()).await?);
            return Ok(if further || count > 0 { None } else { Some(GAP_MIN) });
        }
        if full {
            return Ok(None);
        }
        tokio::time::sleep(PACE).await;
        Ok(None)
    }

    async fn pass_on(&self, rows: Vec<LogRow>, stable: i64) -> Result<(), StoreError> {
        self.0.wakes.tasks_changed(rows.iter().map(|row| row.uid));
        let (rows, names) = self.hub().interesting(rows);
        let events = event::events(self.db(), rows, |queue_id| names.get(&queue_id), &EventFilter::all()).await?;
        self.hub().pass(events, stable);
        Ok(())
    }
}
