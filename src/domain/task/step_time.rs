//! What time alone decides, before any command is looked at; and whether a lease is held still.

use std::time::Duration;

use super::step::Run;
use super::{Cause, ErrorClass, LastError, Live, Outcome, Stage, Standing, State};
use crate::domain::event::{EventKind, Evidence};
use crate::domain::refusal::Refusal;
use crate::domain::stall::excused;
use crate::domain::time::Timestamp;

/// What time alone decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lapse {
    Deadline,
    Lease,
    Woke,
    Stale,
}

impl Run<'_> {
    /// Applies what time (or a raised floor) has decided, at most one thing.
    pub(super) fn lapse(&mut self) -> Option<Lapse> {
        let now = self.ctx.now;
        let Standing::Live(live) = &self.standing else { return None };
        let lease_over = live.lease.as_ref().is_some_and(|lease| lease.expire <= now);
        match self.stop(live) {
            Some(stop) if lease_over => {
                let evidence = self.expire_attempt().1;
                self.finish(State::Canceled, Some(stop.cause), &stop.reason, evidence);
                return Some(Lapse::Lease);
            }
            Some(stop) if live.lease.is_none() => {
                self.finish(State::Canceled, Some(stop.cause), &stop.reason, Evidence::default());
                return Some(Lapse::Stale);
            }
            _ => {}
        }
        if live.deadline <= now {
            let evidence = if live.lease.is_some() { self.expire_attempt().1 } else { Evidence::default() };
            self.finish(State::RepairRequired, Some(Cause::DeadlinePassed), "", evidence);
            return Some(Lapse::Deadline);
        }
        if lease_over {
            let (unknown, evidence) = self.expire_attempt();
            self.retry_or_repair(unknown, Duration::ZERO, evidence);
            return Some(Lapse::Lease);
        }
        match (live.state, live.wake) {
            (State::Scheduled | State::RetryAt, Some(wake)) if wake <= now => {
                self.become_ready(EventKind::Ready, wake);
                Some(Lapse::Woke)
            }
            _ => None,
        }
    }

    /// What the log says of an attempt whose lease ended without a report, and whether its outcome is unknown: it is, unless the
    /// worker promised to say when the effect begins, and did not. Charged, unless the queue's whole fleet had stalled.
    fn expire_attempt(&mut self) -> (bool, Evidence) {
        let ctx = self.ctx;
        let now = ctx.now;
        let Standing::Live(live) = &mut self.standing else { return (false, Evidence::default()) };
        let Some(lease) = &live.lease else { return (false, Evidence::default()) };
        let unknown = lease.stage == Stage::EffectBegun || !lease.reports_effect;
        let class = if unknown { ErrorClass::Unknown } else { ErrorClass::Transient };
        live.unknown_attempts += i32::from(unknown);
        let excused = ctx.policy.stalled.is_some_and(|at| excused(live, lease, at));
        live.charged -= i32::from(excused);
        let evidence = Evidence {
            outcome: Some(Outcome::Expired),
            error_class: Some(class),
            code: Some("LEASE_EXPIRED".to_owned()),
            stage: Some(lease.stage),
            effect_ref: lease.effect_ref.clone(),
            charged: Some(!excused),
            heartbeat_time: lease.heartbeat,
            ..Evidence::default()
        };
        live.notes.failed(LastError {
            class,
            code: "LEASE_EXPIRED".to_owned(),
            message: "the lease ended without a report".to_owned(),
            stage: lease.stage,
            time: now,
        });
        (unknown, evidence)
    }

    pub(super) fn become_ready(&mut self, kind: EventKind, since: Timestamp) {
        let mut event = self.event(kind, Evidence::default());
        event.attempt = 0;
        let head_start = self.ctx.head_start;
        if let Standing::Live(live) = &mut self.standing {
            live.state = State::Ready;
            live.wake = None;
            live.rank = since.0.saturating_sub(head_start);
        }
        self.log(event);
    }

    /// The refusal of a call under `token`, if its lease is not held any more. Applies what time has decided on the way.
    pub(super) fn held(&mut self, token: i64) -> Result<(), Refusal> {
        let state = self.standing.state();
        let over = match &self.standing {
            Standing::Live(live) => live.lease.as_ref().map(|lease| lease.expire),
            Standing::Ended(_) => None,
        };
        let lapse = self.lapse();
        let current = self.standing.token();
        if token > current {
            return Err(Refusal::field("lease.fencing_token", "no such token was ever handed out for this task"));
        }
        if token < current {
            return Err(Refusal::LeaseSuperseded { token, current, state });
        }
        match (&self.standing, lapse) {
            (Standing::Ended(ended), Some(Lapse::Deadline)) => Err(Refusal::TaskDeadlinePassed { deadline: ended.deadline }),
            (Standing::Ended(ended), None) => Err(Refusal::TaskTerminal { state: ended.state }),
            (Standing::Live(Live { lease: Some(_), .. }), _) => Ok(()),
            _ => Err(Refusal::LeaseExpired { token, since: over, state: self.standing.state() }),
        }
    }
}
