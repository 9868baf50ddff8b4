//! Small histories that are wrong, at least one for each rule: the judge must say so, and must say nothing of the one that is right.

use super::{RULES, judge};
use crate::chaos::history::{Asked, Call, Granted, History, Micros, Said, What};
use crate::chaos::rows::{Event, Limit, Repair, Rows, Standing};

/// What happened, as clients and the database tell it. `a` and `b` have a key, in this order; `c` hangs on a subject; `d` waits behind
/// the repair of `r`.
struct World {
    history: History,
    rows: Rows,
}

/// The run's last moment, by the database's clock.
const NOW: Micros = 1_000;

impl World {
    fn right() -> World {
        let mut world = World { history: History::default(), rows: Rows { now: NOW, ..Rows::default() } };
        for (id, share, key, subject) in
            [("a", "x", "k", None), ("b", "x", "k", None), ("c", "y", "", Some(3)), ("r", "x", "h", None), ("d", "x", "h", None)]
        {
            let subject = subject.map(|version| ("s".to_owned(), version));
            world.history.asked.insert(id.into(), Asked { queue: "q", share, key: key.into(), subject });
            world.call(What::Submit { id: id.into(), said: Said::Yes(true) });
            world.rows.tasks.push(id.into());
            world.event(id, "SUBMITTED", if id == "b" || id == "d" { "BLOCKED" } else { "READY" }, 0, 0, "");
        }
        world.history.together.push(vec!["a".into(), "b".into()]);
        world.call(What::Raise { subject: "s".into(), version: 2, said: Said::Yes(()) });
        world.rows.floors.insert("s".into(), 2);
        world.leased("a", 1, 1, 500);
        world.call(What::Heartbeat { id: "a".into(), token: 1, said: Said::Yes(600) });
        world.began("a", 1, 1);
        world.reported("a", 1, 1, "SUCCEEDED", "COMPLETED");
        world.event("b", "UNBLOCKED", "READY", 0, 0, "");
        world.leased("b", 1, 2, 0);
        world.event("b", "RETRY_PLANNED", "RETRY_AT", 1, 2, "EXPIRED");
        world.event("b", "READY", "READY", 0, 0, "");
        world.leased("b", 2, 4, 700);
        let late = Said::No("LEASE_SUPERSEDED".into());
        world.call(What::Complete { id: "b".into(), token: 2, outcome: "SUCCEEDED", receipt: "b:2".into(), said: late });
        world.reported("b", 2, 4, "SKIPPED", "SKIPPED");
        world.leased("c", 1, 5, 800);
        world.event("c", "CANCEL_REQUESTED", "LEASED", 1, 5, "");
        world.call(What::Cancel { id: "c".into(), said: Said::Yes(()) });
        world.reported("c", 1, 5, "CANCELED", "CANCELED");
        world.leased("r", 1, 6, 900);
        world.reported("r", 1, 6, "FAILED", "REPAIR_REQUIRED");
        let position = world.rows.events.iter().find(|event| event.id == "r").map_or(0, |event| event.position);
        world.rows.repairs.push(Repair { id: "r".into(), open: true, holds: true, position });
        let limit = |share: Option<&str>, most| Limit {
            queue: "q".into(),
            share: share.map(str::to_owned),
            max_in_flight: Some(most),
            max_unfinished: Some(5),
        };
        world.rows.limits = vec![limit(None, 1), limit(Some("x"), 1)];
        world.stand();
        world
    }

    fn call(&mut self, what: What) {
        let last = self.history.calls.last().map_or(0, |call| call.after);
        self.history.calls.push(Call { before: last + 1, after: last + 2, what });
    }

    fn event(&mut self, id: &str, kind: &str, state: &str, attempt: i32, token: i64, outcome: &str) {
        let position = i64::try_from(self.rows.events.len()).unwrap() + 1;
        let mut of_task = self.rows.events.iter().filter(|event| event.id == id);
        let (revision, previous) = of_task.next_back().map_or((1, String::new()), |last| (last.revision + 1, last.state.clone()));
        self.rows.events.push(Event {
            id: id.into(),
            position,
            revision,
            time: position * 10,
            kind: kind.into(),
            previous,
            state: state.into(),
            attempt,
            token,
            outcome: outcome.into(),
            receipt: if outcome == "SUCCEEDED" { format!("{id}:{token}") } else { String::new() },
        });
    }

    fn leased(&mut self, id: &str, attempt: i32, token: i64, until: Micros) {
        self.call(What::Claim { said: Said::Yes(vec![Granted { id: id.into(), token, until }]) });
        self.event(id, "LEASED", "LEASED", attempt, token, "");
    }

