//! Many tasks are canceled at once: what a filter picks, and nothing else; and cancels that meet completions.

use leasehold::api::proto::{self as pb, Cause, TaskState};
use tonic::Code;

use crate::town::{Answer, QUEUE, SECOND, Town};

const REASON: &str = "u-b left the conversation";

fn request(filter: pb::TaskFilter) -> pb::CancelTasksRequest {
    pb::CancelTasksRequest { filter: Some(filter), reason: REASON.into(), ..Default::default() }
}

fn filter() -> pb::TaskFilter {
    pb::TaskFilter::default()
}

/// Canceled, told, effected.
fn counts(answer: &pb::CancelTasksResponse) -> (i64, i64, i64) {
    (answer.canceled_count, answer.told_count, answer.effected_count)
}

fn label(key: &str, value: &str) -> pb::TaskFilter {
    pb::TaskFilter { labels: [(key.to_owned(), value.to_owned())].into(), ..filter() }
}

#[tokio::test]
async fn what_a_filter_picks_is_canceled_and_nothing_else() {
    let town = Town::start().await;
    let spec = |id: &str| town.spec(id);
    spec("kind").with(|s| s.kind = "mail".into()).submit().await;
    spec("target").with(|s| s.target = "d-b1".into()).submit().await;
    spec("event").with(|s| s.event_id = "evt:m-9:v1".into()).submit().await;
    spec("subject").about("m-9", 1).submit().await;
    spec("share").share("u-b").submit().await;
    spec("head").key("c-a").submit().await;
    spec("blocked").key("c-a").submit().await;
    spec("labels").label("conversation", "c-a").label("member", "u-b").submit().await;
    spec("other labels").label("conversation", "c-a").submit().await;
    spec("scheduled").start_delay(SECOND * 60).submit().await;
    spec("left alone").submit().await;
    let both =
        pb::TaskFilter { labels: [("conversation".into(), "c-a".into()), ("member".into(), "u-b".into())].into(), ..filter() };
    let cases: [(pb::TaskFilter, &[&str]); 9] = [
        (pb::TaskFilter { kind: "mail".into(), ..filter() }, &["kind"]),
        (pb::TaskFilter { target: "d-b1".into(), ..filter() }, &["target"]),
        (pb::TaskFilter { event_id: "evt:m-9:v1".into(), ..filter() }, &["event"]),
        (pb::TaskFilter { subject_id: "m-9".into(), ..filter() }, &["subject"]),
        (pb::TaskFilter { fairness_key: Some("u-b".into()), ..filter() }, &["share"]),
        (pb::TaskFilter { ordering_key: "c-a".into(), ..filter() }, &["blocked", "head"]),
        (both, &["labels"]),
        (label("conversation", "c-a"), &["other labels"]),
        (pb::TaskFilter { states: vec![TaskState::Scheduled as i32, TaskState::Completed as i32], ..filter() }, &["scheduled"]),
    ];
    for (filter, expected) in cases {
        let dry = town.cancel_tasks(pb::CancelTasksRequest { validate_only: true, ..request(filter.clone()) }).await.ok();
        let mut named = dry.sample_task_ids.clone();
        named.sort();
        assert_eq!(named, expected, "{filter:?}");
        assert!(town.states(expected).await.iter().all(|state| *state != "CANCELED"));
        let answer = town.cancel_tasks(request(filter.clone())).await.ok();
        assert_eq!((counts(&answer), answer.more), ((expected.len() as i64, 0, 0), false), "{filter:?}");
        assert_eq!((counts(&dry), dry.more), (counts(&answer), false));
        for id in expected {
            let task = town.task(id).await;
            assert_eq!((task.state(), task.cause(), task.reason.as_str()), (TaskState::Canceled, Cause::Requested, REASON));
        }
        let again = town.cancel_tasks(request(filter)).await.ok();
        assert_eq!((counts(&again), again.sample_task_ids), ((0, 0, 0), vec![]));
    }
    assert_eq!(town.states(&["left alone"]).await, ["READY"]);
    town.audit().await;
}

#[tokio::test]
async fn running_ones_are_told_once_and_those_that_may_have_had_their_effect_are_counted() {
    let town = Town::start().await;
    for id in ["begun", "running", "unknown", "waiting", "completed"] {
        town.spec(id).label("m", "u-b").retry(3, SECOND * 60).submit().await;
    }
    let leases = town.worker("w1").reporting_effects().claim_all(5).await;
    let lease = |id: &str| leases.iter().find(|lease| lease.id() == id).unwrap();
    lease("begun").begin_effect("call-1").await.applied();
    lease("unknown").fail(pb::ErrorClass::Unknown).await.applied();
    lease("waiting").release().await.applied();
    lease("completed").complete().await.applied();
    let dry = town.cancel_tasks(pb::CancelTasksRequest { validate_only: true, ..request(label("m", "u-b")) }).await.ok();
    let answer = town.cancel_tasks(request(label("m", "u-b"))).await.ok();
    assert_eq!((counts(&dry), counts(&answer)), ((2, 2, 2), (2, 2, 2)));
    assert_eq!(
        town.states(&["begun", "running", "unknown", "waiting", "completed"]).await,
        ["LEASED", "LEASED", "CANCELED", "CANCELED", "COMPLETED"]
    );
    lease("running").complete().await.refused_with("CANCEL_REQUESTED");
    assert!(lease("begun").heartbeat().await.ok().directive() == pb::Directive::Cancel);
    // Whoever was told is not told again, nor counted.
    assert_eq!(counts(&town.cancel_tasks(request(label("m", "u-b"))).await.ok()), (0, 0, 0));
    town.audit().await;
}

