//! What must hold at the end of the demo, each said in a sentence and checked against what the server answered.

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::timeline::{error_class, outcome, stage, state};
use super::token;
use crate::api::proto::{Attempt, ErrorClass, Lease, Outcome, Stage, SubmitResponse, Task, TaskState};

/// All that was answered.
pub(super) struct Seen {
    pub(super) first: SubmitResponse,
    pub(super) again: SubmitResponse,
    pub(super) w1: Lease,
    /// The task after w1's lease had ended.
    pub(super) lost: Task,
    pub(super) w2: Lease,
    /// The task as w2's Complete answered it.
    pub(super) completed: Task,
    pub(super) receipt: String,
    /// The refusal of w1's late report.
    pub(super) late: Status,
    /// The task after all of it.
    pub(super) task: Task,
    pub(super) attempts: Vec<Attempt>,
    pub(super) pushes: usize,
}

impl Seen {
    pub(super) fn promises(&self) -> Vec<(String, bool)> {
        vec![
            self.one_fact_makes_one_task(),
            self.tokens_rise(),
            self.unknown_is_said(),
            self.the_next_attempt_is_told(),
            self.one_push(),
            self.the_older_token_is_refused(),
            self.the_late_report_changes_nothing(),
            self.the_late_report_is_kept(),
            self.every_attempt_is_on_record(),
        ]
    }

    fn one_fact_makes_one_task(&self) -> (String, bool) {
        let uid = |answer: &SubmitResponse| answer.task.as_ref().map(|task| task.uid.clone());
        let same = uid(&self.first).is_some() && uid(&self.first) == uid(&self.again);
        ("One fact makes one task, however often it is submitted.".to_owned(), same && self.first.created && !self.again.created)
    }

    fn tokens_rise(&self) -> (String, bool) {
        let (older, newer) = (token(&self.w1), token(&self.w2));
        (format!("Each lease has a higher token than the one before: {older}, then {newer}."), 0 < older && older < newer)
    }

    fn unknown_is_said(&self) -> (String, bool) {
        let text = "A lease lost after its effect had begun is UNKNOWN: neither failed nor accepted.".to_owned();
        let waits = matches!(self.lost.state(), TaskState::RetryAt | TaskState::Ready);
        let first = self.attempts.first().is_some_and(|attempt| {
            attempt.outcome() == Outcome::Expired
                && attempt.error_class() == ErrorClass::Unknown
                && attempt.stage() == Stage::EffectBegun
        });
        (text, waits && first && self.lost.unknown_attempts == 1 && self.task.unknown_attempts == 1)
    }

    fn the_next_attempt_is_told(&self) -> (String, bool) {
        let effect = format!("push-{}", token(&self.w1));
        let told = matches!(self.w2.unknown_attempts.as_slice(), [one] if one.number == 1 && one.effect_ref == effect);
        (format!("The next attempt was told whom to ask about: {effect}."), told)
    }

    fn one_push(&self) -> (String, bool) {
        let text = format!("So the provider (simulated) was called once, and not twice: {} push.", self.pushes);
        (text, self.pushes == 1)
    }

    fn the_older_token_is_refused(&self) -> (String, bool) {
        let (older, newer) = (token(&self.w1).to_string(), token(&self.w2).to_string());
        let kept = self.late.code() == Code::FailedPrecondition
            && self.late.get_details_error_info().is_some_and(|info| {
                info.reason == "LEASE_SUPERSEDED"
                    && info.metadata.get("fencing_token") == Some(&older)
                    && info.metadata.get("current_fencing_token") == Some(&newer)
            });
        (format!("The late report was refused, LEASE_SUPERSEDED: its token is {older}, the current one {newer}."), kept)
    }

    fn the_late_report_changes_nothing(&self) -> (String, bool) {
        let (before, after) = (&self.completed, &self.task);
        let number = after.attempt;
        let text = format!("It changed no state: still {}, by attempt {number}, with the same receipt.", state(after.state()));
        let same = before.state == after.state
            && before.end_time == after.end_time
            && before.receipt_ref == after.receipt_ref
            && before.fencing_token == after.fencing_token;
        let done = after.state() == TaskState::Completed && after.terminal && number == 2 && after.receipt_ref == self.receipt;
        (text, same && done && after.fencing_token == token(&self.w2) && !after.boundary.is_empty())
    }

    fn the_late_report_is_kept(&self) -> (String, bool) {
        let late = self.attempts.first().map_or(&[][..], |attempt| &attempt.late_reports);
        let kept = matches!(late, [one] if one.outcome() == Outcome::Succeeded && one.receipt_ref == self.receipt);
        (format!("And it was not lost: attempt 1 keeps it as evidence, {}.", self.receipt), kept)
    }

