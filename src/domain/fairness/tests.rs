//! The bound of the promise, measured against random histories.

use proptest::prelude::*;

use super::*;
use crate::domain::budget::Rate;
use crate::domain::time::Timestamp;

fn share(id: i32, tag: f64, weight: f64) -> Share {
    Share { id, tag, weight, allowance: Allowance::default() }
}

fn contest(shares: Vec<Share>, virtual_time: f64) -> Contest {
    Contest { shares, virtual_time, allowance: Allowance::default() }
}

fn count(picks: &[usize], share: usize) -> usize {
    picks.iter().filter(|&&pick| pick == share).count()
}

#[test]
fn weights_split_a_backlog() {
    let got = allot(&contest(vec![share(1, 0.0, 10.0), share(2, 0.0, 1.0)], 0.0), &[vec![1; 300], vec![1; 300]], 220);
    assert_eq!(count(&got.picks, 0), 200);
}

#[test]
fn a_share_that_was_away_banks_no_credit() {
    let got = allot(&contest(vec![share(1, 100.0, 1.0), share(2, 3.0, 1.0)], 100.0), &[vec![1; 10], vec![1; 10]], 10);
    assert_eq!(count(&got.picks, 1), 5);
}

#[test]
fn a_share_at_its_cap_is_passed_by_and_the_queue_s_own_cap_ends_the_allotment() {
    let mut shares = contest(vec![share(1, 0.0, 1.0), share(2, 0.0, 1.0)], 0.0);
    shares.shares[0].allowance.places = Some(2);
    assert_eq!(allot(&shares, &[vec![1; 10], vec![1; 10]], 8).picks, [0, 1, 0, 1, 1, 1, 1, 1]);
    shares.allowance.places = Some(5);
    assert_eq!(allot(&shares, &[vec![1; 10], vec![1; 10]], 8).picks, [0, 1, 0, 1, 1]);
    shares.allowance.places = Some(0);
    assert!(allot(&shares, &[vec![1; 10], vec![1; 10]], 8).picks.is_empty());
}

#[test]
fn a_rate_says_when_the_next_one_may_go_and_the_queue_s_waits_for_the_one_whose_turn_it_is() {
    let bucket = |burst| Some(Bucket::at(Rate { per_second: 2.0, burst }, None, Timestamp(0)));
    let mut shares = contest(vec![share(1, 0.0, 1.0), share(2, 0.0, 1.0)], 0.0);
    shares.shares[0].allowance.bucket = bucket(3);
    let got = allot(&shares, &[vec![2; 5], vec![1; 2]], 8);
    assert_eq!(got.picks, [0, 1, 1]);
    assert_eq!(got.rated, [Rated::In(Some(Duration::from_millis(500))), Rated::Free]);
    shares.allowance.bucket = bucket(1);
    let got = allot(&shares, &[vec![1; 5], vec![1; 2]], 8);
    assert_eq!((got.picks, got.queue_rated), (vec![0], Rated::In(Some(Duration::from_millis(500)))));
}

