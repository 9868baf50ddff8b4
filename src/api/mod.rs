//! The gRPC edge: the only place that knows proto and `Status`.
//!
//! A call passes `deadline`, `in_flight` and `delivery`, is parsed by `convert`, carried out by the engine, and written out by `convert`
//! again; a refusal is written by `status`, and what tonic refuses by itself by `unread`. Nothing is decided here.

mod admin_service;
mod convert;
pub mod cursor;
mod deadline;
mod delivery;
mod fields;
pub mod in_flight;
pub mod proto;
mod repair_service;
mod schedule_service;
pub mod server;
mod services;
mod status;
mod task_service;
mod times;
mod unread;
mod watch;
mod worker_service;
