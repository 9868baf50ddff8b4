//! Random runs: producers, workers and people call several servers over one Postgres while everything between them breaks; what clients
//! were told and what the database says at the end is judged by rules that are each known to fail (`judge`).
//!
//! A run is chosen by its seed: which faults come when and in which order, and what every client decides. How calls and faults meet is
//! the machine's choice, so a seed that failed may have to be tried again. `LEASEHOLD_CHAOS_SEED` names seeds, one run each, and
//! `LEASEHOLD_TEST_SECONDS` says how long each one storms (`make chaos` does both). With `LEASEHOLD_CHAOS_CELLS` it measures recoveries
//! instead (`cells`).

mod calls;
mod cells;
mod clients;
mod faults;
mod history;
mod judge;
mod report;
mod rows;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::admin_service_client::AdminServiceClient;
use tokio::task::JoinSet;

use crate::town::{PATIENCE, QUEUE, Town, span, within};
use calls::{Client, Shared};
use clients::ORDERS;
use faults::{Ground, Injected, Pace, plan};
use rows::Rows;

const PRODUCERS: usize = 5;
const WORKERS: usize = 7;
/// How long the short run storms.
const SHORT: Duration = Duration::from_secs(7);
const LEASE: Duration = Duration::from_millis(1_500);
/// Submits and Completes that are accepted between two faults, where the machine gets to them in time.
const PROGRESS: usize = 40;
/// How much longer than planned a calm may take for that.
const HASTE: Duration = Duration::from_millis(1_500);
/// Faults of a run at least, however slow the machine is.
const FAULTS: usize = 3;

/// What is left when everything that can end has ended: tasks behind a repair that nobody has resolved.
const UNFINISHED: &str = "SELECT count(*) FROM live l WHERE NOT (l.state = 'BLOCKED' AND EXISTS (
    SELECT FROM repairs r JOIN queues q USING (queue_id)
    WHERE r.queue_id = l.queue_id AND r.key_id = l.key_id AND r.state = 'OPEN' AND r.position < l.position AND q.on_repair = 'HOLD'))";

