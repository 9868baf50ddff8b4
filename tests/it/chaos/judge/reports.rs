//! What workers reported counts if their lease lasted, and does not if it had ended.

use std::collections::{HashMap, HashSet};

use super::{Case, leases};
use crate::chaos::history::{Said, What};

struct Report<'a> {
    id: &'a str,
    token: i64,
    outcome: &'static str,
    receipt: &'a str,
    said: &'a Said<()>,
}

fn reports<'a>(case: &Case<'a>) -> impl Iterator<Item = Report<'a>> {
    case.calls().filter_map(|call| match &call.what {
        What::Complete { id, token, outcome, receipt, said } => Some(Report { id, token: *token, outcome, receipt, said }),
        _ => None,
    })
}

pub fn count(case: &Case<'_>) -> Vec<String> {
    let accepted: HashSet<_> = reports(case).filter(|r| r.said.yes().is_some()).map(|r| (r.id, r.token)).collect();
    let mut broken = Vec::new();
    for Report { id, token, outcome, receipt, said } in reports(case) {
        let Some(attempt) = case.by_token.get(&(id, token)) else {
            broken.push(format!("{outcome} of {id} under token {token}, which is not in the log"));
            continue;
        };
        let ended = (attempt.outcome(), attempt.end.map_or("", |end| &end.receipt));
        match said {
            Said::Yes(()) if ended != (outcome, receipt) => broken.push(format!(
                "{outcome} {receipt} of {id} was accepted under token {token}, whose attempt ended {} {}",
                ended.0, ended.1
            )),
            Said::No(reason) if reason.starts_with("LEASE_") && ended.0 == outcome && !accepted.contains(&(id, token)) => {
                broken.push(format!("{outcome} of {id} under token {token} was refused ({reason}) and counts all the same"));
            }
            _ => {}
        }
    }
    broken
}

/// The outcomes that only a worker can tell.
const TOLD: [&str; 4] = ["SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"];

pub fn in_time(case: &Case<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    for ((id, token), until) in leases::last_promises(case) {
        let Some(attempt) = case.by_token.get(&(id, token)) else { continue };
        if let Some(end) = attempt.end.filter(|end| (TOLD.contains(&end.outcome.as_str())) && end.time > until) {
            broken.push(format!("{} of {id} under token {token} at {}, the lease ended at {until}", end.outcome, end.time));
        }
        if let Some(effect) = attempt.effect.filter(|effect| effect.time > until) {
            broken.push(format!("an effect of {id} under token {token} at {}, the lease ended at {until}", effect.time));
        }
    }
    broken
}

pub fn were_sent(case: &Case<'_>) -> Vec<String> {
    let sent: HashSet<(&str, i64, &str)> = reports(case).map(|r| (r.id, r.token, r.outcome)).collect();
    let told = case.attempts.iter().filter(|attempt| TOLD.contains(&attempt.outcome()));
    let strange = told.filter(|a| !sent.contains(&(a.id(), a.token(), a.outcome())));
    strange.map(|a| format!("{} ended {} under token {}, and nobody said so", a.id(), a.outcome(), a.token())).collect()
}

pub fn effects(case: &Case<'_>) -> Vec<String> {
    let mut acted: HashMap<&str, HashSet<i64>> = HashMap::new();
    let mut broken = Vec::new();
    for call in case.calls() {
        let (id, token, what) = match &call.what {
            What::Effect { id, token } => {
                acted.entry(id).or_default().insert(*token);
                (id, *token, "happened")
            }
            What::BeginEffect { id, token, said: Said::Yes(()) } => (id, *token, "was allowed"),
            _ => continue,
        };
        if case.by_token.get(&(id.as_str(), token)).is_none_or(|attempt| attempt.effect.is_none()) {
            broken.push(format!("the effect of {id} under token {token} {what}, and the log does not know that it began"));
        }
    }
    for (id, tokens) in acted {
        let begun = case.events_of(id).iter().filter(|event| event.kind == "EFFECT_BEGUN").count();
        if tokens.len() > begun {
            broken.push(format!("{id} had {} effects, and {begun} attempts that began one", tokens.len()));
        }
    }
    for attempt in &case.attempts {
        let Some(effect) = attempt.effect else { continue };
        let within = effect.token == attempt.token() && effect.position > attempt.begin.position;
        if !within || attempt.end.is_some_and(|end| end.position < effect.position || end.time < effect.time) {
            broken.push(format!("an effect of {} began at {} without a lease", attempt.id(), effect.time));
        }
    }
    broken
}

/// What a call may be refused for by the contract.
fn fair(kind: &str) -> &'static [&'static str] {
    match kind {
        "Submit" => &["SUBJECT_STALE", "QUEUE_FULL", "SHARE_FULL"],
        "Heartbeat" => &["LEASE_SUPERSEDED", "LEASE_EXPIRED", "TASK_DEADLINE_PASSED", "TASK_TERMINAL"],
        "BeginEffect" | "Complete" => &[
            "LEASE_SUPERSEDED",
            "LEASE_EXPIRED",
            "TASK_DEADLINE_PASSED",
            "TASK_TERMINAL",
            "CANCEL_REQUESTED",
            "SUBJECT_STALE",
            "EFFECT_BEGUN",
        ],
        "Cancel" => &["TASK_TERMINAL"],
        "ResolveRepair" => &["REPAIR_RESOLVED"],
        _ => &[],
    }
}

pub fn are_refused_for_a_reason(case: &Case<'_>) -> Vec<String> {
    let latest: HashMap<&str, i64> = case.attempts.iter().map(|attempt| (attempt.id(), attempt.token())).collect();
    let mut broken = Vec::new();
    for call in case.calls() {
        let (_, Some(reason)) = call.what.told() else { continue };
        if !fair(call.what.kind()).contains(&reason) {
            broken.push(format!("{} was refused with {reason}: {:?}", call.what.kind(), call.what));
        }
        let (What::Heartbeat { id, token, .. } | What::BeginEffect { id, token, .. } | What::Complete { id, token, .. }) =
            &call.what
        else {
            continue;
        };
        let attempt = case.by_token.get(&(id.as_str(), *token));
        let is_true = match reason {
            "LEASE_SUPERSEDED" => latest.get(id.as_str()).is_some_and(|latest| latest > token),
            "LEASE_EXPIRED" => attempt.is_some_and(|attempt| attempt.end.is_some()),
            "TASK_TERMINAL" | "TASK_DEADLINE_PASSED" => case.end_of(id).is_some(),
            _ => true,
        };
        if !is_true {
            broken.push(format!("{} of {id} under token {token} was refused with {reason}, which is not so", call.what.kind()));
        }
    }
    broken
}
