//! Writes what was decided of many tasks in a few statements.

use std::collections::BTreeSet;

use bytes::Bytes;
use uuid::Uuid;

use super::columns::{EndedColumns, EventColumns, LiveColumns, Place};
use super::{Openings, StoreError, Tx};
use crate::domain::event::Event;
use crate::domain::task::{Ended, Live, State};

/// What one transaction does to tasks. Filled by decisions, written once.
#[derive(Default)]
pub struct Changes {
    live: LiveColumns,
    ended: EndedColumns,
    /// Written after the ended ones are gone: a key has one head at any instant.
    unblocked: LiveColumns,
    events: EventColumns,
    results: Vec<(i32, Uuid, Bytes)>,
    /// Shares that got a READY task.
    wakes: BTreeSet<i32>,
    openings: Openings,
    /// Shares of which a lease ended.
    freed: BTreeSet<i32>,
}

/// What is written by one statement, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Live,
    Ended,
    Unblocked,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.live.uid.is_empty() && self.ended.uid.is_empty() && self.unblocked.uid.is_empty() && self.events.uid.is_empty()
    }

    pub fn live(&mut self, place: &Place, live: &Live) {
        self.wake(place, live);
        self.live.push(place, live);
    }

    pub fn unblocked(&mut self, place: &Place, live: &Live) {
        self.wake(place, live);
        self.unblocked.push(place, live);
    }

    pub fn ended(&mut self, place: &Place, ended: &Ended, result: Bytes) {
        self.ended.push(place, ended);
        if !result.is_empty() {
            self.results.push((place.queue_id, place.uid, result));
        }
    }

    pub fn event(&mut self, queue_id: i32, uid: Uuid, event: &Event) {
        self.events.push(queue_id, uid, event);
    }

    /// A lease of this share's ended.
    pub fn freed(&mut self, place: &Place) {
        self.freed.insert(place.share_id);
    }

    fn wake(&mut self, place: &Place, live: &Live) {
        if live.state == State::Ready {
            self.wakes.insert(place.share_id);
            self.openings.add(place.queue_id, live.rank);
        }
    }

    /// The part that is written last writes the events too, which saves a round trip. Absent: they follow by themselves, after shares that
    /// are yet to be woken. (Positions are drawn late, for the log waits for whoever has drawn one.)
    fn tells(&self) -> Option<Part> {
        let parts = [(Part::Unblocked, &self.unblocked.uid), (Part::Ended, &self.ended.uid), (Part::Live, &self.live.uid)];
        let last = parts.into_iter().find(|(_, uids)| !uids.is_empty());
        last.filter(|_| self.wakes.is_empty()).map(|(part, _)| part)
    }

    /// Writes everything, events last. Returns where a claim may find something now that it didn't before.
    pub async fn write(&self, tx: &mut Tx) -> Result<Openings, StoreError> {
        let mut freed = self.freed.clone();
        let mut capped: Vec<Freed> = Vec::new();
        let with = self.tells();
        let none = EventColumns::default();
        let events = |part| if with == Some(part) { &self.events } else { &none };
        if !self.live.uid.is_empty() {
            capped.extend(write_live(tx, &self.live, std::mem::take(&mut freed), events(Part::Live)).await?);
        }
        if !self.ended.uid.is_empty() {
            capped.extend(write_ended(tx, &self.ended, &self.results, std::mem::take(&mut freed), events(Part::Ended)).await?);
        }
        if !self.unblocked.uid.is_empty() {
            capped.extend(write_live(tx, &self.unblocked, freed, events(Part::Unblocked)).await?);
        }
        if !self.wakes.is_empty() {
            let shares: Vec<i32> = self.wakes.iter().copied().collect();
            let rows = sqlx::query_file!("src/store/sql/shares_hold.sql", &shares).fetch_all(tx.connection()).await?;
            wake_shares(tx, rows.into_iter().filter(|row| !row.ready).map(|row| row.share_id)).await?;
        }
        let parked: Vec<i32> = capped.iter().filter(|share| share.parked).map(|share| share.share_id).collect();
        if !parked.is_empty() {
            sqlx::query_file!("src/store/sql/shares_unpark.sql", &parked).execute(tx.connection()).await?;
        }
        if with.is_none() && !self.events.uid.is_empty() {
            write_events(tx, &self.events).await?;
        }
        let mut openings = self.openings.clone();
        capped.iter().for_each(|share| openings.add_place(share.queue_id));
        Ok(openings)
    }
}

