//! Figures, in and out.

use std::time::Duration;

use super::enums;
use crate::api::fields::read;
use crate::api::proto as pb;
use crate::api::times::{to_instant, to_span};
use crate::domain::limits::{WINDOW_DEFAULT, WINDOW_MAX, WINDOW_MIN};
use crate::domain::names::{FairnessKey, QueueName};
use crate::domain::refusal::Refusal;
use crate::domain::stats::{Fairness, Happened, Timing, Work};
use crate::domain::task::State;
use crate::engine::{Stats, StatsCommand};

/// Stands before the key in a page token, so that the share with the empty key has one too.
const AFTER: char = '>';

pub fn get_stats(request: pb::GetStatsRequest) -> Result<StatsCommand, Refusal> {
    read(|f| {
        let queue = f.name("queue", &request.queue, QueueName::parse);
        let key = match &request.fairness_key {
            Some(key) => f.name("fairness_key", key, FairnessKey::parse).map(|key| Some(key.as_str().to_owned())),
            None => Some(None),
        };
        let window = f.optional_span("window", request.window, WINDOW_MIN..=WINDOW_MAX);
        let (page_size, token) = f.page(request.page_size, request.page_token)?;
        let after = match token.strip_prefix(AFTER) {
            Some(after) => Some(after.to_owned()),
            None if token.is_empty() => None,
            None => {
                f.bad("page_token", "is none that an answer gave");
                return None;
            }
        };
        Some(StatsCommand { queue: queue?, fairness_key: key?, window: window?.unwrap_or(WINDOW_DEFAULT), page_size, after })
    })
}

pub fn to_stats(stats: Stats) -> pb::GetStatsResponse {
    let window = stats.window;
    let share = |(key, share, fairness): (String, Work, Fairness)| pb::ShareStats {
        fairness_key: key,
        work: Some(work(share, window)),
        fairness: Some(pb::FairnessStats {
            weight: fairness.weight,
            received: fairness.received,
            entitled: fairness.entitled,
            lag: fairness.lag,
            lag_bound: fairness.bound,
        }),
    };
    pb::GetStatsResponse {
        queue: Some(pb::QueueStats {
            queue: stats.queue.as_str().to_owned(),
            work: Some(work(stats.work, window)),
            active_shares: i64::try_from(stats.active_shares).unwrap_or(i64::MAX),
        }),
        shares: stats.shares.into_iter().map(share).collect(),
        next_page_token: stats.next.map(|key| format!("{AFTER}{key}")).unwrap_or_default(),
        sample_time: Some(to_instant(stats.sampled)),
        window: Some(to_span(window)),
    }
}

fn work(work: Work, window: Duration) -> pb::WorkStats {
    let count = |state: &State| pb::StateCount {
        state: enums::to_state(*state) as i32,
        count: work.states.get(state).copied().unwrap_or(0),
    };
    pb::WorkStats {
        states: State::ALL.iter().map(count).collect(),
        targets: work.targets.into_iter().map(|(target, count)| pb::TargetCount { target, count }).collect(),
        oldest_unfinished_age: work.oldest.map(to_span),
        rates: Some(rates(work.happened, window)),
        expired_leases: work.expired_leases,
        repairs: work
            .repairs
            .into_iter()
            .map(|(cause, count)| pb::RepairCount { cause: enums::to_cause(cause) as i32, count })
            .collect(),
        acceptance_to_start: Some(timing(work.starts)),
        run_time: Some(timing(work.runs)),
    }
}

fn rates(happened: Happened, window: Duration) -> pb::Rates {
    let seconds = window.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a count of events is far below 2^52")]
    let rate = |count: i64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    pb::Rates {
        submitted_per_second: rate(happened.submitted),
        claimed_per_second: rate(happened.claimed),
        completed_per_second: rate(happened.completed),
        retried_per_second: rate(happened.retried),
        unknown_per_second: rate(happened.unknown),
        stale_refused_per_second: rate(happened.stale_refused),
        full_refused_per_second: rate(happened.full_refused),
    }
}

fn timing(timing: Timing) -> pb::Timing {
    let span = |span: Duration| (timing.count > 0).then(|| to_span(span));
    pb::Timing { count: timing.count, p50: span(timing.p50), p95: span(timing.p95), p99: span(timing.p99), max: span(timing.max) }
}
