//! A server that dies under load takes nothing back: what it acknowledged is there, and what it did not is absent or whole.

use crate::load::{Faults, Load};
use crate::town::{Town, row_held};

/// How often the server is killed.
const KILLS: usize = 20;
/// How many calls each life of the server answers before it dies: at least the first, and up to the second number more.
const LIFE: (usize, usize) = (10, 60);
/// Kills between two looks at everything.
const AUDIT: usize = 10;

/// No lease in the database ends later than it was last promised for; how many leases there are.
async fn leases_are_bounded(town: &Town) -> i64 {
    let too_long = "SELECT count(*) FROM live WHERE state = 'LEASED'
                    AND lease_expire > greatest(lease_begin, heartbeat, effect_begun) + lease_us * interval '1 microsecond'";
    assert_eq!(town.sql::<i64>(too_long).await, 0, "a lease lasts longer than was promised");
    town.sql("SELECT count(*) FROM live WHERE state = 'LEASED'").await
}

#[tokio::test]
async fn a_server_killed_20_times_under_load_takes_back_nothing_that_it_acknowledged() {
    let mut town = Town::start().await;
    let load = Load::start(vec![town.server(0).channel()], Faults { servers: true, database: false });
    let mut leases = 0;
    for kill in 1..=KILLS {
        load.until_answered(LIFE.0 + fastrand::usize(..LIFE.1)).await;
        let server = town.server_mut(0);
        server.kill();
        assert_eq!(server.killed_by(), Some(libc::SIGKILL), "it died by itself:\n{}", server.log());
        assert!(!server.log().contains("ERROR") && !server.log().contains("panicked"), "{}", server.log());
        leases += leases_are_bounded(&town).await;
        if kill % AUDIT == 0 {
            town.audit_database().await;
        }
        let unfinished = town.sql("SELECT count(*) FROM live").await;
        let server = town.restart_server(0).await;
        load.turn_to(vec![server.channel()], unfinished);
    }
    assert!(leases > 0 && load.failures() >= KILLS, "it was killed while nothing was under way");
    load.settle(&town).await;
    row_held(17, &format!("{KILLS} kills"), None);
    town.audit().await;
}
