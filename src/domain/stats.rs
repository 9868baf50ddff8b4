//! Figures of a queue and its shares, from what was counted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::task::{Cause, State};

/// What is told of a queue and of each of its shares alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// States without tasks are not among them.
    pub states: BTreeMap<State, i64>,
    /// Unfinished tasks by target, the largest first.
    pub targets: Vec<(String, i64)>,
    /// Age of the oldest unfinished task; absent: there is none.
    pub oldest: Option<Duration>,
    pub happened: Happened,
    pub expired_leases: i64,
    /// Open ones, by cause.
    pub repairs: BTreeMap<Cause, i64>,
    /// From acceptance to the first lease.
    pub starts: Timing,
    /// From the lease to the end of the attempt.
    pub runs: Timing,
}

/// How often something happened within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    pub submitted: i64,
    pub claimed: i64,
    pub completed: i64,
    pub retried: i64,
    pub unknown: i64,
    pub stale_refused: i64,
    pub full_refused: i64,
}

impl Happened {
    pub fn add(&mut self, more: Happened) {
        self.submitted += more.submitted;
        self.claimed += more.claimed;
        self.completed += more.completed;
        self.retried += more.retried;
        self.unknown += more.unknown;
        self.stale_refused += more.stale_refused;
        self.full_refused += more.full_refused;
    }
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    pub count: i64,
    /// Zero where nothing was measured, as are the others.
    pub p50: Duration,
    pub p95: Duration,
    pub p99: Duration,
    pub max: Duration,
}

impl Timing {
    /// By nearest rank: a percentile is always one of the values.
    pub fn of(mut spans: Vec<Duration>) -> Timing {
        spans.sort_unstable();
        let Some(&max) = spans.last() else { return Timing::default() };
        let rank = |percent: usize| spans[(spans.len() * percent).div_ceil(100).max(1) - 1];
        Timing { count: i64::try_from(spans.len()).unwrap_or(i64::MAX), p50: rank(50), p95: rank(95), p99: rank(99), max }
    }
}

/// What a share got against what it was due, in cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    pub weight: f64,
    pub received: f64,
    pub entitled: f64,
    pub lag: f64,
    pub bound: f64,
}

/// A share as the dispatch sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    pub weight: f64,
    pub tag: f64,
    /// The highest cost among its READY tasks; 0: it has none.
    pub cost: i32,
    /// Cost of what was dispatched to it within the window.
    pub received: f64,
}

/// Start-time fair queueing keeps the account itself: a share's tag is the virtual time up to which it was served. What it got beyond the
/// queue's virtual time it is ahead by, so its lag is `(virtual time - tag) × weight`, and never above 0 while it waits its turn. The promise
/// |n_f/w_f - n_m/w_m| ≤ c_f/w_f + c_m/w_m bounds it, times the share's weight, with the share m that makes the bound the widest.
/// A lone share is compared with nobody.
pub fn fairness(of: Standing, virtual_time: f64, others: &[Standing]) -> Fairness {
    let waiting = others.iter().filter(|other| other.cost > 0);
    let widest = waiting.map(|other| f64::from(other.cost) / other.weight).fold(0.0f64, f64::max);
    let lag = if of.cost > 0 && others.len() > 1 { (virtual_time - of.tag.max(virtual_time)) * of.weight } else { 0.0 };
    let bound = f64::from(of.cost) + widest * of.weight;
    Fairness { weight: of.weight, received: of.received, entitled: of.received + lag, lag, bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        assert_eq!(Timing::of(Vec::new()), Timing::default());
        let one = Timing::of(vec![Duration::from_secs(3)]);
        assert_eq!(
            (one.count, one.p50, one.p99, one.max),
            (1, Duration::from_secs(3), Duration::from_secs(3), Duration::from_secs(3))
        );
        let hundred = Timing::of((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!((hundred.p50, hundred.p95), (Duration::from_millis(50), Duration::from_millis(95)));
        assert_eq!((hundred.p99, hundred.max), (Duration::from_millis(99), Duration::from_millis(100)));
    }

    #[test]
    fn a_share_that_was_served_past_the_virtual_time_is_ahead_by_its_weight() {
        let share = |weight, tag, cost| Standing { weight, tag, cost, received: 10.0 };
        let (ahead, behind, empty) = (share(2.0, 7.0, 3), share(1.0, 4.0, 5), share(1.0, 9.0, 0));
        let all = [ahead, behind, empty];
        let told = fairness(ahead, 5.0, &all);
        assert_eq!((told.lag, told.entitled, told.bound), (-4.0, 6.0, 3.0 + 5.0 * 2.0));
        // Its turn is now: what it did not use before is not owed to it.
        assert_eq!(fairness(behind, 5.0, &all).lag, 0.0);
        assert_eq!(fairness(empty, 5.0, &all).lag, 0.0);
        assert_eq!(fairness(ahead, 5.0, &[ahead]).lag, 0.0);
    }
}
