//! `leasehold demo`: what a newcomer sees first must work, and must notice when it can't.

use std::process::{Output, Stdio};

use crate::town::Town;

/// Runs the demo as a person would, except that nobody watches.
async fn demo(server: &str) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["demo", "--server", server]).stdin(Stdio::null()).kill_on_drop(true);
    command.output().await.expect("the demo runs")
}

#[tokio::test]
async fn the_demo_finds_every_promise_kept_however_often_it_is_played() {
    let town = Town::start().await;
    for _ in 0..2 {
        let played = demo(&format!("http://{}", town.server(0).grpc())).await;
        let said = String::from_utf8_lossy(&played.stdout);
        assert!(played.status.success(), "{said}\n{}", String::from_utf8_lossy(&played.stderr));
        let (record, promises) = said.split_once("What must hold").expect("it shows its promises");
        assert!(record.contains("late report SUCCEEDED") && record.contains("LEASE_SUPERSEDED"), "{said}");
        assert!(promises.contains('✓') && !promises.contains('✗'), "{said}");
    }
}

#[tokio::test]
async fn without_a_server_the_demo_says_in_one_sentence_how_to_start_one() {
    let played = demo("http://127.0.0.1:1").await;
    assert!(!played.status.success());
    assert!(played.stdout.is_empty(), "nothing is shown before there is somebody to ask");
    let said = String::from_utf8_lossy(&played.stderr);
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    assert!(said.contains("no server answers at http://127.0.0.1:1") && said.contains("leasehold serve"), "{said}");
}
