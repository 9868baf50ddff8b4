//! How tasks end: all of them, as the log says, and as canceled and superseded ones must.

use std::collections::HashMap;

use super::Case;
use crate::chaos::history::{Call, Micros, Said, What};
use crate::chaos::rows::{Event, Standing};

pub const TERMINAL: [&str; 4] = ["COMPLETED", "SKIPPED", "CANCELED", "REPAIR_REQUIRED"];

pub fn are_reached(case: &Case<'_>) -> Vec<String> {
    let live = case.rows.standings.iter().filter(|standing| standing.live);
    live.filter_map(|standing| {
        let what = in_the_way(case, standing)?;
        Some(format!("{} is {} {what}", standing.id, standing.state))
    })
    .collect()
}

/// What is wrong with how the task waits; nothing: it waits for a reason. Workers ask for more all the time.
fn in_the_way(case: &Case<'_>, task: &Standing) -> Option<String> {
    let earlier = |position: i64| position < task.position;
    let same_key = |id: &str| case.key(id).is_some() && case.key(id) == case.key(&task.id);
    match task.state.as_str() {
        "BLOCKED" => {
            let head = case.rows.standings.iter().any(|other| other.live && other.state != "BLOCKED" && same_key(&other.id));
            let held = case.rows.repairs.iter().any(|r| r.open && r.holds && earlier(r.position) && same_key(&r.id));
            (!head && !held).then(|| "behind nobody".to_owned())
        }
        "READY" => Some("and nobody takes it".to_owned()),
        _ => match task.due {
            Some(due) if due > case.rows.now => None,
            due => Some(format!("and was due at {due:?}, now is {}", case.rows.now)),
        },
    }
}

pub fn agree_with_the_log(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for (id, events) in &case.events {
        broken.extend(hole(events).map(|what| format!("{id} {what}")));
        let Some(standing) = case.standings.get(id) else {
            broken.push(format!("{id} has a log and stands nowhere"));
            continue;
        };
        let last = events.last().expect("it has events");
        let late = !standing.live && last.revision > standing.revision;
        if last.state != standing.state || !(last.revision == standing.revision || late) {
            let log = (&last.state, last.revision);
            broken.push(format!("{id} is {} at {}, its log says {log:?}", standing.state, standing.revision));
        }
    }
    let silent = case.rows.standings.iter().filter(|standing| !case.events.contains_key(standing.id.as_str()));
    broken.extend(silent.map(|standing| format!("{} stands without a log", standing.id)));
    let nowhere = case.rows.tasks.iter().filter(|id| !case.standings.contains_key(id.as_str()));
    broken.extend(nowhere.map(|id| format!("{id} stands nowhere")));
    broken
}

fn hole(events: &[&Event]) -> Option<String> {
    let mut before: Option<&Event> = None;
    for (place, event) in (1..).zip(events) {
        let state = before.map_or("", |before| &before.state);
        if event.revision != place {
            return Some(format!("has revision {} at place {place}", event.revision));
        }
        if event.previous != state {
            return Some(format!("went on from {} at revision {place}, after {state}", event.previous));
        }
        if TERMINAL.contains(&state) && event.state != state {
            return Some(format!("became {} after it had ended {state}", event.state));
        }
        if before.is_some_and(|before| before.time > event.time) {
            return Some(format!("went back in time at revision {place}"));
        }
        before = Some(event);
    }
    None
}

pub fn cancels_hold(case: &Case<'_>) -> Vec<String> {
    let canceled = case.calls().filter_map(|call| match &call.what {
        What::Cancel { id, said: Said::Yes(()) } => Some(id),
        _ => None,
    });
    let otherwise = canceled.filter_map(|id| match case.standings.get(id.as_str()) {
        Some(standing) if standing.live || standing.state == "CANCELED" => None,
        standing => Some((id, standing.map_or("nowhere", |standing| &standing.state))),
    });
    otherwise.map(|(id, state)| format!("{id} is {state}")).collect()
}

pub fn floors_hold(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    // When each rise was answered.
    let mut rises: HashMap<&str, Vec<(Micros, i64)>> = HashMap::new();
    for call in case.calls() {
        let What::Raise { subject, version, said: Said::Yes(()) } = &call.what else { continue };
        rises.entry(subject).or_default().push((call.after, *version));
        if case.rows.floors.get(subject).is_none_or(|floor| floor < version) {
            broken.push(format!("{subject} was raised to {version}, and is at {:?}", case.rows.floors.get(subject)));
        }
    }
    let stale = |id: &str, at: Micros| {
        let Some((subject, version)) = case.asked(id).and_then(|asked| asked.subject.as_ref()) else { return false };
        rises.get(subject.as_str()).is_some_and(|rises| rises.iter().any(|(answered, floor)| *answered < at && version < floor))
    };
    // What was carried out by an earlier call is only told again: each of these counts from its first sending on.
    let mut first: HashMap<_, Micros> = HashMap::new();
    for (call, what, _) in case.calls().filter_map(starts) {
        first.entry(what).and_modify(|first| *first = call.before.min(*first)).or_insert(call.before);
    }
    for (_, what, _) in case.calls().filter_map(starts).filter(|(.., accepted)| *accepted) {
        if stale(what.1, first[&what]) {
            broken.push(format!("{} of {} was accepted after its floor had risen", what.0, what.1));
        }
    }
    for attempt in &case.attempts {
        let Some((subject, version)) = case.asked(attempt.id()).and_then(|asked| asked.subject.as_ref()) else { continue };
        let (floor, risen) = (case.rows.floors.get(subject), case.rows.rises.get(subject));
        if floor.is_some_and(|floor| version < floor) && risen.is_some_and(|risen| *risen < attempt.begin.time) {
            broken.push(format!(
                "{} was leased in version {version} of {subject} at {} under token {}, the floor {floor:?} is of {risen:?}",
                attempt.id(),
                attempt.begin.time,
                attempt.token()
            ));
        }
    }
    broken
}

/// A call that nothing stale may pass, with what it names, and whether it was accepted.
fn starts(call: &Call) -> Option<(&Call, (&'static str, &str, i64), bool)> {
    let (id, token, accepted) = match &call.what {
        What::Submit { id, said } => (id, 0, *said == Said::Yes(true)),
        What::BeginEffect { id, token, said } => (id, *token, said.yes().is_some()),
        What::Complete { id, token, outcome: "SUCCEEDED", said, .. } => (id, *token, said.yes().is_some()),
        _ => return None,
    };
    Some((call, (call.what.kind(), id, token), accepted))
}
