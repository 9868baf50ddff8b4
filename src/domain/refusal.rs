//! Every way in which Leasehold says no, once. `api/status.rs` maps them to gRPC, and nothing else does.

use std::time::Duration;

use super::repair::RepairState;
use super::task::{Cause, State};
use super::time::Timestamp;

/// One field that could not be read, by its path in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadField {
    pub path: String,
    pub text: String,
}

/// What there is no such thing of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Task,
    Queue,
    Subject,
    Repair,
}

/// Why a call, or one item of it, was not carried out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("the request has fields that can't be read")]
    InvalidField(Vec<BadField>),
    #[error("{path} is larger than {limit} bytes")]
    TooLarge { path: String, limit: usize },
    #[error("there is no such {what:?}: {name}")]
    NotFound { what: Missing, name: String },
    #[error("the task id is taken by a task with other content")]
    TaskIdConflict { digest: String, state: State, uid: uuid::Uuid },
    #[error("a newer lease has been handed out: your token is {token}, the current one {current}")]
    LeaseSuperseded { token: i64, current: i64, state: State },
    #[error("the lease has ended")]
    LeaseExpired { token: i64, since: Option<Timestamp>, state: State },
    #[error("the task's deadline has passed")]
    TaskDeadlinePassed { deadline: Timestamp },
    #[error("the task was asked to stop")]
    CancelRequested { cause: Cause, reason: String },
    #[error("the task has already ended")]
    TaskTerminal { state: State },
    #[error("a newer version of the task's subject is in force")]
    SubjectStale {
        subject: String,
        version: i64,
        /// Absent: the subject is revoked.
        floor: Option<i64>,
    },
    #[error("the effect has already begun")]
    EffectBegun { effect_ref: String },
    #[error("the task has as many receipts as it may")]
    ReceiptsFull { limit: usize },
    #[error("the queue has as many unfinished tasks as it may")]
    QueueFull { limit: i64, retry_after: Duration },
    #[error("the share has as many unfinished tasks as it may")]
    ShareFull { limit: i64, retry_after: Duration },
    #[error("the repair was resolved otherwise")]
    RepairResolved { state: RepairState },
    #[error("the payload was erased by retention: a replay needs a new one")]
    PayloadErased,
    #[error("what is stored has changed: its etag is another one")]
    EtagMismatch { current: String },
    /// `oldest`: the lowest position after which the log is whole.
    #[error("events after the cursor are no longer kept")]
    CursorExpired { oldest: i64 },
    /// `last`: the position up to which everything was delivered.
    #[error("the watcher can't keep up with the log")]
    WatcherTooSlow { last: i64 },
    #[error("the database does not answer")]
    DatabaseUnavailable,
    #[error("the server carries as much as it may")]
    Overloaded,
    #[error("the server is draining")]
    Draining,
    /// `last` as in `WatcherTooSlow`; absent: its snapshot was not complete, so there is nothing to resume after.
    #[error("the server is draining")]
    WatchDrained { last: Option<i64> },
    /// `last` as in `WatchDrained`.
    #[error("the connection has grown old: open another one and resume")]
    WatchAged { last: Option<i64> },
    #[error("the caller's deadline has passed")]
    CallerDeadline,
    #[error("this server does not offer {0} yet")]
    NotOffered(&'static str),
    /// Ours. The text is for the log; the caller is told only that it is our fault.
    #[error("a fault of the server: {0}")]
    Bug(String),
}

impl Refusal {
    /// The same refusal where the message called `from` stands at `to` in the request.
    pub fn inside(self, from: &str, to: &str) -> Refusal {
        let moved = |path: String| match path.strip_prefix(from) {
            Some(rest) if rest.starts_with('.') => format!("{to}{rest}"),
            _ => path,
        };
        match self {
            Refusal::InvalidField(fields) => {
                Refusal::InvalidField(fields.into_iter().map(|field| BadField { path: moved(field.path), ..field }).collect())
            }
            other => other,
        }
    }

    pub fn field(path: impl Into<String>, text: impl Into<String>) -> Refusal {
        Refusal::InvalidField(vec![BadField { path: path.into(), text: text.into() }])
    }
}
