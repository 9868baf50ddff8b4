//! The workers in Python, as their own test suites see them: real processes in another language against a real server.

use std::path::Path;
use std::process::Stdio;

use crate::town::{Town, row_held};

/// Runs one of its test files; all of it must pass.
async fn passes(town: &Town, tests: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/python");
    let python = folder.join(".venv/bin/python");
    assert!(python.exists(), "the worker's libraries are not installed: run examples/python/setup.sh, as `make test` does");
    let mut command = tokio::process::Command::new(python);
    command.arg(tests).current_dir(&folder).env("LEASEHOLD_SERVER", town.server(0).grpc());
    let ended = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("Python runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}\n{}", town.server(0).log());
    assert!(said.contains("\nRan ") && !said.contains("Ran 0 tests"), "{said}");
    town.audit().await;
}

#[tokio::test]
async fn a_worker_in_python_runs_the_notification_task_through_all_its_stories() {
    let town = Town::start().await;
    passes(&town, "test_n9.py").await;
    row_held(8, "test_n9.py: the provider shows one effect", None);
}

#[tokio::test]
async fn a_worker_in_python_publishes_exports_and_never_one_that_came_too_late_or_was_canceled() {
    passes(&Town::start().await, "test_export.py").await;
}
