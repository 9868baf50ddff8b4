//! A change of policy: what it doesn't name stays as it is stored.

use std::time::Duration;

use super::{OnRepair, OnUnknown, Policy, Retention};
use crate::domain::budget::BudgetEdit;
use crate::domain::refusal::Refusal;
use crate::domain::retry::RetryPolicy;

/// What becomes of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edit<T> {
    #[default]
    Keep,
    /// Back to the default.
    Clear,
    Set(T),
}

impl<T: Clone> Edit<T> {
    pub fn over(&self, stored: T, default: T) -> T {
        match self {
            Edit::Keep => stored,
            Edit::Clear => default,
            Edit::Set(value) => value.clone(),
        }
    }
}

/// A change of a queue's policy, field by field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyEdit {
    pub boundary: Edit<String>,
    pub paused: Edit<bool>,
    pub on_unknown: Edit<OnUnknown>,
    pub on_repair: Edit<OnRepair>,
    pub retry: RetryEdit,
    pub default_ttl: Edit<Duration>,
    pub lease_duration: Edit<Duration>,
    pub priority_step: Edit<Duration>,
    pub deadline_margin: Edit<Duration>,
    pub retention: RetentionEdit,
    pub budgets: BudgetEdit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetentionEdit {
    pub payload: Edit<Duration>,
    pub result: Edit<Duration>,
    pub evidence: Edit<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetryEdit {
    pub max_attempts: Edit<i32>,
    pub initial_backoff: Edit<Duration>,
    pub max_backoff: Edit<Duration>,
    pub multiplier: Edit<f64>,
    pub jitter: Edit<f64>,
}

impl Policy {
    /// This policy after the change. Refused when what is told and what is stored contradict each other.
    pub fn edited(self, edit: &PolicyEdit) -> Result<Policy, Refusal> {
        let default = Policy::default();
        Ok(Policy {
            boundary: edit.boundary.over(self.boundary, default.boundary),
            paused: edit.paused.over(self.paused, default.paused),
            on_unknown: edit.on_unknown.over(self.on_unknown, default.on_unknown),
            on_repair: edit.on_repair.over(self.on_repair, default.on_repair),
            retry: self.retry.edited(&edit.retry)?,
            default_ttl: edit.default_ttl.over(self.default_ttl, default.default_ttl),
            lease_duration: edit.lease_duration.over(self.lease_duration, default.lease_duration),
            priority_step: edit.priority_step.over(self.priority_step, default.priority_step),
            deadline_margin: edit.deadline_margin.over(self.deadline_margin, default.deadline_margin),
            retention: self.retention.edited(&edit.retention)?,
            stalled: self.stalled,
            budgets: self.budgets.edited(&edit.budgets),
        })
    }
}

impl RetryPolicy {
    fn edited(self, edit: &RetryEdit) -> Result<RetryPolicy, Refusal> {
        let default = RetryPolicy::default();
        let after = RetryPolicy {
            max_attempts: edit.max_attempts.over(self.max_attempts, default.max_attempts),
            initial_backoff: edit.initial_backoff.over(self.initial_backoff, default.initial_backoff),
            max_backoff: edit.max_backoff.over(self.max_backoff, default.max_backoff),
            multiplier: edit.multiplier.over(self.multiplier, default.multiplier),
            jitter: edit.jitter.over(self.jitter, default.jitter),
        };
        if after.initial_backoff <= after.max_backoff {
            return Ok(after);
        }
        // Whichever of the two the change names is at fault; the other one was fine as it was stored.
        Err(match edit.max_backoff {
            Edit::Keep => Refusal::field("queue.retry.initial_backoff", "must not be longer than the queue's max_backoff"),
            _ => Refusal::field("queue.retry.max_backoff", "must not be shorter than the queue's initial_backoff"),
        })
    }
}

impl Retention {
    fn edited(self, edit: &RetentionEdit) -> Result<Retention, Refusal> {
        let over = |edit: &Edit<Duration>, stored: Option<Duration>| match edit {
            Edit::Keep => stored,
            Edit::Clear => None,
            Edit::Set(value) => Some(*value),
        };
        let after = Retention {
            payload: over(&edit.payload, self.payload),
            result: over(&edit.result, self.result),
            evidence: over(&edit.evidence, self.evidence),
        };
        // What is kept for ever still goes with the task itself, so only what is told must agree.
        let part = [("payload_retention", edit.payload, after.payload), ("result_retention", edit.result, after.result)];
        let longer = part.into_iter().find(|(_, _, kept)| kept.zip(after.evidence).is_some_and(|(kept, all)| kept > all));
        match longer {
            None => Ok(after),
            Some((name, Edit::Set(_), _)) if edit.evidence == Edit::Keep => {
                Err(Refusal::field(format!("queue.{name}"), "must not be longer than the queue's evidence_retention"))
            }
            Some((name, ..)) => {
                Err(Refusal::field("queue.evidence_retention", format!("must not be shorter than the queue's {name}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::budget::{Budgets, Rate};

    const SECOND: Duration = Duration::from_secs(1);

    fn configured() -> Policy {
        Policy {
            boundary: "provider_accepted".to_owned(),
            paused: true,
            on_unknown: OnUnknown::Repair,
            on_repair: OnRepair::Hold,
            retry: RetryPolicy {
                max_attempts: 7,
                initial_backoff: 2 * SECOND,
                max_backoff: 9 * SECOND,
                multiplier: 3.0,
                jitter: 0.5,
            },
            default_ttl: 11 * SECOND,
            lease_duration: 12 * SECOND,
            priority_step: 13 * SECOND,
            deadline_margin: 14 * SECOND,
            retention: Retention { payload: Some(15 * SECOND), result: Some(16 * SECOND), evidence: Some(17 * SECOND) },
            stalled: None,
            budgets: Budgets {
                max_in_flight: Some(15),
                rate: Some(Rate { per_second: 16.0, burst: 17 }),
                max_unfinished: Some(18),
            },
        }
    }

    #[test]
    fn what_a_change_does_not_name_stays_as_it_is_stored() {
        assert_eq!(configured().edited(&PolicyEdit::default()), Ok(configured()));
        let one = PolicyEdit { lease_duration: Edit::Set(SECOND), ..PolicyEdit::default() };
        assert_eq!(configured().edited(&one), Ok(Policy { lease_duration: SECOND, ..configured() }));
        let part = RetryEdit { jitter: Edit::Set(0.0), ..RetryEdit::default() };
        let after = configured().edited(&PolicyEdit { retry: part, ..PolicyEdit::default() });
        assert_eq!(after.map(|policy| policy.retry), Ok(RetryPolicy { jitter: 0.0, ..configured().retry }));
    }

    #[test]
    fn clearing_every_field_leads_back_to_the_default() {
        let all = PolicyEdit {
            boundary: Edit::Clear,
            paused: Edit::Clear,
            on_unknown: Edit::Clear,
            on_repair: Edit::Clear,
            retry: RetryEdit {
                max_attempts: Edit::Clear,
                initial_backoff: Edit::Clear,
                max_backoff: Edit::Clear,
                multiplier: Edit::Clear,
                jitter: Edit::Clear,
            },
            default_ttl: Edit::Clear,
            lease_duration: Edit::Clear,
            priority_step: Edit::Clear,
            deadline_margin: Edit::Clear,
            retention: RetentionEdit { payload: Edit::Clear, result: Edit::Clear, evidence: Edit::Clear },
            budgets: BudgetEdit { max_in_flight: Edit::Clear, rate: Edit::Clear, max_unfinished: Edit::Clear },
        };
        assert_eq!(configured().edited(&all), Ok(Policy::default()));
    }

    #[test]
    fn nothing_is_kept_for_longer_than_the_task_itself() {
        let told = |retention| configured().edited(&PolicyEdit { retention, ..PolicyEdit::default() });
        let path = |refused: Result<Policy, Refusal>| match refused {
            Err(Refusal::InvalidField(bad)) => bad[0].path.clone(),
            other => panic!("{other:?}"),
        };
        let long = RetentionEdit { payload: Edit::Set(18 * SECOND), ..RetentionEdit::default() };
        assert_eq!(path(told(long)), "queue.payload_retention");
        let short = RetentionEdit { evidence: Edit::Set(SECOND), ..RetentionEdit::default() };
        assert_eq!(path(told(short)), "queue.evidence_retention");
        assert!(told(RetentionEdit { evidence: Edit::Clear, ..long }).is_ok());
        assert!(told(RetentionEdit { payload: Edit::Clear, result: Edit::Set(SECOND), ..short }).is_ok());
    }

    #[test]
    fn backoffs_must_agree_with_each_other_after_the_merge_and_not_only_in_the_request() {
        let told = |retry| configured().edited(&PolicyEdit { retry, ..PolicyEdit::default() });
        let path = |refused: Result<Policy, Refusal>| match refused {
            Err(Refusal::InvalidField(bad)) => bad[0].path.clone(),
            other => panic!("{other:?}"),
        };
        let long = RetryEdit { initial_backoff: Edit::Set(10 * SECOND), ..RetryEdit::default() };
        assert_eq!(path(told(long)), "queue.retry.initial_backoff");
        let short = RetryEdit { max_backoff: Edit::Set(SECOND), ..RetryEdit::default() };
        assert_eq!(path(told(short)), "queue.retry.max_backoff");
        assert!(told(RetryEdit { max_backoff: Edit::Set(20 * SECOND), ..long }).is_ok());
    }
}
