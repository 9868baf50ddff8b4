//! Retention: payloads and results go first, then everything that was known of a task, and its id; and nothing that is still needed.

use std::time::Duration;

use leasehold::api::proto as pb;
use pb::admin_service_client::AdminServiceClient;
use pb::complete_request::Outcome as Said;
use pb::{ErrorClass, RepairState, TaskState};
use tonic::Code;

use crate::town::{Answer, LEASE, QUEUE, SECOND, Town, eventually, replayed, row_held, span, succeeded};

const DAY: Duration = Duration::from_secs(86_400);

async fn put(town: &Town, queue: pb::Queue, clear: &[&str]) -> Answer<pb::PutQueueResponse> {
    let clear_fields = clear.iter().map(|&field| field.to_owned()).collect();
    let queue = pb::Queue { name: QUEUE.into(), ..queue };
    let request = pb::PutQueueRequest { queue: Some(queue), clear_fields, reason: "tests".into() };
    AdminServiceClient::new(town.server(0).channel()).put_queue(request).await.into()
}

/// Payloads for a day, results for two, everything else for a week.
async fn forgetful(town: &Town) {
    let queue = pb::Queue {
        payload_retention: Some(span(DAY)),
        result_retention: Some(span(DAY * 2)),
        evidence_retention: Some(span(DAY * 7)),
        default_ttl: Some(span(DAY * 300)),
        ..pb::Queue::default()
    };
    put(town, queue, &[]).await.ok();
}

async fn count(town: &Town, table: &str) -> i64 {
    town.sql(format!("SELECT count(*) FROM {table}")).await
}

/// Waits until the table holds so many rows.
async fn shrinks_to(town: &Town, table: &str, rows: i64) {
    eventually(&format!("{table} holds {rows} rows"), async || (count(town, table).await == rows).then_some(())).await;
}

async fn completed(town: &Town, id: &str) -> pb::Task {
    town.spec(id).payload(b"private").submit().await;
    let lease = town.worker("w1").claim_one().await;
    assert_eq!(lease.id(), id);
    let result = b"result".to_vec().into();
    let success = pb::Succeeded { result, result_digest: "sha256:7".into(), result_ref: "artifact-7".into(), ..succeeded() };
    lease.report(Said::Succeeded(success)).await.applied().task.unwrap()
}

/// Rows 16 and 29 of the failure matrix.
#[tokio::test]
async fn what_has_ended_is_erased_in_parts_and_stays_known_until_its_evidence_goes() {
    let town = Town::start().await;
    forgetful(&town).await;
    let ended = completed(&town, "done").await;
    town.spec("empty").submit().await;
    town.worker("w1").claim_one().await.complete().await.applied();
    let live = ["ready", "leased", "blocked", "scheduled", "retry"];
    town.spec("leased").payload(b"private").key("c-a").submit().await;
    let leased = town.worker("w1").for_a_lease_of(SECOND * 3_600 * 12).claim_one().await;
    town.spec("retry").payload(b"private").retry(3, DAY).submit().await;
    town.worker("w1").claim_one().await.fail(ErrorClass::Transient).await.applied();
    town.spec("blocked").payload(b"private").key("c-a").submit().await;
    town.spec("scheduled").payload(b"private").start_delay(DAY * 200).submit().await;
    town.spec("ready").payload(b"private").submit().await;
    let whole = town.task_with_payload("done").await;
    assert_eq!(
        (&whole.spec.unwrap().payload[..], &whole.result[..], whole.payload_erased),
        (&b"private"[..], &b"result"[..], false)
    );

    // Heartbeats keep the lease through the days.
    let days = async |days: u32| {
        for _ in 0..days * 4 {
            town.clock.advance(DAY / 4).await;
            leased.heartbeat_for(SECOND * 3_600 * 12).await.ok();
        }
    };
    days(1).await;
    town.clock.advance(SECOND * 60).await;
    shrinks_to(&town, "payloads", 5).await;
    let after = town.task_with_payload("done").await;
    assert_eq!((after.state(), after.boundary.as_str(), after.payload_erased), (TaskState::Completed, "worker_reported", true));
    assert_eq!((after.result_digest.as_str(), &after.result[..]), ("sha256:7", &b"result"[..]));
    assert_eq!(after.spec.as_ref().unwrap().payload.len(), 0);
    assert!(!town.task_with_payload("empty").await.payload_erased, "it never had one");
    days(1).await;
    town.clock.advance(SECOND * 60).await;
    shrinks_to(&town, "results", 0).await;
    assert_eq!(town.task("done").await, ended);
    assert_eq!(town.attempts("done").await.len(), 1);
    town.row_held(29, "done", None).await;
    // Known until then, by its content too.
    let again = town.spec("done").payload(b"private").try_submit().await.ok();
    assert_eq!((again.created, again.task), (false, Some(ended)));
    town.spec("done").payload(b"other").try_submit().await.refused_as(Code::AlreadyExists, "TASK_ID_CONFLICT");

    days(5).await;
    town.clock.advance(SECOND * 60).await;
    shrinks_to(&town, "ended", 0).await;
    town.look_up("done").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    for id in live {
        let task = town.task_with_payload(id).await;
        assert_eq!(&task.spec.unwrap().payload[..], b"private", "{id}");
        assert!(!task.terminal && !task.payload_erased);
    }
    assert_eq!((count(&town, "tasks").await, count(&town, "payloads").await), (5, 5));
    // Its id may be used anew, by other content.
    town.spec("done").payload(b"other").submit().await;
    town.audit().await;
    row_held(16, "payloads, results and evidence went one after the other, and live tasks kept theirs", None);
}

