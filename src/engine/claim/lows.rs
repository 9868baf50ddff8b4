//! Where claims begin to look in a share's line. In front of its *low mark* nothing was READY at the last look, only what has left the line:
//! as long as anybody holds an old snapshot, Postgres can't clear that away, and each look would walk all of it.
//!
//! A hint in memory: whatever becomes READY in front of a mark lowers it, here and, told by NOTIFY, on other servers; and a loop looks in
//! front of all marks each second, for what nobody told.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::domain::refusal::Refusal;
use crate::engine::wake::held;
use crate::engine::{Engine, refusal_of, timed};
use crate::store::{self, Openings, Spot};

/// So many shares have a mark; claims of others look at the whole line. One statement a second looks in front of all of them.
const SHARES: usize = 256;
/// Marks count only as long as somebody has looked in front of them lately.
const UNCHECKED: Duration = Duration::from_secs(3);
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
    /// When somebody last looked in front of all marks.
    checked: Option<Instant>,
}

struct Low {
    at: Spot,
    moved: Instant,
}

/// A claim's look at a queue's shares; to be begun before its first statement, and to end after its last. What becomes READY meanwhile may
/// not be seen by it.
pub(super) struct Look {
    lows: Arc<Lows>,
    queue_id: i32,
    number: u64,
    found: HashMap<i32, Spot>,
}

impl Lows {
    pub(super) fn look(self: &Arc<Self>, queue_id: i32) -> Look {
        let mut inner = held(&self.0);
        let number = inner.next;
        inner.next += 1;
        inner.looks.insert(number, (queue_id, i64::MAX));
        Look { lows: self.clone(), queue_id, number, found: HashMap::new() }
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

    /// Somebody who began then has looked in front of all marks.
    fn checked(&self, begin: Instant) {
        held(&self.0).checked = Some(begin);
    }
}

impl Look {
    pub(super) fn from(&self, share_id: i32) -> Spot {
        let inner = held(&self.lows.0);
        if inner.checked.is_none_or(|checked| checked.elapsed() > UNCHECKED) {
            return FIRST;
        }
        inner.marks.get(&(self.queue_id, share_id)).map_or(FIRST, |low| low.at)
    }

    /// What this look found in a share's line, the first of it. It may be taken, or stay where it is.
    pub(super) fn finds(&mut self, share_id: i32, first: Option<Spot>) {
        if let Some(first) = first {
            self.found.entry(share_id).and_modify(|before| *before = first.min(*before)).or_insert(first);
        }
    }
}

impl Drop for Look {
    /// However its claim ended: what it found and left stands in front of no mark.
    fn drop(&mut self) {
        let mut inner = held(&self.lows.0);
        let (_, lowest) = inner.looks.remove(&self.number).unwrap_or((self.queue_id, i64::MIN));
        for (share_id, first) in std::mem::take(&mut self.found) {
            // Those that look just now pass over what this one has locked.
            for (_, other) in inner.looks.values_mut().filter(|(queue, _)| *queue == self.queue_id) {
                *other = first.0.min(*other);
            }
            let key = (self.queue_id, share_id);
            if inner.marks.len() >= SHARES && !inner.marks.contains_key(&key) {
                inner.marks.retain(|_, low| low.moved.elapsed() < FORGOTTEN);
            }
            if inner.marks.len() < SHARES || inner.marks.contains_key(&key) {
                inner.marks.insert(key, Low { at: first.min((lowest, i64::MIN)), moved: Instant::now() });
            }
        }
    }
}

impl Engine {
    /// Looks in front of all low marks, and lowers those that something stands in front of.
    pub async fn look_in_front(&self) -> Result<(), Refusal> {
        let begin = Instant::now();
        let marks = self.0.lows.all();
        if !marks.is_empty() {
            // What can't be read stays where it is, in front of a mark or not.
            let queues: BTreeSet<i32> = marks.iter().map(|(queue_id, ..)| *queue_id).collect();
            let unread: Vec<Uuid> = queues.into_iter().flat_map(|queue_id| self.0.unread.of(queue_id)).collect();
            let found = timed(store::in_front(self.db(), &marks, &unread)).await.map_err(|error| refusal_of(&error))?;
            self.opened(&found.into_iter().collect());
        }
        self.0.lows.checked(begin);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: i32 = 1;
    const SHARE: i32 = 7;

    fn lows() -> Arc<Lows> {
        let lows = Arc::<Lows>::default();
        lows.checked(Instant::now());
        lows
    }

    fn finds(lows: &Arc<Lows>, first: Spot) {
        lows.look(QUEUE).finds(SHARE, Some(first));
    }

    fn ready(rank: i64) -> Openings {
        [(QUEUE, rank)].into_iter().collect()
    }

    #[test]
    fn a_look_begins_where_the_last_one_found_something() {
        let lows = lows();
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
        let mut look = lows.look(QUEUE);
        look.finds(SHARE, Some((10, 3)));
        look.finds(SHARE, Some((12, 4)));
        look.finds(SHARE, None);
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST, "it is not over");
        drop(look);
        assert_eq!(lows.look(QUEUE).from(SHARE), (10, 3));
        assert_eq!((lows.look(QUEUE).from(SHARE + 1), lows.look(QUEUE + 1).from(SHARE)), (FIRST, FIRST));
    }

