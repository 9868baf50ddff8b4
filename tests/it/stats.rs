//! What GetStats tells is what a recount finds.

use leasehold::api::proto::{self as pb, Cause, ErrorClass, TaskState};
use pb::admin_service_client::AdminServiceClient;
use tonic::Code;

use crate::town::{Answer, QUEUE, SECOND, Town, eventually, span};

impl Town {
    async fn try_stats(&self, request: pb::GetStatsRequest) -> Answer<pb::GetStatsResponse> {
        AdminServiceClient::new(self.server(0).channel()).get_stats(request).await.into()
    }

    async fn stats(&self) -> pb::GetStatsResponse {
        self.try_stats(pb::GetStatsRequest { queue: QUEUE.into(), ..Default::default() }).await.ok()
    }

    /// Asks until that is what is told: a count that took long is answered again for a while.
    async fn expired_leases_are(&self, count: i64) {
        let told = async || (work(&self.stats().await).expired_leases == count).then_some(());
        eventually(&format!("{count} leases have run out"), told).await;
    }
}

fn work(stats: &pb::GetStatsResponse) -> &pb::WorkStats {
    stats.queue.as_ref().unwrap().work.as_ref().unwrap()
}

/// The states that have tasks.
fn states(work: &pb::WorkStats) -> Vec<(TaskState, i64)> {
    work.states.iter().filter(|state| state.count > 0).map(|state| (state.state(), state.count)).collect()
}

fn targets(work: &pb::WorkStats) -> Vec<(&str, i64)> {
    work.targets.iter().map(|target| (target.target.as_str(), target.count)).collect()
}

/// Without what grows between two looks.
fn ageless(mut shares: Vec<pb::ShareStats>) -> Vec<pb::ShareStats> {
    shares.iter_mut().filter_map(|share| share.work.as_mut()).for_each(|work| work.oldest_unfinished_age = None);
    shares
}

#[tokio::test]
async fn tasks_are_counted_by_state_and_target_and_what_happened_lately_by_rate() {
    let town = Town::start().await;
    for id in ["done", "fails", "retries", "doubted", "runs"] {
        town.spec(id).retry(if id == "retries" { 3 } else { 1 }, SECOND * 60).submit().await;
    }
    let worker = town.worker("w1");
    let leases = worker.claim_all(5).await;
    town.clock.advance(SECOND * 2).await;
    for lease in leases {
        match lease.id() {
            "done" => drop(lease.complete().await.applied()),
            "fails" => drop(lease.fail(ErrorClass::Permanent).await.applied()),
            "retries" => drop(lease.fail(ErrorClass::Transient).await.applied()),
            "doubted" => drop(lease.fail(ErrorClass::Unknown).await.applied()),
            _ => {}
        }
    }
    for (id, target) in [("a", "d-1"), ("b", "d-1"), ("c", "d-2")] {
        town.spec(id).with(|spec| spec.target = target.into()).submit().await;
    }
    town.spec("later").start_delay(SECOND * 60).submit().await;
    town.spec("head").key("k").submit().await;
    town.spec("behind").key("k").submit().await;
    town.cancel("b").await.ok();

    let stats = town.stats().await;
    let queue = work(&stats);
    assert_eq!(queue.states.len(), 9, "every state, also those without tasks");
    let expected = [
        (TaskState::Scheduled, 1),
        (TaskState::Blocked, 1),
        (TaskState::Ready, 3),
        (TaskState::Leased, 1),
        (TaskState::RetryAt, 1),
        (TaskState::Completed, 1),
        (TaskState::Canceled, 1),
        (TaskState::RepairRequired, 2),
    ];
    assert_eq!(states(queue), expected);
    assert_eq!(targets(queue), [("", 5), ("d-1", 1), ("d-2", 1)]);
    let repairs: Vec<(Cause, i64)> = queue.repairs.iter().map(|repair| (repair.cause(), repair.count)).collect();
    assert_eq!(repairs, [(Cause::PermanentError, 1), (Cause::AttemptsExhausted, 1)]);
    assert!(queue.oldest_unfinished_age.unwrap().seconds >= 2);

    let seconds = stats.window.unwrap().seconds as f64;
    let rates = queue.rates.unwrap();
    let happened = [
        rates.submitted_per_second,
        rates.claimed_per_second,
        rates.completed_per_second,
        rates.retried_per_second,
        rates.unknown_per_second,
    ];
    let happened: Vec<f64> = happened.iter().map(|rate| (rate * seconds).round()).collect();
    assert_eq!(happened, [11.0, 5.0, 1.0, 1.0, 1.0]);
    let (starts, runs) = (queue.acceptance_to_start.unwrap(), queue.run_time.unwrap());
    assert_eq!((starts.count, runs.count), (5, 4));
    assert!(runs.p50.unwrap().seconds >= 2 && starts.max.unwrap().seconds < runs.p50.unwrap().seconds);
    assert_eq!(queue.expired_leases, 0);
    town.audit().await;
}

