//! What people and producers can find out: GetTask, waiting, ListTasks, ListAttempts, Explain.

use std::time::{Duration, Instant};

use leasehold::api::proto::{self as pb, ErrorClass, ObstacleKind, TaskState};
use tonic::Code;

use crate::town::{Answer, LEASE, QUEUE, SECOND, Town, id_of, micros, span, task_ref};

#[tokio::test]
async fn an_unknown_id_is_not_found_and_never_pending() {
    let town = Town::start().await;
    for known_queue in [false, true] {
        let missing = town.look_up("nobody").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
        assert_eq!(missing.status.code(), Code::NotFound);
        town.cancel("nobody").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
        let by_uid =
            pb::TaskRef { queue: QUEUE.into(), uid: "01890a5d-ac96-774b-bcce-b302099a8057".into(), task_id: String::new() };
        let request = pb::GetTaskRequest { task: Some(by_uid), ..pb::GetTaskRequest::default() };
        Answer::from(town.tasks().get_task(request).await).refused_as(Code::NotFound, "TASK_NOT_FOUND");
        if !known_queue {
            town.submit("somebody").await;
        }
    }
}

#[tokio::test]
async fn what_was_accepted_can_be_looked_up_as_it_was_submitted() {
    let town = Town::start().await;
    let spec = town.spec("t").share("u-b").key("c-a").payload(b"ref:m-9").label("v", "1").priority(3).ttl(SECOND * 600);
    let spec = spec.with(|spec| spec.cost = Some(2));
    let asked = spec.spec.clone();
    let accepted = spec.submit().await;
    let full = town.task_with_payload("t").await;
    assert_eq!(full.spec.as_ref().unwrap(), &asked);
    let basic = town.task("t").await;
    assert_eq!(basic.spec.as_ref().unwrap(), &pb::TaskSpec { payload: Default::default(), ..asked });
    assert_eq!(basic, accepted);
    assert_eq!((basic.revision, basic.attempt, basic.fencing_token, basic.terminal), (1, 0, 0, false));
    assert_eq!(micros(basic.deadline_time.as_ref()) - micros(basic.create_time.as_ref()), 600_000_000);
    let by_uid = pb::TaskRef { queue: QUEUE.into(), uid: basic.uid.clone(), task_id: String::new() };
    let request = pb::GetTaskRequest { task: Some(by_uid), ..pb::GetTaskRequest::default() };
    assert_eq!(Answer::from(town.tasks().get_task(request).await).ok().task.unwrap(), basic);
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.task().spec.as_ref().unwrap().payload, "ref:m-9");
}

#[tokio::test]
async fn a_ref_with_both_names_must_mean_the_same_task_by_both() {
    let town = Town::start().await;
    let (one, other) = (town.submit("one").await, town.submit("other").await);
    let named = |uid: &str| pb::TaskRef { uid: uid.into(), ..task_ref("one") };
    let get = async |uid: &str| {
        let request = pb::GetTaskRequest { task: Some(named(uid)), ..pb::GetTaskRequest::default() };
        Answer::from(town.tasks().get_task(request).await)
    };
    assert_eq!(get(&one.uid).await.ok().task.unwrap(), one);
    get(&other.uid).await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    let cancel = pb::CancelRequest { task: Some(named(&other.uid)), reason: "mixed up".into() };
    Answer::from(town.tasks().cancel(cancel).await).refused_as(Code::NotFound, "TASK_NOT_FOUND");
    assert_eq!(town.states(&["one", "other"]).await, ["READY", "READY"]);
}

#[tokio::test]
async fn the_same_submit_again_is_the_same_task_also_after_it_ended() {
    let town = Town::start().await;
    let spec = town.spec("t").payload(b"ref:m-9");
    let first = spec.clone().submit().await;
    let again = spec.clone().try_submit().await.ok();
    assert!(!again.created);
    assert_eq!(again.task.unwrap(), first);
    town.worker("w1").claim_one().await.complete().await.applied();
    let again = spec.clone().label("only", "labels differ").try_submit().await.ok();
    assert!(!again.created);
    assert_eq!(again.task.unwrap(), town.task("t").await);
    let conflict = spec.payload(b"ref:m-10").try_submit().await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");
    assert_eq!((conflict.says("state"), conflict.says("uid")), ("COMPLETED", first.uid.as_str()));
    town.worker("w1").finds_nothing().await;
    town.audit().await;
}

#[tokio::test]
async fn a_completion_proves_its_queues_boundary_and_a_skip_only_has_a_reason() {
    let town = Town::start().await;
    town.policy("boundary = 'provider_accepted'").await;
    town.submit("completed").await;
    let task = town.worker("w1").claim_one().await.complete().await.applied().task.unwrap();
    assert_eq!((task.boundary.as_str(), task.receipt_ref.as_str(), task.reason.as_str()), ("provider_accepted", "receipt-1", ""));
    town.submit("skipped").await;
    let task = town.worker("w1").claim_one().await.skip("the device is offline").await.applied().task.unwrap();
    assert_eq!((task.state(), task.reason.as_str(), task.boundary.as_str()), (TaskState::Skipped, "the device is offline", ""));
    for id in ["completed", "skipped"] {
        let task = town.task(id).await;
        assert!(task.terminal && task.end_time.is_some() && task.repair.is_none() && task.worker_id.is_empty());
    }
    town.audit().await;
}

