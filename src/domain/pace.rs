//! How fast tasks finish where there is a limit on the unfinished ones, and so when to come back.

use std::time::Duration;

/// How soon to come back where nothing has been measured yet.
const UNKNOWN: Duration = Duration::from_secs(1);
/// The longest that anybody is sent away for.
const MOST: Duration = Duration::from_secs(10);
/// Shorter spans than this measure nothing.
pub const LEAST: Duration = Duration::from_millis(20);
/// What one measurement weighs against all before it, as a span: a measurement over this long counts as much as they.
const MEMORY: Duration = Duration::from_secs(2);

/// Those who were sent away come back so much faster than tasks finish: a few in vain, so that a pace that was taken for too low is found
/// out, and not kept low by callers who stay away for it.
const COMING_BACK: f64 = 1.25;

/// Tasks that finish, measured between two counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    per_second: Option<f64>,
}

impl Pace {
    /// So many finished in so long.
    #[must_use]
    pub fn seen(self, finished: i64, elapsed: Duration) -> Pace {
        if elapsed < LEAST {
            return self;
        }
        #[expect(clippy::cast_precision_loss, reason = "no more tasks finish between two counts than a double can tell apart")]
        let now = finished.max(0) as f64 / elapsed.as_secs_f64();
        let weight = elapsed.as_secs_f64() / (elapsed + MEMORY).as_secs_f64();
        Pace { per_second: Some(self.per_second.map_or(now, |before| before + (now - before) * weight)) }
    }

    /// How many are away once one more was sent there, and how many there were so long ago. Never more than come back within 10 s: some
    /// never do, and nobody must wait for the turns of those.
    pub fn one_more_away(self, away: f64, elapsed: Duration) -> f64 {
        let Some(per_second) = self.per_second else { return 1.0 };
        let come_back = |within: Duration| per_second * COMING_BACK * within.as_secs_f64();
        ((away - come_back(elapsed)).max(0.0) + 1.0).min(come_back(MOST).max(1.0))
    }

    /// When it is likely to be the turn of the last of `away` callers who were sent away: from `least`, which nobody may undercut, to 10 s.
    pub fn retry_after(self, least: Duration, away: f64) -> Duration {
        let likely = match self.per_second {
            None => UNKNOWN,
            Some(per_second) => Duration::try_from_secs_f64((away / COMING_BACK).max(1.0) / per_second).unwrap_or(MOST),
        };
        likely.clamp(least, MOST.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_is_sent_away_comes_back_when_the_next_one_is_likely_to_have_finished() {
        let measured = Pace::default().seen(20, 1_000 * MS);
        assert_eq!(measured.retry_after(10 * MS, 1.0), 50 * MS);
        assert_eq!(measured.retry_after(80 * MS, 1.0), 80 * MS);
        assert_eq!(Pace::default().retry_after(10 * MS, 1.0), UNKNOWN);
        assert_eq!(Pace::default().seen(0, 1_000 * MS).retry_after(10 * MS, 1.0), MOST);
    }

    #[test]
    fn of_many_who_were_sent_away_each_has_a_turn_of_its_own() {
        let measured = Pace::default().seen(20, 1_000 * MS);
        assert_eq!([25.0, 50.0, 1e6].map(|away| measured.retry_after(MS, away)), [1_000 * MS, 2_000 * MS, MOST]);
        let away = [(0.0, 0), (99.0, 0), (99.0, 2_000), (10.0, 2_000)].map(|(away, ms)| measured.one_more_away(away, ms * MS));
        assert_eq!(away, [1.0, 100.0, 50.0, 1.0]);
        // Callers who never come back are forgotten.
        assert_eq!(measured.one_more_away(1e9, MS), 250.0);
        assert_eq!(Pace::default().one_more_away(99.0, MS), 1.0);
        assert_eq!(Pace::default().seen(0, 1_000 * MS).one_more_away(99.0, MS), 1.0);
    }

    #[test]
    fn the_pace_follows_what_is_seen_and_a_glance_says_nothing() {
        let fast = Pace::default().seen(1_000, 1_000 * MS);
        assert_eq!(fast.seen(0, 19 * MS), fast);
        let slower = (0..20).fold(fast, |pace, _| pace.seen(1, 1_000 * MS));
        assert!(slower.retry_after(MS, 1.0) > 500 * MS, "{slower:?}");
    }
}
