//! Leasehold: a scheduling service over Postgres. `ARCHITECTURE.md` is the map.

pub mod api;
pub mod cli;
pub mod config;
pub mod console;
pub mod domain;
pub mod embedded;
pub mod engine;
pub mod loops;
pub mod store;
pub mod telemetry;

pub use cli::run;