#[tokio::test]
async fn a_task_with_a_start_ahead_is_scheduled_and_then_ready() {
    let town = Town::start().await;
    let task = town.spec("t").start_delay(SECOND * 60).submit().await;
    assert_eq!(task.state(), TaskState::Scheduled);
    assert_eq!(micros(task.next_attempt_time.as_ref()) - micros(task.create_time.as_ref()), 60_000_000);
    town.clock.advance(SECOND * 50).await;
    town.worker("w1").finds_nothing().await;
    town.clock.advance(SECOND * 11).await;
    let task = town.wait_for_state("t", TaskState::Ready).await;
    assert_eq!(task.next_attempt_time, None);
    assert_eq!(town.worker("w1").claim_one().await.id(), "t");
    town.audit().await;
}

#[tokio::test]
async fn get_task_waits_for_a_state_and_for_any_end_if_none_is_named() {
    let town = Town::start().await;
    town.submit("t").await;
    let wait = |states: Vec<i32>, timeout: Duration| {
        let wait_until = Some(pb::WaitUntil { states, timeout: Some(span(timeout)) });
        let request = pb::GetTaskRequest { task: Some(task_ref("t")), view: 0, wait_until };
        let mut tasks = town.tasks();
        async move { Answer::from(tasks.get_task(request).await).ok().task.unwrap() }
    };
    // A wait that runs out tells how the task stands.
    assert_eq!(wait(vec![], Duration::ZERO).await.state(), TaskState::Ready);
    let begin = Instant::now();
    assert_eq!(wait(vec![TaskState::Leased as i32], Duration::from_millis(300)).await.state(), TaskState::Ready);
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let leased = tokio::spawn(wait(vec![TaskState::Leased as i32, TaskState::Canceled as i32], SECOND * 60));
    let ended = tokio::spawn(wait(vec![], SECOND * 60));
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(leased.await.unwrap().state(), TaskState::Leased);
    assert!(!ended.is_finished());
    lease.complete().await.applied();
    assert_eq!(ended.await.unwrap().state(), TaskState::Completed);
}

