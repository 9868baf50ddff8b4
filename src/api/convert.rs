//! Proto to domain and back: what comes in is parsed once, here, and after it nobody checks again.
//!
//! `requests`, `bulk` and `work` read what TaskService and WorkerService are asked, `repair` reads and writes all of RepairService, `spec`, `queue` and `share`
//! read and write a task's spec and the policies, `answers`, `lease` and `stats` write what goes out, `event` is about watches, `budget`, `clears`, `retry`
//! and `enums` have what several of them share. Errors are written in `status.rs`. Nothing here decides.

pub mod answers;
mod budget;
pub mod bulk;
mod clears;
pub mod enums;
pub mod event;
pub mod lease;
pub mod queue;
pub mod repair;
pub mod requests;
mod retry;
pub mod share;
pub mod spec;
pub mod stats;
pub mod work;

#[cfg(test)]
mod task_tests;
#[cfg(test)]
mod tests;

use crate::domain::refusal::Refusal;

/// Takes the readable items out of a batch; what remains says where the others were.
pub fn split<T>(items: Vec<Result<T, Refusal>>) -> (Vec<T>, Vec<Option<Refusal>>) {
    let mut good = Vec::with_capacity(items.len());
    let refused = items.into_iter().map(|item| item.map(|item| good.push(item)).err()).collect();
    (good, refused)
}

/// Puts the engine's answers back into the order of the request, between the items that never reached it.
pub fn weave<T>(refused: Vec<Option<Refusal>>, answers: Vec<Result<T, Refusal>>) -> impl Iterator<Item = Result<T, Refusal>> {
    let mut answers = answers.into_iter();
    refused.into_iter().map(move |refused| match refused {
        Some(refusal) => Err(refusal),
        None => answers.next().unwrap_or_else(|| Err(Refusal::Bug("an item of a batch was not answered".to_owned()))),
    })
}
