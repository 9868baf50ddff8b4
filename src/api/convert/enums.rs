//! The contract's enums from and to the domain's. A new value of either side doesn't compile until it is told here.

use crate::api::proto as pb;
use crate::domain::event::EventKind;
use crate::domain::queue::{OnRepair, OnUnknown};
use crate::domain::repair::{ActionKind, RepairState};
use crate::domain::task::{Cause, ErrorClass, Outcome, Stage, State};
use crate::engine::ObstacleKind;

pub fn to_state(state: State) -> pb::TaskState {
    match state {
        State::Scheduled => pb::TaskState::Scheduled,
        State::Blocked => pb::TaskState::Blocked,
        State::Ready => pb::TaskState::Ready,
        State::Leased => pb::TaskState::Leased,
        State::RetryAt => pb::TaskState::RetryAt,
        State::Completed => pb::TaskState::Completed,
        State::Skipped => pb::TaskState::Skipped,
        State::Canceled => pb::TaskState::Canceled,
        State::RepairRequired => pb::TaskState::RepairRequired,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn state(value: i32) -> Option<State> {
    Some(match pb::TaskState::try_from(value).ok()? {
        pb::TaskState::Unspecified => return None,
        pb::TaskState::Scheduled => State::Scheduled,
        pb::TaskState::Blocked => State::Blocked,
        pb::TaskState::Ready => State::Ready,
        pb::TaskState::Leased => State::Leased,
        pb::TaskState::RetryAt => State::RetryAt,
        pb::TaskState::Completed => State::Completed,
        pb::TaskState::Skipped => State::Skipped,
        pb::TaskState::Canceled => State::Canceled,
        pb::TaskState::RepairRequired => State::RepairRequired,
    })
}

pub fn to_error_class(class: ErrorClass) -> pb::ErrorClass {
    match class {
        ErrorClass::Transient => pb::ErrorClass::Transient,
        ErrorClass::Permanent => pb::ErrorClass::Permanent,
        ErrorClass::Unknown => pb::ErrorClass::Unknown,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn error_class(value: i32) -> Option<ErrorClass> {
    Some(match pb::ErrorClass::try_from(value).ok()? {
        pb::ErrorClass::Unspecified => return None,
        pb::ErrorClass::Transient => ErrorClass::Transient,
        pb::ErrorClass::Permanent => ErrorClass::Permanent,
        pb::ErrorClass::Unknown => ErrorClass::Unknown,
    })
}

/// Whether the view is FULL. Absence: a value that we don't know.
pub fn full_view(value: i32) -> Option<bool> {
    Some(match pb::TaskView::try_from(value).ok()? {
        pb::TaskView::Unspecified | pb::TaskView::Basic => false,
        pb::TaskView::Full => true,
    })
}

pub fn to_cause(cause: Cause) -> pb::Cause {
    match cause {
        Cause::Requested => pb::Cause::Requested,
        Cause::Superseded => pb::Cause::Superseded,
        Cause::Revoked => pb::Cause::Revoked,
        Cause::Worker => pb::Cause::Worker,
        Cause::PermanentError => pb::Cause::PermanentError,
        Cause::OutcomeUnknown => pb::Cause::OutcomeUnknown,
        Cause::AttemptsExhausted => pb::Cause::AttemptsExhausted,
        Cause::DeadlinePassed => pb::Cause::DeadlinePassed,
        Cause::Stuck => pb::Cause::Stuck,
    }
}

pub fn to_event_kind(kind: EventKind) -> pb::TaskEventKind {
    match kind {
        EventKind::Submitted => pb::TaskEventKind::Submitted,
        EventKind::Ready => pb::TaskEventKind::Ready,
        EventKind::Unblocked => pb::TaskEventKind::Unblocked,
        EventKind::Leased => pb::TaskEventKind::Leased,
        EventKind::EffectBegun => pb::TaskEventKind::EffectBegun,
        EventKind::RetryPlanned => pb::TaskEventKind::RetryPlanned,
        EventKind::Released => pb::TaskEventKind::Released,
        EventKind::Ended => pb::TaskEventKind::Ended,
        EventKind::CancelRequested => pb::TaskEventKind::CancelRequested,
        EventKind::LateReport => pb::TaskEventKind::LateReport,
        EventKind::Receipt => pb::TaskEventKind::Receipt,
    }
}

pub fn to_stage(stage: Stage) -> pb::Stage {
    match stage {
        Stage::Claimed => pb::Stage::Claimed,
        Stage::EffectBegun => pb::Stage::EffectBegun,
    }
}

pub fn to_outcome(outcome: Outcome) -> pb::Outcome {
    match outcome {
        Outcome::Succeeded => pb::Outcome::Succeeded,
        Outcome::Failed => pb::Outcome::Failed,
        Outcome::Skipped => pb::Outcome::Skipped,
        Outcome::Canceled => pb::Outcome::Canceled,
        Outcome::Released => pb::Outcome::Released,
        Outcome::Expired => pb::Outcome::Expired,
    }
}

pub fn to_obstacle(kind: ObstacleKind) -> pb::ObstacleKind {
    match kind {
        ObstacleKind::NotYet => pb::ObstacleKind::NotYet,
        ObstacleKind::BackingOff => pb::ObstacleKind::BackingOff,
        ObstacleKind::BehindKey => pb::ObstacleKind::BehindKey,
        ObstacleKind::KeyHeld => pb::ObstacleKind::KeyHeld,
        ObstacleKind::ShareAtCap => pb::ObstacleKind::ShareAtCap,
        ObstacleKind::QueueAtCap => pb::ObstacleKind::QueueAtCap,
        ObstacleKind::RateLimited => pb::ObstacleKind::RateLimited,
        ObstacleKind::QueuePaused => pb::ObstacleKind::QueuePaused,
        ObstacleKind::NoWorker => pb::ObstacleKind::NoWorker,
        ObstacleKind::AheadInShare => pb::ObstacleKind::AheadInShare,
        ObstacleKind::Unreadable => pb::ObstacleKind::Unreadable,
        ObstacleKind::Running => pb::ObstacleKind::Running,
        ObstacleKind::Terminal => pb::ObstacleKind::Terminal,
    }
}

pub fn to_on_unknown(on_unknown: OnUnknown) -> pb::OnUnknown {
    match on_unknown {
        OnUnknown::Retry => pb::OnUnknown::Retry,
        OnUnknown::Repair => pb::OnUnknown::Repair,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn on_unknown(value: i32) -> Option<OnUnknown> {
    Some(match pb::OnUnknown::try_from(value).ok()? {
        pb::OnUnknown::Unspecified => return None,
        pb::OnUnknown::Retry => OnUnknown::Retry,
        pb::OnUnknown::Repair => OnUnknown::Repair,
    })
}

pub fn to_on_repair(on_repair: OnRepair) -> pb::OnRepair {
    match on_repair {
        OnRepair::Continue => pb::OnRepair::Continue,
        OnRepair::Hold => pb::OnRepair::Hold,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn on_repair(value: i32) -> Option<OnRepair> {
    Some(match pb::OnRepair::try_from(value).ok()? {
        pb::OnRepair::Unspecified => return None,
        pb::OnRepair::Continue => OnRepair::Continue,
        pb::OnRepair::Hold => OnRepair::Hold,
    })
}

pub fn to_repair_state(state: RepairState) -> pb::RepairState {
    match state {
        RepairState::Open => pb::RepairState::Open,
        RepairState::Replayed => pb::RepairState::Replayed,
        RepairState::Discarded => pb::RepairState::Discarded,
        RepairState::Confirmed => pb::RepairState::Confirmed,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn repair_state(value: i32) -> Option<RepairState> {
    Some(match pb::RepairState::try_from(value).ok()? {
        pb::RepairState::Unspecified => return None,
        pb::RepairState::Open => RepairState::Open,
        pb::RepairState::Replayed => RepairState::Replayed,
        pb::RepairState::Discarded => RepairState::Discarded,
        pb::RepairState::Confirmed => RepairState::Confirmed,
    })
}

pub fn to_action_kind(kind: ActionKind) -> pb::RepairActionKind {
    match kind {
        ActionKind::Assigned => pb::RepairActionKind::Assigned,
        ActionKind::Replayed => pb::RepairActionKind::Replayed,
        ActionKind::Discarded => pb::RepairActionKind::Discarded,
        ActionKind::Confirmed => pb::RepairActionKind::Confirmed,
        ActionKind::Refused => pb::RepairActionKind::Refused,
    }
}

/// Absence: UNSPECIFIED, or a value that we don't know.
pub fn cause(value: i32) -> Option<Cause> {
    Cause::ALL.iter().copied().find(|&cause| to_cause(cause) as i32 == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enum_that_comes_in_comes_back_under_its_own_name() {
        for &value in State::ALL {
            assert_eq!(state(to_state(value) as i32), Some(value));
            assert_eq!(to_state(value).as_str_name(), format!("TASK_STATE_{}", value.as_str()));
        }
        for &value in ErrorClass::ALL {
            assert_eq!(error_class(to_error_class(value) as i32), Some(value));
        }
        for &value in RepairState::ALL {
            assert_eq!(repair_state(to_repair_state(value) as i32), Some(value));
            assert_eq!(to_repair_state(value).as_str_name(), format!("REPAIR_STATE_{}", value.as_str()));
        }
        for &value in OnUnknown::ALL {
            assert_eq!(on_unknown(to_on_unknown(value) as i32), Some(value));
            assert_eq!(to_on_unknown(value).as_str_name(), format!("ON_UNKNOWN_{}", value.as_str()));
        }
        for &value in OnRepair::ALL {
            assert_eq!(on_repair(to_on_repair(value) as i32), Some(value));
            assert_eq!(to_on_repair(value).as_str_name(), format!("ON_REPAIR_{}", value.as_str()));
        }
        assert_eq!((state(0), state(99), error_class(0), full_view(7)), (None, None, None, None));
    }

    #[test]
    fn the_stored_names_are_the_contracts_names() {
        for &kind in ActionKind::ALL {
            assert_eq!(to_action_kind(kind).as_str_name(), format!("REPAIR_ACTION_KIND_{}", kind.as_str()));
        }
        for &value in Cause::ALL {
            assert_eq!(cause(to_cause(value) as i32), Some(value));
        }
        for &cause in Cause::ALL {
            assert_eq!(to_cause(cause).as_str_name(), format!("CAUSE_{}", cause.as_str()));
        }
        for &kind in EventKind::ALL {
            assert_eq!(to_event_kind(kind).as_str_name(), format!("TASK_EVENT_KIND_{}", kind.as_str()));
        }
        for &stage in Stage::ALL {
            assert_eq!(to_stage(stage).as_str_name(), format!("STAGE_{}", stage.as_str()));
        }
        for &outcome in Outcome::ALL {
            assert_eq!(to_outcome(outcome).as_str_name(), format!("OUTCOME_{}", outcome.as_str()));
        }
    }
}
