//! RaiseSubject and GetSubject; and the walk over the tasks that a raised floor makes stale.
//!
//! The floor is in force with its commit: from then on whoever decides about a task reads it. The walk only tidies up: it tells those who
//! run stale tasks, then cancels what waits. That it is to be done stands in the floor's row, so a server that dies leaves it to the loop
//! of another one.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::wake::held;
use super::{Engine, Met, RaiseCommand, Raised, refusal_of, timed};
use crate::domain::names::{QueueName, SubjectId};
use crate::domain::refusal::{Missing, Refusal};
use crate::domain::spec::Subject;
use crate::domain::subject::{Floor, raised};
use crate::domain::time::Timestamp;
use crate::store::{self, Draw, StoreError};

/// How long the loop leaves a walk to whoever began it. Longer than a walk may take.
pub(super) const WALK_PATIENCE: Duration = Duration::from_secs(30);
/// How long one call walks; what is left then is the loop's.
const WALK: Duration = Duration::from_secs(20);
/// What is kept of a caller's time to answer in.
const MARGIN: Duration = Duration::from_millis(500);
/// How long a Submit waits for the walk over what it superseded.
const SUBMIT_WAITS: Duration = Duration::from_secs(1);
/// Tasks looked at in one statement.
const PAGE: i64 = 1_000;

const _: () = assert!(WALK.as_secs() < WALK_PATIENCE.as_secs(), "the loop does not walk beside a call");

/// Where a walk begins.
#[derive(Clone, Copy, Default)]
struct Begin {
    /// Behind this task.
    after: Uuid,
    /// Some in front of that could not be moved.
    missed: bool,
}

/// Where walks of this server stopped because their time was over, by queue and subject, and below which floor they walked.
#[derive(Default)]
pub struct LeftOff(Mutex<HashMap<(i32, String), (Option<i64>, Begin)>>);

impl LeftOff {
    /// Where the next walk goes on.
    fn take(&self, queue_id: i32, subject: &str, floor: &Floor) -> Begin {
        let left = held(&self.0).remove(&(queue_id, subject.to_owned()));
        left.filter(|(limit, _)| *limit == floor.limit()).map_or(Begin::default(), |(_, from)| from)
    }

    fn note(&self, queue_id: i32, subject: &str, floor: &Floor, from: Begin) {
        held(&self.0).insert((queue_id, subject.to_owned()), (floor.limit(), from));
    }
}

impl Engine {
    /// Raises a floor, never lowers one, and walks over what is stale now until about `until`. In force with the answer.
    pub async fn raise_subject(&self, command: RaiseCommand, until: Option<Instant>) -> Result<Raised, Refusal> {
        let engine = self.clone();
        // In a task of its own: a caller that goes away leaves no walk half done.
        let work = tokio::spawn(async move { engine.raise_and_walk(command, until).await });
        work.await.map_err(|error| Refusal::Bug(error.to_string()))?
    }

    async fn raise_and_walk(&self, command: RaiseCommand, until: Option<Instant>) -> Result<Raised, Refusal> {
        let begin = Instant::now();
        let end = until.map_or(begin + WALK, |until| (until - MARGIN.min(until - begin)).min(begin + WALK));
        let queue_id = self.named_queue(&command.queue).await?;
        let mut tries = 0;
        let (floor, now) = loop {
            match timed(raise_once(self, queue_id, &command)).await {
                Err(StoreError::Conflict(_)) if tries < 10 => tries += 1,
                Err(error) => return Err(refusal_of(&error)),
                Ok(raised) => break raised,
            }
        };
        let met = self.walk(queue_id, command.subject.as_str(), &floor, now, (Begin::default(), end)).await?;
        Ok(Raised { queue: command.queue, subject: command.subject, floor, met })
    }

    /// The subject's floor; NOT_FOUND if it has none.
    pub async fn get_subject(&self, queue: &QueueName, subject: &SubjectId) -> Result<Floor, Refusal> {
        let queue_id = self.known_queue(queue).await?;
        let floor = self.floor(queue_id, subject.as_str()).await?;
        floor.ok_or_else(|| Refusal::NotFound { what: Missing::Subject, name: subject.to_string() })
    }

    async fn floor(&self, queue_id: i32, subject: &str) -> Result<Option<Floor>, Refusal> {
        let named = std::iter::once((queue_id, subject.to_owned()));
        let mut floors = timed(store::floors(self.db().reads(), named)).await.map_err(|error| refusal_of(&error))?;
        Ok(floors.get_mut(&queue_id).and_then(|floors| floors.remove(subject)))
    }

    /// After Submits that raised floors: walks over what they superseded, and waits for it for a moment.
    pub(super) async fn walk_superseded(&self, subjects: Vec<(i32, Subject)>) {
        if subjects.is_empty() {
            return;
        }
        let engine = self.clone();
        let end = Instant::now() + WALK;
        let walks = tokio::spawn(async move {
            for (queue_id, subject) in subjects {
                // What fails here, or is not begun in time, is the loop's.
                let id = subject.id.as_str();
                if let Ok(Some(floor)) = engine.floor(queue_id, id).await
                    && floor.walking
                    && Instant::now() < end
                {
                    drop(engine.walk(queue_id, id, &floor, floor.updated, (Begin::default(), end)).await);
                }
            }
        });
        drop(tokio::time::timeout(SUBMIT_WAITS, walks).await);
    }

