//! The one table of what may become of a task: it first applies what time has decided (`step_time.rs`), then the command (here, and
//! reports in `step_report.rs`).
//!
//! When several things are due at once: cancel before deadline before attempts before lease end.

use std::time::Duration;

use super::{
    CancelRequest, Cause, Command, Context, Decision, Ended, Grant, Lease, Live, Notes, Progress, Reply, Stage, Stale, Standing,
    State,
};
use crate::domain::event::{Event, EventKind, Evidence};
use crate::domain::queue::{OnUnknown, Policy};
use crate::domain::refusal::Refusal;
use crate::domain::spec::TaskSpec;
use crate::domain::time::{Timestamp, micros};

/// What becomes of a Submit that passed identity, floor and admission. `key_busy`: its ordering key has an unfinished task or is
/// held by an open repair.
pub fn accept(spec: &TaskSpec, policy: &Policy, now: Timestamp, key_busy: bool) -> (Live, Event) {
    let wake = spec.starts_at(now);
    let state = match (key_busy, wake) {
        (true, _) => State::Blocked,
        (false, Some(_)) => State::Scheduled,
        (false, None) => State::Ready,
    };
    let live = Live {
        state,
        revision: 1,
        attempt: 0,
        charged: 0,
        max_attempts: policy.retry_of(&spec.retry()).max_attempts,
        releases: 0,
        unknown_attempts: 0,
        token: 0,
        report: None,
        rank: now.0.saturating_sub(head_start(spec.priority, policy)),
        wake,
        deadline: spec.deadline(policy, now),
        lease: None,
        cancel: None,
        accepted: now,
        updated: now,
        first_lease: None,
        notes: Notes::default(),
    };
    let event = Event {
        kind: EventKind::Submitted,
        revision: 1,
        previous: None,
        state,
        cause: None,
        attempt: 0,
        token: 0,
        worker: None,
        time: now,
        evidence: Evidence { next_attempt_time: wake, ..Evidence::default() },
    };
    (live, event)
}

/// The head start of a task with this priority, in microseconds.
pub fn head_start(priority: i32, policy: &Policy) -> i64 {
    micros(policy.priority_step).saturating_mul(i64::from(priority))
}

/// What becomes of a task when it is asked for something. Pure: the same arguments give the same decision.
pub fn step(before: Standing, command: &Command, ctx: &Context<'_>) -> Decision {
    let mut run = Run { standing: before, events: Vec::new(), changed: false, ctx };
    let reply = match command {
        Command::Claim(grant) => run.claim(grant),
        Command::Heartbeat { token, span, progress } => run.heartbeat(*token, *span, progress.as_ref()),
        Command::BeginEffect { token, effect_ref, span } => run.begin_effect(*token, effect_ref, *span),
        Command::Report { token, report } => run.report(*token, report),
        Command::GiveBack { token, call } => run.give_back(*token, *call),
        Command::Cancel { cause, reason } => run.cancel(*cause, reason),
        Command::Record(receipt) => run.record(receipt),
        Command::Unblock => run.unblock(),
        Command::Tick => {
            run.lapse();
            Ok(Reply::Applied)
        }
    };
    Decision { after: run.standing, events: run.events, changed: run.changed, reply }
}

pub(super) struct Run<'a> {
    pub(super) standing: Standing,
    pub(super) events: Vec<Event>,
    pub(super) changed: bool,
    pub(super) ctx: &'a Context<'a>,
}

