//! What a failed statement means for the batch that ran it.

/// How to go on after a failed statement.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is away, stopping, out of resources or read-only: the caller may try again later.
    #[error("the database does not answer: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// A deadlock or a serialization failure: nothing was written; the same batch can run again at once.
    #[error("the batch lost a race: {0}")]
    Conflict(#[source] sqlx::Error),
    /// A row was held by somebody else for longer than a batch may wait.
    #[error("a row is held by somebody else: {0}")]
    Locked(#[source] sqlx::Error),
    /// Some row of the batch is at fault (or the database's data is): splitting the batch finds the culprit.
    #[error("a row can't be written: {0}")]
    Data(#[source] sqlx::Error),
    /// A fault of ours.
    #[error("a statement is wrong: {0}")]
    Bug(#[source] sqlx::Error),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned());
        match code.as_deref() {
            Some("40001" | "40P01") => StoreError::Conflict(error),
            Some("55P03") => StoreError::Locked(error),
            // A standby; or the server stood still within a transaction, and the database took that back.
            Some("25006" | "25P03" | "25P04") => StoreError::Unavailable(error),
            Some(code) => match &code[..2.min(code.len())] {
                "08" | "53" | "57" => StoreError::Unavailable(error),
                // P0: a trigger says no to a row.
                "22" | "23" | "P0" | "XX" => StoreError::Data(error),
                _ => StoreError::Bug(error),
            },
            None => match error {
                sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::Encode(_) => StoreError::Data(error),
                sqlx::Error::ColumnNotFound(_) | sqlx::Error::TypeNotFound { .. } | sqlx::Error::RowNotFound => {
                    StoreError::Bug(error)
                }
                // Everything else without a code is about the connection: io, TLS, protocol, pool.
                other => StoreError::Unavailable(other),
            },
        }
    }
}

impl StoreError {
    /// The text for the log: with table, column and constraint where the database names them, never with a row's values.
    pub fn describe(&self) -> String {
        let (StoreError::Unavailable(e)
        | StoreError::Conflict(e)
        | StoreError::Locked(e)
        | StoreError::Data(e)
        | StoreError::Bug(e)) = self;
        match e.as_database_error() {
            Some(db) => format!(
                "{} (code {}, table {}, constraint {})",
                db.message(),
                db.code().unwrap_or_default(),
                db.table().unwrap_or("-"),
                db.constraint().unwrap_or("-"),
            ),
            None => e.to_string(),
        }
    }
}

impl StoreError {
    /// A row that must be there is not.
    pub fn absent(uid: uuid::Uuid) -> StoreError {
        StoreError::Data(sqlx::Error::Decode(format!("task {uid} has lost a part of itself").into()))
    }

    /// What the transaction went by is not there any more: nothing was written, and it can run again at once.
    pub fn raced() -> StoreError {
        StoreError::Conflict(sqlx::Error::RowNotFound)
    }

    /// The database has not answered within the time that it had.
    pub fn silent() -> StoreError {
        StoreError::Unavailable(sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut)))
    }
}
