//! A database that says nothing for long, without a word of its end: health is red all the while, and every loop lives on.

use std::time::Duration;

use leasehold::api::proto::TaskState;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::town::{SECOND, Town, eventually, within};

/// Long enough for the loops that look often to fail. Two minutes take `LEASEHOLD_TEST_SECONDS=120`.
const SILENCE: Duration = SECOND.saturating_mul(16);
/// The loops that ask the database by themselves, and after which silence each of them must have noticed: its longest rest, and its
/// patience with the database.
const LOOPS: [(&str, Duration); 8] = [
    ("due", SECOND.saturating_mul(12)),
    ("walks", SECOND.saturating_mul(14)),
    ("retention", SECOND.saturating_mul(16)),
    ("tail", SECOND.saturating_mul(30)),
    ("keys", SECOND.saturating_mul(30)),
    ("listener", SECOND.saturating_mul(30)),
    ("partitions", SECOND.saturating_mul(60)),
    ("idle", SECOND.saturating_mul(90)),
];

fn told() -> Duration {
    let told = std::env::var("LEASEHOLD_TEST_SECONDS").ok();
    told.map_or(SILENCE, |told| SECOND * told.parse::<u32>().expect("LEASEHOLD_TEST_SECONDS is a number"))
}

#[tokio::test]
async fn every_loop_lives_through_a_silent_database_and_health_is_red_until_it_speaks_again() {
    let (town, wire) = Town::on_a_wire().await;
    let server = town.server(0);
    let before = town.spec("before").try_submit().await.ok();
    // Somebody watches, so that the tail has a reason to look.
    let _watch = town.watch_now().await;
    wire.silence();
    server.until_it_does_not_serve().await;
    let silence = told();
    let another_word = within(silence, async || {
        let said = (server.health("").await.unwrap(), server.http_status("/readyz").await, server.http_status("/livez").await);
        Some(said).filter(|said| *said != (ServingStatus::NotServing, Some(503), Some(200)))
    });
    assert_eq!(another_word.await, None, "the database is silent");
    wire.heal();
    server.until_it_serves().await;
    let noticed = LOOPS.into_iter().filter(|(_, after)| *after <= silence).map(|(name, _)| name);
    for name in noticed {
        let again =
            |log: String| log.lines().any(|line| line.contains("the loop works again") && line.contains(&format!("\"{name}\"")));
        eventually(&format!("the loop {name} works again"), async || again(server.log()).then_some(())).await;
    }
    town.worker("w1").claim_one().await.complete().await.applied();
    town.spec("later").start_delay(Duration::from_millis(10)).submit().await;
    town.wait_for_state("later", TaskState::Ready).await;
    let mut watch = town.watch_after(&before.cursor).await;
    assert_eq!(watch.kinds(3).await, ["SUBMITTED>READY", "LEASED>LEASED", "ENDED>COMPLETED"]);
    let log = server.log();
    assert!(!log.contains("a loop has died") && !log.contains("panicked"), "{log}");
    println!("silent for {silence:?}");
    town.audit_database().await;
}
