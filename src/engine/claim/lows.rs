//! Where claims begin to look in a share's line. In front of its *low mark* nothing was READY at the last look, only what has left the line:
//! as long as anybody holds an old snapshot, Postgres can't clear that away, and each look would walk all of it.
//!
//! A hint in memory: whatever becomes READY in front of a mark lowers it, here and, told by NOTIFY, on other servers; and a loop looks in
//! front of all marks each second, for what nobody told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::domain::refusal::Refusal;
use crate::engine::wake::held;
use crate::engine::{Engine, refusal_of, timed};
use crate::store::{self, Openings, Spot};

/// So many shares have a mark; claims of others look at the whole line. One statement a second looks in front of all of them.
const SHARES: usize = 256;
/// Marks that no claim has moved for so long are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(10);

const FIRST: Spot = (i64::MIN, i64::MIN);

#[derive(Default)]
pub struct Lows(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// By queue and share.
    marks: HashMap<(i32, i32), Low>,
    /// The looks under way: of which queue, and the lowest rank that has become READY there since.
    looks: HashMap<u64, (i32, i64)>,
    next: u64,
}

struct Low {
    at: Spot,
    moved: Instant,
}

/// A claim's look at a queue's shares; to be begun before its first statement. What becomes READY meanwhile may not be seen by it.
pub(super) struct Look {
    lows: Arc<Lows>,
    queue_id: i32,
    number: u64,
}

impl Lows {
    pub(super) fn look(self: &Arc<Self>, queue_id: i32) -> Look {
        let mut inner = held(&self.0);
        let number = inner.next;
        inner.next += 1;
        inner.looks.insert(number, (queue_id, i64::MAX));
        Look { lows: self.clone(), queue_id, number }
    }

    /// Tasks have become READY; the commit that says so is over.
    pub fn lower(&self, openings: &Openings) {
        let mut inner = held(&self.0);
        for (queue_id, rank) in openings.iter() {
            for (_, lowest) in inner.looks.values_mut().filter(|(queue, _)| *queue == queue_id) {
                *lowest = rank.min(*lowest);
            }
            // Whatever its position: it may stand in front of others of its rank.
            let at = (rank, i64::MIN);
            inner.marks.iter_mut().filter(|((queue, _), low)| *queue == queue_id && low.at > at).for_each(|(_, low)| low.at = at);
        }
    }

    /// Nothing is known of any line.
    pub fn forget(&self) {
        let mut inner = held(&self.0);
        inner.marks.clear();
        inner.looks.values_mut().for_each(|(_, lowest)| *lowest = i64::MIN);
    }

    /// All marks that are still moved: queue, share, and where it is.
    fn all(&self) -> Vec<(i32, i32, Spot)> {
        let mut inner = held(&self.0);
        inner.marks.retain(|_, low| low.moved.elapsed() < FORGOTTEN);
        inner.marks.iter().map(|((queue_id, share_id), low)| (*queue_id, *share_id, low.at)).collect()
    }
}

impl Look {
    pub(super) fn from(&self, share_id: i32) -> Spot {
        held(&self.lows.0).marks.get(&(self.queue_id, share_id)).map_or(FIRST, |low| low.at)
    }

    /// The first that this look found in a share's line, and has perhaps taken.
    pub(super) fn found(&self, share_id: i32, first: Spot) {
        let mut inner = held(&self.lows.0);
        let lowest = inner.looks.get(&self.number).map_or(i64::MIN, |(_, lowest)| *lowest);
        let at = first.min((lowest, i64::MIN));
        let key = (self.queue_id, share_id);
        if inner.marks.len() >= SHARES && !inner.marks.contains_key(&key) {
            inner.marks.retain(|_, low| low.moved.elapsed() < FORGOTTEN);
            if inner.marks.len() >= SHARES {
                return;
            }
        }
        inner.marks.insert(key, Low { at, moved: Instant::now() });
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        held(&self.lows.0).looks.remove(&self.number);
    }
}

impl Engine {
    /// Looks in front of all low marks, and lowers those that something stands in front of.
    pub async fn look_in_front(&self) -> Result<(), Refusal> {
        let marks = self.0.lows.all();
        if marks.is_empty() {
            return Ok(());
        }
        let found = timed(store::in_front(self.db(), &marks)).await.map_err(|error| refusal_of(&error))?;
        let openings: Openings = found.into_iter().collect();
        self.0.lows.lower(&openings);
        openings.iter().for_each(|(queue_id, _)| self.0.dispatchers.nudge(queue_id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: i32 = 1;
    const SHARE: i32 = 7;

    fn ready(rank: i64) -> Openings {
        [(QUEUE, rank)].into_iter().collect()
    }

    #[test]
    fn a_look_begins_where_the_last_one_found_something() {
        let lows = Arc::<Lows>::default();
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
        lows.look(QUEUE).found(SHARE, (10, 3));
        assert_eq!(lows.look(QUEUE).from(SHARE), (10, 3));
        assert_eq!((lows.look(QUEUE).from(SHARE + 1), lows.look(QUEUE + 1).from(SHARE)), (FIRST, FIRST));
    }

    #[test]
    fn what_becomes_ready_in_front_of_a_mark_is_looked_at_and_what_does_behind_it_moves_nothing() {
        let lows = Arc::<Lows>::default();
        lows.look(QUEUE).found(SHARE, (10, 3));
        lows.lower(&ready(11));
        assert_eq!(lows.look(QUEUE).from(SHARE), (10, 3));
        lows.lower(&ready(10));
        assert!(lows.look(QUEUE).from(SHARE) <= (10, 0), "it may have a lower position");
        lows.lower(&[(QUEUE + 1, 2)].into_iter().collect());
        assert!(lows.look(QUEUE).from(SHARE) > (9, i64::MAX), "that was another queue");
    }

    #[test]
    fn what_became_ready_during_a_look_that_may_not_have_seen_it_stands_in_front_of_no_mark() {
        let lows = Arc::<Lows>::default();
        let (look, later) = (lows.look(QUEUE), lows.look(QUEUE));
        lows.lower(&ready(5));
        look.found(SHARE, (10, 3));
        assert!(lows.look(QUEUE).from(SHARE) <= (5, 0));
        drop(look);
        later.found(SHARE, (12, 4));
        assert!(lows.look(QUEUE).from(SHARE) <= (5, 0), "this one was under way too");
        lows.look(QUEUE).found(SHARE, (12, 4));
        assert_eq!(lows.look(QUEUE).from(SHARE), (12, 4), "and this one came after it");
    }

    #[test]
    fn after_a_word_was_missed_nothing_is_known_not_even_by_a_look_under_way() {
        let lows = Arc::<Lows>::default();
        let look = lows.look(QUEUE);
        look.found(SHARE, (10, 3));
        lows.forget();
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
        look.found(SHARE, (10, 3));
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
    }

    #[test]
    fn there_is_an_end_to_how_many_shares_have_a_mark() {
        let lows = Arc::<Lows>::default();
        let look = lows.look(QUEUE);
        (0..10_000).for_each(|share| look.found(share, (1, 1)));
        assert_eq!(lows.all().len(), SHARES);
        look.found(0, (2, 2));
        assert_eq!(look.from(0), (2, 2), "those that have one go on");
    }
}