    fn began(&mut self, id: &str, attempt: i32, token: i64) {
        self.call(What::BeginEffect { id: id.into(), token, said: Said::Yes(()) });
        self.call(What::Effect { id: id.into(), token });
        self.event(id, "EFFECT_BEGUN", "LEASED", attempt, token, "");
    }

    fn reported(&mut self, id: &str, attempt: i32, token: i64, outcome: &'static str, state: &str) {
        let receipt = if outcome == "SUCCEEDED" { format!("{id}:{token}") } else { String::new() };
        self.call(What::Complete { id: id.into(), token, outcome, receipt, said: Said::Yes(()) });
        self.event(id, "ENDED", state, attempt, token, outcome);
    }

    /// Every task stands where its log ends.
    fn stand(&mut self) {
        self.rows.standings.clear();
        for id in &self.rows.tasks {
            let events: Vec<&Event> = self.rows.events.iter().filter(|event| event.id == *id).collect();
            let (Some(first), Some(last)) = (events.first(), events.last()) else { continue };
            self.rows.standings.push(Standing {
                id: id.clone(),
                live: !super::ends::TERMINAL.contains(&last.state.as_str()),
                state: last.state.clone(),
                revision: last.revision,
                position: first.position,
                cause: String::new(),
                due: Some(NOW + 1),
            });
        }
    }

    fn row(&mut self, id: &str, kind: &str, attempt: i32) -> &mut Event {
        let mut events = self.rows.events.iter_mut();
        events.find(|event| event.id == id && event.kind == kind && event.attempt == attempt).expect("it is there")
    }

    fn standing(&mut self, id: &str) -> &mut Standing {
        self.rows.standings.iter_mut().find(|standing| standing.id == id).expect("it is there")
    }

    fn forget_task(&mut self, id: &str) {
        self.rows.tasks.retain(|task| task != id);
        self.rows.events.retain(|event| event.id != id);
        self.rows.standings.retain(|standing| standing.id != id);
    }

    fn forget_event(&mut self, id: &str, kind: &str) {
        self.rows.events.retain(|event| event.id != id || event.kind != kind);
    }
}

/// What is wrong, the rule's sentence, and how it came about.
const WRONG: [(&str, &str, fn(&mut World)); 33] = [
    ("a Submit was lost", "what was acknowledged is there", |w| w.forget_task("c")),
    ("a refused task is there", "what was acknowledged is there", |w| {
        w.history.calls[2].what = What::Submit { id: "c".into(), said: Said::No("QUEUE_FULL".into()) };
    }),
    ("a task came from nowhere", "what was acknowledged is there", |w| drop(w.history.asked.remove("c"))),
    ("a task was new again", "a task is new once", |w| w.call(What::Submit { id: "a".into(), said: Said::Yes(true) })),
    ("half of a batch is there", "a batch is there as a whole", |w| w.history.together.push(vec!["a".into(), "z".into()])),
    ("a later task stands first", "who was answered before", |w| {
        (w.history.calls[0].before, w.history.calls[0].after) = (1_000, 1_001);
    }),
    ("two leases of a task", "a task has at most one lease", |w| w.row("b", "RETRY_PLANNED", 1).time = 500),
    ("a lease that never ended", "a task has at most one lease", |w| w.forget_event("b", "RETRY_PLANNED")),
    ("two leases of a key", "an ordering key has at most one lease", |w| w.row("a", "ENDED", 1).time = 500),
    ("the later one first", "an ordering key's tasks run in the order", |w| w.standing("b").position = 0),
    ("behind one that runs", "an ordering key's tasks run in the order", |w| w.forget_event("a", "ENDED")),
    ("an old token again", "tokens rise", |w| w.row("b", "LEASED", 2).token = 2),
    ("a lower token in the key", "tokens rise", |w| w.row("a", "LEASED", 1).token = 3),
    ("a lease that nobody wrote down", "a lease that a worker got", |w| w.leased_only_by_word("c", 9)),
    ("a lease that ran out early", "a lease lasts as long", |w| w.promise("b", 2, 999)),
    ("a lease that was taken away", "a lease lasts as long", |w| {
        let end = w.row("b", "RETRY_PLANNED", 1);
        (end.kind, end.outcome) = ("RELEASED".into(), "RELEASED".into());
    }),
    ("a success that was forgotten", "an accepted report ended its attempt", |w| w.row("a", "ENDED", 1).outcome = "EXPIRED".into()),
    ("a success from an old lease", "an accepted report ended its attempt", |w| w.accept_the_late_report()),
    ("another receipt", "an accepted report ended its attempt", |w| w.row("a", "ENDED", 1).receipt = "a:9".into()),
    ("a refused report that counts", "an accepted report ended its attempt", |w| {
        w.row("b", "RETRY_PLANNED", 1).outcome = "SUCCEEDED".into();
    }),
    ("a report after the lease's end", "no report was accepted after", |w| w.row("c", "ENDED", 1).time = 801),
    ("an effect after the lease's end", "no report was accepted after", |w| w.row("a", "EFFECT_BEGUN", 1).time = 601),
    ("an end that nobody told", "an attempt ends by a report only", |w| w.row("r", "ENDED", 1).outcome = "SKIPPED".into()),
    ("an effect that was forgotten", "an effect that a worker had begun", |w| w.forget_event("a", "EFFECT_BEGUN")),
    ("more effects than attempts began", "an effect that a worker had begun", |w| {
        w.call(What::Effect { id: "b".into(), token: 4 });
    }),
    ("an effect after the end", "an effect that a worker had begun", |w| w.row("a", "EFFECT_BEGUN", 1).position = 99),
    ("a cap exceeded", "no more is leased", |w| {
        let other = w.row("b", "LEASED", 2).time;
        w.row("c", "LEASED", 1).time = other + 1;
    }),
    ("too many unfinished", "no more is leased", |w| w.rows.limits[1].max_unfinished = Some(3)),
    ("a task that nobody takes", "every task has ended", |w| w.standing("d").state = "READY".into()),
    ("a task behind nobody", "every task has ended", |w| w.rows.repairs[0].open = false),
    ("a time that passed", "every task has ended", |w| {
        let task = w.standing("d");
        (task.state, task.due) = ("RETRY_AT".into(), Some(NOW - 1));
    }),
    ("a canceled task was completed", "a task that was canceled", |w| w.standing("c").state = "COMPLETED".into()),
    ("a floor that sank", "nothing stale goes on", |w| w.rows.floors.clear()),
];

