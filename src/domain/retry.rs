//! When to try again: a budget of charged attempts and a backoff that never overflows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::BACKOFF;

/// How a task is tried again. `max_attempts` counts charged attempts, the first one included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    pub max_attempts: i32,
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    pub multiplier: f64,
    /// 0: exactly the computed backoff; 1: uniform between nothing and it.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 3,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(600),
            multiplier: 2.0,
            jitter: 1.0,
        }
    }
}

/// What a task's spec says of its own retries; absent parts are the queue's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RetryOverrides {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
}

impl RetryPolicy {
    pub fn with(self, own: &RetryOverrides) -> RetryPolicy {
        RetryPolicy {
            max_attempts: own.max_attempts.unwrap_or(self.max_attempts),
            initial_backoff: own.initial_backoff.unwrap_or(self.initial_backoff),
            max_backoff: own.max_backoff.unwrap_or(self.max_backoff),
            multiplier: own.multiplier.unwrap_or(self.multiplier),
            jitter: own.jitter.unwrap_or(self.jitter),
        }
    }

    /// How long to wait after the `charged`-th charged attempt failed: min(max_backoff, initial × multiplierⁿ⁻¹), of which the
    /// part `jitter` is drawn by `chance` in [0, 1). Any `charged` is fine; the result is at most [`BACKOFF`].
    pub fn backoff(&self, charged: i32, chance: f64) -> Duration {
        let exponent = f64::from(charged.saturating_sub(1).max(0));
        let grown = self.initial_backoff.as_secs_f64() * self.multiplier.powf(exponent);
        let cap = self.max_backoff.min(BACKOFF).as_secs_f64();
        // An overflow to infinity meets the cap; NaN (0 × ∞) means that the initial backoff is nothing.
        let full = if grown.is_nan() { 0.0 } else { grown.clamp(0.0, cap) };
        Duration::from_secs_f64(full * (1.0 - self.jitter + self.jitter * chance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_jitter_the_backoff_doubles_up_to_its_cap() {
        let policy = RetryPolicy { jitter: 0.0, max_backoff: Duration::from_secs(10), ..RetryPolicy::default() };
        let seconds: Vec<_> = (1..=6).map(|n| policy.backoff(n, 0.7).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn attempt_ten_thousand_overflows_nothing() {
        let policy = RetryPolicy { multiplier: 1000.0, jitter: 0.0, ..RetryPolicy::default() };
        assert_eq!(policy.backoff(10_000, 0.5), policy.max_backoff);
        let none = RetryPolicy { initial_backoff: Duration::ZERO, ..policy };
        assert_eq!(none.backoff(10_000, 0.5), Duration::ZERO);
        assert_eq!(policy.backoff(i32::MAX, 0.0), policy.max_backoff);
    }

    proptest! {
        #[test]
        fn the_backoff_stays_between_nothing_and_its_cap(
            charged in any::<i32>(), chance in 0.0..1.0f64, jitter in 0.0..=1.0f64,
            multiplier in 1.0..1000.0f64, initial in 0u64..1_000_000, cap in 0u64..10_000_000,
        ) {
            let policy = RetryPolicy {
                max_attempts: 3, jitter, multiplier,
                initial_backoff: Duration::from_secs(initial), max_backoff: Duration::from_secs(cap),
            };
            prop_assert!(policy.backoff(charged, chance) <= policy.max_backoff.min(BACKOFF));
        }
    }
}
