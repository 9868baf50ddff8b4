//! Leases by the database's clock: one at a time, in order, under rising tokens, and as long as promised.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Attempt, Case};
use crate::chaos::history::{Call, Micros, Said, What};

/// Where the next one begins before the one before it has ended, of attempts in the order of their tokens.
fn overlaps(attempts: &[Attempt<'_>]) -> Vec<String> {
    let mut broken = Vec::new();
    for pair in attempts.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        let over = one.end.is_some_and(|end| end.time <= next.begin.time && end.position < next.begin.position);
        if !over {
            broken.push(format!(
                "{} has token {} from {} on, while {} has token {} until {}",
                next.id(),
                next.token(),
                next.begin.time,
                one.id(),
                one.token(),
                one.end.map_or("now".to_owned(), |end| end.time.to_string())
            ));
        }
    }
    broken
}

pub fn one_per_task(case: &Case<'_>) -> Vec<String> {
    let mut tasks: BTreeMap<&str, Vec<Attempt<'_>>> = BTreeMap::new();
    case.attempts.iter().for_each(|attempt| tasks.entry(attempt.id()).or_default().push(*attempt));
    tasks.values().flat_map(|attempts| overlaps(attempts)).collect()
}

pub fn one_per_key(case: &Case<'_>) -> Vec<String> {
    let told = |((_, key), attempts): (_, Vec<Attempt<'_>>)| {
        overlaps(&attempts).into_iter().map(move |what| format!("in {key}, {what}")).collect::<Vec<_>>()
    };
    case.by_key().into_iter().flat_map(told).collect()
}

pub fn in_order(case: &Case<'_>) -> Vec<String> {
    let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for standing in &case.rows.standings {
        if let Some(key) = case.key(&standing.id) {
            keys.entry(key).or_default().push((standing.position, standing.id.as_str()));
        }
    }
    let mut broken = Vec::new();
    for ((_, key), mut tasks) in keys {
        tasks.sort_unstable();
        // The last end of all that were accepted earlier; absent: one of them has not ended.
        let mut before = Some((0, "nobody"));
        for (_, id) in tasks {
            let leased = case.events_of(id).iter().find(|event| event.kind == "LEASED");
            match (leased, before) {
                (Some(leased), Some((end, other))) if leased.position < end => {
                    broken.push(format!("{id} was leased before {other} had ended, which is earlier in {key}"));
                }
                (Some(_), None) => broken.push(format!("{id} was leased and an earlier one of {key} has not ended")),
                _ => {}
            }
            before = case.end_of(id).and_then(|end| before.map(|before| before.max((end.position, id))));
        }
    }
    broken
}

pub fn tokens_rise(case: &Case<'_>) -> Vec<String> {
    let (mut tasks, mut keys) = (HashMap::new(), HashMap::new());
    let mut broken = Vec::new();
    for attempt in &case.attempts {
        let (id, token) = (attempt.id(), attempt.token());
        if let Some(before) = tasks.insert(id, token).filter(|before| *before >= token) {
            broken.push(format!("{id} has token {token} after {before}"));
        }
        let Some(key) = case.key(id) else { continue };
        if let Some((other, before)) = keys.insert(key, (id, token)).filter(|(_, before)| *before >= token) {
            broken.push(format!("{id} has token {token} after {other} had {before} in {}", key.1));
        }
    }
    broken
}

/// Every moment until which a worker was told that it holds a lease.
fn promises<'a>(case: &Case<'a>) -> HashMap<(&'a str, i64), Micros> {
    let mut promised = HashMap::new();
    let mut told = |id: &'a str, token: i64, until: Micros| {
        let last = promised.entry((id, token)).or_insert(until);
        *last = until.max(*last);
    };
    for call in case.calls() {
        match &call.what {
            What::Claim { said } => said.yes().into_iter().flatten().for_each(|lease| told(&lease.id, lease.token, lease.until)),
            What::Heartbeat { id, token, said } => said.yes().into_iter().for_each(|until| told(id, *token, *until)),
            _ => {}
        }
    }
    promised
}

pub fn are_logged(case: &Case<'_>) -> Vec<String> {
    let missing = promises(case).into_keys().filter(|name| !case.by_token.contains_key(name));
    missing.map(|(id, token)| format!("token {token} of {id} was handed out and is not in the log")).collect()
}

pub fn last_as_promised(case: &Case<'_>) -> Vec<String> {
    let released: HashSet<_> = case.calls().filter_map(released).collect();
    let mut broken = Vec::new();
    for ((id, token), until) in promises(case) {
        let Some(end) = case.by_token.get(&(id, token)).and_then(|attempt| attempt.end) else { continue };
        if end.outcome == "EXPIRED" && end.time < until {
            broken.push(format!("token {token} of {id} was promised until {until} and ran out at {}", end.time));
        }
        if end.outcome == "RELEASED" && !released.contains(&(id, token)) {
            broken.push(format!("token {token} of {id} was taken from its worker, who never gave it back"));
        }
    }
    broken
}

fn released(call: &Call) -> Option<(&str, i64)> {
    match &call.what {
        What::Complete { id, token, outcome: "RELEASED", .. } => Some((id, *token)),
        _ => None,
    }
}

/// When leases ended at the latest: of those for which everything that might have extended them was answered.
pub fn last_promises<'a>(case: &Case<'a>) -> HashMap<(&'a str, i64), Micros> {
    let mut promised = promises(case);
    for call in case.calls() {
        if let What::Heartbeat { id, token, said: Said::Nothing } = &call.what {
            promised.remove(&(id.as_str(), *token));
        }
    }
    promised
}
