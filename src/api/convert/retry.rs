//! Retry policies, in and out: a queue's and a task's own have the same fields and the same limits.

use std::time::Duration;

use crate::api::fields::Fields;
use crate::api::proto as pb;
use crate::api::times::to_span;
use crate::domain::limits::{ATTEMPTS, BACKOFF, BACKOFF_INITIAL, MULTIPLIER};
use crate::domain::retry::RetryOverrides;

/// Absent fields stay absent: they are somebody else's to say.
pub fn retry(f: &mut Fields<'_>, policy: pb::RetryPolicy) -> Option<RetryOverrides> {
    let max_attempts = f.optional_number("max_attempts", policy.max_attempts, 1..=ATTEMPTS);
    let initial_backoff = f.optional_span("initial_backoff", policy.initial_backoff, Duration::ZERO..=BACKOFF_INITIAL);
    let max_backoff = f.optional_span("max_backoff", policy.max_backoff, Duration::ZERO..=BACKOFF);
    let multiplier = f.optional_number("multiplier", policy.multiplier, 1.0..=MULTIPLIER);
    let jitter = f.optional_number("jitter", policy.jitter, 0.0..=1.0);
    if let (Some(Some(initial)), Some(Some(max))) = (initial_backoff, max_backoff)
        && max < initial
    {
        f.bad("max_backoff", "must not be shorter than initial_backoff");
        return None;
    }
    Some(RetryOverrides {
        max_attempts: max_attempts?,
        initial_backoff: initial_backoff?,
        max_backoff: max_backoff?,
        multiplier: multiplier?,
        jitter: jitter?,
    })
}

pub fn to_retry(own: RetryOverrides) -> pb::RetryPolicy {
    pb::RetryPolicy {
        max_attempts: own.max_attempts,
        initial_backoff: own.initial_backoff.map(to_span),
        max_backoff: own.max_backoff.map(to_span),
        multiplier: own.multiplier,
        jitter: own.jitter,
    }
}
