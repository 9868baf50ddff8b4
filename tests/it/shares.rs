//! Shares split a queue's dispatches by their weights, and have policies that act at once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::api::proto as pb;
use leasehold::engine::{Engine, IdleWalk, Settings};
use leasehold::store::{Db, Pools};
use tokio::task::JoinSet;
use tonic::Code;

use crate::town::{Answer, QUEUE, SECOND, Town, eventually};

/// |n_f/w_f − n_m/w_m| ≤ c_f/w_f + c_m/w_m over every interval of these dispatches, for every two of the shares.
fn within_the_bound(dispatches: &[(String, i32)], shares: &[(&str, f64, i32)]) {
    for (f, (one, one_weight, one_cost)) in shares.iter().enumerate() {
        for (other, other_weight, other_cost) in &shares[..f] {
            let (mut gap, mut least, mut most) = (0.0f64, 0.0f64, 0.0f64);
            for (share, cost) in dispatches {
                if share == one {
                    gap += f64::from(*cost) / one_weight;
                } else if share == other {
                    gap -= f64::from(*cost) / other_weight;
                }
                (least, most) = (least.min(gap), most.max(gap));
            }
            let bound = f64::from(*one_cost) / one_weight + f64::from(*other_cost) / other_weight;
            assert!(most - least <= bound + 1e-6, "{one} and {other}: {} > {bound}", most - least);
        }
    }
}

fn count(dispatches: &[(String, i32)], share: &str) -> usize {
    dispatches.iter().filter(|(of, _)| of == share).count()
}

#[tokio::test]
async fn two_servers_together_split_the_dispatches_by_weight_within_the_bound_in_the_order_of_the_tokens() {
    const SHARES: [(&str, f64, i32); 3] = [("light", 0.5, 3), ("middle", 2.5, 1), ("heavy", 7.0, 5)];
    const TASKS: usize = 700;
    let town = Arc::new(Town::with_servers(2).await);
    for (share, weight, cost) in SHARES {
        town.put_share(share, |share| share.weight = Some(weight)).await;
        for part in (0..TASKS).collect::<Vec<_>>().chunks(500) {
            let spec = |number: &usize| {
                let cost = 1 + u32::try_from(number % usize::try_from(cost).unwrap()).unwrap();
                town.spec(&format!("{share}/{number}")).share(share).with(|spec| spec.cost = Some(cost))
            };
            town.submit_batch(part.iter().map(spec).collect(), false).await.ok().into_iter().for_each(|answer| drop(answer.ok()));
        }
    }
    let mut workers = JoinSet::new();
    for number in 0..8 {
        let (town, worker) = (town.clone(), town.worker_at(number % 2, &format!("w{number}")));
        workers.spawn(async move {
            // Until the first of the shares runs dry.
            while count(&town.dispatches().await, "middle") < TASKS - 80 {
                for lease in worker.claim(1 + i32::try_from(number).unwrap()).await {
                    lease.complete().await.applied();
                }
            }
        });
    }
    workers.join_all().await;
    let mut dispatches = town.dispatches().await;
    let dry = SHARES.iter().filter_map(|(share, ..)| {
        let mut places = dispatches.iter().enumerate().filter(|(_, (of, _))| of == share).map(|(place, _)| place);
        places.nth(TASKS - 1)
    });
    let end = dry.min().unwrap_or(dispatches.len());
    dispatches.truncate(end);
    println!("{} dispatches", dispatches.len());
    assert!(dispatches.len() > TASKS);
    within_the_bound(&dispatches, &SHARES);
    town.audit().await;
}

#[tokio::test]
async fn a_weight_of_1_that_becomes_10_splits_the_next_220_dispatches_of_a_waiting_backlog_10_to_1() {
    let town = Town::start().await;
    for share in ["u-a", "u-b"] {
        town.backlog(share, 400).await;
    }
    assert_eq!(town.worker("w1").claim_all(100).await.len(), 100);
    let before = town.dispatches().await;
    assert_eq!(count(&before, "u-a"), 50);
    let share = town.put_share("u-a", |share| share.weight = Some(10.0)).await;
    assert_eq!(share.weight, Some(10.0));
    town.worker("w1").claim_all(220).await;
    let after = &town.dispatches().await[100..];
    within_the_bound(after, &[("u-a", 10.0, 1), ("u-b", 1.0, 1)]);
    assert!((199..=201).contains(&count(after, "u-a")), "{}", count(after, "u-a"));
    // And back again.
    town.put_share("u-a", |share| share.weight = Some(1.0)).await;
    town.worker("w1").claim_all(60).await;
    within_the_bound(&town.dispatches().await[320..], &[("u-a", 1.0, 1), ("u-b", 1.0, 1)]);
    town.audit().await;
}

