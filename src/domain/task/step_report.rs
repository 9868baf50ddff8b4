//! How an attempt ends: the worker's report, a give-back, and the evidence of reports that came too late.

use uuid::Uuid;

use super::step::Run;
use super::{Cause, Ended, ErrorClass, LastError, Lease, Live, Outcome, Reply, Stage, Standing, State};
use crate::domain::event::{Event, EventKind, Evidence};
use crate::domain::limits::{LATE_REPORTS, RELEASES_UNCHARGED};
use crate::domain::refusal::Refusal;
use crate::domain::report::{Failure, Report};

impl Run<'_> {
    pub(super) fn report(&mut self, token: i64, report: &Report) -> Result<Reply, Refusal> {
        let digest = Some(report.digest());
        let current = self.standing.token();
        let repeated = token == current && self.standing.report() == digest;
        if repeated || (token <= current && self.ctx.past.is_some_and(|past| past.report == digest)) {
            return match (&self.standing, report) {
                // It was refused the first time, and is no more applied the second.
                (Standing::Ended(Ended { state: State::Canceled, cause: Some(cause), reason, .. }), Report::Succeeded(_)) => {
                    Err(self.stopped(*cause, reason.clone()))
                }
                _ => Ok(Reply::AlreadyApplied),
            };
        }
        match self.held(token) {
            Ok(()) => self.settle(report),
            Err(refusal) => {
                self.keep_late(token, report);
                Err(refusal)
            }
        }
    }

    /// Keeps a refused report as evidence on its attempt: the effect may have happened all the same. The first few, once each.
    fn keep_late(&mut self, token: i64, report: &Report) {
        let number = match self.ctx.past {
            Some(past) => past.number,
            None if token == self.standing.token() => self.standing.attempt(),
            None => return,
        };
        let kept = self.ctx.past.map_or(&[][..], |past| &past.late);
        if kept.len() >= LATE_REPORTS || kept.contains(&report.digest()) {
            return;
        }
        let event = self.event(EventKind::LateReport, report.evidence());
        self.log(Event { attempt: number, token, worker: None, ..event });
    }

    fn settle(&mut self, report: &Report) -> Result<Reply, Refusal> {
        let Standing::Live(live) = &self.standing else { return Err(Refusal::Bug("a held lease has no task".into())) };
        let Some(lease) = &live.lease else { return Err(Refusal::Bug("a held lease is not there".into())) };
        let evidence = with_lease(report.evidence(), lease);
        if let Some(stop) = self.stop(live) {
            self.finish(State::Canceled, Some(stop.cause), &stop.reason, evidence);
            return match report {
                Report::Succeeded(_) => Err(self.stopped(stop.cause, stop.reason)),
                _ => Ok(Reply::Applied),
            };
        }
        if matches!(report, Report::Released { .. }) && lease.stage == Stage::EffectBegun {
            return Err(Refusal::EffectBegun { effect_ref: lease.effect_ref.clone().unwrap_or_default() });
        }
        match report {
            Report::Succeeded(_) => self.finish(State::Completed, None, "", evidence),
            Report::Skipped { reason } => self.finish(State::Skipped, None, reason, evidence),
            Report::Canceled { reason } => self.finish(State::Canceled, Some(Cause::Worker), reason, evidence),
            Report::Failed(failure) => self.fail(failure, evidence),
            Report::Released { delay, .. } => {
                let wake = (!delay.is_zero()).then(|| self.ctx.now.plus(*delay));
                self.hand_back(wake, evidence, true);
            }
        }
        Ok(Reply::Applied)
    }

    fn fail(&mut self, failure: &Failure, evidence: Evidence) {
        let now = self.ctx.now;
        let unknown = failure.class == ErrorClass::Unknown;
        let stage = evidence.stage.unwrap_or(Stage::Claimed);
        if let Standing::Live(live) = &mut self.standing {
            live.unknown_attempts += i32::from(unknown);
            live.notes.failed(LastError {
                class: failure.class,
                code: failure.code.clone(),
                message: failure.message.clone(),
                stage,
                time: now,
            });
        }
        match failure.class {
            ErrorClass::Permanent => self.finish(State::RepairRequired, Some(Cause::PermanentError), "", evidence),
            ErrorClass::Transient | ErrorClass::Unknown => self.retry_or_repair(unknown, failure.retry_after, evidence),
        }
    }

    /// The lease was handed back before the effect began. READY at its old rank, or RETRY_AT with a delay; not charged, except
    /// that a worker which releases again and again runs into the budget.
    fn hand_back(&mut self, wake: Option<crate::domain::time::Timestamp>, mut evidence: Evidence, by_worker: bool) {
        let Standing::Live(live) = &mut self.standing else { return };
        let charged = by_worker && live.releases >= RELEASES_UNCHARGED;
        live.releases = live.releases.saturating_add(i32::from(by_worker));
        live.charged -= i32::from(!charged);
        evidence.charged = Some(charged);
        if live.charged >= live.max_attempts {
            return self.finish(State::RepairRequired, Some(Cause::AttemptsExhausted), "", evidence);
        }
        if wake.is_some_and(|wake| wake.plus(self.ctx.policy.deadline_margin) >= live.deadline) {
            return self.finish(State::RepairRequired, Some(Cause::DeadlinePassed), "", evidence);
        }
        evidence.next_attempt_time = wake;
        let state = if wake.is_some() { State::RetryAt } else { State::Ready };
        self.end_attempt(state, wake, EventKind::Released, evidence);
    }

    /// Takes back leases whose caller went away before it had them. Only while token, call and stage still match: a repeated
    /// `request_id` makes the newer call the holder, and what an older call gives back does not touch it.
    pub(super) fn give_back(&mut self, token: i64, call: Uuid) -> Result<Reply, Refusal> {
        self.lapse();
        let Standing::Live(live) = &self.standing else { return Ok(Reply::AlreadyApplied) };
        let matching = |lease: &&Lease| lease.call == call && lease.stage == Stage::Claimed;
        let Some(lease) = live.lease.as_ref().filter(matching).filter(|_| live.token == token) else {
            return Ok(Reply::AlreadyApplied);
        };
        let evidence = with_lease(Evidence { outcome: Some(Outcome::Released), ..Evidence::default() }, lease);
        match self.stop(live) {
            Some(stop) => {
                if let Standing::Live(live) = &mut self.standing {
                    live.charged -= 1;
                }
                self.finish(State::Canceled, Some(stop.cause), &stop.reason, Evidence { charged: Some(false), ..evidence });
            }
            None => self.hand_back(None, evidence, false),
        }
        Ok(Reply::Applied)
    }
}

/// The report's evidence completed by what the lease knows.
fn with_lease(evidence: Evidence, lease: &Lease) -> Evidence {
    Evidence {
        stage: Some(lease.stage),
        effect_ref: evidence.effect_ref.or_else(|| lease.effect_ref.clone()),
        heartbeat_time: lease.heartbeat,
        charged: Some(evidence.charged.unwrap_or(true)),
        ..evidence
    }
}

impl Live {
    /// Whether a report under `token` needs the log's word: it does unless it ends the lease that runs at `now`.
    pub fn needs_past(&self, token: i64, now: crate::domain::time::Timestamp) -> bool {
        self.token != token || self.lease.as_ref().is_none_or(|lease| lease.expire <= now)
    }
}
