//! Limits, recounted at every moment of the database's clock.

use super::Case;
use crate::chaos::history::Micros;
use crate::chaos::rows::Limit;

/// The most that there were at a time, and when. What ends at a moment makes room for what begins at it.
fn most(mut changes: Vec<(Micros, i64)>) -> (i64, Micros) {
    changes.sort_unstable();
    let (mut count, mut most) = (0, (0, 0));
    for (time, change) in changes {
        count += change;
        if count > most.0 {
            most = (count, time);
        }
    }
    most
}

pub fn hold(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for limit in &case.rows.limits {
        let name = limit.share.as_ref().map_or(limit.queue.clone(), |share| format!("{}/{share}", limit.queue));
        for (allowed, what, changes) in [
            (limit.max_in_flight, "leased", in_flight as fn(&Case<'_>, &Limit) -> Vec<(Micros, i64)>),
            (limit.max_unfinished, "unfinished", unfinished),
        ] {
            let Some(allowed) = allowed else { continue };
            let (count, time) = most(changes(case, limit));
            if count > i64::from(allowed) {
                broken.push(format!("{name} had {count} {what} at {time}, {allowed} are allowed"));
            }
        }
    }
    broken
}

fn concerns(case: &Case<'_>, limit: &Limit, id: &str) -> bool {
    case.asked(id).is_some_and(|asked| asked.queue == limit.queue && limit.share.as_ref().is_none_or(|share| share == asked.share))
}

fn in_flight(case: &Case<'_>, limit: &Limit) -> Vec<(Micros, i64)> {
    let attempts = case.attempts.iter().filter(|attempt| concerns(case, limit, attempt.id()));
    attempts.flat_map(|attempt| [(attempt.begin.time, 1)].into_iter().chain(attempt.end.map(|end| (end.time, -1)))).collect()
}

fn unfinished(case: &Case<'_>, limit: &Limit) -> Vec<(Micros, i64)> {
    let events = case.rows.events.iter().filter(|event| concerns(case, limit, &event.id));
    let change = |kind: &str| match kind {
        "SUBMITTED" => Some(1),
        "ENDED" => Some(-1),
        _ => None,
    };
    events.filter_map(|event| Some((event.time, change(&event.kind)?))).collect()
}
