//! A step of the world: carried out as a transaction does, and judged by what no single step may do.

use super::*;

impl World {
    /// Carries out one command as a transaction does: step, then settle the key.
    pub(super) fn transact(&mut self, rules: &Rules, task: usize, command: &Command) -> Result<Reply, Refusal> {
        let reply = self.step(rules, task, command);
        let unfinished: Vec<Place> = self.unfinished();
        let repairs = (0..).zip(&self.tasks).filter(|(_, task)| task.standing.state() == State::RepairRequired);
        let hold = if rules.policy.on_repair == OnRepair::Hold { repairs.map(|(position, _)| position).min() } else { None };
        if let Some(position) = settle_key(&unfinished, hold) {
            drop(self.step(rules, usize::try_from(position).unwrap(), &Command::Unblock));
        }
        reply
    }

    pub(super) fn unfinished(&self) -> Vec<Place> {
        let states = (0..).zip(&self.tasks).map(|(position, task)| (position, task.standing.state()));
        states.filter(|(_, s)| !s.terminal()).map(|(position, s)| Place { position, blocked: s == State::Blocked }).collect()
    }

    pub(super) fn step(&mut self, rules: &Rules, number: usize, command: &Command) -> Result<Reply, Refusal> {
        let policy = &rules.policy;
        let task = &mut self.tasks[number];
        let token = match command {
            Command::Report { token, .. } => Some(*token),
            _ => None,
        };
        let past = token.and_then(|token| task.pasts.get(&token));
        let stale = superseded();
        let ctx = Context {
            now: at(self.now),
            policy,
            retry: policy.retry,
            head_start: 0,
            stale: task.stale.then_some(&stale),
            past,
            receipts: &[],
            chance: 0.5,
        };
        let before = task.standing.clone();
        let decision = step(before.clone(), command, &ctx);
        let broken = task.judge(&before, command, &decision, self.now);
        for event in &decision.events {
            match (event.kind, event.evidence.report) {
                (EventKind::LateReport, Some(digest)) => task.pasts.entry(event.token).or_default().late.push(digest),
                (EventKind::RetryPlanned | EventKind::Released | EventKind::Ended, report) if event.attempt > 0 => {
                    task.pasts.insert(event.token, PastAttempt { number: event.attempt, report, late: Vec::new() });
                    if report.is_some() {
                        task.reported.insert(event.token);
                    }
                }
                _ => {}
            }
        }
        task.standing = blank(decision.after);
        self.broken = self.broken.or(broken);
        decision.reply
    }

    /// A report reaches the database; whether it counts is told only if somebody waits for the answer.
    pub(super) fn report(&mut self, rules: &Rules, task: usize, token: i64, says: Says) -> Result<Reply, Refusal> {
        self.transact(rules, task, &Command::Report { token, report: says.report() })
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, usize, i64, i64, bool, Option<Says>)> {
        self.workers.iter().enumerate().filter_map(|(worker, one)| match *one {
            Worker::Idle => None,
            Worker::Holds { task, token, until, may_act, said } => Some((worker, task, token, until, may_act, said)),
        })
    }
}

impl Task {
    /// The promise that this one step breaks, if it breaks one.
    pub(super) fn judge(&self, before: &Standing, command: &Command, decision: &Decision, now: i64) -> Option<&'static str> {
        let after = &decision.after;
        if let (Standing::Ended(was), Standing::Ended(is)) = (before, after) {
            let same =
                (was.state, was.cause, was.token, was.report, was.ended) == (is.state, is.cause, is.token, is.report, is.ended);
            if !same {
                return Some("terminal is final");
            }
        }
        if matches!((before, after), (Standing::Ended(_), Standing::Live(_))) {
            return Some("terminal is final");
        }
        if after.token() < before.token() || after.attempt() < before.attempt() || after.revision() < before.revision() {
            return Some("tokens, attempts and revisions rise");
        }
        if self.stale {
            let completed = after.state() == State::Completed && before.state() != State::Completed;
            if completed || (matches!(command, Command::BeginEffect { .. } | Command::Claim(_)) && decision.reply.is_ok()) {
                return Some("nothing stale is leased, begun or completed");
            }
        }
        if let (Command::Tick, Standing::Live(live)) = (command, before)
            && (live.due() <= at(now) || (self.stale && live.lease.is_none())) != decision.changed
        {
            return Some("a sweep changes what is due, and nothing else");
        }
        if let (Command::Report { token, report }, Err(refusal)) = (command, &decision.reply) {
            let current = before.token() == *token && before.report().is_none();
            let kept = decision.events.iter().any(|event| event.evidence.report.is_some());
            let known = self.pasts.get(token).is_some_and(|past| past.late.contains(&report.digest()));
            let again =
                *token <= before.token() && matches!(refusal, Refusal::CancelRequested { .. } | Refusal::SubjectStale { .. });
            let not_yet = matches!(refusal, Refusal::EffectBegun { .. });
            if !kept && !again && !not_yet && !known {
                return Some(if current { "a refused report is kept" } else { "a late report is kept" });
            }
        }
        if let Standing::Live(live) = after {
            return live_can_be_written(live).then_some(()).map_or(Some("the schema takes what step leaves"), |()| None);
        }
        None
    }
}

/// The CHECKs of `live`.
fn live_can_be_written(live: &Live) -> bool {
    let leased = live.state == State::Leased;
    let waits = matches!(live.state, State::Scheduled | State::RetryAt);
    !live.state.terminal()
        && live.lease.is_some() == leased
        && (leased || live.cancel.is_none())
        && (live.state == State::Blocked || live.wake.is_some() == waits)
        && (live.attempt == 0) == (live.token == 0)
        && (0..=live.attempt.min(live.max_attempts)).contains(&live.charged)
        && live.lease.as_ref().is_none_or(|lease| {
            lease.expire <= live.deadline && (lease.stage == Stage::EffectBegun) == lease.effect_begun.is_some()
        })
}

/// Without what no decision depends on.
pub(super) fn blank(standing: Standing) -> Standing {
    match standing {
        Standing::Live(live) => Standing::Live(Live {
            revision: 0,
            rank: 0,
            updated: at(0),
            first_lease: None,
            notes: Notes::default(),
            lease: live.lease.map(|lease| Lease {
                worker: String::new(),
                begin: at(0),
                heartbeat: None,
                effect_begun: lease.effect_begun.map(|_| at(0)),
                ..lease
            }),
            ..live
        }),
        Standing::Ended(ended) => Standing::Ended(Ended {
            revision: 0,
            first_lease: None,
            worker: None,
            notes: Notes::default(),
            evidence: Evidence::default(),
            ..ended
        }),
    }
}