impl World {
    fn leased_only_by_word(&mut self, id: &str, token: i64) {
        self.call(What::Claim { said: Said::Yes(vec![Granted { id: id.into(), token, until: 0 }]) });
    }

    fn promise(&mut self, id: &str, token: i64, until: Micros) {
        self.call(What::Heartbeat { id: id.into(), token, said: Said::Yes(until) });
    }

    fn accept_the_late_report(&mut self) {
        for call in &mut self.history.calls {
            if let What::Complete { said, token: 2, .. } = &mut call.what {
                *said = Said::Yes(());
            }
        }
    }
}

/// More of them, where one line is not enough or the log itself is torn.
const TORN: [(&str, &str, fn(&mut World)); 9] = [
    ("a hole in the log", "the log is whole", |w| w.row("b", "READY", 0).revision = 9),
    ("a leap of states", "the log is whole", |w| w.row("b", "READY", 0).previous = "LEASED".into()),
    ("life after death", "the log is whole", |w| {
        w.event("a", "READY", "READY", 0, 0, "");
        w.stand();
    }),
    ("a row that the log does not know", "the log is whole", |w| w.standing("a").revision = 9),
    ("a row in another state", "the log is whole", |w| w.standing("a").state = "SKIPPED".into()),
    ("a stale task was accepted", "nothing stale goes on", |w| {
        w.call(What::Submit { id: "z".into(), said: Said::Yes(true) });
        w.history.asked.insert("z".into(), Asked { queue: "q", share: "x", subject: Some(("s".into(), 1)), ..Asked::default() });
    }),
    ("a stale task was leased", "nothing stale goes on", |w| {
        w.rows.floors.insert("s".into(), 4);
        w.rows.rises.insert("s".into(), 1);
    }),
    ("a refusal out of the blue", "a call is refused for reasons", |w| {
        w.call(What::Submit { id: "a".into(), said: Said::No("BUG".into()) });
    }),
    ("a holder that was called superseded", "a call is refused for reasons", |w| {
        w.call(What::Heartbeat { id: "a".into(), token: 1, said: Said::No("LEASE_SUPERSEDED".into()) });
    }),
];

#[test]
fn the_judge_has_nothing_to_say_of_a_right_history() {
    let World { history, rows } = World::right();
    assert_eq!(judge(&history, &rows), Vec::<String>::new());
}

#[test]
fn the_judge_finds_what_is_wrong_with_each_of_these_histories() {
    for (what, rule, wrong) in WRONG.iter().chain(&TORN) {
        let mut world = World::right();
        wrong(&mut world);
        let broken = judge(&world.history, &world.rows);
        assert!(broken.iter().any(|one| one.starts_with(rule)), "{what}: {broken:#?}");
    }
}

#[test]
fn every_rule_has_been_seen_to_fail() {
    for (promise, _) in RULES {
        assert!(WRONG.iter().chain(&TORN).any(|(_, rule, _)| promise.starts_with(rule)), "nothing breaks: {promise}");
    }
}
