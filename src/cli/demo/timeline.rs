//! The server's record of a task and its attempts, as lines in the order of time.

use prost_types::Timestamp;

use crate::api::proto::{Attempt, ErrorClass, LateReport, Outcome, Stage, Task, TaskState};

/// One line each: the time since the task was accepted, the attempt, and what became of it.
pub(super) fn timeline(task: &Task, attempts: &[Attempt]) -> Vec<String> {
    let mut moments = vec![(task.create_time, String::new(), accepted(task))];
    for attempt in attempts {
        let who = format!("attempt {}  token {:<4} {:<4}", attempt.number, attempt.fencing_token, attempt.worker_id);
        let mut add = |time: Option<Timestamp>, what: String| moments.extend(time.map(|time| (Some(time), who.clone(), what)));
        add(attempt.start_time, stage(Stage::Claimed).to_owned());
        add(attempt.effect_begun_time, format!("{} {}", stage(Stage::EffectBegun), attempt.effect_ref));
        add(attempt.end_time, ended(attempt));
        for late in &attempt.late_reports {
            add(late.report_time, format!("{}: refused, kept as evidence", reported(late)));
        }
    }
    moments.sort_by_key(|(time, ..)| time.map(|time| (time.seconds, time.nanos)));
    let lines =
        moments.into_iter().map(|(time, who, what)| format!("{:>9.3} s  {who:<26} {what}", between(task.create_time, time)));
    lines.collect()
}

/// What the task came to, in one line.
pub(super) fn summary(task: &Task) -> String {
    let boundary = if task.boundary.is_empty() { "none" } else { &task.boundary };
    let receipt = if task.receipt_ref.is_empty() { "none" } else { &task.receipt_ref };
    let (state, attempts, unknown) = (state(task.state()), task.attempt, task.unknown_attempts);
    format!("{state} · boundary {boundary} · receipt {receipt} · {attempts} attempts, {unknown} of them unknown")
}

fn accepted(task: &Task) -> String {
    let Some(spec) = &task.spec else { return "accepted".to_owned() };
    let subjects: Vec<String> = spec.subjects.iter().map(|subject| format!("{} v{}", subject.id, subject.version)).collect();
    format!("accepted, because of {}, for {}, about {}", spec.event_id, spec.target, subjects.join(" and "))
}

fn ended(attempt: &Attempt) -> String {
    let class = match attempt.error_class() {
        ErrorClass::Unspecified => String::new(),
        class => format!(", {}", error_class(class)),
    };
    let receipt = if attempt.receipt_ref.is_empty() { String::new() } else { format!(", receipt {}", attempt.receipt_ref) };
    let reached = stage(attempt.stage());
    format!("{}{class}{receipt} (had reached {reached})", outcome(attempt.outcome()))
}

fn reported(late: &LateReport) -> String {
    let receipt = if late.receipt_ref.is_empty() { String::new() } else { format!(", receipt {}", late.receipt_ref) };
    format!("late report {}{receipt}", outcome(late.outcome()))
}

/// Seconds from one instant of the database's clock to another.
fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> f64 {
    let (Some(from), Some(to)) = (from, to) else { return 0.0 };
    let micros = (to.seconds - from.seconds).saturating_mul(1_000_000) + i64::from((to.nanos - from.nanos) / 1_000);
    std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64()
}

pub(super) fn state(state: TaskState) -> &'static str {
    short(state.as_str_name(), "TASK_STATE_")
}

pub(super) fn outcome(outcome: Outcome) -> &'static str {
    short(outcome.as_str_name(), "OUTCOME_")
}

pub(super) fn error_class(class: ErrorClass) -> &'static str {
    short(class.as_str_name(), "ERROR_CLASS_")
}

pub(super) fn stage(stage: Stage) -> &'static str {
    short(stage.as_str_name(), "STAGE_")
}

fn short(name: &'static str, prefix: &str) -> &'static str {
    name.strip_prefix(prefix).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, millis: i32) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: millis * 1_000_000 })
    }

    #[test]
    fn a_late_report_stands_where_it_arrived_and_not_with_its_attempt() {
        let task = Task { create_time: at(99, 900), ..Task::default() };
        let report = LateReport { report_time: at(103, 0), outcome: Outcome::Succeeded as i32, ..LateReport::default() };
        let lost = Attempt {
            number: 1,
            fencing_token: 41,
            worker_id: "w1".to_owned(),
            stage: Stage::EffectBegun as i32,
            effect_ref: "push-41".to_owned(),
            start_time: at(100, 0),
            effect_begun_time: at(100, 150),
            end_time: at(101, 0),
            outcome: Outcome::Expired as i32,
            error_class: ErrorClass::Unknown as i32,
            late_reports: vec![report],
            ..Attempt::default()
        };
        let running =
            Attempt { number: 2, fencing_token: 42, worker_id: "w2".to_owned(), start_time: at(102, 0), ..Attempt::default() };
        assert_eq!(
            timeline(&task, &[lost, running])[1..],
            [
                "    0.100 s  attempt 1  token 41   w1   CLAIMED",
                "    0.250 s  attempt 1  token 41   w1   EFFECT_BEGUN push-41",
                "    1.100 s  attempt 1  token 41   w1   EXPIRED, UNKNOWN (had reached EFFECT_BEGUN)",
                "    2.100 s  attempt 2  token 42   w2   CLAIMED",
                "    3.100 s  attempt 1  token 41   w1   late report SUCCEEDED: refused, kept as evidence",
            ]
        );
    }
}