#[tokio::test]
async fn an_open_repair_keeps_everything_and_a_resolved_one_from_its_resolution_on() {
    let town = Town::start().await;
    forgetful(&town).await;
    for id in ["open", "discarded", "replayed", "replayed late"] {
        town.broken(town.spec(id).payload(b"private").ttl(DAY * 300)).await;
    }
    town.clock.advance(DAY * 30).await;
    town.discard("discarded").await.ok();
    let new = replayed(town.replay("replayed").await);
    town.worker("w1").claim_one().await.complete().await.applied();
    town.clock.advance(DAY + SECOND * 60).await;
    // Only the two that are open still have theirs.
    shrinks_to(&town, "payloads", 2).await;
    assert!(town.task_with_payload("replayed").await.payload_erased);
    assert_eq!(town.repair("replayed").await.replayed_by.unwrap().uid, new.uid);
    assert_eq!(replayed(town.replay("replayed").await).uid, new.uid, "the same replay, though the old payload is gone");
    replayed(town.replay("replayed late").await);
    assert_eq!(&town.task_with_payload("replayed late~1").await.spec.unwrap().payload[..], b"private");
    town.clock.advance(DAY * 7).await;
    shrinks_to(&town, "repairs", 1).await;
    assert_eq!(town.repair("open").await.state(), RepairState::Open);
    assert_eq!(&town.task_with_payload("open").await.spec.unwrap().payload[..], b"private");
    town.look_up_repair("discarded").await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    // What replayed it still says so.
    assert_eq!(town.task("replayed late~1").await.replay_of.unwrap().task_id, "replayed late");
    town.audit().await;
}

#[tokio::test]
async fn a_replay_of_an_erased_payload_needs_a_new_one() {
    let town = Town::start().await;
    let old = town.broken(town.spec("a").payload(b"private")).await;
    // Only by hand: retention never does it to an open repair.
    town.execute("DELETE FROM payloads").await;
    town.replay("a").await.refused_with("PAYLOAD_ERASED");
    let repair = town.repair("a").await;
    assert_eq!(repair.state(), RepairState::Open);
    assert!(repair.last_refusal.starts_with("PAYLOAD_ERASED"), "{}", repair.last_refusal);
    assert!(town.task_with_payload("a").await.payload_erased);
    let brought = pb::Replay { payload: Some(b"anew".to_vec().into()), ..pb::Replay::default() };
    assert_eq!(replayed(town.replay_as("a", brought).await).replay_of.unwrap().uid, old.uid);
    town.audit().await;
}

#[tokio::test]
async fn what_nobody_told_to_forget_is_kept() {
    let town = Town::start().await;
    completed(&town, "kept").await;
    let stored = put(&town, pb::Queue::default(), &[]).await.ok().queue.unwrap();
    assert_eq!((stored.payload_retention, stored.result_retention, stored.evidence_retention), (None, None, None));
    town.clock.advance(DAY * 1_000).await;
    // Another queue forgets meanwhile: so the loop has come by.
    town.execute("INSERT INTO queues (name, evidence_retention_us) VALUES ('other', 0)").await;
    town.spec("forgotten").queue("other").submit().await;
    town.worker("w1").on_queue("other").claim_one().await.complete().await.applied();
    town.clock.advance(SECOND * 60).await;
    shrinks_to(&town, "ended", 1).await;
    let task = town.task_with_payload("kept").await;
    assert_eq!((&task.spec.unwrap().payload[..], &task.result[..]), (&b"private"[..], &b"result"[..]));
    // It is told, and cleared again.
    let told = pb::Queue { payload_retention: Some(span(DAY * 2_000 / 10)), ..pb::Queue::default() };
    let stored = put(&town, told, &[]).await.ok().queue.unwrap();
    assert_eq!(stored.payload_retention, Some(span(DAY * 200)));
    let cleared = put(&town, pb::Queue::default(), &["payload_retention"]).await.ok().queue.unwrap();
    assert_eq!(cleared.payload_retention, None);
    let contradiction =
        pb::Queue { payload_retention: Some(span(DAY * 2)), evidence_retention: Some(span(DAY)), ..pb::Queue::default() };
    put(&town, contradiction, &[]).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    let long = pb::Queue { payload_retention: Some(span(DAY * 367)), ..pb::Queue::default() };
    put(&town, long, &[]).await.refused_as(Code::InvalidArgument, "INVALID_FIELD");
    town.audit().await;
}