#[tokio::test]
async fn whatever_breaks_in_whatever_order_every_promise_is_kept() {
    if std::env::var("LEASEHOLD_CHAOS_CELLS").is_ok_and(|told| !told.is_empty()) {
        return report::write_cells(&cells::table().await);
    }
    let told = std::env::var("LEASEHOLD_CHAOS_SEED").unwrap_or_default();
    let mut seeds: Vec<u64> =
        told.split([' ', ',']).filter(|word| !word.is_empty()).map(|word| word.parse().expect("a seed is a number")).collect();
    if seeds.is_empty() {
        seeds.push(fastrand::u64(..1_000_000));
    }
    for seed in seeds {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    println!("LEASEHOLD_CHAOS_SEED={seed}");
    let long = std::env::var("LEASEHOLD_TEST_SECONDS").is_ok();
    let time = if long { crate::town::endurance() } else { SHORT };
    let pace = if long { Pace { fault: (200, 5_000), calm: (300, 3_000) } } else { Pace { fault: (50, 600), calm: (100, 400) } };
    let servers = if long { 3 } else { 2 };
    let mut ground = Ground::start(servers, long).await;
    set_limits(&ground.town).await;
    let mut chance = fastrand::Rng::with_seed(seed);
    let shared = Arc::new(Shared::new((0..servers).map(|number| ground.town.server(number).channel()).collect()));
    let (mut callers, mut workers) = start_clients(&shared, &mut chance);

    let (begin, mut injected) = (Instant::now(), Vec::new());
    for fault in plan(chance.fork(), servers, &pace) {
        calm(&ground, &shared, fault.calm).await;
        if begin.elapsed() > time && injected.len() >= FAULTS {
            break;
        }
        injected.push(ground.suffer(&fault, &shared).await);
    }
    shared.storming.store(false, Ordering::Relaxed);
    while let Some(done) = callers.join_next().await {
        done.expect("a client ends in order");
    }
    let settled = settle(&ground.town).await;
    shared.working.store(false, Ordering::Relaxed);
    while let Some(done) = workers.join_next().await {
        done.expect("a worker ends in order");
    }
    println!("stormed for {time:?}, settled in {settled:?}");
    verdict(seed, &ground.town, &shared, &injected).await;
    ground.town.audit().await;
}

/// Lets everybody work for a while, and until they have got on; tells them how much there is to do.
async fn calm(ground: &Ground, shared: &Shared, time: Duration) {
    let (begin, goal) = (Instant::now(), shared.agreed.load(Ordering::Relaxed) + PROGRESS);
    within(time + HASTE, async || {
        let unfinished: i64 = ground.town.sql("SELECT count(*) FROM live").await;
        shared.unfinished.store(usize::try_from(unfinished).expect("a count"), Ordering::Relaxed);
        (begin.elapsed() >= time && shared.agreed.load(Ordering::Relaxed) >= goal).then_some(())
    })
    .await;
}

/// One queue with limits of all kinds, and one whose keys wait for repairs.
async fn set_limits(town: &Town) {
    let lease = Some(span(LEASE));
    let limited = pb::Queue {
        name: QUEUE.into(),
        lease_duration: lease,
        max_in_flight: Some(16),
        max_unfinished: Some(220),
        ..Default::default()
    };
    let holding =
        pb::Queue { name: ORDERS.into(), lease_duration: lease, on_repair: pb::OnRepair::Hold as i32, ..Default::default() };
    for queue in [limited, holding] {
        let request = pb::PutQueueRequest { queue: Some(queue), clear_fields: Vec::new(), reason: "a run".into() };
        AdminServiceClient::new(town.server(0).channel()).put_queue(request).await.expect("a queue can be made");
    }
    town.put_share("b", |share| share.max_in_flight = Some(3)).await;
    town.put_share("c", |share| (share.max_in_flight, share.max_unfinished) = (Some(5), Some(60))).await;
}

fn start_clients(shared: &Arc<Shared>, chance: &mut fastrand::Rng) -> (JoinSet<()>, JoinSet<()>) {
    let (mut callers, mut workers) = (JoinSet::new(), JoinSet::new());
    let mut client = |server: usize| Client { shared: shared.clone(), chance: chance.fork(), server };
    for number in 0..PRODUCERS {
        callers.spawn(clients::produce(client(number), number));
    }
    callers.spawn(clients::cancel(client(0)));
    callers.spawn(clients::edit(client(1)));
    callers.spawn(clients::give_up(client(2)));
    for number in 0..WORKERS {
        workers.spawn(clients::work(client(number), number));
    }
    (callers, workers)
}

/// Waits until nothing is left that could end, or until nothing has ended for long: what does not end is the judge's business.
async fn settle(town: &Town) -> Duration {
    let begin = Instant::now();
    let mut left = i64::MAX;
    while left > 0 {
        let less = async || Some(town.sql::<i64>(UNFINISHED).await).filter(|now| *now < left);
        let Some(now) = within(PATIENCE, less).await else { break };
        left = now;
    }
    begin.elapsed()
}

async fn verdict(seed: u64, town: &Town, shared: &Shared, injected: &[Injected]) {
    let history = shared.write(std::mem::take);
    let rows = Rows::read(town).await;
    let mut broken = judge::judge(&history, &rows);
    broken.extend(town.examine().await);
    report::write(seed, &history, &rows, injected, &broken);
    assert!(
        broken.is_empty(),
        "LEASEHOLD_CHAOS_SEED={seed}: {} promises were broken, first:\n{}",
        broken.len(),
        broken[..broken.len().min(20)].join("\n")
    );
    assert!(rows.standings.len() >= PROGRESS, "hardly anything happened");
}
