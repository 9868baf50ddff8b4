//! How far the log may be read: up to the stable position, below which nothing can appear any more.
//!
//! Positions are drawn one after the other and become visible in any order. A number that is missing belongs to a transaction under way,
//! or to nobody. Only the transactions that had drawn a number and were not over when it was missed can still bring it; once all of them
//! are over and it is missing in one more read, it is dead. That the numbers below a found one can't be drawn again after a crash is for
//! the caller to make sure, with a barrier between reading and `note`.

use std::collections::{BTreeSet, VecDeque};

/// Names a transaction that has drawn a position.
pub type Holder = String;

/// More rounds are not opened; who waits behind the last one waits a little longer.
const ROUNDS: usize = 32;

/// What was missing up to `upto` when it was looked at can come only from these.
#[derive(Clone, Debug)]
struct Round {
    upto: i64,
    open: BTreeSet<Holder>,
}

#[derive(Clone, Debug)]
pub struct Frontier {
    stable: i64,
    /// What is missing up to here in a read that begins now is dead.
    decided: i64,
    rounds: VecDeque<Round>,
}

impl Frontier {
    /// Everything up to `stable` is known to be decided.
    pub fn new(stable: i64) -> Frontier {
        Frontier { stable, decided: stable, rounds: VecDeque::new() }
    }

    pub fn stable(&self) -> i64 {
        self.stable
    }

    /// Takes what one read found after the stable position, in order, and moves it on. Returns how many of them, from the front, may be
    /// passed on.
    pub fn pass(&mut self, found: &[i64]) -> usize {
        let mut count = 0;
        for &position in found {
            if position != self.stable + 1 && position > self.decided {
                break;
            }
            self.stable = position;
            count += 1;
        }
        count
    }

    /// Takes the transactions that have drawn a number and are not over, read after a read that found `upto` and left some behind a gap.
    /// Returns whether another read may get further.
    pub fn note(&mut self, upto: i64, open: BTreeSet<Holder>) -> bool {
        let before = self.decided;
        for round in &mut self.rounds {
            round.open.retain(|holder| open.contains(holder));
        }
        // A later round's holders are the earlier one's that were not over, and more: who is over in it is over in all.
        while let Some(round) = self.rounds.front().filter(|round| round.open.is_empty()) {
            self.decided = self.decided.max(round.upto);
            self.rounds.pop_front();
        }
        let news = upto > self.decided && self.rounds.back().is_none_or(|round| upto > round.upto);
        if news && open.is_empty() {
            self.decided = upto;
        } else if news && self.rounds.len() < ROUNDS {
            self.rounds.push_back(Round { upto, open });
        }
        self.decided > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(holders: &[&str]) -> BTreeSet<Holder> {
        holders.iter().map(|&holder| holder.to_owned()).collect()
    }

    #[test]
    fn what_follows_without_a_gap_passes() {
        let mut frontier = Frontier::new(4);
        assert_eq!(frontier.pass(&[5, 6, 7]), 3);
        assert_eq!(frontier.pass(&[]), 0);
        assert_eq!(frontier.stable(), 7);
    }

    #[test]
    fn a_gap_holds_what_is_behind_it_until_its_writer_commits() {
        let mut frontier = Frontier::new(4);
        assert_eq!(frontier.pass(&[6, 7]), 0);
        assert!(!frontier.note(7, open(&["w5"])));
        assert_eq!(frontier.pass(&[6, 7]), 0);
        assert_eq!(frontier.pass(&[5, 6, 7]), 3);
    }

    #[test]
    fn a_gap_is_dead_only_when_those_that_could_fill_it_are_over_and_one_more_read_found_nothing() {
        let mut frontier = Frontier::new(4);
        assert_eq!(frontier.pass(&[6]), 0);
        assert!(!frontier.note(6, open(&["w5", "w8"])));
        assert!(!frontier.note(6, open(&["w8", "w9"])));
        assert_eq!(frontier.pass(&[6, 7]), 0, "w8 may be the one");
        // w9 came later: it can't have drawn what was missed before.
        assert!(frontier.note(7, open(&["w9"])));
        assert_eq!(frontier.pass(&[6, 7]), 2, "7 follows 6 without a gap");
        assert_eq!(frontier.pass(&[9]), 0, "8 was not among what is decided");
    }

    #[test]
    fn whoever_comes_later_does_not_delay_what_was_missed_before() {
        let mut frontier = Frontier::new(0);
        assert_eq!(frontier.pass(&[2]), 0);
        frontier.note(2, open(&["a"]));
        for later in 0..100 {
            frontier.note(10 + later, open(&["a", &format!("w{later}")]));
        }
        assert!(frontier.note(200, open(&["w99"])));
        assert_eq!(frontier.pass(&[2, 12]), 2);
    }

    /// Writers draw numbers, then commit or roll back in any order, while the log is read at any moment.
    #[test]
    fn nothing_that_commits_is_ever_passed_by() {
        for seed in 0..300 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (mut last, mut under_way, mut visible) = (0_i64, Vec::<(String, Vec<i64>)>::new(), BTreeSet::new());
            let (mut frontier, mut passed, mut names) = (Frontier::new(0), Vec::<i64>::new(), 0);
            for round in 0..400 {
                let ending = round > 300;
                match chance.u32(..10) {
                    0..=3 if !ending && under_way.len() < 6 => {
                        names += 1;
                        let numbers = (0..chance.i64(1..4))
                            .map(|_| {
                                last += 1;
                                last
                            })
                            .collect();
                        under_way.push((format!("t{names}"), numbers));
                    }
                    0..=6 if !under_way.is_empty() => {
                        let (_, numbers) = under_way.swap_remove(chance.usize(..under_way.len()));
                        if chance.bool() {
                            visible.extend(numbers);
                        }
                    }
                    _ => {
                        let found: Vec<i64> = visible.range(frontier.stable() + 1..).copied().take(5).collect();
                        let count = frontier.pass(&found);
                        passed.extend(&found[..count]);
                        // Between the read and the look at the locks anything can happen.
                        if chance.bool() && !under_way.is_empty() {
                            visible.extend(under_way.swap_remove(0).1);
                        }
                        if count < found.len() {
                            frontier.note(found[found.len() - 1], under_way.iter().map(|(name, _)| name.clone()).collect());
                        }
                    }
                }
            }
            for _ in 0..200 {
                let found: Vec<i64> = visible.range(frontier.stable() + 1..).copied().take(5).collect();
                let count = frontier.pass(&found);
                passed.extend(&found[..count]);
                visible.extend(under_way.drain(..).flat_map(|(_, numbers)| numbers));
                if count < found.len() {
                    frontier.note(found[found.len() - 1], BTreeSet::new());
                }
            }
            assert!(visible.iter().eq(&passed), "seed {seed}: {visible:?} against {passed:?}");
        }
    }
}
