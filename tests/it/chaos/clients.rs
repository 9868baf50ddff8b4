//! Those who call: producers, workers that stall, die and lie, and people who cancel, edit and give up.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::api::proto as pb;
use pb::ErrorClass;
use pb::complete_request::Outcome;
use tokio::task::JoinSet;

use super::calls::{Client, SUBJECTS, name};
use super::history::{Asked, Said};
use crate::town::{QUEUE, failed, released, span};

/// The other queue: its keys are held for repairs.
pub const ORDERS: &str = "orders";
pub const SHARES: [&str; 3] = ["a", "b", "c"];
const KEYS: usize = 8;
/// More unfinished tasks than that, and producers wait; now and then they do not.
const AHEAD: usize = 150;
/// Leases that a worker has in its hands at most.
const HANDS: usize = 8;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A task with chance in all of its parts.
fn spec(me: &mut Client, id: &str) -> (Asked, pb::TaskSpec) {
    let orders = me.in_100(15);
    let key = if orders || me.in_100(50) { format!("key-{}", me.chance.usize(..KEYS)) } else { String::new() };
    let subject = (!orders && me.in_100(30)).then(|| {
        let number = me.chance.usize(..SUBJECTS);
        let version = me.shared.floors[number].load(Ordering::Relaxed) + me.chance.i64(-1..3);
        (format!("subject-{number}"), version.max(0))
    });
    let asked = Asked { queue: if orders { ORDERS } else { QUEUE }, share: SHARES[me.chance.usize(..3)], key, subject };
    let backoff = span(millis(me.chance.u64(10..200)));
    let retry = pb::RetryPolicy {
        max_attempts: Some(me.chance.i32(2..7)),
        initial_backoff: Some(backoff),
        max_backoff: Some(backoff),
        ..Default::default()
    };
    let ttl = if me.in_100(15) { millis(me.chance.u64(100..3_000)) } else { Duration::from_secs(600) };
    let spec = pb::TaskSpec {
        queue: asked.queue.into(),
        task_id: id.into(),
        kind: "push".into(),
        payload: vec![b'x'; me.chance.usize(..300)].into(),
        fairness_key: asked.share.into(),
        ordering_key: asked.key.clone(),
        subjects: asked
            .subject
            .iter()
            .map(|(id, version)| pb::Subject { id: id.clone(), version: *version, raise_floor: false })
            .collect(),
        priority: me.chance.i32(-2..3),
        retry: Some(retry),
        start: me.in_100(10).then(|| pb::task_spec::Start::StartDelay(span(millis(me.chance.u64(10..800))))),
        end: Some(pb::task_spec::End::Ttl(span(ttl))),
        ..Default::default()
    };
    (asked, spec)
}

pub async fn produce(mut me: Client, producer: usize) {
    for number in 0.. {
        let patient = !me.in_100(3);
        while me.shared.storms() && patient && me.shared.unfinished.load(Ordering::Relaxed) > AHEAD {
            me.pause(3..8).await;
        }
        if !me.shared.storms() {
            return;
        }
        let count = if me.in_100(25) { me.chance.usize(2..9) } else { 1 };
        let atomic = count > 1 && me.chance.bool();
        let tasks: Vec<_> = (0..count).map(|place| spec(&mut me, &format!("m-{producer}-{number}-{place}"))).collect();
        let (asked, specs): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
        me.shared.write(|history| {
            history.asked.extend(specs.iter().map(|spec| spec.task_id.clone()).zip(asked));
            if atomic {
                history.together.push(specs.iter().map(|spec| spec.task_id.clone()).collect());
            }
        });
        let persistent = me.in_100(85);
        while !me.submit(&specs, atomic).await && persistent && me.shared.storms() {}
        if me.in_100(4) {
            me.submit(&specs, atomic).await;
        }
    }
}

/// Claims and works, several tasks at a time. While it storms it does so badly.
pub async fn work(mut me: Client, number: usize) {
    let worker = format!("w{number}");
    let mut hands = JoinSet::new();
    for round in 0.. {
        while hands.len() >= HANDS {
            hands.join_next().await.expect("it has some").expect("a hand does not panic");
        }
        if !me.shared.working.load(Ordering::Relaxed) {
            break;
        }
        let claim = pb::ClaimRequest {
            queue: if (number + round).is_multiple_of(4) { ORDERS } else { QUEUE }.into(),
            worker_id: worker.clone(),
            max_tasks: Some(me.chance.i32(1..7)),
            wait: Some(span(millis(me.chance.u64(50..300)))),
            lease_duration: None,
            request_id: format!("r-{round}"),
            reports_effect: me.chance.bool(),
        };
        let mut leases = me.claim(&claim).await;
        while leases.is_none() && me.in_100(60) {
            leases = me.claim(&claim).await;
        }
        for lease in leases.unwrap_or_default() {
            hands.spawn(handle(me.fork(), worker.clone(), lease));
        }
    }
    while let Some(done) = hands.join_next().await {
        done.expect("a hand does not panic");
    }
}

