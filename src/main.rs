//! The `leasehold` binary: server and command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::run(std::env::args_os().collect())
}
