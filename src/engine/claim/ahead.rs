//! Where claims look in a share's line when much of it is to be passed over: tasks that are stale or overdue, which the walk and the due
//! loop will take away, be there a hundred thousand of them.
//!
//! Each server remembers how far it has looked: in front of that *mark* nothing could be leased. The next claim goes on there. Something
//! may become READY in front of it still (a release, a head start, a late commit), so each claim also looks at another part of what
//! stands there, and comes by all of it in turns. All of this is a hint: whatever it says, the rows decide.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::batch::Round;
use crate::engine::wake::held;
use crate::store::{self, Found, Head, Spot, StoreError, Stretch};

/// How many tasks one claim looks at behind marks, all shares together. They take a Postgres some tens of milliseconds.
const BEHIND: usize = 5_000;
/// And in front of them.
const BEFORE: usize = 1_000;
/// When a claim that found nothing looks again, because it has not come by all that stands in front of a mark. Not at once: while very
/// many are taken away, waiting workers would be in the way of that.
const COME_BY: Duration = Duration::from_millis(50);
/// For how long claims of a share look like this, once one has met something to be passed over.
const WARY: Duration = Duration::from_secs(2);
/// Marks of shares in which no claim has met anything for so long are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

const FIRST: Spot = (i64::MIN, i64::MIN);
const LAST: Spot = (i64::MAX, i64::MAX);

/// How far claims of this server have looked, by queue and share: only shares in which they met something to be passed over.
#[derive(Default)]
pub struct Marks(Mutex<HashMap<(i32, i32), Mark>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// In front of it nothing could be leased.
    at: Spot,
    /// From where on the next claim looks at that again.
    again: Spot,
    /// When a claim last met something to be passed over.
    met: Instant,
}

impl Marks {
    pub(super) fn of(&self, queue_id: i32) -> HashMap<i32, Mark> {
        held(&self.0).iter().filter(|((queue, _), _)| *queue == queue_id).map(|((_, share), mark)| (*share, *mark)).collect()
    }

    fn set(&self, queue_id: i32, share_id: i32, mark: Option<Mark>) {
        let mut marks = held(&self.0);
        match mark {
            Some(mark) => {
                marks.retain(|_, other| other.met.elapsed() < FORGOTTEN);
                marks.insert((queue_id, share_id), mark);
            }
            None => drop(marks.remove(&(queue_id, share_id))),
        }
    }
}

impl Mark {
    /// What the next look is at: a part of what stands in front of the mark, and what stands behind it.
    fn stretches(self, share_id: i32, depth: usize, shares: usize) -> [Stretch; 2] {
        let span = |all: usize| (all / shares.max(1)).max(depth);
        [
            Stretch { share_id, from: self.again, end: self.at, span: span(BEFORE), depth },
            Stretch { share_id, from: self.at, end: LAST, span: span(BEHIND), depth },
        ]
    }

    /// The mark after such a look; absent: nothing has been passed over for a while.
    fn moved(self, before: &Found, behind: &Found) -> Option<Mark> {
        let first = |found: &Found| found.heads.first().map(|(spot, _)| *spot);
        let at = first(behind).or(behind.last.map(next)).unwrap_or(self.at);
        let again = first(before).or(before.last.filter(|_| before.more).map(next)).unwrap_or(FIRST);
        let passed = before.last.is_some() || (behind.heads.is_empty() && behind.last.is_some());
        let met = if passed { Instant::now() } else { self.met };
        (met.elapsed() < WARY).then_some(Mark { at, again, met })
    }
}

impl Round {
    /// Something was met in this share that is to be passed over.
    pub(super) fn meets(&mut self, share_id: i32) {
        let new = Mark { at: FIRST, again: FIRST, met: Instant::now() };
        self.marks.entry(share_id).or_insert(new);
    }

    /// Whether this claim passes over something in this share.
    pub(super) fn passes_over(&self, share_id: i32) -> bool {
        self.marks.contains_key(&share_id)
    }

    /// The next tasks of shares, as many of each as is said; without those that are stale or overdue, where such ones were met.
    pub(super) async fn heads(&mut self, depths: &[(i32, usize)]) -> Result<HashMap<i32, Vec<Head>>, StoreError> {
        let (marked, plain): (Vec<_>, Vec<_>) = depths.iter().partition(|(share, _)| self.passes_over(*share));
        let mut heads = HashMap::new();
        if !plain.is_empty() {
            let looks: Vec<_> = plain.iter().map(|(share, depth)| (*share, *depth, self.look.from(*share))).collect();
            for (share, found) in store::heads(&mut self.tx, &looks).await? {
                self.look.finds(share, found.first().map(|(spot, _)| *spot));
                heads.insert(share, found.into_iter().map(|(_, head)| head).collect());
            }
        }
        if !marked.is_empty() {
            self.look_ahead(&marked, &mut heads).await?;
        }
        Ok(heads)
    }

    async fn look_ahead(&mut self, marked: &[(i32, usize)], heads: &mut HashMap<i32, Vec<Head>>) -> Result<(), StoreError> {
        let looks: Vec<(i32, Mark, usize)> =
            marked.iter().filter_map(|(share, depth)| Some((*share, *self.marks.get(share)?, *depth))).collect();
        let stretches: Vec<Stretch> =
            looks.iter().flat_map(|(share, mark, depth)| mark.stretches(*share, *depth, looks.len())).collect();
        let found = store::ahead(&mut self.tx, self.queue_id, &stretches).await?;
        for ((share, mark, depth), of) in looks.iter().zip(found.chunks(2)) {
            let [before, behind] = of else { continue };
            let good = before.heads.iter().chain(&behind.heads).map(|(_, head)| *head);
            heads.entry(*share).or_default().extend(good.take(*depth));
            if before.heads.is_empty() && behind.heads.is_empty() {
                let span = if behind.more { Some(Duration::ZERO) } else { before.more.then_some(COME_BY) };
                self.come_back(span);
            }
            let moved = mark.moved(before, behind);
            self.engine.0.marks.set(self.queue_id, *share, moved);
            match moved {
                Some(moved) => drop(self.marks.insert(*share, moved)),
                None => drop(self.marks.remove(share)),
            }
        }
        Ok(())
    }
}

fn next((rank, position): Spot) -> Spot {
    (rank, position.saturating_add(1))
}
