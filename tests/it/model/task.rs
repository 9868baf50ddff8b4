//! A task as the model knows it.

use leasehold::api::proto::{Cause, TaskState as State};

use super::words::{Said, Wish};

/// An instant: the unit, then the round in which the instant was fixed.
pub type At = (u32, u32);

#[derive(Clone, Debug)]
pub struct Attempt {
    pub token: i64,
    pub charged: bool,
    pub begun: Option<String>,
    pub unknown: bool,
    /// The report that ended it.
    pub said: Option<Said>,
    pub late: Vec<Said>,
}

#[derive(Clone, Debug)]
pub struct Held {
    pub expire: At,
    pub reports_effect: bool,
    pub request: Option<u32>,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub wish: Wish,
    /// How many were accepted before it.
    pub place: usize,
    pub state: State,
    pub cause: Option<Cause>,
    /// It was told to stop, for this reason.
    pub cancel: Option<Cause>,
    pub attempts: Vec<Attempt>,
    /// Kind, state and attempt of each.
    pub events: Vec<String>,
    pub deadline: At,
    pub wake: Option<At>,
    /// Since when it is READY, for who is next.
    pub rank: At,
    pub held: Option<Held>,
}

impl Task {
    pub fn token(&self) -> i64 {
        self.attempts.last().map_or(0, |attempt| attempt.token)
    }

    pub fn charged(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.charged).count()
    }

    pub fn unknown(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.unknown).count()
    }

    pub fn terminal(&self) -> bool {
        matches!(self.state, State::Completed | State::Skipped | State::Canceled | State::RepairRequired)
    }

    pub fn note(&mut self, kind: &str, attempt: usize) {
        let state = self.state.as_str_name().trim_start_matches("TASK_STATE_");
        self.events.push(format!("{kind}>{state}#{attempt}"));
    }

    /// The lease, if there is one, is over; the task is now in another state.
    pub fn leave(&mut self, state: State, kind: &str) {
        let attempt = if self.held.take().is_some() { self.attempts.len() } else { 0 };
        self.state = state;
        self.note(kind, attempt);
    }

    pub fn end(&mut self, state: State, cause: Option<Cause>) {
        self.cause = cause;
        self.leave(state, "ENDED");
        self.wake = None;
    }

    pub fn retry_or_repair(&mut self, now: At) {
        let wake = (now.0 + self.wish.backoff, now.1);
        if self.charged() >= self.wish.max_attempts as usize {
            self.end(State::RepairRequired, Some(Cause::AttemptsExhausted));
        } else if wake >= self.deadline {
            self.end(State::RepairRequired, Some(Cause::DeadlinePassed));
        } else {
            self.wake = Some(wake);
            self.leave(State::RetryAt, "RETRY_PLANNED");
        }
    }
}
