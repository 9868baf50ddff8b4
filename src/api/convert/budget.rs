//! Budgets of queues and shares, in and out.

use super::clears::Clears;
use crate::api::fields::Fields;
use crate::api::proto as pb;
use crate::domain::budget::{BudgetEdit, Rate};
use crate::domain::limits::{IN_FLIGHT, RATE, UNFINISHED};

pub(super) fn budgets(
    f: &mut Fields<'_>, clears: &Clears<'_>, max_in_flight: Option<u32>, rate_limit: Option<pb::RateLimit>,
    max_unfinished: Option<u32>,
) -> Option<BudgetEdit> {
    let max_in_flight = f.optional_number("max_in_flight", max_in_flight, 0..=IN_FLIGHT);
    let rate = rate_limit.map_or(Some(None), |limit| rate(&mut f.inside("rate_limit"), limit).map(Some));
    let max_unfinished = f.optional_number("max_unfinished", max_unfinished, 0..=UNFINISHED);
    Some(BudgetEdit {
        max_in_flight: clears.or_set("max_in_flight", max_in_flight?.map(whole)),
        rate: clears.or_set("rate_limit", rate?.map(Some)),
        max_unfinished: clears.or_set("max_unfinished", max_unfinished?.map(whole)),
    })
}

fn whole(number: u32) -> Option<i32> {
    Some(i32::try_from(number).unwrap_or(i32::MAX))
}

fn rate(f: &mut Fields<'_>, limit: pb::RateLimit) -> Option<Rate> {
    let per_second = f.number("per_second", limit.per_second, 0.0..=f64::from(RATE));
    let burst = f.optional_number("burst", limit.burst, 1..=RATE);
    let (per_second, burst) = (per_second?, burst?);
    let burst = burst.map_or(Rate::burst_of(per_second), |burst| i32::try_from(burst).unwrap_or(i32::MAX));
    Some(Rate { per_second, burst })
}

pub(super) fn to_rate(rate: Rate) -> pb::RateLimit {
    pb::RateLimit { per_second: rate.per_second, burst: Some(rate.burst.unsigned_abs()) }
}
