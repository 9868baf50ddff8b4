//! The command line. The same binary is the server and the tool to look at it.

mod bench;
mod connection;
mod demo;
mod doctor;
mod health;
mod migrate;
mod serve;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{ServeConfig, with_file};

/// Schedules tasks: leased, fenced, ordered, fair, and never pretended to be done.
#[derive(Parser)]
#[command(name = "leasehold", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a server.
    Serve(Box<ServeConfig>),
    /// Bring a database to this version's schema.
    Migrate(migrate::Arguments),
    /// Measure what this machine can do, as ratios, with a private Postgres and a server of its own.
    Bench(bench::Arguments),
    /// Ask a server whether it serves; exits with 0 if it does.
    Health(health::Arguments),
    /// Follow a queue or a task: a line a change.
    Watch(watch::Arguments),
    /// Recount every promise from the rows of a database, and say what differs; exits with 0 if nothing does, 1 if something does, and
    /// 2 if it could not look.
    Doctor(doctor::Arguments),
    /// Play one notification and two workers against a running server, and check what must hold.
    Demo(demo::Arguments),
}

/// What went wrong, for the person at the terminal.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command that the arguments name.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match with_file(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error.into()),
    };
    let done = match Cli::parse_from(arguments).command {
        Command::Serve(config) => serve::run(*config),
        Command::Migrate(arguments) => migrate::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Health(arguments) => health::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::Doctor(arguments) => return doctor::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "this is where a command speaks to a person")]
fn fail(error: &Failure) -> ExitCode {
    eprintln!("leasehold: {error}");
    ExitCode::FAILURE
}

/// A runtime for commands that ask a server something.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
