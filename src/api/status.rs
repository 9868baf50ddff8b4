//! The one map from a refusal to what gRPC says: `Status` for a call, `google.rpc.Status` for one item of a batch, with the same
//! details. Refusals are logged here, once, and nowhere else.
//!
//! Every error carries an ErrorInfo with the domain `leasehold`. Payloads and the values of bad fields never appear.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use prost_types::Any;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::pb;

use super::cursor;
use super::times::{rfc3339, to_span};
use crate::domain::refusal::{BadField, Missing, Refusal};
use crate::domain::spec::cut;

/// The domain of every ErrorInfo.
pub const DOMAIN: &str = "leasehold";
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// How soon to come back when the server can't tell better.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// What the bad fields of one answer may take, in bytes: details travel in trailers, which clients bound (some to 8 KiB).
const BAD_FIELDS_BYTES: usize = 3 * 1024;
/// What one text in an ErrorInfo or a message may take, for the same reason.
const TEXT_BYTES: usize = 512;

/// The refusal of a call.
pub fn status(refusal: Refusal) -> Status {
    let pushback = match refusal {
        Refusal::QueueFull { retry_after, .. } | Refusal::ShareFull { retry_after, .. } => Some(retry_after),
        Refusal::Overloaded => Some(RETRY_SOON),
        _ => None,
    };
    let error = item_error(refusal);
    let mut metadata = MetadataMap::new();
    if let Some(after) = pushback {
        metadata.insert(PUSHBACK, MetadataValue::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
    }
    let details = error.encode_to_vec().into();
    Status::with_details_and_metadata(Code::from_i32(error.code), error.message, details, metadata)
}

/// The refusal of one item of a batch.
pub fn item_error(refusal: Refusal) -> pb::Status {
    log(&refusal);
    let (code, reason) = code_and_reason(&refusal);
    let info = pb::ErrorInfo { reason: reason.to_owned(), domain: DOMAIN.to_owned(), metadata: metadata(&refusal) };
    let mut details = vec![any("ErrorInfo", &info)];
    let message = message(&refusal);
    details.extend(more_details(refusal));
    pb::Status { code: code as i32, message, details }
}

fn log(refusal: &Refusal) {
    match refusal {
        Refusal::Bug(text) => tracing::error!(reason = "BUG", "{text}"),
        Refusal::DatabaseUnavailable => tracing::warn!(reason = "DATABASE_UNAVAILABLE", "{refusal}"),
        _ => tracing::debug!(reason = code_and_reason(refusal).1, "{refusal}"),
    }
}

fn code_and_reason(refusal: &Refusal) -> (Code, &'static str) {
    match refusal {
        Refusal::InvalidField(_) => (Code::InvalidArgument, "INVALID_FIELD"),
        Refusal::TooLarge { .. } => (Code::InvalidArgument, "TOO_LARGE"),
        Refusal::NotFound { what: Missing::Task, .. } => (Code::NotFound, "TASK_NOT_FOUND"),
        Refusal::NotFound { what: Missing::Queue, .. } => (Code::NotFound, "QUEUE_NOT_FOUND"),
        Refusal::NotFound { what: Missing::Subject, .. } => (Code::NotFound, "SUBJECT_NOT_FOUND"),
        Refusal::NotFound { what: Missing::Repair, .. } => (Code::NotFound, "REPAIR_NOT_FOUND"),
        Refusal::RepairResolved { .. } => (Code::FailedPrecondition, "REPAIR_RESOLVED"),
        Refusal::PayloadErased => (Code::FailedPrecondition, "PAYLOAD_ERASED"),
        Refusal::TaskIdConflict { .. } => (Code::AlreadyExists, "TASK_ID_CONFLICT"),
        Refusal::LeaseSuperseded { .. } => (Code::FailedPrecondition, "LEASE_SUPERSEDED"),
        Refusal::LeaseExpired { .. } => (Code::FailedPrecondition, "LEASE_EXPIRED"),
        Refusal::TaskDeadlinePassed { .. } => (Code::FailedPrecondition, "TASK_DEADLINE_PASSED"),
        Refusal::CancelRequested { .. } => (Code::FailedPrecondition, "CANCEL_REQUESTED"),
        Refusal::TaskTerminal { .. } => (Code::FailedPrecondition, "TASK_TERMINAL"),
        Refusal::SubjectStale { .. } => (Code::FailedPrecondition, "SUBJECT_STALE"),
        Refusal::EffectBegun { .. } => (Code::FailedPrecondition, "EFFECT_BEGUN"),
        Refusal::ReceiptsFull { .. } => (Code::FailedPrecondition, "RECEIPTS_FULL"),
        Refusal::QueueFull { .. } => (Code::ResourceExhausted, "QUEUE_FULL"),
        Refusal::ShareFull { .. } => (Code::ResourceExhausted, "SHARE_FULL"),
        Refusal::EtagMismatch { .. } => (Code::Aborted, "ETAG_MISMATCH"),
        Refusal::CursorExpired { .. } => (Code::OutOfRange, "CURSOR_EXPIRED"),
        Refusal::WatcherTooSlow { .. } => (Code::ResourceExhausted, "WATCHER_TOO_SLOW"),
        Refusal::DatabaseUnavailable => (Code::Unavailable, "DATABASE_UNAVAILABLE"),
        Refusal::Overloaded => (Code::Unavailable, "OVERLOADED"),
        Refusal::Draining | Refusal::WatchDrained { .. } | Refusal::WatchAged { .. } => (Code::Unavailable, "DRAINING"),
        Refusal::CallerDeadline => (Code::DeadlineExceeded, "CALLER_DEADLINE"),
        Refusal::NotOffered(_) => (Code::Unimplemented, "NOT_OFFERED"),
        Refusal::Bug(_) => (Code::Internal, "BUG"),
    }
}

/// For people. Programs read the reason and its metadata.
fn message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Bug(_) => "a fault of the server, which has logged it".to_owned(),
        Refusal::InvalidField(bad) => match bad.as_slice() {
            [] => refusal.to_string(),
            [first] => format!("{} {}", cut(&first.path, TEXT_BYTES), first.text),
            [first, rest @ ..] => format!("{} {} (and {} more)", cut(&first.path, TEXT_BYTES), first.text, rest.len()),
        },
        Refusal::CancelRequested { reason, .. } if !reason.is_empty() => format!("{refusal}: {}", cut(reason, TEXT_BYTES)),
        _ => refusal.to_string(),
    }
}