impl Run<'_> {
    pub(super) fn log(&mut self, event: Event) {
        *self.standing.revision_mut() += 1;
        if let Standing::Live(live) = &mut self.standing {
            live.updated = self.ctx.now;
        }
        self.events.push(Event { revision: self.standing.revision(), state: self.standing.state(), time: self.ctx.now, ..event });
        self.changed = true;
    }

    /// An event of the present attempt; `log` fills in revision, state and time.
    pub(super) fn event(&self, kind: EventKind, evidence: Evidence) -> Event {
        let (attempt, worker) = match &self.standing {
            Standing::Live(live) => (live.attempt, live.lease.as_ref().map(|lease| lease.worker.clone())),
            Standing::Ended(ended) => (ended.attempt, ended.worker.clone()),
        };
        Event {
            kind,
            revision: 0,
            previous: Some(self.standing.state()),
            state: self.standing.state(),
            cause: None,
            attempt,
            token: self.standing.token(),
            worker,
            time: self.ctx.now,
            evidence,
        }
    }

    /// The cancel request in force: one that was made, or a floor that was raised.
    pub(super) fn stop(&self, live: &Live) -> Option<CancelRequest> {
        let raised = |stale: &Stale| CancelRequest { cause: stale.cause, reason: stale.reason.clone() };
        live.cancel.clone().or_else(|| self.ctx.stale.map(raised))
    }

    /// The refusal of work that was asked to stop. Where a floor is the cause it says so, whether the walk over the stale tasks had
    /// reached this one or not.
    pub(super) fn stopped(&self, cause: Cause, reason: String) -> Refusal {
        match self.ctx.stale {
            Some(stale) if matches!(cause, Cause::Superseded | Cause::Revoked) => stale.refusal(),
            _ => Refusal::CancelRequested { cause, reason },
        }
    }

    /// Ends the task. `evidence` speaks of the attempt that ran, if one did.
    pub(super) fn finish(&mut self, state: State, cause: Option<Cause>, reason: &str, evidence: Evidence) {
        let Standing::Live(live) = &self.standing else { return };
        let mut event = self.event(EventKind::Ended, evidence.clone());
        if live.lease.is_none() {
            event.attempt = 0;
        } else {
            event.evidence.progress = live.notes.progress.clone();
        }
        let ended = Ended {
            state,
            cause,
            reason: reason.to_owned(),
            revision: live.revision,
            attempt: live.attempt,
            charged: live.charged,
            max_attempts: live.max_attempts,
            unknown_attempts: live.unknown_attempts,
            token: live.token,
            report: evidence.report.or(live.report),
            boundary: if state == State::Completed { self.ctx.policy.boundary.clone() } else { String::new() },
            accepted: live.accepted,
            ended: self.ctx.now,
            deadline: live.deadline,
            first_lease: live.first_lease,
            stage: live.lease.as_ref().map(|lease| lease.stage),
            worker: live.lease.as_ref().map(|lease| lease.worker.clone()),
            evidence,
            notes: live.notes.clone(),
        };
        self.standing = Standing::Ended(ended);
        self.log(Event { cause, ..event });
    }

    /// Plans the next attempt, or leaves the task to people when the budget, the policy or the deadline says so.
    pub(super) fn retry_or_repair(&mut self, unknown: bool, at_least: Duration, mut evidence: Evidence) {
        let Standing::Live(live) = &mut self.standing else { return };
        let ctx = self.ctx;
        let wake = ctx.now.plus(ctx.retry.backoff(live.charged, ctx.chance).max(at_least));
        let cause = if live.charged >= live.max_attempts {
            Some(Cause::AttemptsExhausted)
        } else if unknown && ctx.policy.on_unknown == OnUnknown::Repair {
            Some(Cause::OutcomeUnknown)
        } else if wake.plus(ctx.policy.deadline_margin) >= live.deadline {
            Some(Cause::DeadlinePassed)
        } else {
            None
        };
        if let Some(cause) = cause {
            return self.finish(State::RepairRequired, Some(cause), "", evidence);
        }
        evidence.next_attempt_time = Some(wake);
        self.end_attempt(State::RetryAt, Some(wake), EventKind::RetryPlanned, evidence);
    }

    /// The lease is over and the task goes on in `state`.
    pub(super) fn end_attempt(&mut self, state: State, wake: Option<Timestamp>, kind: EventKind, evidence: Evidence) {
        let mut event = self.event(kind, evidence);
        if let Standing::Live(live) = &mut self.standing {
            event.evidence.progress = live.notes.progress.clone();
            live.state = state;
            live.wake = wake;
            live.report = event.evidence.report;
            live.lease = None;
        }
        self.log(event);
    }

    fn claim(&mut self, grant: &Grant) -> Result<Reply, Refusal> {
        let now = self.ctx.now;
        self.lapse();
        let live = match &mut self.standing {
            Standing::Ended(ended) => return Err(Refusal::TaskTerminal { state: ended.state }),
            Standing::Live(live) if live.state != State::Ready => {
                return Err(Refusal::Bug(format!("a claim took a task that is {}", live.state.as_str())));
            }
            Standing::Live(live) => live,
        };
        live.state = State::Leased;
        live.attempt += 1;
        live.charged += 1;
        live.token = grant.token;
        live.report = None;
        live.first_lease = live.first_lease.or(Some(now));
        live.notes.progress = None;
        live.lease = Some(Lease {
            worker: grant.worker.clone(),
            begin: now,
            expire: now.plus(grant.span).min(live.deadline),
            span: grant.span,
            stage: Stage::Claimed,
            effect_ref: None,
            effect_begun: None,
            reports_effect: grant.reports_effect,
            heartbeat: None,
            call: grant.call,
            claim: grant.claim,
        });
        let event = Event { previous: Some(State::Ready), ..self.event(EventKind::Leased, Evidence::default()) };
        self.log(event);
        Ok(Reply::Applied)
    }

    fn heartbeat(&mut self, token: i64, span: Option<Duration>, progress: Option<&Progress>) -> Result<Reply, Refusal> {
        self.held(token)?;
        let now = self.ctx.now;
        let Standing::Live(live) = &self.standing else { return Err(Refusal::Bug("a held lease has no task".into())) };
        let stop = self.stop(live);
        let Standing::Live(live) = &mut self.standing else { return Err(Refusal::Bug("a held lease has no task".into())) };
        if let Some(progress) = progress {
            live.notes.progress = Some(progress.clone());
        }
        if let Some(lease) = &mut live.lease {
            lease.heartbeat = Some(now);
            if stop.is_none() {
                lease.extend(now, span.unwrap_or(lease.span), live.deadline);
            }
        }
        self.changed = true;
        Ok(stop.map_or(Reply::Applied, |stop| Reply::Stop { cause: stop.cause, reason: stop.reason }))
    }

    fn begin_effect(&mut self, token: i64, effect_ref: &str, span: Option<Duration>) -> Result<Reply, Refusal> {
        self.held(token)?;
        let now = self.ctx.now;
        let Standing::Live(live) = &mut self.standing else { return Err(Refusal::Bug("a held lease has no task".into())) };
        if let Some(CancelRequest { cause, reason }) = live.cancel.clone() {
            return Err(self.stopped(cause, reason));
        }
        if let Some(stale) = self.ctx.stale {
            return Err(stale.refusal());
        }
        let Some(lease) = &mut live.lease else { return Err(Refusal::Bug("a held lease is not there".into())) };
        if let Some(span) = span {
            lease.extend(now, span, live.deadline);
            self.changed = true;
        }
        if lease.stage == Stage::EffectBegun {
            let known = lease.effect_ref.clone().unwrap_or_default();
            // One attempt has one effect: a second one under another reference would be an effect that nobody can ask for.
            return if known == effect_ref { Ok(Reply::AlreadyApplied) } else { Err(Refusal::EffectBegun { effect_ref: known }) };
        }
        lease.stage = Stage::EffectBegun;
        lease.effect_ref = (!effect_ref.is_empty()).then(|| effect_ref.to_owned());
        lease.effect_begun = Some(now);
        let evidence = Evidence { stage: Some(Stage::EffectBegun), effect_ref: lease.effect_ref.clone(), ..Evidence::default() };
        let event = self.event(EventKind::EffectBegun, evidence);
        self.log(event);
        Ok(Reply::Applied)
    }

    fn cancel(&mut self, cause: Cause, reason: &str) -> Result<Reply, Refusal> {
        let lapse = self.lapse();
        match &mut self.standing {
            // What was stale or told to stop may have ended just now, by this very look at it.
            Standing::Ended(ended) if ended.state == State::Canceled && lapse.is_some() => Ok(Reply::Applied),
            Standing::Ended(ended) if ended.state == State::Canceled => Ok(Reply::AlreadyApplied),
            Standing::Ended(ended) => Err(Refusal::TaskTerminal { state: ended.state }),
            Standing::Live(live) if live.lease.is_none() => {
                self.finish(State::Canceled, Some(cause), reason, Evidence::default());
                Ok(Reply::Applied)
            }
            Standing::Live(live) if live.cancel.is_some() => Ok(Reply::AlreadyApplied),
            Standing::Live(live) => {
                live.cancel = Some(CancelRequest { cause, reason: reason.to_owned() });
                let evidence = Evidence { reason: (!reason.is_empty()).then(|| reason.to_owned()), ..Evidence::default() };
                let event = Event { cause: Some(cause), ..self.event(EventKind::CancelRequested, evidence) };
                self.log(event);
                Ok(Reply::Applied)
            }
        }
    }

    /// Lets exactly one task of a key go on, overdue or not: what time has decided of it is applied when it stands free, so that
    /// promoting it never leaves the key without a head.
    fn unblock(&mut self) -> Result<Reply, Refusal> {
        let now = self.ctx.now;
        let Standing::Live(live) = &mut self.standing else { return Ok(Reply::Applied) };
        if live.state != State::Blocked {
            return Ok(Reply::AlreadyApplied);
        }
        match live.wake {
            Some(wake) if wake > now => {
                live.state = State::Scheduled;
                let evidence = Evidence { next_attempt_time: Some(wake), ..Evidence::default() };
                let event = Event { attempt: 0, previous: Some(State::Blocked), ..self.event(EventKind::Unblocked, evidence) };
                self.log(event);
            }
            _ => self.become_ready(EventKind::Unblocked, now),
        }
        Ok(Reply::Applied)
    }
}

impl Stale {
    fn refusal(&self) -> Refusal {
        Refusal::SubjectStale { subject: self.subject.clone(), version: self.version, floor: self.floor }
    }
}

impl Lease {
    /// A promise once given is not taken back: the lease is never shortened, and never reaches past the deadline.
    fn extend(&mut self, now: Timestamp, span: Duration, deadline: Timestamp) {
        self.expire = now.plus(span).min(deadline).max(self.expire);
    }
}
