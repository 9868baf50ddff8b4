//! READY tasks whose rows this server can't read: written by hand, or by a version that knows more. A claim passes over them, so that the
//! others of their share go on.
//!
//! Nothing is done about them here: they stay READY and keep their places, and a server that can read them leases them. The log tells them,
//! Explain and the doctor too; at their deadline they become repairs (`engine/stuck.rs`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::domain::limits::BATCH;
use crate::engine::wake::held;
use crate::engine::{Engine, timed};
use crate::store::{self, Draw, StoreError};

/// For how long such a task is passed over before it is read again: somebody may have put it right.
const LEFT_ALONE: Duration = Duration::from_secs(30);
/// How many shares are searched, and how many tasks of each beyond those that are passed over already.
const SHARES: i64 = 64;
/// How many a single search tells apart: the next claim goes on.
const AT_ONCE: usize = 50;

/// Tasks that can't be read, by queue, until when they are passed over.
#[derive(Default)]
pub struct Unread(Mutex<HashMap<(i32, Uuid), Instant>>);

impl Unread {
    pub(super) fn of(&self, queue_id: i32) -> Vec<Uuid> {
        let mut unread = held(&self.0);
        if unread.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        unread.retain(|_, until| *until > now);
        unread.keys().filter(|(queue, _)| *queue == queue_id).map(|(_, uid)| *uid).collect()
    }

    fn add(&self, queue_id: i32, uid: Uuid) {
        held(&self.0).insert((queue_id, uid), Instant::now() + LEFT_ALONE);
    }
}

/// The tasks that a claim dealt with, for whoever must find out by which one it failed.
#[derive(Default)]
pub(super) struct Touched(Mutex<BTreeSet<Uuid>>);

impl Touched {
    pub(super) fn add(&self, uids: impl Iterator<Item = Uuid>) {
        held(&self.0).extend(uids);
    }
}

impl Engine {
    /// After a claim that failed by something stored: finds out which tasks can't be read. False: it was none of those.
    pub(super) async fn pass_over_unreadable(&self, queue_id: i32, touched: &Touched) -> bool {
        let known = self.0.unread.of(queue_id);
        match timed(self.unreadable(queue_id, touched, &known)).await {
            Ok(found) => {
                for (uid, error) in &found {
                    let error = error.describe();
                    tracing::error!(%uid, queue_id, %error, "a READY task can't be read, so claims pass over it");
                    self.0.unread.add(queue_id, *uid);
                }
                !found.is_empty()
            }
            Err(error) => {
                tracing::warn!(queue_id, error = %error.describe(), "could not look for tasks that can't be read");
                false
            }
        }
    }

    async fn unreadable(&self, queue_id: i32, touched: &Touched, known: &[Uuid]) -> Result<Vec<(Uuid, StoreError)>, StoreError> {
        // Which rows a claim locked is not known if one of them could not be read.
        let depth = i64::try_from(known.len() + BATCH).unwrap_or(i64::MAX);
        let mut uids: BTreeSet<Uuid> = store::suspects(self.db(), queue_id, SHARES, depth).await?.into_iter().collect();
        uids.extend(held(&touched.0).iter().copied());
        uids.retain(|uid| !known.contains(uid));
        let mut found = Vec::new();
        let mut parts: Vec<Vec<Uuid>> = vec![uids.into_iter().collect()];
        while let Some(mut part) = parts.pop() {
            match self.read_all(queue_id, &part).await {
                Ok(()) => {}
                Err(error @ StoreError::Data(_)) if part.len() == 1 => found.extend(part.pop().map(|uid| (uid, error))),
                Err(StoreError::Data(_)) => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([part, second]);
                }
                Err(error) => return Err(error),
            }
            if found.len() >= AT_ONCE {
                break;
            }
        }
        Ok(found)
    }

    /// Reads of these tasks what a claim reads.
    async fn read_all(&self, queue_id: i32, uids: &[Uuid]) -> Result<(), StoreError> {
        if uids.is_empty() {
            return Ok(());
        }
        let mut tx = self.db().begin_read().await?;
        let policies = store::moment(&mut tx, &[queue_id], Draw::Nothing).await?.policies;
        let (name, _) = policies.get(&queue_id).ok_or_else(StoreError::silent)?;
        let queues = vec![queue_id; uids.len()];
        let mut specs = BTreeSet::new();
        for row in store::specs_by_uid(tx.connection(), &queues, uids).await? {
            specs.insert(row.uid);
            row.spec(name)?;
        }
        let mut doubted = Vec::new();
        for row in store::live_by_uid(tx.connection(), &queues, uids).await? {
            row.live()?;
            if !specs.contains(&row.uid) {
                return Err(StoreError::absent(row.uid));
            }
            doubted.extend((row.unknown_attempts > 0).then_some(row.uid));
        }
        if !doubted.is_empty() {
            store::events_of_tasks(tx.connection(), &vec![queue_id; doubted.len()], &doubted).await?;
        }
        tx.commit().await
    }
}
