//! How fast tasks of a queue or a share are leased: by the database's clock, whoever claims, and by what they cost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::api::proto::{ObstacleKind, RateLimit};
use tokio::task::JoinSet;

use crate::town::{Lease, SECOND, Town, micros};

fn rate(per_second: f64, burst: u32) -> Option<RateLimit> {
    Some(RateLimit { per_second, burst: Some(burst) })
}

fn ids(leases: &[Lease]) -> Vec<&str> {
    leases.iter().map(Lease::id).collect()
}

#[tokio::test]
async fn a_bucket_gives_its_burst_and_then_what_the_rate_puts_into_it() {
    let town = Town::start().await;
    // Slow enough that the time which the test takes puts nothing into it.
    town.put_queue(|queue| queue.rate_limit = rate(0.001, 3)).await;
    town.backlog("u-a", 20).await;
    let worker = town.worker("w1");
    let leases = worker.claim(10).await;
    assert_eq!(ids(&leases), ["u-a/0", "u-a/1", "u-a/2"]);
    worker.finds_nothing().await;
    let obstacle = town.explain("u-a/3").await.remove(0);
    assert_eq!(obstacle.kind(), ObstacleKind::RateLimited);
    let wait = micros(obstacle.until_time.as_ref()) - town.clock.now().await;
    assert!((900_000_000..=1_000_000_000).contains(&wait), "{wait}");
    // Given back is not unspent.
    leases[2].release().await.applied();
    worker.finds_nothing().await;
    town.clock.advance(SECOND * 1_001).await;
    assert_eq!(ids(&worker.claim(10).await), ["u-a/2"]);
    town.clock.advance(SECOND * 3_100).await;
    assert_eq!(worker.claim(10).await.len(), 3);
    town.audit().await;
}

#[tokio::test]
async fn a_share_that_is_out_of_tokens_is_parked_until_the_next_ones_fall_due_and_the_others_go_on() {
    let town = Town::start().await;
    town.put_share("slow", |share| share.rate_limit = rate(0.01, 2)).await;
    for number in 0..4 {
        town.spec(&format!("slow/{number}")).share("slow").with(|spec| spec.cost = Some(2)).submit().await;
    }
    town.backlog("free", 5).await;
    let worker = town.worker("w1");
    assert_eq!(ids(&worker.claim(3).await), ["slow/0", "free/0", "free/1"]);
    assert!(town.parked("slow").await);
    assert_eq!(ids(&worker.claim(9).await), ["free/2", "free/3", "free/4"]);
    let wait = "SELECT extract(epoch FROM wake_at - app_now())::float8 FROM shares WHERE fairness_key = 'slow'";
    let wait = town.sql::<f64>(wait).await;
    assert!((50.0..=100.0).contains(&wait), "as soon as it could pay for something: {wait}");
    town.clock.advance(SECOND * 100).await;
    worker.finds_nothing().await;
    town.clock.advance(SECOND * 101).await;
    assert_eq!(ids(&worker.claim(9).await), ["slow/1"]);
    // A change of the rate is in force at once.
    let waits = town.worker("w2");
    let waiting = tokio::spawn(async move { waits.claim_one().await });
    town.put_share("slow", |share| share.rate_limit = rate(1_000.0, 2)).await;
    assert_eq!(waiting.await.unwrap().id(), "slow/2");
    town.put_share("slow", |share| share.rate_limit = rate(0.0, 2)).await;
    town.clock.advance(SECOND * 1_000).await;
    worker.finds_nothing().await;
    assert_eq!(town.explain("slow/3").await.remove(0).until_time, None);
    town.audit().await;
}

#[tokio::test]
async fn a_cheap_task_that_comes_in_front_of_a_costly_one_goes_as_soon_as_its_share_can_pay_for_it() {
    let town = Town::start().await;
    town.put_share("slow", |share| share.rate_limit = rate(1.0, 500)).await;
    let costs = |id: &str, cost| town.spec(id).share("slow").with(|spec| spec.cost = Some(cost));
    costs("first", 500).submit().await;
    costs("costly", 400).submit().await;
    costs("cheap", 2).submit().await;
    let worker = town.worker("w1");
    assert_eq!(ids(&worker.claim(9).await), ["first"]);
    town.clock.advance(SECOND * 20).await;
    // It has the tokens, but nobody passes the head of the line: else it would wait for ever.
    worker.finds_nothing().await;
    costs("in front", 3).priority(1).submit().await;
    assert_eq!(worker.claim_one().await.id(), "in front");
    worker.finds_nothing().await;
    assert!(town.parked("slow").await);
    drop(town.cancel("costly").await.ok());
    assert_eq!(worker.claim_one().await.id(), "cheap");
    town.audit().await;
}

#[tokio::test]
async fn a_waiting_claim_gets_the_next_task_when_its_token_falls_due() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.rate_limit = rate(20.0, 1)).await;
    town.backlog("u-a", 12).await;
    let worker = town.worker("w1");
    let begin = Instant::now();
    for number in 0..12 {
        assert_eq!(worker.claim_one().await.id(), format!("u-a/{number}"));
    }
    println!("12 tasks at 20 a second in {:?}", begin.elapsed());
    assert!(begin.elapsed() >= Duration::from_millis(540), "faster than the rate");
    town.audit().await;
}

#[tokio::test]
async fn claimers_of_two_servers_together_lease_no_faster_than_the_rate() {
    const RATE: f64 = 60.0;
    const BURST: f64 = 5.0;
    let town = Arc::new(Town::with_servers(2).await);
    town.put_queue(|queue| queue.rate_limit = rate(RATE, 5)).await;
    town.backlog("u-a", 600).await;
    town.backlog("u-b", 600).await;
    let begin = Instant::now();
    // The bucket is full now, and until the first look.
    let full = town.sql::<f64>("SELECT extract(epoch FROM app_now())::float8").await;
    let mut workers = JoinSet::new();
    for number in 0..12 {
        let worker = town.worker_at(number % 2, &format!("w{number}"));
        workers.spawn(async move {
            while begin.elapsed() < SECOND * 3 {
                for lease in worker.claim_within(4, Duration::from_millis(300)).await {
                    lease.complete().await.applied();
                }
            }
        });
    }
    workers.join_all().await;
    let query = "SELECT extract(epoch FROM time)::float8 FROM events WHERE kind = 'LEASED' ORDER BY token";
    let times: Vec<f64> = sqlx::query_scalar(query).fetch_all(town.database()).await.unwrap();
    println!("{} leases", times.len());
    assert!(times.len() as f64 > RATE, "only {} leases", times.len());
    // A lease begins a moment after the look that its token was taken at: so much later than others it may be on a busy machine.
    let late = 0.5;
    for (first, begin) in times.iter().enumerate() {
        for (last, end) in times.iter().enumerate().skip(first) {
            let most = BURST + RATE * (end - begin + late);
            assert!((last - first + 1) as f64 <= most, "{} leases in {} s", last - first + 1, end - begin);
        }
    }
    // Over all of it, exactly: what was spent is what the bucket was given.
    let spent = format!(
        "SELECT {BURST} - d.rate_level + {RATE} * extract(epoch FROM d.rate_at - to_timestamp({full}))::float8 + 1
         FROM dispatch d"
    );
    assert!(times.len() as f64 <= town.sql::<f64>(spent).await);
    town.audit().await;
}
