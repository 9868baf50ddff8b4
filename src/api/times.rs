//! Spans and instants: `google.protobuf.Duration` and `Timestamp` from and to the domain's.
//!
//! An instant is kept in whole microseconds, as the database does: what is finer is cut off.

use std::time::Duration;

use prost_types::{Duration as PbDuration, Timestamp as PbTimestamp};

use crate::domain::time::Timestamp;

/// The longest span that the contract's Duration allows: about 10,000 years.
const SPAN_SECONDS: i64 = 315_576_000_000;
/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
const NANOS: std::ops::RangeInclusive<i32> = 0..=999_999_999;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// A span from 0 on; absence: it is negative, or no Duration at all (nanos out of range, or of another sign).
pub fn span(span: &PbDuration) -> Option<Duration> {
    let fits = (0..=SPAN_SECONDS).contains(&span.seconds) && NANOS.contains(&span.nanos);
    fits.then(|| Duration::new(span.seconds.unsigned_abs(), span.nanos.unsigned_abs()))
}

/// Absence: no Timestamp of the years 1 to 9999.
pub fn instant(instant: &PbTimestamp) -> Option<Timestamp> {
    let fits = (FIRST_SECOND..=LAST_SECOND).contains(&instant.seconds) && NANOS.contains(&instant.nanos);
    fits.then(|| Timestamp(instant.seconds * MICROS_PER_SECOND + i64::from(instant.nanos / 1_000)))
}

/// Spans beyond what a Duration can say are cut to that.
pub fn to_span(span: Duration) -> PbDuration {
    match i64::try_from(span.as_secs()) {
        Ok(seconds) if seconds <= SPAN_SECONDS => PbDuration { seconds, nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0) },
        _ => PbDuration { seconds: SPAN_SECONDS, nanos: 0 },
    }
}

pub fn to_instant(instant: Timestamp) -> PbTimestamp {
    PbTimestamp {
        seconds: instant.0.div_euclid(MICROS_PER_SECOND),
        nanos: i32::try_from(instant.0.rem_euclid(MICROS_PER_SECOND) * 1_000).unwrap_or(0),
    }
}

/// As RFC 3339 writes it, for error details.
pub fn rfc3339(instant: Timestamp) -> String {
    to_instant(instant).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(seconds: i64, nanos: i32) -> Option<Duration> {
        span(&PbDuration { seconds, nanos })
    }

    fn t(seconds: i64, nanos: i32) -> Option<Timestamp> {
        instant(&PbTimestamp { seconds, nanos })
    }

    #[test]
    fn spans_at_the_edges() {
        assert_eq!(d(0, 0), Some(Duration::ZERO));
        assert_eq!(d(SPAN_SECONDS, 999_999_999), Some(Duration::new(315_576_000_000, 999_999_999)));
        for (seconds, nanos) in [
            (-1, 0),
            (0, -1),
            (1, -1),
            (-1, 1),
            (0, 1_000_000_000),
            (0, i32::MAX),
            (0, i32::MIN),
            (SPAN_SECONDS + 1, 0),
            (i64::MAX, 0),
            (i64::MIN, i32::MIN),
        ] {
            assert_eq!(d(seconds, nanos), None, "{seconds} s {nanos} ns");
        }
    }

    #[test]
    fn instants_are_of_the_years_1_to_9999() {
        assert_eq!(t(0, 1_999), Some(Timestamp(1)));
        assert_eq!(t(-1, 999_999_000), Some(Timestamp(-1)));
        assert_eq!(rfc3339(t(FIRST_SECOND, 0).unwrap()), "0001-01-01T00:00:00Z");
        assert_eq!(rfc3339(t(LAST_SECOND, 999_999_999).unwrap()), "9999-12-31T23:59:59.999999Z");
        for (seconds, nanos) in
            [(FIRST_SECOND - 1, 0), (LAST_SECOND + 1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (i64::MIN, 0)]
        {
            assert_eq!(t(seconds, nanos), None, "{seconds} s {nanos} ns");
        }
    }

    #[test]
    fn what_goes_out_comes_back() {
        for micros in [0, 1, -1, 1_700_000_000_123_456, -62_135_596_800_000_000] {
            assert_eq!(instant(&to_instant(Timestamp(micros))), Some(Timestamp(micros)));
        }
        let exact = Duration::new(5, 7);
        assert_eq!(span(&to_span(exact)), Some(exact));
        assert_eq!(to_span(Duration::MAX), PbDuration { seconds: SPAN_SECONDS, nanos: 0 });
        let _ = (to_instant(Timestamp(i64::MAX)), to_instant(Timestamp(i64::MIN)));
    }
}