fn metadata(refusal: &Refusal) -> HashMap<String, String> {
    let pairs: Vec<(&str, String)> = match refusal {
        Refusal::TooLarge { limit, .. } => vec![("limit", limit.to_string())],
        Refusal::TaskIdConflict { digest, state, uid } => {
            vec![("digest", digest.clone()), ("state", state.as_str().to_owned()), ("uid", uid.to_string())]
        }
        Refusal::LeaseSuperseded { token, current, state } => vec![
            ("fencing_token", token.to_string()),
            ("current_fencing_token", current.to_string()),
            ("state", state.as_str().to_owned()),
        ],
        Refusal::LeaseExpired { token, since, state } => {
            let mut pairs = vec![("fencing_token", token.to_string()), ("state", state.as_str().to_owned())];
            pairs.extend(since.map(|since| ("expire_time", rfc3339(since))));
            pairs
        }
        Refusal::TaskDeadlinePassed { deadline } => vec![("deadline_time", rfc3339(*deadline))],
        Refusal::CancelRequested { cause, .. } => vec![("cause", cause.as_str().to_owned())],
        Refusal::TaskTerminal { state } => vec![("state", state.as_str().to_owned())],
        Refusal::RepairResolved { state } => vec![("state", state.as_str().to_owned())],
        Refusal::SubjectStale { subject, version, floor } => vec![
            ("subject_id", cut(subject, TEXT_BYTES).to_owned()),
            ("version", version.to_string()),
            ("floor", floor.map_or_else(|| "revoked".to_owned(), |floor| floor.to_string())),
        ],
        Refusal::EffectBegun { effect_ref } => vec![("effect_ref", cut(effect_ref, TEXT_BYTES).to_owned())],
        Refusal::QueueFull { limit, .. } | Refusal::ShareFull { limit, .. } => vec![("limit", limit.to_string())],
        Refusal::ReceiptsFull { limit } => vec![("limit", limit.to_string())],
        Refusal::EtagMismatch { current } => vec![("etag", current.clone())],
        Refusal::CursorExpired { oldest } => vec![("oldest_cursor", cursor::encode(*oldest))],
        Refusal::WatcherTooSlow { last } => vec![("last_cursor", cursor::encode(*last))],
        Refusal::WatchDrained { last } | Refusal::WatchAged { last } => {
            last.iter().map(|last| ("last_cursor", cursor::encode(*last))).collect()
        }
        Refusal::InvalidField(_)
        | Refusal::NotFound { .. }
        | Refusal::PayloadErased
        | Refusal::DatabaseUnavailable
        | Refusal::Overloaded
        | Refusal::Draining
        | Refusal::CallerDeadline
        | Refusal::NotOffered(_)
        | Refusal::Bug(_) => Vec::new(),
    };
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The typed details beside the ErrorInfo.
fn more_details(refusal: Refusal) -> Vec<Any> {
    match refusal {
        Refusal::InvalidField(bad) => vec![any("BadRequest", &bad_request(bad))],
        Refusal::TooLarge { path, limit } => {
            let text = format!("must not be larger than {limit} bytes");
            vec![any("BadRequest", &bad_request(vec![BadField { path, text }]))]
        }
        Refusal::NotFound { what, name } => {
            let resource_type = match what {
                Missing::Task => "task",
                Missing::Queue => "queue",
                Missing::Subject => "subject",
                Missing::Repair => "repair",
            };
            let info = pb::ResourceInfo {
                resource_type: resource_type.to_owned(),
                resource_name: name,
                owner: String::new(),
                description: String::new(),
            };
            vec![any("ResourceInfo", &info)]
        }
        Refusal::QueueFull { limit, retry_after } => full("queue", limit, retry_after),
        Refusal::ShareFull { limit, retry_after } => full("share", limit, retry_after),
        Refusal::DatabaseUnavailable
        | Refusal::Overloaded
        | Refusal::Draining
        | Refusal::WatchDrained { .. }
        | Refusal::WatchAged { .. } => {
            vec![retry_info(RETRY_SOON)]
        }
        _ => Vec::new(),
    }
}

/// As many of the bad fields as trailers can carry, and how many there are beside them.
fn bad_request(bad: Vec<BadField>) -> pb::BadRequest {
    let all = bad.len();
    let mut room = BAD_FIELDS_BYTES;
    let mut violations = Vec::new();
    for field in bad {
        let size = field.path.len() + field.text.len();
        if size > room {
            break;
        }
        room -= size;
        violations.push(violation(field.path, field.text));
    }
    if violations.len() < all {
        violations.push(violation(String::new(), format!("and {} more", all - violations.len())));
    }
    pb::BadRequest { field_violations: violations }
}

fn violation(field: String, description: String) -> pb::bad_request::FieldViolation {
    pb::bad_request::FieldViolation { field, description, ..Default::default() }
}

fn full(what: &str, limit: i64, retry_after: Duration) -> Vec<Any> {
    let violation = pb::quota_failure::Violation {
        subject: format!("{what}:max_unfinished"),
        description: format!("the {what} may have {limit} unfinished tasks"),
        ..Default::default()
    };
    vec![any("QuotaFailure", &pb::QuotaFailure { violations: vec![violation] }), retry_info(retry_after)]
}

fn retry_info(after: Duration) -> Any {
    any("RetryInfo", &pb::RetryInfo { retry_delay: Some(to_span(after)) })
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/google.rpc.{name}"), value: message.encode_to_vec() }
}

#[cfg(test)]
mod tests;
