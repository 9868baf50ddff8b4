//! Leasehold as its callers see it: real server processes over a real Postgres. `town` is the language; a file per promise.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test says what it expects by panicking, and its numbers are small"
)]
#![allow(unsafe_code, reason = "processes that tests start must die with them, and be signalled: only libc can")]

mod town;

mod admission;
mod ageing;
mod batch;
mod bench;
mod budget;
mod cancel;
mod cancel_tasks;
mod caps;
mod chaos;
mod database;
mod delivery;
mod demo;
mod doctor;
mod door;
mod drain;
mod failover;
mod faults;
mod fencing;
mod in_flight;
mod keys;
mod kill;
mod layout;
mod load;
mod look;
mod model;
mod odd;
mod order;
mod plans;
mod pooler;
mod python;
mod races;
mod rates;
mod receipts;
mod repair;
mod replay;
mod retention;
mod schema;
mod servers;
mod shares;
mod silence;
mod snapshot;
mod stale;
mod stall;
mod stats;
mod storm;
mod subjects;
mod unknown;
mod unread;
mod watch;
