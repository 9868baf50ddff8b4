//! The small model: what the contract says becomes of tasks, written down again and independently of the server's `step`.
//!
//! Time goes in units so long that what really passes during a run never adds up to one; the round is the order within a unit. The
//! model decides everything but chance: tokens, and which of those that became READY together goes first, it takes as observed.

use std::collections::BTreeMap;

use leasehold::api::proto::{Cause, TaskState as State};

use super::task::{At, Attempt, Held, Task};
use super::words::{Answer, Command, Named, Said, Wish};

#[derive(Clone, Default)]
pub struct Mind {
    pub unit: u32,
    pub round: u32,
    pub tasks: BTreeMap<String, Task>,
    /// Who goes first of those whose turn came together, as observed.
    pub ties: BTreeMap<String, (i64, i64)>,
    floors: BTreeMap<u32, i64>,
}

impl Mind {
    fn now(&self) -> At {
        (self.unit, self.round)
    }

    /// What becomes of a command. Of a claim that raced with others it only judges whether what was `got` could be given.
    pub fn carry_out(&mut self, command: &Command, got: &Answer, alone: bool) -> Answer {
        match command {
            Command::Submit(wish) => self.submit(wish),
            Command::Claim { slots, lease, reports_effect, request } => {
                let again = self.claimed_before(*request);
                again.unwrap_or_else(|| self.claim((*slots, *lease, *reports_effect, *request), got, alone))
            }
            Command::Heartbeat { lease, span } => self.heartbeat(lease, *span),
            Command::BeginEffect { lease, effect } => self.begin_effect(lease, effect),
            Command::Report { lease, said } => self.report(lease, said),
            Command::Cancel(id) => self.cancel(id),
            Command::Raise { subject, version } => {
                self.raise(*subject, *version);
                Answer::Raised
            }
            Command::Walk(subject) => {
                self.walk(*subject);
                Answer::Raised
            }
        }
    }

    fn raise(&mut self, subject: u32, version: i64) {
        let floor = self.floors.entry(subject).or_insert(version);
        *floor = version.max(*floor);
    }

    fn stale(&self, wish: &Wish) -> bool {
        wish.subject.is_some_and(|(subject, version)| self.floors.get(&subject).is_some_and(|floor| version < *floor))
    }

    /// Why the task should stop: it was told to, or a floor has risen above it.
    fn stop(&self, id: &str) -> Option<Cause> {
        let task = self.tasks.get(id)?;
        task.cancel.or_else(|| self.stale(&task.wish).then_some(Cause::Superseded))
    }

    /// The refusal of what should stop.
    fn stopped(&self, id: &str, cause: Cause) -> Answer {
        let stale = cause == Cause::Superseded && self.tasks.get(id).is_some_and(|task| self.stale(&task.wish));
        Answer::Refused { reason: if stale { "SUBJECT_STALE" } else { "CANCEL_REQUESTED" }.into(), current: None }
    }

    /// Those who run what is stale are told; the rest of it is canceled.
    fn walk(&mut self, subject: u32) {
        let about = |task: &&Task| task.wish.subject.is_some_and(|(about, _)| about == subject) && self.stale(&task.wish);
        let ids: Vec<String> = self.tasks.values().filter(about).map(|task| task.wish.id.clone()).collect();
        for id in ids {
            self.lapse(&id);
            self.told_to_stop(&id, Cause::Superseded);
        }
    }