/// A share with a cap, or parked until a lease of it ends, of which one ended; held, so that nobody parks it meanwhile.
struct Freed {
    queue_id: i32,
    share_id: i32,
    parked: bool,
}

/// Says of shares (held, and asleep until now) that they may have READY tasks.
pub async fn wake_shares(tx: &mut Tx, asleep: impl Iterator<Item = i32>) -> Result<(), StoreError> {
    let shares: Vec<i32> = asleep.collect();
    if !shares.is_empty() {
        sqlx::query_file!("src/store/sql/shares_wake.sql", &shares).execute(tx.connection()).await?;
    }
    Ok(())
}

async fn write_live(tx: &mut Tx, c: &LiveColumns, freed: BTreeSet<i32>, e: &EventColumns) -> Result<Vec<Freed>, StoreError> {
    let freed: Vec<i32> = freed.into_iter().collect();
    let rows = sqlx::query_file!(
        "src/store/sql/write_live.sql",
        &c.queue_id,
        &c.uid,
        &c.state as _,
        &c.revision,
        &c.attempt,
        &c.charged,
        &c.releases,
        &c.unknown_attempts,
        &c.token,
        &c.report as _,
        &c.rank,
        &c.wake as _,
        &c.due as _,
        &c.worker as _,
        &c.lease_begin as _,
        &c.lease_expire as _,
        &c.lease_us as _,
        &c.stage as _,
        &c.effect_ref as _,
        &c.effect_begun as _,
        &c.reports_effect as _,
        &c.heartbeat as _,
        &c.call_id as _,
        &c.claim_id as _,
        &c.cancel_cause as _,
        &c.cancel_reason as _,
        &c.updated as _,
        &c.first_lease as _,
        &c.notes as _,
        &freed,
        &e.queue_id,
        &e.uid,
        &e.revision,
        &e.time as _,
        &e.kind as _,
        &e.previous_state as _,
        &e.state as _,
        &e.cause as _,
        &e.attempt,
        &e.token,
        &e.worker as _,
        &e.evidence as _,
    )
    .fetch_all(tx.connection())
    .await?;
    let capped = rows.into_iter().filter(|row| row.capped || row.parked);
    Ok(capped.map(|row| Freed { queue_id: row.queue_id, share_id: row.share_id, parked: row.parked }).collect())
}

async fn write_ended(
    tx: &mut Tx, c: &EndedColumns, results: &[(i32, Uuid, Bytes)], freed: BTreeSet<i32>, e: &EventColumns,
) -> Result<Vec<Freed>, StoreError> {
    let freed: Vec<i32> = freed.into_iter().collect();
    let rows = sqlx::query_file!(
        "src/store/sql/write_ended.sql",
        &c.queue_id,
        &c.uid,
        &c.key_id as _,
        &c.position,
        &c.state as _,
        &c.cause as _,
        &c.reason,
        &c.revision,
        &c.attempt,
        &c.charged,
        &c.max_attempts,
        &c.unknown_attempts,
        &c.token,
        &c.report as _,
        &c.boundary,
        &c.accepted as _,
        &c.ended as _,
        &c.deadline as _,
        &c.first_lease as _,
        &c.stage as _,
        &c.worker as _,
        &c.evidence as _,
        &c.notes as _,
        &results.iter().map(|r| r.0).collect::<Vec<_>>(),
        &results.iter().map(|r| r.1).collect::<Vec<_>>(),
        &results.iter().map(|r| &r.2[..]).collect::<Vec<_>>() as _,
        &freed,
        &e.queue_id,
        &e.uid,
        &e.revision,
        &e.time as _,
        &e.kind as _,
        &e.previous_state as _,
        &e.state as _,
        &e.cause as _,
        &e.attempt,
        &e.token,
        &e.worker as _,
        &e.evidence as _,
    )
    .fetch_all(tx.connection())
    .await?;
    let capped = rows.into_iter().filter(|row| row.capped || row.parked);
    Ok(capped.map(|row| Freed { queue_id: row.queue_id, share_id: row.share_id, parked: row.parked }).collect())
}

async fn write_events(tx: &mut Tx, c: &EventColumns) -> Result<(), StoreError> {
    sqlx::query_file!(
        "src/store/sql/write_events.sql",
        &c.queue_id,
        &c.uid,
        &c.revision,
        &c.time as _,
        &c.kind as _,
        &c.previous_state as _,
        &c.state as _,
        &c.cause as _,
        &c.attempt,
        &c.token,
        &c.worker as _,
        &c.evidence as _,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}
