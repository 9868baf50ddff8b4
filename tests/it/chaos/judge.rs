//! Whether a run kept its promises: a pure function over what clients were told and what the database says.
//!
//! A rule is a sentence and a function that tells what breaks it. Each of them has been seen to fail: see `wrong`.

mod ends;
mod leases;
mod limits;
mod reports;
mod submits;
mod wrong;

use std::collections::{BTreeMap, HashMap};

use super::history::{Asked, Call, History};
use super::rows::{Event, Rows, Standing};

type Rule = (&'static str, fn(&Case<'_>) -> Vec<String>);

/// All of them, each with what must be true.
const RULES: [Rule; 20] = [
    ("what was acknowledged is there, and nothing that nobody sent", submits::are_there),
    ("a task is new once", submits::are_new_once),
    ("a batch is there as a whole or not at all", submits::are_whole),
    ("who was answered before another was sent stands before it in the key", submits::keep_their_order),
    ("a task has at most one lease at a time", leases::one_per_task),
    ("an ordering key has at most one lease at a time", leases::one_per_key),
    ("an ordering key's tasks run in the order of acceptance", leases::in_order),
    ("tokens rise along a task and along an ordering key", leases::tokens_rise),
    ("a lease that a worker got is in the log", leases::are_logged),
    ("a lease lasts as long as it was promised", leases::last_as_promised),
    ("an accepted report ended its attempt, and as it says", reports::count),
    ("no report was accepted after its lease had ended", reports::in_time),
    ("an attempt ends by a report only if its worker sent it", reports::were_sent),
    ("an effect that a worker had begun is in the log, and none without a lease", reports::effects),
    ("no more is leased, and no more unfinished, than the limits allow", limits::hold),
    ("every task has ended, or waits for a reason", ends::are_reached),
    ("the log is whole, and ends where the task stands", ends::agree_with_the_log),
    ("a task that was canceled with an answer ends so", ends::cancels_hold),
    ("nothing stale goes on after its floor's rise was answered", ends::floors_hold),
    ("a call is refused for reasons of the contract, and they are true", reports::are_refused_for_a_reason),
];

/// What breaks the rules, each with the rule's sentence; nothing: all of them hold.
pub fn judge(history: &History, rows: &Rows) -> Vec<String> {
    let case = Case::new(history, rows);
    let mut broken = Vec::new();
    for (promise, rule) in RULES {
        broken.extend(rule(&case).into_iter().map(|what| format!("{promise}: {what}")));
    }
    broken
}

/// One lease's run of a task, from the log.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    begin: &'a Event,
    effect: Option<&'a Event>,
    end: Option<&'a Event>,
}

impl<'a> Attempt<'a> {
    fn id(&self) -> &'a str {
        &self.begin.id
    }

    fn token(&self) -> i64 {
        self.begin.token
    }

    /// How it ended; empty while it runs.
    fn outcome(&self) -> &'a str {
        self.end.map_or("", |end| &end.outcome)
    }
}

/// What all rules look things up in.
struct Case<'a> {
    history: &'a History,
    rows: &'a Rows,
    standings: HashMap<&'a str, &'a Standing>,
    /// By task, in the order of positions.
    events: BTreeMap<&'a str, Vec<&'a Event>>,
    /// In the order in which they began.
    attempts: Vec<Attempt<'a>>,
    /// The same by task and token.
    by_token: HashMap<(&'a str, i64), Attempt<'a>>,
}

impl<'a> Case<'a> {
    fn new(history: &'a History, rows: &'a Rows) -> Case<'a> {
        let mut events: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        let (mut effects, mut ends) = (HashMap::new(), HashMap::new());
        for event in &rows.events {
            events.entry(&event.id).or_default().push(event);
            let attempt = (event.id.as_str(), event.attempt);
            match event.kind.as_str() {
                "EFFECT_BEGUN" => drop(effects.insert(attempt, event)),
                "RETRY_PLANNED" | "RELEASED" | "ENDED" if event.attempt > 0 => drop(ends.insert(attempt, event)),
                _ => {}
            }
        }
        let begun = rows.events.iter().filter(|event| event.kind == "LEASED");
        let attempt = |begin: &'a Event| {
            let name = (begin.id.as_str(), begin.attempt);
            Attempt { begin, effect: effects.get(&name).copied(), end: ends.get(&name).copied() }
        };
        let attempts: Vec<Attempt<'_>> = begun.map(attempt).collect();
        let by_token = attempts.iter().map(|attempt| ((attempt.id(), attempt.token()), *attempt)).collect();
        let standings = rows.standings.iter().map(|standing| (standing.id.as_str(), standing)).collect();
        Case { history, rows, standings, events, attempts, by_token }
    }

    fn calls(&self) -> impl Iterator<Item = &'a Call> {
        self.history.calls.iter()
    }

    fn asked(&self, id: &str) -> Option<&'a Asked> {
        self.history.asked.get(id)
    }

    /// The queue and the ordering key of a task that has one.
    fn key(&self, id: &str) -> Option<(&'a str, &'a str)> {
        self.asked(id).filter(|asked| !asked.key.is_empty()).map(|asked| (asked.queue, asked.key.as_str()))
    }

    fn events_of(&self, id: &str) -> &[&'a Event] {
        self.events.get(id).map_or(&[], Vec::as_slice)
    }

    /// The event that ended the task.
    fn end_of(&self, id: &str) -> Option<&'a Event> {
        self.events_of(id).iter().find(|event| event.kind == "ENDED").copied()
    }

    /// Attempts by key, in the order in which they began.
    fn by_key(&self) -> BTreeMap<(&'a str, &'a str), Vec<Attempt<'a>>> {
        let mut keys: BTreeMap<_, Vec<Attempt<'_>>> = BTreeMap::new();
        for attempt in &self.attempts {
            if let Some(key) = self.key(attempt.id()) {
                keys.entry(key).or_default().push(*attempt);
            }
        }
        keys
    }
}