    #[test]
    fn what_becomes_ready_in_front_of_a_mark_is_looked_at_and_what_does_behind_it_moves_nothing() {
        let lows = lows();
        finds(&lows, (10, 3));
        lows.lower(&ready(11));
        assert_eq!(lows.look(QUEUE).from(SHARE), (10, 3));
        lows.lower(&ready(10));
        assert!(lows.look(QUEUE).from(SHARE) <= (10, 0), "it may have a lower position");
        lows.lower(&[(QUEUE + 1, 2)].into_iter().collect());
        assert!(lows.look(QUEUE).from(SHARE) > (9, i64::MAX), "that was another queue");
    }

    #[test]
    fn what_became_ready_during_a_look_that_may_not_have_seen_it_stands_in_front_of_no_mark() {
        let lows = lows();
        let mut look = lows.look(QUEUE);
        lows.lower(&ready(5));
        look.finds(SHARE, Some((10, 3)));
        drop(look);
        assert!(lows.look(QUEUE).from(SHARE) <= (5, 0));
        finds(&lows, (12, 4));
        assert_eq!(lows.look(QUEUE).from(SHARE), (12, 4), "this one came after it");
    }

    #[test]
    fn what_a_look_had_locked_while_another_one_passed_over_it_stands_in_front_of_no_mark_whichever_ends_first() {
        for first_ends_first in [true, false] {
            let lows = lows();
            let (mut first, mut second) = (lows.look(QUEUE), lows.look(QUEUE));
            first.finds(SHARE, Some((10, 3)));
            second.finds(SHARE, Some((20, 9)));
            if first_ends_first {
                drop(first);
                drop(second);
            } else {
                drop(second);
                drop(first);
            }
            assert!(lows.look(QUEUE).from(SHARE) <= (10, 3), "the first one may have left it");
        }
    }

    #[test]
    fn after_a_word_was_missed_nothing_is_known_not_even_by_a_look_under_way() {
        let lows = lows();
        finds(&lows, (10, 3));
        let mut look = lows.look(QUEUE);
        look.finds(SHARE, Some((10, 3)));
        lows.forget();
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
        drop(look);
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
    }

    #[test]
    fn marks_that_nobody_has_looked_in_front_of_lately_do_not_count() {
        let lows = lows();
        finds(&lows, (10, 3));
        lows.checked(Instant::now().checked_sub(UNCHECKED * 2).unwrap());
        assert_eq!(lows.look(QUEUE).from(SHARE), FIRST);
        lows.checked(Instant::now());
        assert_eq!(lows.look(QUEUE).from(SHARE), (10, 3));
    }

    #[test]
    fn there_is_an_end_to_how_many_shares_have_a_mark() {
        let lows = lows();
        let mut look = lows.look(QUEUE);
        (0..10_000).for_each(|share| look.finds(share, Some((1, 1))));
        drop(look);
        assert_eq!(lows.all().len(), SHARES);
        let (_, share, _) = lows.all()[0];
        lows.look(QUEUE).finds(share, Some((2, 2)));
        assert_eq!(lows.look(QUEUE).from(share), (2, 2), "those that have one go on");
    }
}