#[tokio::test]
async fn beside_a_flood_ten_small_shares_get_their_part_from_the_first_fair_claim_on() {
    let town = Town::start().await;
    town.backlog("flood", 2_000).await;
    // The flood has had everything so far, and is not made to pay for it.
    town.worker("w1").claim_all(300).await;
    let small: Vec<String> = (0..10).map(|number| format!("small-{number}")).collect();
    for share in &small {
        town.backlog(share, 20).await;
    }
    town.worker("w1").claim_all(110).await;
    let dispatches = &town.dispatches().await[300..];
    for share in small.iter().map(String::as_str).chain(["flood"]) {
        assert_eq!(count(dispatches, share), 10, "{share}");
    }
    // The rest of the small ones' takes their part of eleven, and then the flood has all again.
    town.worker("w1").claim_all(200).await;
    let dispatches = &town.dispatches().await[410..];
    assert!(dispatches[115..].iter().all(|(share, _)| share == "flood"));
    town.audit().await;
}

#[tokio::test]
async fn a_capped_share_never_takes_more_than_its_part_when_it_has_places_again() {
    let town = Town::start().await;
    town.put_share("capped", |share| share.max_in_flight = Some(1)).await;
    town.backlog("capped", 100).await;
    town.backlog("other", 300).await;
    let worker = town.worker("w1");
    let held = worker.claim(100).await;
    assert_eq!(held.iter().filter(|lease| lease.id().starts_with("capped")).count(), 1);
    // What it could not have meanwhile is not made up for.
    town.put_share("capped", |share| share.max_in_flight = Some(1_000)).await;
    worker.claim_all(100).await;
    within_the_bound(&town.dispatches().await[100..], &[("capped", 1.0, 1), ("other", 1.0, 1)]);
    town.audit().await;
}

async fn list(town: &Town) -> Vec<pb::Share> {
    let (mut shares, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = pb::ListSharesRequest { queue: QUEUE.into(), page_size: 2, page_token };
        let page = Answer::from(town.admin().list_shares(request).await).ok();
        assert!(page.shares.len() <= 2);
        shares.extend(page.shares);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return shares;
        }
    }
}

#[tokio::test]
async fn a_share_s_policy_is_merged_cleared_compared_and_listed() {
    let town = Town::start().await;
    let nowhere = town.try_put_share("u-a", &[], |_| ()).await.refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    assert!(nowhere.metadata.is_empty());
    town.submit("of the empty key").await;
    let request = pb::ListSharesRequest { queue: "nowhere".into(), ..pb::ListSharesRequest::default() };
    let _ = Answer::from(town.admin().list_shares(request).await).refused_as(Code::NotFound, "QUEUE_NOT_FOUND");

    // Before its first task.
    let made = town.try_put_share("u-a", &[], |share| share.weight = Some(2.0)).await.ok();
    assert!(made.created);
    let etag = made.share.unwrap().etag;
    let wrong = |share: &mut pb::Share| share.etag = "12345".into();
    assert_eq!(town.try_put_share("u-a", &[], wrong).await.refused_as(Code::Aborted, "ETAG_MISMATCH").says("etag"), etag);
    let rate_limit = Some(pb::RateLimit { per_second: 2.5, burst: None });
    let change = |share: &mut pb::Share| {
        share.etag.clone_from(&etag);
        share.max_in_flight = Some(3);
        share.rate_limit = rate_limit;
        share.max_unfinished = Some(4);
    };
    let merged = town.try_put_share("u-a", &[], change).await.ok();
    assert!(!merged.created);
    let merged = merged.share.unwrap();
    let filled = Some(pb::RateLimit { per_second: 2.5, burst: Some(3) });
    assert_eq!(
        (merged.weight, merged.max_in_flight, merged.rate_limit, merged.max_unfinished),
        (Some(2.0), Some(3), filled, Some(4))
    );
    assert_ne!(merged.etag, etag);
    // A share that isn't there is compared with no etag at all, and is not made.
    let wrong = |share: &mut pb::Share| share.etag = "1".into();
    assert_eq!(town.try_put_share("u-b", &[], wrong).await.refused_as(Code::Aborted, "ETAG_MISMATCH").says("etag"), "");
    let cleared = town.try_put_share("u-a", &["rate_limit", "max_in_flight"], |share| share.weight = Some(0.01)).await.ok();
    let cleared = cleared.share.unwrap();
    assert_eq!(
        (cleared.weight, cleared.max_in_flight, cleared.rate_limit, cleared.max_unfinished),
        (Some(0.01), None, None, Some(4))
    );
    for key in ["=", "zz", "ä"] {
        town.put_share(key, |_| ()).await;
    }
    let listed = list(&town).await;
    assert_eq!(listed.iter().map(|share| share.fairness_key.as_str()).collect::<Vec<_>>(), ["", "=", "u-a", "zz", "ä"]);
    assert_eq!((listed[0].weight, &listed[2]), (Some(1.0), &cleared));
    town.audit().await;
}

/// A server's inside, to take a loop's step at will.
fn engine(town: &Town) -> Engine {
    Engine::start(Db::open(&town.database_url, Pools::default()).unwrap(), Settings::default())
}

async fn remove_idle(engine: &Engine) {
    let mut at = Some(IdleWalk::START);
    while let Some(from) = at {
        at = engine.remove_idle(from).await.unwrap();
    }
}

