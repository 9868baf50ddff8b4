//! What the service says to one call, or to one item of it.

use std::collections::HashMap;

use leasehold::api::proto as pb;
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// An answer that a test has yet to judge.
#[must_use = "an answer has to be judged"]
#[derive(Debug)]
pub struct Answer<T>(pub Result<T, Status>);

impl<T> From<Result<tonic::Response<T>, Status>> for Answer<T> {
    fn from(result: Result<tonic::Response<T>, Status>) -> Self {
        Answer(result.map(tonic::Response::into_inner))
    }
}

/// Whether a thing was done by this call, or was found done.
pub trait Repeatable {
    fn repeated(&self) -> bool;
}

impl Repeatable for pb::CompleteResponse {
    fn repeated(&self) -> bool {
        self.already_applied
    }
}

impl Repeatable for pb::BeginEffectResponse {
    fn repeated(&self) -> bool {
        self.already_applied
    }
}

impl<T> Answer<T> {
    #[track_caller]
    pub fn ok(self) -> T {
        self.0.unwrap_or_else(|status| panic!("refused: {:?} {}", status.code(), status.message()))
    }

    /// The refusal, which must be FAILED_PRECONDITION for this reason.
    #[track_caller]
    pub fn refused_with(self, reason: &str) -> Refused {
        self.refused_as(Code::FailedPrecondition, reason)
    }

    #[track_caller]
    pub fn refused_as(self, code: Code, reason: &str) -> Refused {
        let Err(status) = self.0 else { panic!("was not refused; expected {reason}") };
        let details = status.get_error_details();
        let info = details.error_info().unwrap_or_else(|| panic!("a refusal without ErrorInfo: {status:?}"));
        assert_eq!((status.code(), info.reason.as_str()), (code, reason), "{}", status.message());
        assert_eq!(info.domain, "leasehold");
        Refused { metadata: info.metadata.clone(), status }
    }
}

impl<T: Repeatable> Answer<T> {
    /// It was done by this call.
    #[track_caller]
    pub fn applied(self) -> T {
        let answer = self.ok();
        assert!(!answer.repeated(), "was applied before");
        answer
    }

    /// It had been done before, and nothing changed now.
    #[track_caller]
    pub fn already_applied(self) -> T {
        let answer = self.ok();
        assert!(answer.repeated(), "was applied only now");
        answer
    }
}

/// A refusal for the expected reason.
#[derive(Debug)]
pub struct Refused {
    pub metadata: HashMap<String, String>,
    pub status: Status,
}

impl Refused {
    #[track_caller]
    pub fn says(&self, key: &str) -> &str {
        self.metadata.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.metadata))
    }

    #[track_caller]
    pub fn number(&self, key: &str) -> i64 {
        self.says(key).parse().expect("a number")
    }
}

/// The refusal of one item, as if it had been a call's.
pub fn item_status(error: tonic_types::pb::Status) -> Status {
    Status::with_details(Code::from_i32(error.code), error.message.clone(), error.encode_to_vec().into())
}
