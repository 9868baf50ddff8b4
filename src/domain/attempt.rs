//! Attempts as the log tells them: a fold over a task's events.

use super::event::{Event, EventKind, Evidence};
use super::task::{Lease, Outcome, PastAttempt, Stage};
use super::time::Timestamp;

/// One lease's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    pub number: i32,
    /// Whether it counts against the budget; so far, while it runs.
    pub charged: bool,
    pub token: i64,
    pub worker: String,
    pub stage: Option<Stage>,
    pub effect_ref: Option<String>,
    pub start: Option<Timestamp>,
    pub effect_begun: Option<Timestamp>,
    pub heartbeat: Option<Timestamp>,
    /// Absent while it runs, as is `outcome`.
    pub end: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// Of the report that ended it; empty if none did.
    pub evidence: Evidence,
    pub late: Vec<(Timestamp, Evidence)>,
}

/// The attempts that these events (of one task, in order of revision) speak of, in order of their number.
pub fn fold(events: &[Event]) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for event in events.iter().filter(|event| event.attempt > 0) {
        if event.kind == EventKind::Leased {
            attempts.push(Attempt {
                number: event.attempt,
                charged: true,
                token: event.token,
                worker: event.worker.clone().unwrap_or_default(),
                stage: Some(Stage::Claimed),
                start: Some(event.time),
                ..Attempt::default()
            });
            continue;
        }
        let Some(attempt) = attempts.iter_mut().rfind(|attempt| attempt.number == event.attempt) else { continue };
        match event.kind {
            EventKind::EffectBegun => {
                attempt.stage = Some(Stage::EffectBegun);
                attempt.effect_ref = event.evidence.effect_ref.clone();
                attempt.effect_begun = Some(event.time);
            }
            EventKind::LateReport => attempt.late.push((event.time, event.evidence.clone())),
            EventKind::RetryPlanned | EventKind::Released | EventKind::Ended => {
                attempt.end = Some(event.time);
                attempt.outcome = event.evidence.outcome;
                attempt.charged = event.evidence.charged.unwrap_or(true);
                attempt.heartbeat = event.evidence.heartbeat_time;
                attempt.effect_ref = event.evidence.effect_ref.clone().or(attempt.effect_ref.take());
                attempt.evidence = event.evidence.clone();
            }
            _ => {}
        }
    }
    attempts
}

impl Attempt {
    /// What a running attempt's lease knows better than the log, which is not told of heartbeats.
    pub fn running(&mut self, lease: &Lease) {
        self.heartbeat = lease.heartbeat;
    }

    /// What `step` asks of an attempt that is over.
    pub fn past(&self) -> PastAttempt {
        PastAttempt {
            number: self.number,
            report: self.evidence.report,
            late: self.late.iter().filter_map(|(_, evidence)| evidence.report).collect(),
        }
    }

    /// Whether nobody can say if its effect happened.
    pub fn unknown(&self) -> bool {
        self.evidence.error_class == Some(super::task::ErrorClass::Unknown)
    }
}