    fn told_to_stop(&mut self, id: &str, cause: Cause) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.held.is_some() && task.cancel.is_none() {
            task.cancel = Some(cause);
            task.note("CANCEL_REQUESTED", task.attempts.len());
        } else if task.held.is_none() && !task.terminal() {
            task.end(State::Canceled, Some(cause));
            self.settle(id);
        }
    }

    /// What a call with this `request_id` was given before, as far as it lasts; absent: nothing of it is left, so it is a new call.
    fn claimed_before(&self, request: Option<u32>) -> Option<Answer> {
        let of = |task: &&Task| request.is_some() && task.held.as_ref().is_some_and(|held| held.request == request);
        let before: Vec<&Task> = self.tasks.values().filter(of).collect();
        let now = self.now();
        let lasts = |task: &&&Task| !self.stale(&task.wish) && task.held.as_ref().is_some_and(|held| held.expire > now);
        let mut given: Vec<(Named, i32)> = before
            .iter()
            .filter(lasts)
            .map(|task| (Named { id: task.wish.id.clone(), token: task.token() }, task.attempts.len() as i32))
            .collect();
        given.sort_by_key(|(lease, _)| lease.token);
        (!before.is_empty()).then_some(Answer::Leases(given))
    }

    fn submit(&mut self, wish: &Wish) -> Answer {
        if self.tasks.contains_key(&wish.id) {
            return Answer::Accepted { created: false };
        }
        if self.stale(wish) {
            return Answer::Refused { reason: "SUBJECT_STALE".into(), current: None };
        }
        if let Some((subject, version)) = wish.subject.filter(|_| wish.raises) {
            self.raise(subject, version);
        }
        let now = self.now();
        let busy = wish.key.is_some() && self.tasks.values().any(|task| task.wish.key == wish.key && !task.terminal());
        let wake = (wish.delay > 0).then_some((now.0 + wish.delay, now.1));
        let state = match (busy, wake) {
            (true, _) => State::Blocked,
            (false, Some(_)) => State::Scheduled,
            (false, None) => State::Ready,
        };
        let mut task = Task {
            wish: wish.clone(),
            place: self.tasks.len(),
            state,
            cause: None,
            cancel: None,
            attempts: Vec::new(),
            events: Vec::new(),
            deadline: (now.0 + wish.ttl, now.1),
            wake,
            rank: now,
            held: None,
        };
        task.note("SUBMITTED", 0);
        self.tasks.insert(wish.id.clone(), task);
        Answer::Accepted { created: true }
    }

    fn claim(&mut self, asked: (usize, u32, bool, Option<u32>), got: &Answer, alone: bool) -> Answer {
        let (slots, lease, reports_effect, request) = asked;
        let Answer::Leases(leases) = got else { return Answer::Leases(Vec::new()) };
        let mut ready: Vec<&Task> =
            self.tasks.values().filter(|task| task.state == State::Ready && !self.stale(&task.wish)).collect();
        ready.sort_by_key(|task| (task.rank, self.ties.get(&task.wish.id), task.place));
        let next: Vec<String> = ready.iter().take(slots).map(|task| task.wish.id.clone()).collect();
        let asked: Vec<&String> = leases.iter().map(|(lease, _)| &lease.id).collect();
        let known = leases.iter().all(|(lease, _)| ready.iter().any(|task| task.wish.id == lease.id));
        if asked.len() > slots || !known || (alone && asked != next.iter().collect::<Vec<_>>()) {
            return Answer::Leases(next.into_iter().map(|id| (Named { id, token: 0 }, 0)).collect());
        }
        let now = self.now();
        let mut given = Vec::new();
        for (lease_of, _) in leases {
            let key = self.tasks[&lease_of.id].wish.key;
            let of_key = self.tasks.values().filter(|task| key.is_some() && task.wish.key == key).map(Task::token).max();
            let task = self.tasks.get_mut(&lease_of.id).expect("it is known");
            // A token that does not rise is answered by one that would have.
            let least = of_key.unwrap_or_default().max(task.token()) + 1;
            let token = lease_of.token.max(least);
            task.attempts.push(Attempt { token, charged: true, begun: None, unknown: false, said: None, late: Vec::new() });
            task.state = State::Leased;
            task.held = Some(Held { expire: (now.0 + lease, now.1).min(task.deadline), reports_effect, request });
            task.note("LEASED", task.attempts.len());
            given.push((Named { id: lease_of.id.clone(), token }, task.attempts.len() as i32));
        }
        Answer::Leases(given)
    }

    /// Applies what time has decided of the lease's task, and says why the lease is not held, if it is not.
    fn held(&mut self, lease: &Named) -> Result<&mut Task, Answer> {
        let lapse = self.lapse(&lease.id);
        let task = self.tasks.get_mut(&lease.id).expect("leases are of known tasks");
        let refused = |reason: &str, current| Err(Answer::Refused { reason: reason.into(), current });
        match lapse {
            _ if lease.token < task.token() => refused("LEASE_SUPERSEDED", Some(task.token())),
            Some(true) => refused("TASK_DEADLINE_PASSED", None),
            None if task.terminal() => refused("TASK_TERMINAL", None),
            _ if task.held.is_none() => refused("LEASE_EXPIRED", None),
            _ => Ok(task),
        }
    }

    fn heartbeat(&mut self, lease: &Named, span: u32) -> Answer {
        let (now, stop) = (self.now(), self.stop(&lease.id));
        match self.held(lease) {
            Err(refused) => refused,
            Ok(task) => {
                let (cancel, until) = (stop.is_some(), (now.0 + span, now.1).min(task.deadline));
                let held = task.held.as_mut().expect("it is held");
                held.expire = if cancel { held.expire } else { held.expire.max(until) };
                Answer::Held { cancel }
            }
        }
    }

    fn begin_effect(&mut self, lease: &Named, effect: &str) -> Answer {
        let stop = self.stop(&lease.id).map(|cause| self.stopped(&lease.id, cause));
        let task = match self.held(lease) {
            Err(refused) => return refused,
            Ok(task) => task,
        };
        let attempt = task.attempts.last_mut().expect("it is leased");
        match &attempt.begun {
            _ if stop.is_some() => stop.unwrap_or(Answer::Canceled),
            Some(begun) if begun == effect => Answer::Done { already: true },
            Some(_) => Answer::Refused { reason: "EFFECT_BEGUN".into(), current: None },
            None => {
                attempt.begun = Some(effect.into());
                task.note("EFFECT_BEGUN", task.attempts.len());
                Answer::Done { already: false }
            }
        }
    }

    fn report(&mut self, lease: &Named, said: &Said) -> Answer {
        let now = self.now();
        let task = &self.tasks[&lease.id];
        let number = task.attempts.iter().position(|attempt| attempt.token == lease.token).expect("the lease was given");
        if task.attempts[number].said.as_ref() == Some(said) {
            let refused_before = task.state == State::Canceled && matches!(said, Said::Succeeded(_));
            return match refused_before {
                true => self.stopped(&lease.id, task.cause.unwrap_or(Cause::Requested)),
                false => Answer::Done { already: true },
            };
        }
        let stop = self.stop(&lease.id);
        let task = match self.held(lease) {
            Ok(task) => task,
            Err(refused) => {
                let task = self.tasks.get_mut(&lease.id).expect("it is known");
                let late = &mut task.attempts[number].late;
                if late.len() < 8 && !late.contains(said) {
                    late.push(said.clone());
                    task.note("LATE_REPORT", number + 1);
                }
                return refused;
            }
        };
        let attempt = task.attempts.last_mut().expect("it is leased");
        let released = matches!(said, Said::Released | Said::ReleasedFor(_));
        if released && attempt.begun.is_some() && stop.is_none() {
            return Answer::Refused { reason: "EFFECT_BEGUN".into(), current: None };
        }
        attempt.said = Some(said.clone());
        if let Some(cause) = stop {
            task.end(State::Canceled, Some(cause));
        } else {
            attempt.unknown = *said == Said::Unknown;
            attempt.charged = !released;
            match said {
                Said::Succeeded(_) => task.end(State::Completed, None),
                Said::Skipped => task.end(State::Skipped, None),
                Said::Canceled => task.end(State::Canceled, Some(Cause::Worker)),
                Said::Permanent => task.end(State::RepairRequired, Some(Cause::PermanentError)),
                Said::Transient | Said::Unknown => task.retry_or_repair(now),
                Said::Released => task.leave(State::Ready, "RELEASED"),
                Said::ReleasedFor(delay) if (now.0 + delay, now.1) >= task.deadline => {
                    task.end(State::RepairRequired, Some(Cause::DeadlinePassed));
                }
                Said::ReleasedFor(delay) => {
                    task.wake = Some((now.0 + delay, now.1));
                    task.leave(State::RetryAt, "RELEASED");
                }
            }
        }
        self.settle(&lease.id);
        let refused = stop.filter(|_| matches!(said, Said::Succeeded(_))).map(|cause| self.stopped(&lease.id, cause));
        refused.unwrap_or(Answer::Done { already: false })
    }

    fn cancel(&mut self, id: &str) -> Answer {
        self.lapse(id);
        let Some(task) = self.tasks.get_mut(id) else {
            return Answer::Refused { reason: "TASK_NOT_FOUND".into(), current: None };
        };
        if task.terminal() && task.state != State::Canceled {
            return Answer::Refused { reason: "TASK_TERMINAL".into(), current: None };
        }
        self.told_to_stop(id, Cause::Requested);
        Answer::Canceled
    }

    /// One thing that time has decided of the task; true: that its deadline has passed.
    fn lapse(&mut self, id: &str) -> Option<bool> {
        let (now, stop) = (self.now(), self.stop(id));
        let passed = |at: At| at <= now;
        let task = self.tasks.get_mut(id).filter(|task| !task.terminal())?;
        let over = task.held.as_ref().is_some_and(|held| passed(held.expire));
        let late = passed(task.deadline);
        if over {
            let silent = task.held.as_ref().is_some_and(|held| !held.reports_effect);
            let attempt = task.attempts.last_mut().expect("it is leased");
            attempt.unknown = silent || attempt.begun.is_some();
        }
        let stops = stop.filter(|_| over || task.held.is_none());
        let deadline = late && stops.is_none();
        if let Some(cause) = stops {
            task.end(State::Canceled, Some(cause));
        } else if late {
            task.end(State::RepairRequired, Some(Cause::DeadlinePassed));
        } else if over {
            task.retry_or_repair(now);
        } else if matches!(task.state, State::Scheduled | State::RetryAt) && task.wake.is_some_and(passed) {
            task.rank = task.wake.take().expect("it waits");
            task.leave(State::Ready, "READY");
        } else {
            return None;
        }
        self.settle(id);
        Some(deadline)
    }

    /// Everything that time has decided by now. What is overdue behind its key ends there.
    pub fn sweep(&mut self) {
        let blocked = |task: &&Task| task.state == State::Blocked;
        let (first, then): (Vec<&Task>, Vec<&Task>) = self.tasks.values().partition(blocked);
        let ids: Vec<String> = first.iter().chain(&then).map(|task| task.wish.id.clone()).collect();
        for id in ids.iter().chain(&ids) {
            while self.lapse(id).is_some() {}
        }
    }

    /// Where a key's task has ended, the next one goes.
    fn settle(&mut self, id: &str) {
        let now = self.now();
        let key = self.tasks[id].wish.key;
        let of_key = |task: &&mut Task| key.is_some() && task.wish.key == key && !task.terminal();
        if self.tasks.values_mut().filter(of_key).any(|task| task.state != State::Blocked) {
            return;
        }
        let Some(next) = self.tasks.values_mut().filter(of_key).min_by_key(|task| task.place) else { return };
        if next.wake.is_some_and(|wake| wake > now) {
            next.leave(State::Scheduled, "UNBLOCKED");
        } else {
            (next.wake, next.rank) = (None, now);
            next.leave(State::Ready, "UNBLOCKED");
        }
    }
}