#[tokio::test]
async fn lists_pick_by_what_tasks_are_and_where_they_stand() {
    let town = Town::start().await;
    town.spec("completed").with(|spec| spec.kind = "mail".into()).share("u-a").submit().await;
    town.worker("w0").claim_one().await.complete().await.applied();
    town.spec("leased").with(|spec| spec.target = "d-b1".into()).label("v", "1").label("lang", "de").submit().await;
    town.worker("w1").claim_one().await;
    town.spec("head").key("c-a").with(|spec| spec.event_id = "evt:m-9:v1".into()).submit().await;
    town.spec("blocked").key("c-a").label("v", "1").submit().await;
    let subject = pb::Subject { id: "m-9".into(), version: 1, raise_floor: false };
    town.spec("about").share("u-a").with(|spec| spec.subjects = vec![subject]).submit().await;

    let filter = pb::TaskFilter::default;
    let state = |states: &[TaskState]| pb::TaskFilter { states: states.iter().map(|&state| state as i32).collect(), ..filter() };
    let label = |key: &str, value: &str| pb::TaskFilter { labels: [(key.to_owned(), value.to_owned())].into(), ..filter() };
    let cases = [
        (filter(), vec!["about", "blocked", "completed", "head", "leased"]),
        (state(&[TaskState::Completed]), vec!["completed"]),
        (state(&[TaskState::Ready, TaskState::Blocked]), vec!["about", "blocked", "head"]),
        (state(&[TaskState::Skipped]), vec![]),
        (pb::TaskFilter { kind: "mail".into(), ..filter() }, vec!["completed"]),
        (pb::TaskFilter { target: "d-b1".into(), ..filter() }, vec!["leased"]),
        (pb::TaskFilter { subject_id: "m-9".into(), ..filter() }, vec!["about"]),
        (pb::TaskFilter { fairness_key: Some("u-a".into()), ..filter() }, vec!["about", "completed"]),
        (pb::TaskFilter { fairness_key: Some(String::new()), ..filter() }, vec!["blocked", "head", "leased"]),
        (pb::TaskFilter { ordering_key: "c-a".into(), ..filter() }, vec!["blocked", "head"]),
        (pb::TaskFilter { worker_id: "w1".into(), ..filter() }, vec!["leased"]),
        // It means who holds the lease now.
        (pb::TaskFilter { worker_id: "w0".into(), ..filter() }, vec![]),
        (pb::TaskFilter { event_id: "evt:m-9:v1".into(), ..filter() }, vec!["head"]),
        (label("v", "1"), vec!["blocked", "leased"]),
        (label("v", "2"), vec![]),
        (pb::TaskFilter { ordering_key: "c-a".into(), ..label("v", "1") }, vec!["blocked"]),
    ];
    for (filter, expected) in cases {
        let mut found = town.list(filter.clone()).await;
        found.sort();
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn pages(town: &Town, page_size: i32) -> Vec<Vec<String>> {
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
        let page = Answer::from(town.tasks().list_tasks(pb::ListTasksRequest { filter, page_size, page_token }).await).ok();
        pages.push(page.tasks.iter().map(|task| id_of(task).to_owned()).collect());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn pages_hold_every_task_once_the_newest_first_whatever_has_ended() {
    let town = Town::start().await;
    for number in 0..11 {
        town.submit(&format!("t-{number}")).await;
    }
    for lease in town.worker("w1").claim(6).await {
        lease.complete().await.applied();
    }
    let all: Vec<String> = (0..11).rev().map(|number| format!("t-{number}")).collect();
    for size in [1, 4, 10, 11, 1_000] {
        let pages = pages(&town, size).await;
        assert_eq!(pages.len(), 11_usize.div_ceil(size as usize), "pages of {size}");
        assert_eq!(pages.concat(), all, "pages of {size}");
    }
}

#[tokio::test]
async fn a_list_of_a_queue_that_nobody_named_is_refused() {
    let town = Town::start().await;
    let filter = Some(pb::TaskFilter { queue: "nowhere".into(), ..pb::TaskFilter::default() });
    let request = pb::ListTasksRequest { filter, ..pb::ListTasksRequest::default() };
    Answer::from(town.tasks().list_tasks(request).await).refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
}

#[tokio::test]
async fn attempts_are_listed_in_order_and_page_by_page() {
    let town = Town::start().await;
    town.submit("t").await;
    for _ in 0..5 {
        town.worker("w1").claim_one().await.release().await.applied();
    }
    let lease = town.worker("w2").claim_one().await;
    lease.heartbeat().await.ok();
    let (mut numbers, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = pb::ListAttemptsRequest { task: Some(task_ref("t")), page_size: 2, page_token };
        let page = Answer::from(town.tasks().list_attempts(request).await).ok();
        assert!(page.attempts.len() <= 2);
        numbers.extend(page.attempts.iter().map(|attempt| attempt.number));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    let running = town.attempts("t").await.pop().unwrap();
    assert_eq!((running.outcome(), running.worker_id.as_str(), running.end_time.is_some()), (pb::Outcome::Running, "w2", false));
    assert!(running.last_heartbeat_time.is_some());
}

#[tokio::test]
async fn explain_says_what_is_in_the_way() {
    let town = Town::start().await;
    let kinds = async |id: &str| town.explain(id).await.iter().map(pb::Obstacle::kind).collect::<Vec<_>>();
    town.spec("retry").retry(3, SECOND * 60).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.submit("running").await;
    town.worker("w1").for_a_lease_of(LEASE * 10).claim_one().await;
    let later = town.spec("later").start_delay(SECOND * 60).submit().await;
    for id in ["first", "second", "third"] {
        town.spec(id).key("c-a").submit().await;
    }
    town.submit("ready").await;

    let obstacle = town.explain("retry").await.remove(0);
    assert_eq!((obstacle.kind(), obstacle.until_time), (ObstacleKind::BackingOff, town.task("retry").await.next_attempt_time));
    assert_eq!(kinds("running").await, [ObstacleKind::Running]);
    let obstacle = town.explain("later").await.remove(0);
    assert_eq!((obstacle.kind(), obstacle.until_time), (ObstacleKind::NotYet, later.next_attempt_time));
    for (id, ahead) in [("second", 1), ("third", 2)] {
        let obstacle = town.explain(id).await.remove(0);
        assert_eq!((obstacle.kind(), obstacle.ahead), (ObstacleKind::BehindKey, Some(ahead)), "{id}");
        assert_eq!(obstacle.blocker.unwrap().task_id, "first");
    }
    let obstacles = town.explain("ready").await;
    assert_eq!((obstacles[0].kind(), obstacles[0].ahead), (ObstacleKind::AheadInShare, Some(1)));
    assert_eq!(kinds("first").await, [ObstacleKind::NoWorker]);
    town.policy("paused = true").await;
    assert_eq!(kinds("first").await[0], ObstacleKind::QueuePaused);
    town.worker("w1").finds_nothing().await;
    town.cancel("later").await.ok();
    assert_eq!(kinds("later").await, [ObstacleKind::Terminal]);
    let missing = town.tasks().explain(pb::ExplainRequest { task: Some(task_ref("nobody")) }).await;
    Answer::from(missing).refused_as(Code::NotFound, "TASK_NOT_FOUND");
}