    /// Goes on with a walk that was left; whether there was one.
    pub async fn walk_left(&self) -> Result<bool, Refusal> {
        let taken = timed(take_once(self)).await.map_err(|error| refusal_of(&error))?;
        let Some((queue_id, subject, floor, now)) = taken else { return Ok(false) };
        // Not over all of it again, where there is very much.
        let from = self.0.left_off.take(queue_id, &subject, &floor);
        let met = self.walk(queue_id, &subject, &floor, now, (from, Instant::now() + WALK)).await?;
        tracing::info!(queue_id, canceled = met.canceled, told = met.told, more = met.more, "walked over stale tasks");
        Ok(true)
    }

    /// Tells those who run stale tasks, then cancels what waits, in short transactions; and counts. `now`: of the floor's reading;
    /// `stretch`: where it begins, and when it ends at the latest.
    async fn walk(
        &self, queue_id: i32, subject: &str, floor: &Floor, now: Timestamp, stretch: (Begin, Instant),
    ) -> Result<Met, Refusal> {
        let (from, end) = stretch;
        let failed = |error: StoreError| refusal_of(&error);
        let limit = floor.limit();
        let mut met = Met::default();
        let mut after = from.after;
        met.more = from.missed;
        loop {
            let page = timed(store::stale_page(self.db(), queue_id, subject, after, limit, PAGE)).await.map_err(failed)?;
            let Some((last, _)) = page.last() else { break };
            let full = i64::try_from(page.len()).unwrap_or(PAGE) >= PAGE;
            if floor.walking && full && after == from.after {
                // There may be very many. Those who run do harm, so they are told first; and whoever was begun or completed by the old
                // floor just now has committed when this is through, whenever the rest is.
                let running = timed(store::stale_running(self.db(), queue_id, subject, limit)).await.map_err(failed)?;
                self.stop(queue_id, &running, floor, &mut met).await;
            }
            after = *last;
            if floor.walking {
                let open: Vec<Uuid> = page.iter().filter(|(_, open)| *open).map(|(uid, _)| *uid).collect();
                self.stop(queue_id, &open, floor, &mut met).await;
            }
            let all: Vec<Uuid> = page.iter().map(|(uid, _)| *uid).collect();
            met.effected += timed(store::effected(self.db(), queue_id, &all)).await.map_err(failed)?;
            if !full {
                break;
            }
            if Instant::now() >= end {
                if floor.walking {
                    self.0.left_off.note(queue_id, subject, floor, Begin { after, missed: met.more });
                    met.more = true;
                }
                break;
            }
        }
        if floor.walking {
            let due = met.more.then_some(now);
            timed(store::plan_walk(self.db(), queue_id, subject, floor, due)).await.map_err(failed)?;
        }
        Ok(met)
    }

    async fn stop(&self, queue_id: i32, uids: &[Uuid], floor: &Floor, met: &mut Met) {
        let stopped = self.cancel_each(queue_id, uids, floor.cause(), &floor.reason).await;
        met.canceled += stopped.canceled;
        met.told += stopped.told;
        met.more |= stopped.away.is_some();
    }
}

/// One transaction: take the gate, so that no claim straddles the floor, → read → raise → write. The floor as it stands then, and the
/// database's clock.
async fn raise_once(engine: &Engine, queue_id: i32, command: &RaiseCommand) -> Result<(Floor, Timestamp), StoreError> {
    let subject = command.subject.as_str();
    let mut tx = engine.db().begin_patient().await?;
    store::lock_gate(&mut tx, &command.queue).await?;
    let mut floors = store::floors(tx.connection(), std::iter::once((queue_id, subject.to_owned()))).await?;
    let before = floors.get_mut(&queue_id).and_then(|floors| floors.remove(subject));
    let now = store::moment(&mut tx, &[queue_id], Draw::Nothing).await?.now;
    let risen = raised(before.as_ref(), command.raise, &command.reason, now);
    // Whoever repeats a raise takes the walk over from whoever left it.
    let written = risen.or_else(|| before.clone().filter(|floor| floor.walking));
    if let Some(floor) = &written {
        store::write_floors(&mut tx, &[(queue_id, subject.to_owned(), floor.clone())], now.plus(WALK_PATIENCE)).await?;
    }
    tx.commit().await?;
    let floor = written.or(before).ok_or_else(StoreError::silent)?;
    Ok((floor, now))
}

async fn take_once(engine: &Engine) -> Result<Option<(i32, String, Floor, Timestamp)>, StoreError> {
    let mut tx = engine.db().begin().await?;
    let now = store::moment(&mut tx, &[], Draw::Nothing).await?.now;
    let taken = store::take_walk(&mut tx, now, now.plus(WALK_PATIENCE)).await?;
    tx.commit().await?;
    Ok(taken.map(|(queue_id, subject, floor)| (queue_id, subject, floor, now)))
}