#[tokio::test]
async fn many_are_erased_page_by_page_by_several_servers_at_once() {
    let town = Town::with_servers(3).await;
    forgetful(&town).await;
    let subject = |number: i32| vec![pb::Subject { id: format!("m-{}", number % 7), version: 1, raise_floor: false }];
    let spec = |number: i32| town.spec(&format!("t-{number}")).payload(b"private").with(|spec| spec.subjects = subject(number));
    for batch in 0..3 {
        town.submit_batch((0..500).map(|number| spec(batch * 500 + number)).collect(), false).await.ok();
    }
    let worker = town.worker("w1");
    for _ in 0..3 {
        let leases = worker.claim_all(480).await;
        let reports = leases.iter().map(|lease| (lease, Said::Succeeded(succeeded()))).collect();
        worker.report_all(reports).await.into_iter().for_each(|answer| drop(answer.applied()));
    }
    assert_eq!(count(&town, "live").await, 60);
    town.clock.advance(DAY * 2).await;
    shrinks_to(&town, "payloads", 60).await;
    town.clock.advance(DAY * 6).await;
    shrinks_to(&town, "tasks", 60).await;
    assert_eq!((count(&town, "task_subjects").await, count(&town, "events").await), (60, 60));
    assert!(
        town.sql::<i64>(format!("SELECT position FROM forgotten JOIN queues USING (queue_id) WHERE name = '{QUEUE}'")).await
            > 1_500
    );
    town.audit().await;
}

#[tokio::test]
async fn late_evidence_and_forgetting_do_not_meet() {
    let town = Town::start().await;
    forgetful(&town).await;
    town.spec("t").retry(1, SECOND).submit().await;
    let late = town.worker("w1").claim_one().await;
    town.clock.advance(LEASE + SECOND).await;
    town.wait_for_state("t", TaskState::RepairRequired).await;
    town.discard("t").await.ok();
    // Somebody keeps evidence on it just then: it is passed over, and forgotten later.
    let held = town.hold("SELECT FROM tasks FOR NO KEY UPDATE").await;
    town.clock.advance(DAY * 8).await;
    completed(&town, "other").await;
    town.clock.advance(DAY * 8).await;
    let gone = "SELECT NOT EXISTS (SELECT FROM tasks WHERE task_id = 'other')";
    eventually("its neighbour is forgotten", async || town.sql::<bool>(gone).await.then_some(())).await;
    assert_eq!(count(&town, "repairs").await, 1);
    held.let_go().await;
    shrinks_to(&town, "tasks", 0).await;
    late.complete().await.refused_as(Code::NotFound, "TASK_NOT_FOUND");
    town.audit().await;
}

#[tokio::test]
async fn a_submit_that_meets_the_forgetting_of_its_id_makes_a_new_task() {
    let town = Town::start().await;
    let old = completed(&town, "t").await;
    // What retention does, held open between its deletes and its commit.
    let mut held = town.hold("SELECT FROM tasks FOR UPDATE").await;
    for table in ["payloads", "results", "ended", "events", "tasks"] {
        held.execute(&format!("DELETE FROM {table}")).await;
    }
    let racing = async {
        let mut held = held;
        held.until_waited_for().await;
        held.let_go().await;
    };
    let (again, ()) = tokio::join!(town.spec("t").payload(b"private").try_submit(), racing);
    let again = again.ok();
    assert!(again.created);
    assert_ne!(again.task.unwrap().uid, old.uid);
    town.audit().await;
}

#[tokio::test]
async fn partitions_of_the_log_that_hold_nothing_any_more_are_dropped() {
    let town = Town::start().await;
    completed(&town, "old").await;
    town.execute("SELECT setval('positions', 26000000)").await;
    town.execute("SELECT ensure_event_partitions()").await;
    completed(&town, "new").await;
    let partitions = "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                      WHERE i.inhparent = 'events'::regclass";
    // The first one is in use, and of the empty ones the one before the current is left.
    assert_eq!(town.sql::<i32>("SELECT drop_forgotten_event_partitions()").await, 2);
    assert_eq!(town.sql::<String>(partitions).await, "events_0 events_5 events_6 events_7");
    assert_eq!(town.attempts("old").await.len(), 1);
    town.execute("UPDATE queues SET evidence_retention_us = 0").await;
    town.clock.advance(SECOND * 60).await;
    shrinks_to(&town, "events", 0).await;
    // Somebody who reads the log for long is not waited for, and nothing waits behind the attempt.
    let reader = town.hold("SELECT count(*) FROM events").await;
    assert_eq!(town.sql::<i32>("SELECT drop_forgotten_event_partitions()").await, 0);
    town.submit("meanwhile").await;
    reader.let_go().await;
    let dropped = async || (town.sql::<i32>("SELECT drop_forgotten_event_partitions()").await == 1).then_some(());
    eventually("the log is free for a moment", dropped).await;
    assert_eq!(town.sql::<String>(partitions).await, "events_5 events_6 events_7");
    town.audit().await;
}