#[tokio::test]
async fn a_lease_that_ran_out_is_told_until_it_is_recovered() {
    let town = Town::start().await;
    town.submit("t").await;
    drop(town.worker("w1").claim_one().await);
    // While its row is held, nothing can recover it.
    let held = town.hold_task("t").await;
    town.clock.advance(SECOND * 40).await;
    town.expired_leases_are(1).await;
    held.let_go().await;
    town.wait_for_state("t", TaskState::RetryAt).await;
    town.expired_leases_are(0).await;
}

#[tokio::test]
async fn tasks_that_found_no_room_are_counted_where_they_were_refused() {
    let town = Town::start().await;
    town.put_queue(|queue| queue.max_unfinished = Some(2)).await;
    for share in ["x", "y"] {
        town.spec(share).share(share).submit().await;
    }
    town.spec("alone").share("x").try_submit().await.refused_as(Code::ResourceExhausted, "QUEUE_FULL");
    let batch = vec![town.spec("b-0").share("x"), town.spec("x").share("x"), town.spec("b-1").share("y")];
    let accepted: Vec<bool> = town.submit_batch(batch, false).await.ok().into_iter().map(|answer| answer.0.is_ok()).collect();
    assert_eq!(accepted, [false, true, false], "only who is known is answered");
    town.spec("x").payload(b"other").share("x").try_submit().await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    let told = town.stats().await;
    let seconds = told.window.unwrap().seconds as f64;
    let refused = |work: &pb::WorkStats| (work.rates.unwrap().full_refused_per_second * seconds).round();
    assert_eq!(refused(work(&told)), 3.0);
    assert_eq!(told.shares.iter().map(|share| refused(share.work.as_ref().unwrap())).collect::<Vec<_>>(), [2.0, 1.0]);
}

#[tokio::test]
async fn shares_are_told_by_key_and_page_by_page_and_each_within_the_bound() {
    let town = Town::start().await;
    for key in ["", "a", "b"] {
        for n in 0..20 {
            let cost = 1 + (n * 7) % 5;
            town.spec(&format!("{key}-{n}")).share(key).with(|spec| spec.cost = Some(cost)).submit().await;
        }
    }
    town.worker("w1").claim_all(31).await;
    let all = town.stats().await;
    assert_eq!(all.queue.as_ref().unwrap().active_shares, 3);
    let keys: Vec<&str> = all.shares.iter().map(|share| share.fairness_key.as_str()).collect();
    assert_eq!(keys, ["", "a", "b"]);
    let mut received = 0.0;
    for share in &all.shares {
        let fairness = share.fairness.unwrap();
        assert!(fairness.received > 0.0 && fairness.lag.abs() <= fairness.lag_bound, "{share:?}");
        assert!((fairness.entitled - fairness.received - fairness.lag).abs() < 1e-9);
        received += fairness.received;
        let counted: i64 = states(share.work.as_ref().unwrap()).iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 20);
    }
    let leased: i64 = town.sql("SELECT sum(cost) FROM live WHERE state = 'LEASED'").await;
    assert_eq!(received.round() as i64, leased);

    let one = pb::GetStatsRequest { queue: QUEUE.into(), fairness_key: Some("a".into()), ..Default::default() };
    assert_eq!(ageless(town.try_stats(one).await.ok().shares), ageless(vec![all.shares[1].clone()]));
    let mut page = pb::GetStatsRequest { queue: QUEUE.into(), page_size: 1, ..Default::default() };
    let mut told = Vec::new();
    loop {
        let answer = town.try_stats(page.clone()).await.ok();
        told.extend(answer.shares);
        if answer.next_page_token.is_empty() {
            break;
        }
        page.page_token = answer.next_page_token;
    }
    assert_eq!(ageless(told), ageless(all.shares));
}

#[tokio::test]
async fn stats_of_nothing_are_refused() {
    let town = Town::start().await;
    let request = pb::GetStatsRequest { queue: "nobody-named-it".into(), ..Default::default() };
    town.try_stats(request).await.refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    let bad = pb::GetStatsRequest {
        queue: QUEUE.into(),
        window: Some(span(SECOND / 2)),
        page_size: -1,
        page_token: "rubbish".into(),
        ..Default::default()
    };
    town.try_stats(bad).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
}
