//! Budgets of queues and shares: how many may be leased at a time, how fast, and how many may be unfinished.

use std::time::Duration;

use super::queue::Edit;
use super::time::Timestamp;

/// How fast tasks may be leased, counted in their costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// 0 to 1,000,000. 0: nothing may run.
    pub per_second: f64,
    /// What may be leased at once after a pause: 1 to 1,000,000.
    pub burst: i32,
}

impl Rate {
    /// The burst where nobody says one: what a second gives, at least 1.
    pub fn burst_of(per_second: f64) -> i32 {
        #[expect(clippy::cast_possible_truncation, reason = "a rate is at most a million")]
        let whole = per_second.ceil().max(1.0) as i32;
        whole
    }
}

/// What a queue or a share may use. Absent: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budgets {
    /// 0: nothing may run.
    pub max_in_flight: Option<i32>,
    pub rate: Option<Rate>,
    /// 0: nothing is accepted.
    pub max_unfinished: Option<i32>,
}

/// A change of budgets, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetEdit {
    pub max_in_flight: Edit<Option<i32>>,
    pub rate: Edit<Option<Rate>>,
    pub max_unfinished: Edit<Option<i32>>,
}

impl Budgets {
    #[must_use]
    pub fn edited(self, edit: &BudgetEdit) -> Budgets {
        Budgets {
            max_in_flight: edit.max_in_flight.over(self.max_in_flight, None),
            rate: edit.rate.over(self.rate, None),
            max_unfinished: edit.max_unfinished.over(self.max_unfinished, None),
        }
    }
}

/// A token bucket at one moment. What costs more than the bucket holds may go when it is full, and leaves a debt: so the rate holds in the
/// long run whatever tasks cost, and nothing waits for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    rate: Rate,
    level: f64,
}

/// How often a share is looked at that could pay for something, though not for what is next in it.
const LOOK: Duration = Duration::from_secs(1);

/// Sums of costs and of times rates are not exact in binary; less than this is nothing.
const ROUNDING: f64 = 1e-6;

impl Bucket {
    /// What is in the bucket at `now`, if so much was in it earlier (absent: it is full).
    pub fn at(rate: Rate, stored: Option<(f64, Timestamp)>, now: Timestamp) -> Bucket {
        let full = f64::from(rate.burst);
        let level = stored.map_or(full, |(level, then)| (level + rate.per_second * now.since(then).as_secs_f64()).min(full));
        Bucket { rate, level }
    }

    pub fn level(&self) -> f64 {
        self.level
    }

    pub fn affords(&self, cost: i32) -> bool {
        self.rate.per_second > 0.0 && self.level + ROUNDING >= self.needed(cost)
    }

    #[must_use]
    pub fn less(self, cost: i32) -> Bucket {
        Bucket { level: self.level - f64::from(cost), ..self }
    }

    /// How long until it affords this; absent: never.
    pub fn wait(&self, cost: i32) -> Option<Duration> {
        let missing = self.needed(cost) - self.level;
        // Rounded up to the database's microseconds: whoever looks then finds enough.
        let micros = (missing.max(0.0) / self.rate.per_second * 1e6).ceil();
        Duration::try_from_secs_f64(micros / 1e6).ok().filter(|_| self.rate.per_second > 0.0)
    }

    /// How long a share may be left alone whose next task waits so long for it. A cheaper one may come in front, or this one may go; where
    /// that would help, somebody looks in between.
    pub fn rest(&self, wait: Duration) -> Duration {
        self.wait(1).map_or(wait, |cheapest| wait.min(cheapest.max(LOOK)))
    }

    fn needed(&self, cost: i32) -> f64 {
        f64::from(cost.min(self.rate.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: Timestamp = Timestamp(1_000_000_000);

    #[test]
    fn a_rate_of_zero_lets_nothing_go_however_full_the_bucket_is() {
        let bucket = Bucket::at(Rate { per_second: 0.0, burst: 5 }, None, START);
        assert!(!bucket.affords(1));
        assert_eq!(bucket.wait(1), None);
    }

    #[test]
    fn what_costs_more_than_the_bucket_holds_goes_when_it_is_full_and_is_paid_for_afterwards() {
        let rate = Rate { per_second: 2.0, burst: 5 };
        let full = Bucket::at(rate, None, START);
        assert!(full.affords(15) && !full.less(1).affords(15));
        assert_eq!(full.less(15).wait(1), Some(Duration::from_millis(5_500)));
    }

    #[test]
    fn who_waits_for_a_costly_task_is_looked_at_as_soon_as_a_cheap_one_could_go() {
        let bucket = Bucket::at(Rate { per_second: 0.1, burst: 50 }, Some((0.0, START)), START);
        let rest = |bucket: Bucket, cost| bucket.rest(bucket.wait(cost).unwrap()).as_secs();
        assert_eq!((rest(bucket, 1), rest(bucket, 50)), (10, 10));
        let richer = Bucket::at(Rate { per_second: 0.1, burst: 50 }, Some((20.0, START)), START);
        assert_eq!((rest(richer, 20), rest(richer, 50)), (0, 1));
    }

    #[test]
    fn a_clock_that_stepped_back_gives_nothing_and_takes_nothing() {
        let rate = Rate { per_second: 2.0, burst: 5 };
        let later = START.plus(Duration::from_secs(9));
        assert_eq!(Bucket::at(rate, Some((1.0, later)), START).level().to_bits(), 1.0f64.to_bits());
    }

    proptest! {
        /// Whoever takes whenever it may gets at most burst + rate × time, and no less than one task short of it.
        #[test]
        fn what_goes_in_a_time_is_the_burst_and_what_the_rate_gives_in_it(
            per_second in 0.1f64..500.0, burst in 1i32..50, costs in proptest::collection::vec(1i32..20, 1..200),
        ) {
            let rate = Rate { per_second, burst };
            let (mut now, mut stored, mut spent) = (START, None, 0.0);
            for cost in costs {
                let bucket = Bucket::at(rate, stored, now);
                let wait = bucket.wait(cost).unwrap_or_default();
                prop_assert!(bucket.affords(cost) || !wait.is_zero());
                now = now.plus(wait);
                let bucket = Bucket::at(rate, stored, now);
                prop_assert!(bucket.affords(cost), "it affords at the moment that it names");
                spent += f64::from(cost);
                stored = Some((bucket.less(cost).level(), now));
                let given = f64::from(burst) + per_second * now.since(START).as_secs_f64();
                prop_assert!(spent <= given + f64::from((cost - burst).max(0)) + 1e-3, "{spent} > {given}");
            }
        }
    }
}
