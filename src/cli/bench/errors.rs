//! Calls that failed: counted, and the first one kept. A run with any says so.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Default)]
pub struct Errors(Arc<Mutex<(u64, Option<String>)>>);

impl Errors {
    pub fn note(&self, error: impl Display) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.0 += 1;
        noted.1.get_or_insert_with(|| error.to_string());
    }

    /// How many, and the first one's text.
    pub fn taken(&self) -> (u64, Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
