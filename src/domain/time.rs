//! Instants of the database's clock. There is no `now()` here on purpose: the only clock is the database's `app_now()`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant of the database's clock, in microseconds since 1970-01-01T00:00:00Z (may be negative).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A span in whole microseconds; what is longer than about 292,000 years is cut to that.
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl Timestamp {
    /// This instant plus `span`; saturates instead of overflowing.
    pub fn plus(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(micros(span)))
    }

    /// This instant less `span`; saturates instead of overflowing.
    pub fn minus(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(micros(span)))
    }

    /// How long from `earlier` to here; zero when `earlier` is the later one.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_saturate_at_both_ends() {
        assert_eq!(Timestamp(i64::MAX).plus(Duration::MAX), Timestamp(i64::MAX));
        assert_eq!(Timestamp(i64::MIN).minus(Duration::MAX), Timestamp(i64::MIN));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!(Timestamp(i64::MAX).since(Timestamp(i64::MIN)), Duration::from_micros(i64::MAX as u64));
    }
}