    fn every_attempt_is_on_record(&self) -> (String, bool) {
        let [first, second] = self.attempts.as_slice() else {
            return (format!("Two runs are two attempts: there are {}.", self.attempts.len()), false);
        };
        let said = |attempt: &Attempt| {
            let (worker, stage, outcome) = (&attempt.worker_id, stage(attempt.stage()), outcome(attempt.outcome()));
            format!("{worker} {stage} {outcome}")
        };
        let class = error_class(first.error_class());
        let text = format!("Each run is on record, and both were charged: {} {class}; {}.", said(first), said(second));
        let named = (first.number, first.worker_id.as_str(), second.number, second.worker_id.as_str()) == (1, "w1", 2, "w2");
        let tokens = first.fencing_token == token(&self.w1) && second.fencing_token == token(&self.w2);
        let charged = first.charged && second.charged && self.task.attempts_charged == 2;
        (text, named && tokens && charged && second.outcome() == Outcome::Succeeded)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;
    use crate::api::proto::{LateReport, LeaseRef};

    fn superseded(own: &str, current: &str) -> Status {
        let tokens = [("fencing_token", own), ("current_fencing_token", current)];
        let metadata: HashMap<String, String> = tokens.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let details = ErrorDetails::with_error_info("LEASE_SUPERSEDED", "leasehold", metadata);
        Status::with_error_details(Code::FailedPrecondition, "a newer lease has been handed out", details)
    }

    fn lease(token: i64) -> Lease {
        Lease { lease_ref: Some(LeaseRef { fencing_token: token, ..LeaseRef::default() }), ..Lease::default() }
    }

    fn attempt(number: i32, outcome: Outcome, stage: Stage) -> Attempt {
        let (worker_id, fencing_token) = (format!("w{number}"), i64::from(number) + 40);
        let (outcome, stage) = (outcome as i32, stage as i32);
        Attempt { number, fencing_token, worker_id, outcome, stage, charged: true, ..Attempt::default() }
    }

    /// What a server that keeps every promise answers.
    fn good() -> Seen {
        let receipt = "rcpt-push-41".to_owned();
        let late = LateReport { outcome: Outcome::Succeeded as i32, receipt_ref: receipt.clone(), ..LateReport::default() };
        let mut lost = attempt(1, Outcome::Expired, Stage::EffectBegun);
        lost.error_class = ErrorClass::Unknown as i32;
        lost.effect_ref = "push-41".to_owned();
        lost.late_reports = vec![late];
        let task = Task {
            uid: "u".to_owned(),
            state: TaskState::Completed as i32,
            terminal: true,
            attempt: 2,
            attempts_charged: 2,
            unknown_attempts: 1,
            fencing_token: 42,
            boundary: "provider_accepted".to_owned(),
            receipt_ref: receipt.clone(),
            ..Task::default()
        };
        Seen {
            first: SubmitResponse { task: Some(task.clone()), created: true, ..SubmitResponse::default() },
            again: SubmitResponse { task: Some(task.clone()), ..SubmitResponse::default() },
            w1: lease(41),
            lost: Task { state: TaskState::RetryAt as i32, unknown_attempts: 1, ..Task::default() },
            w2: Lease { unknown_attempts: vec![lost.clone()], ..lease(42) },
            completed: task.clone(),
            receipt,
            late: superseded("41", "42"),
            task,
            attempts: vec![lost, attempt(2, Outcome::Succeeded, Stage::Claimed)],
            pushes: 1,
        }
    }

    fn broken(seen: &Seen) -> Vec<String> {
        seen.promises().into_iter().filter(|(_, kept)| !kept).map(|(text, _)| text).collect()
    }

    #[test]
    fn each_broken_promise_is_noticed() {
        assert_eq!(broken(&good()), [] as [String; 0]);
        let breaks: [(&str, fn(&mut Seen)); 9] = [
            ("One fact", |seen| seen.again.created = true),
            ("Each lease", |seen| seen.w1 = lease(42)),
            ("A lease lost", |seen| seen.attempts[0].error_class = ErrorClass::Transient as i32),
            ("The next attempt", |seen| seen.w2.unknown_attempts.clear()),
            ("So the provider", |seen| seen.pushes = 2),
            ("The late report", |seen| seen.late = superseded("41", "41")),
            ("It changed", |seen| seen.task.receipt_ref = "another".to_owned()),
            ("And it was not lost", |seen| seen.attempts[0].late_reports.clear()),
            ("Each run", |seen| seen.attempts[1].charged = false),
        ];
        for (begin, break_it) in breaks {
            let mut seen = good();
            break_it(&mut seen);
            let noticed = broken(&seen);
            assert!(noticed.iter().any(|text| text.starts_with(begin)), "{begin}: {noticed:?}");
        }
    }
}