/// Chance, repeatable (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// 0 to `end` − 1.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn cost(&mut self, most: i32) -> i32 {
        1 + i32::try_from(self.below(usize::try_from(most).unwrap())).unwrap()
    }

    fn weight(&mut self) -> f64 {
        0.1 + 19.9 * f64::from(u32::try_from(self.next() >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

/// A share of a random history, beside what the rule knows of it.
struct Subject {
    weight: f64,
    cap: Option<usize>,
    leased: usize,
    /// The next costs; none: it has no work.
    backlog: Vec<i32>,
}

/// What two shares got since both have been eligible at constant weights.
#[derive(Clone, Copy, Default)]
struct Interval {
    served: [f64; 2],
    /// The largest and smallest difference of normalised service so far: any sub-interval's difference is one minus another.
    least: f64,
    most: f64,
}

struct History {
    contest: Contest,
    subjects: Vec<Subject>,
    intervals: Vec<Vec<Option<Interval>>>,
    dispatched: usize,
}

const COST_MAX: i32 = 50;

impl History {
    fn new(dice: &mut Dice, count: usize) -> History {
        let subjects: Vec<Subject> =
            (0..count).map(|_| Subject { weight: dice.weight(), cap: None, leased: 0, backlog: Vec::new() }).collect();
        let shares = (1..).zip(&subjects).map(|(id, subject)| share(id, 0.0, subject.weight)).collect();
        History { contest: contest(shares, 0.0), subjects, intervals: vec![vec![None; count]; count], dispatched: 0 }
    }

    fn eligible(&self, i: usize) -> bool {
        let subject = &self.subjects[i];
        !subject.backlog.is_empty() && subject.cap.is_none_or(|cap| subject.leased < cap)
    }

    /// Ends the intervals of a share that is not eligible, and begins those of pairs that are.
    fn look(&mut self) {
        let eligible: Vec<bool> = (0..self.subjects.len()).map(|i| self.eligible(i)).collect();
        for f in 0..eligible.len() {
            for m in 0..f {
                let interval = &mut self.intervals[f][m];
                *interval = (eligible[f] && eligible[m]).then(|| interval.unwrap_or_default());
            }
        }
    }

    fn forget(&mut self, share: usize) {
        for other in 0..self.subjects.len() {
            let (f, m) = (share.max(other), share.min(other));
            self.intervals[f][m] = None;
        }
    }

    /// Something that happens between claims.
    fn happen(&mut self, dice: &mut Dice) {
        let i = dice.below(self.subjects.len());
        match dice.below(5) {
            0 | 1 => {
                let (more, most) = (1 + dice.below(200), dice.cost(COST_MAX));
                self.subjects[i].backlog.extend((0..more).map(|_| dice.cost(most)));
            }
            2 => {
                let subject = &mut self.subjects[i];
                subject.cap = (dice.below(2) == 0).then(|| dice.below(20));
            }
            3 => {
                let subject = &mut self.subjects[i];
                subject.leased = dice.below(subject.leased + 1);
            }
            _ => {
                let new = dice.weight();
                let share = &mut self.contest.shares[i];
                share.tag = rescaled(share.tag, self.contest.virtual_time, share.weight, new);
                share.weight = new;
                self.subjects[i].weight = new;
                self.forget(i);
            }
        }
    }

    fn claim(&mut self, dice: &mut Dice) -> Result<(), TestCaseError> {
        let slots = 1 + dice.below(40);
        for (share, subject) in self.contest.shares.iter_mut().zip(&self.subjects) {
            share.allowance.places = subject.cap.map(|cap| cap.saturating_sub(subject.leased));
        }
        let waiting: Vec<Vec<i32>> = self.subjects.iter().map(|subject| subject.backlog.clone()).collect();
        let got = allot(&self.contest, &waiting, slots);
        self.contest = got.after;
        let could: usize = (0..self.subjects.len()).filter(|&i| self.eligible(i)).count();
        prop_assert_eq!(got.picks.is_empty(), could == 0, "whoever may run, runs");
        for pick in got.picks {
            self.look();
            prop_assert!(self.eligible(pick));
            let cost = self.subjects[pick].backlog.remove(0);
            self.subjects[pick].leased += 1;
            self.dispatched += 1;
            self.serve(pick, f64::from(cost))?;
            self.look();
        }
        Ok(())
    }

    fn serve(&mut self, pick: usize, cost: f64) -> Result<(), TestCaseError> {
        for f in 0..self.subjects.len() {
            for m in 0..f {
                let (wf, wm) = (self.subjects[f].weight, self.subjects[m].weight);
                let Some(interval) = &mut self.intervals[f][m] else { continue };
                if pick == f {
                    interval.served[0] += cost / wf;
                } else if pick == m {
                    interval.served[1] += cost / wm;
                } else {
                    continue;
                }
                let gap = interval.served[0] - interval.served[1];
                interval.least = interval.least.min(gap);
                interval.most = interval.most.max(gap);
                let bound = f64::from(COST_MAX) / wf + f64::from(COST_MAX) / wm;
                let widest = interval.most - interval.least;
                prop_assert!(widest <= bound * (1.0 + 1e-9) + 1e-6, "{widest} > {bound} between {f} and {m}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// |n_f/w_f − n_m/w_m| ≤ c_f/w_f + c_m/w_m over every interval in which both stay eligible at constant weights, whatever else
    /// happens: backlogs that run dry and come back, caps, weights that change, and many claims of any size.
    #[test]
    fn any_two_shares_stay_within_the_bound_over_every_interval_in_which_both_are_eligible(
        count in 2usize..7, length in 100usize..10_000, seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let mut history = History::new(&mut dice, count);
        for _ in 0..length {
            for _ in 0..dice.below(3) {
                history.happen(&mut dice);
                history.look();
            }
            history.claim(&mut dice)?;
            if history.dispatched >= length {
                break;
            }
        }
    }
}