async fn names(town: &Town, query: &str) -> Vec<String> {
    sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned())).fetch_all(town.database()).await.unwrap()
}

const SHARES: &str = "SELECT fairness_key FROM shares ORDER BY 1";
const KEYS: &str = "SELECT key FROM ordering_keys ORDER BY 1";

#[tokio::test]
async fn shares_and_keys_appear_with_their_first_task_and_go_when_nothing_is_left_of_them() {
    let town = Town::start().await;
    let engine = engine(&town);
    town.put_share("with a policy", |share| share.max_in_flight = Some(1)).await;
    for state in ["done", "leased", "later", "backing off", "ready"] {
        let spec = town.spec(state).share(state).key(state);
        if state == "later" { spec.start_delay(SECOND * 60) } else { spec }.submit().await;
        match state {
            "done" => drop(town.worker("w1").claim_one().await.complete().await.applied()),
            "leased" => drop(town.worker("w1").claim_one().await),
            "backing off" => drop(town.worker("w1").claim_one().await.fail(pb::ErrorClass::Transient).await.applied()),
            _ => {}
        }
    }
    remove_idle(&engine).await;
    assert_eq!(names(&town, SHARES).await, ["backing off", "later", "leased", "ready", "with a policy"]);
    // A key is known as long as its tasks are.
    assert_eq!(names(&town, KEYS).await, ["backing off", "done", "later", "leased", "ready"]);
    town.execute("DELETE FROM ended").await;
    remove_idle(&engine).await;
    assert_eq!(names(&town, KEYS).await, ["backing off", "later", "leased", "ready"]);
}

#[tokio::test]
async fn a_share_and_a_key_are_not_removed_under_a_submit_and_a_submit_that_finds_them_gone_makes_them_anew() {
    let town = Town::start().await;
    let engine = engine(&town);
    let spec = |id: &str| town.spec(id).share("u-a").key("k");
    let gone = async |id: &str| {
        town.worker("w1").claim_one().await.complete().await.applied();
        town.execute(format!("DELETE FROM ended USING tasks t WHERE t.task_id = '{id}' AND ended.uid = t.uid")).await;
        town.execute(format!("DELETE FROM events USING tasks t WHERE t.task_id = '{id}' AND events.uid = t.uid")).await;
        town.execute(format!("DELETE FROM tasks WHERE task_id = '{id}'")).await;
    };
    spec("t-0").submit().await;
    gone("t-0").await;
    // A Submit holds both and has not committed: they stay.
    let mut log = town.hold("SELECT pg_advisory_xact_lock(1, 1)").await;
    log.execute("LOCK TABLE events IN SHARE MODE").await;
    let (mut tasks, request) = (town.tasks(), pb::SubmitRequest { spec: Some(spec("t-1").spec) });
    let submitting = tokio::spawn(async move { tasks.submit(request).await });
    log.until_waited_for_patiently().await;
    remove_idle(&engine).await;
    assert_eq!((names(&town, SHARES).await, names(&town, KEYS).await), (vec!["u-a".to_owned()], vec!["k".to_owned()]));
    log.let_go().await;
    submitting.await.unwrap().unwrap();
    gone("t-1").await;
    // The remover holds both and has not committed: a Submit waits for it, and finds them gone.
    for table in ["shares", "ordering_keys"] {
        let mut removing = town.hold(&format!("DELETE FROM {table} RETURNING 1")).await;
        let id = format!("after {table}");
        let (mut tasks, request) = (town.tasks(), pb::SubmitRequest { spec: Some(spec(&id).spec) });
        let submitting = tokio::spawn(async move { tasks.submit(request).await });
        removing.until_waited_for().await;
        removing.let_go().await;
        submitting.await.unwrap().unwrap();
        gone(&id).await;
    }
    spec("last").submit().await;
    spec("behind").submit().await;
    town.audit().await;
}

#[tokio::test]
async fn shares_that_come_and_go_while_others_submit_and_remove_lose_nothing() {
    let town = Arc::new(Town::with_servers(2).await);
    let engine = engine(&town);
    let mut callers = JoinSet::new();
    for caller in 0..6 {
        let town = town.clone();
        callers.spawn(async move {
            let worker = town.worker_at(caller % 2, &format!("w{caller}"));
            for number in 0..60 {
                town.spec(&format!("t-{caller}-{number}")).share(&format!("u-{}", number % 4)).at(caller % 2).submit().await;
                for lease in worker.claim_within(2, Duration::from_millis(200)).await {
                    lease.complete().await.applied();
                }
            }
        });
    }
    while !callers.is_empty() {
        remove_idle(&engine).await;
        while callers.try_join_next().is_some() {}
    }
    let worker = town.worker("w");
    eventually("all is done", async || {
        for lease in worker.claim(50).await {
            lease.complete().await.applied();
        }
        (town.sql::<i64>("SELECT count(*) FROM live").await == 0).then_some(())
    })
    .await;
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM ended").await, 360);
    town.audit().await;
}
