//! What is asked and answered, in the model's words.

#[derive(Clone, Debug)]
pub struct Wish {
    pub id: String,
    /// What it is about, and in which version.
    pub subject: Option<(u32, i64)>,
    /// Its Submit raises the subject's floor to that version.
    pub raises: bool,
    pub key: Option<u32>,
    pub delay: u32,
    pub ttl: u32,
    pub max_attempts: i32,
    pub backoff: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Succeeded(u8),
    Transient,
    Permanent,
    Unknown,
    Skipped,
    Canceled,
    Released,
    ReleasedFor(u32),
}

/// What names a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    pub id: String,
    pub token: i64,
}

#[derive(Clone, Debug)]
pub enum Command {
    Submit(Wish),
    /// `request`: the number of its `request_id`, if it has one.
    Claim {
        slots: usize,
        lease: u32,
        reports_effect: bool,
        request: Option<u32>,
    },
    Heartbeat {
        lease: Named,
        span: u32,
    },
    BeginEffect {
        lease: Named,
        effect: String,
    },
    Report {
        lease: Named,
        said: Said,
    },
    Cancel(String),
    Raise {
        subject: u32,
        version: i64,
    },
    /// No call: what the walk does after a floor has risen.
    Walk(u32),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Accepted { created: bool },
    Leases(Vec<(Named, i32)>),
    Held { cancel: bool },
    Done { already: bool },
    Canceled,
    Raised,
    Refused { reason: String, current: Option<i64> },
}
