//! What a worker says of its attempt when it ends it.

use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::event::Evidence;
use super::task::{ErrorClass, Outcome};

#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    Succeeded(Success),
    Failed(Failure),
    Skipped {
        reason: String,
    },
    Canceled {
        reason: String,
    },
    /// The effect has not begun; somebody else may go on, at once or after `delay`.
    Released {
        delay: Duration,
        reason: String,
    },
}

/// What a success leaves behind; empty parts were not given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Success {
    pub receipt_ref: String,
    pub effect_ref: String,
    pub result_ref: String,
    pub result_digest: String,
    pub result_size: Option<i64>,
    pub result: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub class: ErrorClass,
    pub code: String,
    pub message: String,
    pub effect_ref: String,
    /// A lower bound for the backoff; zero: none.
    pub retry_after: Duration,
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl Report {
    pub fn outcome(&self) -> Outcome {
        match self {
            Report::Succeeded(_) => Outcome::Succeeded,
            Report::Failed(_) => Outcome::Failed,
            Report::Skipped { .. } => Outcome::Skipped,
            Report::Canceled { .. } => Outcome::Canceled,
            Report::Released { .. } => Outcome::Released,
        }
    }

    /// The report as evidence: everything but the result's bytes.
    pub fn evidence(&self) -> Evidence {
        let mut evidence = Evidence { outcome: Some(self.outcome()), report: Some(self.digest()), ..Evidence::default() };
        match self {
            Report::Succeeded(s) => {
                evidence.receipt_ref = given(&s.receipt_ref);
                evidence.effect_ref = given(&s.effect_ref);
                evidence.result_ref = given(&s.result_ref);
                evidence.result_digest = given(&s.result_digest);
                evidence.result_size = s.result_size;
            }
            Report::Failed(f) => {
                evidence.error_class = Some(f.class);
                evidence.code = given(&f.code);
                evidence.message = given(&f.message);
                evidence.effect_ref = given(&f.effect_ref);
            }
            Report::Skipped { reason } | Report::Canceled { reason } | Report::Released { reason, .. } => {
                evidence.reason = given(reason);
            }
        }
        evidence
    }

    /// Names the report by what it says, so that the same one again is recognised. 64 bits are enough to tell the few reports of
    /// one lease apart.
    pub fn digest(&self) -> i64 {
        let hash = Sha256::digest(format!("{self:?}").as_bytes());
        i64::from_be_bytes(hash[..8].try_into().expect("SHA-256 has 32 bytes"))
    }
}
