//! Nothing that was acknowledged is lost, doubled, torn apart or put behind what came later.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Case;
use crate::chaos::history::{Micros, Said, What};

/// Every Submit with its id and what was said to it.
fn submits<'a>(case: &Case<'a>) -> impl Iterator<Item = (&'a str, &'a Said<bool>, Micros, Micros)> {
    case.calls().filter_map(|call| match &call.what {
        What::Submit { id, said } => Some((id.as_str(), said, call.before, call.after)),
        _ => None,
    })
}

pub fn are_there(case: &Case<'_>) -> Vec<String> {
    let there: HashSet<&str> = case.rows.tasks.iter().map(String::as_str).collect();
    let mut broken = Vec::new();
    let (mut refused, mut open) = (HashSet::new(), HashSet::new());
    for (id, said, ..) in submits(case) {
        match said {
            Said::Yes(_) if !there.contains(id) => broken.push(format!("{id} was acknowledged and is not there")),
            Said::No(_) => drop(refused.insert(id)),
            _ => drop(open.insert(id)),
        }
    }
    let left = refused.difference(&open).filter(|id| there.contains(*id));
    broken.extend(left.map(|id| format!("{id} was refused and is there")));
    let strange = there.iter().filter(|id| case.asked(id).is_none());
    broken.extend(strange.map(|id| format!("{id} is there and was never sent")));
    broken
}

pub fn are_new_once(case: &Case<'_>) -> Vec<String> {
    let mut new = HashMap::new();
    submits(case).filter(|(_, said, ..)| **said == Said::Yes(true)).for_each(|(id, ..)| *new.entry(id).or_insert(0) += 1);
    new.retain(|_, times| *times > 1);
    new.into_iter().map(|(id, times)| format!("{id} was new {times} times")).collect()
}

pub fn are_whole(case: &Case<'_>) -> Vec<String> {
    let there: HashSet<&str> = case.rows.tasks.iter().map(String::as_str).collect();
    let mut broken = Vec::new();
    for batch in &case.history.together {
        let count = batch.iter().filter(|id| there.contains(id.as_str())).count();
        if count != 0 && count != batch.len() {
            broken.push(format!("{count} of {} are there: {batch:?}", batch.len()));
        }
    }
    broken
}

pub fn keep_their_order(case: &Case<'_>) -> Vec<String> {
    // When each was first sent, and first acknowledged.
    let mut known: BTreeMap<&str, (Micros, Option<Micros>)> = BTreeMap::new();
    for (id, said, before, after) in submits(case) {
        let (sent, acknowledged) = known.entry(id).or_insert((before, None));
        *sent = before.min(*sent);
        if said.yes().is_some() {
            *acknowledged = Some(acknowledged.map_or(after, |earlier: Micros| earlier.min(after)));
        }
    }
    let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, (sent, acknowledged)) in known {
        let Some((key, standing)) = case.key(id).zip(case.standings.get(id)) else { continue };
        keys.entry(key).or_default().push((standing.position, id, sent, acknowledged));
    }
    let mut broken = Vec::new();
    for ((_, key), mut tasks) in keys {
        tasks.sort_unstable();
        // Of all that stand behind: who was acknowledged first must not have been acknowledged before this one was sent.
        let mut behind: Option<(Micros, &str)> = None;
        for (_, id, sent, acknowledged) in tasks.into_iter().rev() {
            if let Some((_, other)) = behind.filter(|(acknowledged, _)| *acknowledged < sent) {
                broken.push(format!("{id} was sent after {other} was acknowledged, and stands before it in {key}"));
            }
            if let Some(at) = acknowledged.filter(|at| behind.is_none_or(|(earliest, _)| *at < earliest)) {
                behind = Some((at, id));
            }
        }
    }
    broken
}
