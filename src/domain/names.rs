//! Names that callers choose. The only constructor parses; whoever holds one need not check again.

use std::fmt;
use std::sync::Arc;

use super::limits::ID_BYTES;

/// Why a text is not a name. Carries no part of the text: it may be private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("must not be empty")]
    Empty,
    #[error("must not be longer than {ID_BYTES} bytes")]
    TooLong,
    #[error("must not contain NUL")]
    Nul,
}

fn parse(text: &str) -> Result<Arc<str>, NameError> {
    match text {
        "" => Err(NameError::Empty),
        _ if text.len() > ID_BYTES => Err(NameError::TooLong),
        _ if text.contains('\0') => Err(NameError::Nul),
        _ => Ok(Arc::from(text)),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// 1 to 256 bytes of UTF-8 without NUL.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                parse(text).map(Self)
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A named stream of tasks with one policy.
    QueueName
);
name!(
    /// The caller's own name of a task, unique within its queue, never renamed by a retry.
    TaskId
);
name!(
    /// Who holds a lease.
    WorkerId
);
name!(
    /// Names one Claim, so that repeating it returns the same leases.
    RequestId
);
name!(
    /// Tasks of a queue with the same key run one at a time.
    OrderingKey
);
name!(
    /// What a task is about.
    SubjectId
);

/// The part of a queue that a task belongs to. The empty key is a share like any other: the one of tasks without a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FairnessKey(Arc<str>);

impl FairnessKey {
    /// 0 to 256 bytes of UTF-8 without NUL.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() { Ok(Self(Arc::from(""))) } else { parse(text).map(Self) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_in_bytes_not_in_characters() {
        assert!(TaskId::parse(&"x".repeat(256)).is_ok());
        assert_eq!(TaskId::parse(&"x".repeat(257)), Err(NameError::TooLong));
        assert_eq!(TaskId::parse(&"é".repeat(129)), Err(NameError::TooLong));
        assert!(TaskId::parse(&"é".repeat(128)).is_ok());
    }

    #[test]
    fn nul_and_emptiness_are_refused_and_everything_else_is_text() {
        assert_eq!(QueueName::parse("a\0b"), Err(NameError::Nul));
        assert_eq!(QueueName::parse(""), Err(NameError::Empty));
        assert!(QueueName::parse("\u{202e}рассылка 🛎\n").is_ok());
        assert_eq!(FairnessKey::parse("").map(|k| k.as_str().len()), Ok(0));
    }
}
