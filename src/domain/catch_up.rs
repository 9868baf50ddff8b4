//! Whether one who reads the log from behind comes nearer to its end.

use std::time::Duration;

/// Between two judgements.
pub const EVERY: Duration = Duration::from_secs(60);
/// Who is not farther behind than this, in positions, is never too slow.
pub const SLACK: i64 = 100_000;

/// A reader that catches up, judged once a minute: it is too slow if it is far behind, and no nearer to the end than a minute before.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// When it was judged last (since it began to catch up), and how far behind it was.
    judged: Option<(Duration, i64)>,
}

impl Pace {
    /// It reads no longer from behind.
    pub fn caught_up(&mut self) {
        self.judged = None;
    }

    /// `elapsed`: on any clock that only runs forward. Returns whether it is too slow.
    pub fn too_slow(&mut self, elapsed: Duration, behind: i64) -> bool {
        match self.judged {
            Some((then, _)) if elapsed.saturating_sub(then) < EVERY => false,
            Some((_, before)) => {
                self.judged = Some((elapsed, behind));
                behind > SLACK && behind >= before
            }
            None => {
                self.judged = Some((elapsed, behind));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = EVERY;

    #[test]
    fn who_comes_nearer_is_never_too_slow_however_far_behind() {
        let mut pace = Pace::default();
        for minute in 0..100 {
            assert!(!pace.too_slow(MINUTE * minute, 10_000_000 - i64::from(minute)));
        }
    }

    #[test]
    fn who_is_far_behind_and_comes_no_nearer_in_a_minute_is_too_slow() {
        let mut pace = Pace::default();
        assert!(!pace.too_slow(MINUTE, SLACK + 1));
        assert!(!pace.too_slow(MINUTE + MINUTE / 2, SLACK * 2), "within the minute nothing is judged");
        assert!(pace.too_slow(MINUTE * 2, SLACK + 1));
        pace.caught_up();
        assert!(!pace.too_slow(MINUTE * 3, SLACK * 9), "it begins anew");
    }

    #[test]
    fn who_is_near_the_end_is_not_too_slow() {
        let mut pace = Pace::default();
        for minute in 0..10 {
            assert!(!pace.too_slow(MINUTE * minute, SLACK));
        }
    }
}
