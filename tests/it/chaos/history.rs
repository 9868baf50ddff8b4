//! What the clients of a run sent and were told, in their own words and by their own clock.
//!
//! Only what was said: nothing here judges (see `judge`), and nothing knows the wire (see `calls`).

use std::collections::HashMap;

/// Microseconds: of the clients' clock since the run began, of the database's since 1970. They are never compared with each other.
pub type Micros = i64;

/// What a client was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Said<T> {
    Yes(T),
    /// The service decided against it, for this reason.
    No(String),
    /// No answer, or one that leaves open what became of the call.
    Nothing,
}

impl<T> Said<T> {
    pub fn yes(&self) -> Option<&T> {
        match self {
            Said::Yes(told) => Some(told),
            _ => None,
        }
    }
}

/// A task as its producer asked for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub queue: &'static str,
    pub share: &'static str,
    /// Empty: it has none.
    pub key: String,
    /// What it hangs on, and in which version.
    pub subject: Option<(String, i64)>,
}

/// A lease as a worker got it.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    pub id: String,
    pub token: i64,
    /// When it ends at the earliest, by the database's clock.
    pub until: Micros,
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Whether it was new.
    Submit {
        id: String,
        said: Said<bool>,
    },
    Claim {
        said: Said<Vec<Granted>>,
    },
    /// Until when the lease is promised now.
    Heartbeat {
        id: String,
        token: i64,
        said: Said<Micros>,
    },
    BeginEffect {
        id: String,
        token: i64,
        said: Said<()>,
    },
    /// The worker acted outside.
    Effect {
        id: String,
        token: i64,
    },
    /// `outcome` and `receipt` as the log would tell them.
    Complete {
        id: String,
        token: i64,
        outcome: &'static str,
        receipt: String,
        said: Said<()>,
    },
    Cancel {
        id: String,
        said: Said<()>,
    },
    /// Versions of the subject below this one become stale.
    Raise {
        subject: String,
        version: i64,
        said: Said<()>,
    },
    /// A repair was given up.
    Discard {
        id: String,
        said: Said<()>,
    },
}

impl What {
    pub fn kind(&self) -> &'static str {
        match self {
            What::Submit { .. } => "Submit",
            What::Claim { .. } => "Claim",
            What::Heartbeat { .. } => "Heartbeat",
            What::BeginEffect { .. } => "BeginEffect",
            What::Effect { .. } => "(effect)",
            What::Complete { .. } => "Complete",
            What::Cancel { .. } => "Cancel",
            What::Raise { .. } => "RaiseSubject",
            What::Discard { .. } => "ResolveRepair",
        }
    }

    /// `yes`, `no` or `no answer`, and the reason of a no.
    pub fn told(&self) -> (&'static str, Option<&str>) {
        fn of<T>(said: &Said<T>) -> (&'static str, Option<&str>) {
            match said {
                Said::Yes(_) => ("yes", None),
                Said::No(reason) => ("no", Some(reason)),
                Said::Nothing => ("no answer", None),
            }
        }
        match self {
            What::Submit { said, .. } => of(said),
            What::Claim { said } => of(said),
            What::Heartbeat { said, .. } => of(said),
            What::Effect { .. } => ("yes", None),
            What::BeginEffect { said, .. }
            | What::Complete { said, .. }
            | What::Cancel { said, .. }
            | What::Raise { said, .. }
            | What::Discard { said, .. } => of(said),
        }
    }
}

/// A call, or one item of it, between two instants of the clients' clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub before: Micros,
    pub after: Micros,
    pub what: What,
}

#[derive(Clone, Debug, Default)]
pub struct History {
    /// What was asked for under each id, before it was first sent.
    pub asked: HashMap<String, Asked>,
    /// Ids that were sent together, to be accepted all or none.
    pub together: Vec<Vec<String>>,
    /// In the order in which they were over.
    pub calls: Vec<Call>,
}