/// One lease in a worker's hands.
async fn handle(mut me: Client, worker: String, lease: pb::Lease) {
    let bad = me.shared.storms();
    let remaining = Duration::try_from(lease.remaining.unwrap_or_default()).unwrap_or_default().as_millis() as u64;
    match me.chance.u8(..100) {
        // It dies.
        0..5 if bad => return,
        // It sleeps past its lease and does not know.
        5..10 if bad => me.pause(remaining + 20..remaining + 500).await,
        // It takes its time.
        10..20 => me.pause(remaining / 2..remaining / 2 + 1).await,
        _ => me.pause(0..30).await,
    }
    if me.in_100(30) {
        match me.heartbeat(&worker, &lease).await {
            Said::Yes(held) if held.directive() == pb::Directive::Cancel && me.in_100(80) => {
                return report(&mut me, &lease, Outcome::Canceled(pb::Canceled { reason: "told to".into() })).await;
            }
            // It was told that the lease is lost. Half of them go on regardless.
            Said::No(_) if me.chance.bool() => return,
            _ => {}
        }
    }
    let mut begun = false;
    if me.in_100(50) {
        let mut said = me.begin_effect(&lease).await;
        while said == Said::Nothing && me.in_100(60) {
            said = me.begin_effect(&lease).await;
        }
        match said {
            Said::Yes(()) => {
                me.act(&lease);
                begun = true;
            }
            Said::No(_) if me.chance.bool() => return,
            Said::No(_) => {}
            // It does not know whether it may, so it does not act, and says that it does not know.
            Said::Nothing => return report(&mut me, &lease, Outcome::Failed(failed(ErrorClass::Unknown))).await,
        }
    }
    let outcome = outcome(&mut me, &lease, begun);
    report(&mut me, &lease, outcome).await;
}

fn outcome(me: &mut Client, lease: &pb::Lease, begun: bool) -> Outcome {
    let (id, token) = name(lease);
    let delay = me.chance.bool().then(|| millis(me.chance.u64(10..200)));
    match me.chance.u8(..100) {
        0..9 => Outcome::Failed(failed(ErrorClass::Transient)),
        9..11 => Outcome::Failed(failed(ErrorClass::Permanent)),
        11..15 => Outcome::Failed(failed(ErrorClass::Unknown)),
        15..19 => Outcome::Skipped(pb::Skipped { reason: "the device is offline".into() }),
        19..21 => Outcome::Canceled(pb::Canceled { reason: "its own policy".into() }),
        21..27 if !begun => Outcome::Released(released(delay)),
        _ => Outcome::Succeeded(pb::Succeeded { receipt_ref: format!("{id}:{token}"), ..Default::default() }),
    }
}

/// Says how it ended, mostly until it is answered.
async fn report(me: &mut Client, lease: &pb::Lease, outcome: Outcome) {
    let mut said = me.report(lease, outcome.clone()).await;
    while said == Said::Nothing && me.in_100(85) {
        said = me.report(lease, outcome.clone()).await;
    }
    if me.in_100(3) {
        me.report(lease, outcome).await;
    }
}

pub async fn cancel(mut me: Client) {
    while me.shared.storms() {
        me.pause(10..120).await;
        let id = {
            let mut recent = me.shared.recent.lock().unwrap_or_else(PoisonError::into_inner);
            let old = recent.len().saturating_sub(60);
            recent.drain(..old);
            let left = recent.len();
            (left > 0).then(|| recent.swap_remove(me.chance.usize(..left)))
        };
        let Some(id) = id else { continue };
        let queue = me.shared.write(|history| history.asked[&id].queue);
        me.cancel(pb::TaskRef { queue: queue.into(), task_id: id, uid: String::new() }).await;
    }
}

pub async fn edit(mut me: Client) {
    while me.shared.storms() {
        me.pause(50..500).await;
        let number = me.chance.usize(..SUBJECTS);
        let version = me.shared.floors[number].fetch_add(1, Ordering::Relaxed) + 1;
        me.raise(QUEUE, &format!("subject-{number}"), version).await;
    }
}

/// Gives up some of the tasks that can't go on, so that their keys do.
pub async fn give_up(mut me: Client) {
    while me.shared.storms() {
        me.pause(100..600).await;
        for repair in me.repairs(ORDERS).await {
            if me.chance.bool() {
                me.discard(repair.task.expect("a repair names its task")).await;
            }
        }
    }
}