#[tokio::test]
async fn one_call_cancels_no_more_than_it_may_and_says_that_more_are_left() {
    let town = Town::start().await;
    let specs = (0..700).map(|number| town.spec(&format!("t-{number}")).share("u-b")).collect();
    town.submit_batch(specs, false).await.ok();
    let some = |max_tasks| {
        let of = pb::TaskFilter { fairness_key: Some("u-b".into()), ..filter() };
        pb::CancelTasksRequest { max_tasks: Some(max_tasks), ..request(of) }
    };
    let first = town.cancel_tasks(some(30)).await.ok();
    assert_eq!((first.canceled_count, first.sample_task_ids.len(), first.more), (30, 20, true));
    let second = town.cancel_tasks(some(600)).await.ok();
    assert_eq!((second.canceled_count, second.more), (600, true));
    let third = town.cancel_tasks(some(70)).await.ok();
    assert_eq!((third.canceled_count, third.more), (70, false));
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM live").await, 0);
    town.audit().await;
}

#[tokio::test]
async fn a_filter_that_holds_no_more_than_a_queue_cancels_nothing() {
    let town = Town::start().await;
    town.submit("t").await;
    let refused = town.cancel_tasks(request(filter())).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    assert!(refused.status.message().contains("filter"), "{}", refused.status.message());
    let elsewhere = pb::TaskFilter { queue: "nowhere".into(), kind: "push".into(), ..filter() };
    Answer::from(town.tasks().cancel_tasks(request(elsewhere)).await).refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    assert_eq!(town.states(&["t"]).await, ["READY"]);
    town.audit().await;
}

/// Tasks that are canceled while their workers complete them.
const TASKS: usize = 1_000;

#[tokio::test]
async fn a_thousand_tasks_canceled_around_their_completion_have_one_end_each_and_no_retry() {
    let town = Town::with_servers(2).await;
    let specs = (0..TASKS).map(|number| town.spec(&format!("t-{number}")).label("part", &(number % 10).to_string())).collect();
    town.submit_batch(specs, false).await.ok();
    let town = &town;
    let completing = (0..4).map(|number| async move {
        let worker = town.worker_at(number % 2, &format!("w{number}"));
        let mut done = Vec::new();
        loop {
            let leases = worker.claim(10).await;
            if leases.is_empty() {
                return done;
            }
            for lease in leases {
                let failing = fastrand::u8(..5) == 0;
                let answer = if failing { lease.fail(pb::ErrorClass::Transient).await } else { lease.complete().await };
                match answer.0 {
                    Ok(answer) => done.push((lease.id().to_owned(), answer.task.unwrap().state())),
                    Err(status) => drop(Answer::<()>(Err(status)).refused_with("CANCEL_REQUESTED")),
                }
            }
        }
    });
    let canceling = (0..4).map(|number| async move {
        for _ in 0..TASKS / 4 {
            let id = format!("t-{}", fastrand::usize(..TASKS));
            if let Err(status) = town.cancel(&id).await.0 {
                drop(Answer::<()>(Err(status)).refused_with("TASK_TERMINAL"));
            }
        }
        let part = pb::TaskFilter { queue: QUEUE.into(), ..label("part", &number.to_string()) };
        Answer::from(town.tasks_at(number % 2).cancel_tasks(request(part)).await).ok();
    });
    let (done, _) = tokio::join!(futures_util::future::join_all(completing), futures_util::future::join_all(canceling));
    for (id, told) in done.into_iter().flatten() {
        let state = town.task(&id).await.state();
        // What was answered stands, unless it was a retry that went on.
        assert!(state == told || told == TaskState::RetryAt, "{id} was {told:?} and is {state:?}");
    }
    // All the rest: whoever still waits for its retry.
    let left = pb::TaskFilter { kind: "push".into(), ..filter() };
    while town.cancel_tasks(request(left.clone())).await.ok().more {}
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM live").await, 0);
    assert_eq!(town.sql::<i64>("SELECT count(*) FROM ended").await, TASKS as i64);
    let twice = "SELECT count(*) FROM (SELECT uid FROM events WHERE kind = 'ENDED' GROUP BY uid HAVING count(*) <> 1) e";
    assert_eq!(town.sql::<i64>(twice).await, 0);
    let retried = "SELECT count(*) FROM events e JOIN events c USING (queue_id, uid)
                   WHERE c.kind = 'CANCEL_REQUESTED' AND e.revision > c.revision AND e.kind <> 'ENDED'";
    assert_eq!(town.sql::<i64>(retried).await, 0);
    town.audit().await;
}
