//! Many in one call: each as if it had come alone, one refusal never touching its neighbours.

use leasehold::api::proto::complete_request::Outcome as Said;
use leasehold::api::proto::{self as pb, ErrorClass, TaskState};
use tonic::Code;

use crate::town::{LEASE, Lease, SECOND, Town, failed, succeeded};

#[tokio::test]
async fn reports_of_one_call_are_judged_one_by_one_in_their_order() {
    let town = Town::start().await;
    let worker = town.worker("w1");
    town.submit("lost").await;
    let lost = worker.claim_one().await;
    lost.release().await.applied();
    town.worker("w2").claim_one().await;
    for id in ["done", "twice", "fails", "canceled"] {
        town.spec(id).retry(3, LEASE).submit().await;
    }
    let leases = worker.claim_all(4).await;
    let [done, twice, fails, canceled] = &leases[..] else { panic!("four were asked for") };
    town.cancel("canceled").await.ok();
    let success = || Said::Succeeded(succeeded());
    let reports = vec![
        (done, success()),
        (&lost, success()),
        (twice, success()),
        (twice, success()),
        (twice, Said::Failed(failed(ErrorClass::Permanent))),
        (canceled, success()),
        (fails, Said::Failed(failed(ErrorClass::Transient))),
    ];
    let mut answers = worker.report_all(reports).await.into_iter();
    let mut next = || answers.next().expect("an answer for each");
    next().applied();
    next().refused_with("LEASE_SUPERSEDED");
    next().applied();
    next().already_applied();
    assert_eq!(next().refused_with("TASK_TERMINAL").says("state"), "COMPLETED");
    next().refused_with("CANCEL_REQUESTED");
    next().applied();
    let ids = ["done", "lost", "twice", "canceled", "fails"];
    assert_eq!(town.states(&ids).await, ["COMPLETED", "LEASED", "COMPLETED", "CANCELED", "RETRY_AT"]);
    assert_eq!(town.attempts("twice").await[0].late_reports.len(), 1);
    town.audit().await;
}

#[tokio::test]
async fn heartbeats_of_one_call_are_judged_one_by_one() {
    let town = Town::start().await;
    let worker = town.worker("w1");
    for id in ["held", "ended", "told"] {
        town.submit(id).await;
    }
    let leases = worker.claim_all(3).await;
    leases[1].complete().await.applied();
    town.cancel("told").await.ok();
    let mut answers = worker.heartbeat_all(&leases.iter().collect::<Vec<_>>()).await.into_iter();
    let mut next = || answers.next().expect("an answer for each");
    assert_eq!(next().ok().directive(), pb::Directive::Continue);
    next().refused_with("TASK_TERMINAL");
    assert_eq!(next().ok().directive(), pb::Directive::Cancel);
    town.audit().await;
}

#[tokio::test]
async fn the_same_id_twice_in_a_batch_is_as_two_submits() {
    let town = Town::start().await;
    town.spec("known").payload(b"a").submit().await;
    let specs = [("new", b"a"), ("new", b"a"), ("new", b"b"), ("known", b"a"), ("known", b"b"), ("last", b"a")];
    let specs = specs.map(|(id, payload)| town.spec(id).payload(payload));
    let mut answers = town.submit_batch(specs.to_vec(), false).await.ok().into_iter();
    let mut next = || answers.next().expect("an answer for each");
    let new = next().ok();
    assert!(new.created);
    let again = next().ok();
    assert_eq!((again.created, again.task), (false, new.task));
    next().refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    assert!(!next().ok().created);
    next().refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    assert!(next().ok().created);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM tasks").await, 3);
    town.audit().await;
}

#[tokio::test]
async fn an_atomic_batch_leaves_all_or_nothing() {
    let town = Town::start().await;
    town.spec("known").payload(b"a").submit().await;
    let refused = vec![town.spec("one").key("c-a"), town.spec("known").payload(b"b"), town.spec("two")];
    town.submit_batch(refused, true).await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    let torn = vec![town.spec("one").payload(b"a"), town.spec("one").payload(b"b")];
    town.submit_batch(torn, true).await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    town.submit_batch(vec![town.spec("one"), town.spec("")], true).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let left: String = town.sql("SELECT count(*) || ' ' || (SELECT count(*) FROM events) FROM tasks").await;
    assert_eq!(left, "1 1");
    let answers =
        town.submit_batch(vec![town.spec("one").key("c-a"), town.spec("known").payload(b"a"), town.spec("two")], true).await.ok();
    assert_eq!(answers.into_iter().map(|answer| answer.ok().created).collect::<Vec<_>>(), [true, false, true]);
    town.audit().await;
}

#[tokio::test]
async fn a_claim_again_with_its_request_id_gets_the_same_leases_while_they_last() {
    let town = Town::start().await;
    for id in ["a", "b", "c"] {
        town.submit(id).await;
    }
    let names = |leases: &[Lease]| leases.iter().map(|lease| (lease.id().to_owned(), lease.token())).collect::<Vec<_>>();
    let worker = town.worker("w1").with_request_id("r-1");
    let first = worker.claim(2).await;
    assert_eq!(names(&worker.claim(2).await), names(&first));
    // The same request of somebody else is another one.
    assert_eq!(town.worker("w2").with_request_id("r-1").claim(2).await[0].id(), "c");
    first[0].complete().await.applied();
    assert_eq!(names(&worker.claim(2).await), names(&first[1..]));
    town.clock.advance(LEASE + SECOND).await;
    town.wait_for_state("b", TaskState::RetryAt).await;
    town.audit().await;
}

#[tokio::test]
async fn while_somebody_holds_one_tasks_row_its_neighbours_are_served() {
    let town = Town::start().await;
    for number in 0..20 {
        town.submit(&format!("t-{number}")).await;
    }
    let leases = town.worker("w1").claim_all(20).await;
    let mut held = town.hold_task("t-7").await;
    let stuck = {
        let lease = leases[7].clone();
        tokio::spawn(async move { lease.complete().await })
    };
    held.until_waited_for().await;
    let others = leases.iter().filter(|lease| lease.id() != "t-7");
    for answer in futures_util::future::join_all(others.map(Lease::complete)).await {
        answer.applied();
    }
    assert!(!stuck.is_finished());
    held.let_go().await;
    stuck.await.unwrap().applied();
    town.audit().await;
}
