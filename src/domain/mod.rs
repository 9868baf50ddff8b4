//! What is decided, and nothing else: no async, no I/O, no clock, no chance. A decision is a value; carrying it out is the
//! engine's work, and writing it down is the store's.

#[macro_use]
mod text_enum;

pub mod attempt;
pub mod budget;
pub mod catch_up;
pub mod event;
pub mod fairness;
pub mod frontier;
pub mod limits;
pub mod names;
pub mod order;
pub mod pace;
pub mod queue;
pub mod receipt;
pub mod record;
pub mod refusal;
pub mod repair;
pub mod report;
pub mod retry;
pub mod share;
pub mod spec;
pub mod stall;
pub mod stats;
pub mod subject;
pub mod task;
pub mod time;
