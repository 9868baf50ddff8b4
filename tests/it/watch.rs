//! What a watch shows: the tasks as they stand, and then each event once, to whomever asked for it.

use std::time::Duration;

use leasehold::api::proto as pb;
use pb::watch_response::Item;
use pb::{ErrorClass, TaskEventKind, TaskState, WatchStart};
use tonic::Code;

use crate::town::{Answer, QUEUE, SECOND, Town, Watch, eventually, row_held, span, state_name, task_ref};

mod command;
mod crowd;
mod many;
mod truth;

const BOOKMARKS: Duration = SECOND;

#[tokio::test]
async fn the_cursor_of_a_submit_leads_to_all_states_of_its_task_even_if_it_ended_before() {
    let town = Town::with_servers(2).await;
    town.submit("before").await;
    let accepted = town.spec("m-1").retry(3, Duration::ZERO).try_submit().await.ok();
    let worker = town.worker("w1").reporting_effects();
    worker.claim_one().await.complete().await.applied();
    let first = worker.claim_one().await;
    first.begin_effect("effect-1").await.applied();
    first.fail(ErrorClass::Transient).await.applied();
    let second = worker.claim_one().await;
    second.complete().await.applied();
    first.complete().await.refused_with("LEASE_SUPERSEDED");
    let life = [
        "SUBMITTED>READY",
        "LEASED>LEASED",
        "EFFECT_BEGUN>LEASED",
        "RETRY_PLANNED>RETRY_AT",
        "READY>READY",
        "LEASED>LEASED",
        "ENDED>COMPLETED",
        "LATE_REPORT>COMPLETED",
    ];
    for server in [0, 1] {
        let after = |request: &mut pb::WatchRequest| {
            request.filter = None;
            request.task = Some(task_ref("m-1"));
            request.after_cursor = accepted.cursor.clone();
        };
        assert_eq!(town.watch_at(server, after).await.ok().kinds(8).await, life);
        // It ends with OK after the end of the task, and each cursor on the way goes on from there.
        let mut watch = town
            .watch_at(server, |r| {
                after(r);
                r.until_terminal = true;
            })
            .await
            .ok();
        for kind in &life[..3] {
            assert_eq!(watch.kinds(1).await, [*kind]);
        }
        let cursor = watch.cursor.clone();
        assert_eq!(watch.rest().await.unwrap().len(), 4);
        let mut watch = town
            .watch_at(server, |r| {
                after(r);
                r.after_cursor = cursor;
            })
            .await
            .ok();
        assert_eq!(watch.kinds(5).await, life[3..]);
    }
    // The queue's watch sees the same from there, and nothing of what was before.
    let all = town.watch_after(&accepted.cursor).await.seen(9).await;
    let of_task: Vec<&str> = all.iter().filter(|seen| seen.id == "m-1").map(|seen| seen.what.as_str()).collect();
    assert_eq!(of_task, life[..7]);
    // Each task of a batch has its own cursor.
    let batch = town.submit_batch(vec![town.spec("b-1"), town.spec("b-2")], false).await.ok();
    for (answer, id) in batch.into_iter().zip(["b-1", "b-2"]) {
        assert_eq!(town.watch_after(&answer.ok().cursor).await.seen(1).await[0].id, id);
    }
    town.audit().await;
}

#[tokio::test]
async fn an_event_tells_what_its_attempt_had_come_to() {
    let town = Town::start().await;
    town.policy("boundary = 'shown'").await;
    let mut watch = town.watch_now().await;
    town.spec("m-1").label("kind", "push").retry(2, Duration::ZERO).submit().await;
    let lease = town.worker("w1").reporting_effects().claim_one().await;
    lease.heartbeat_with(pb::Progress { done: 1, total: Some(2), note: "half".into() }).await.ok();
    lease.begin_effect("effect-1").await.applied();
    lease.fail(ErrorClass::Unknown).await.applied();
    let submitted = watch.event().await;
    assert_eq!((submitted.kind(), submitted.revision, submitted.attempt), (TaskEventKind::Submitted, 1, 0));
    assert_eq!((submitted.previous_state(), submitted.state()), (TaskState::Unspecified, TaskState::Ready));
    assert_eq!(submitted.labels["kind"], "push");
    assert!(submitted.attempt_detail.is_none() && !submitted.terminal);
    let leased = watch.event().await;
    let detail = leased.attempt_detail.expect("a lease is of an attempt");
    assert_eq!((leased.attempt, leased.fencing_token, leased.previous_state), (1, lease.token(), TaskState::Ready as i32));
    assert_eq!((detail.number, detail.worker_id.as_str(), detail.outcome()), (1, "w1", pb::Outcome::Running));
    let begun = watch.event().await;
    assert_eq!(begun.attempt_detail.expect("it is of an attempt").effect_ref, "effect-1");
    let planned = watch.event().await;
    let detail = planned.attempt_detail.clone().expect("it is of an attempt");
    assert_eq!((planned.kind(), planned.state()), (TaskEventKind::RetryPlanned, TaskState::RetryAt));
    assert_eq!(
        (detail.outcome(), detail.error_class(), detail.effect_ref.as_str()),
        (pb::Outcome::Failed, ErrorClass::Unknown, "effect-1")
    );
    assert_eq!(planned.progress.expect("it had made progress").note, "half");
    assert!(planned.next_attempt_time.is_some());
    assert_eq!(watch.kinds(1).await, ["READY>READY"]);
    town.cancel("m-1").await.ok();
    let ended = watch.event().await;
    assert_eq!((ended.state(), ended.cause(), ended.terminal), (TaskState::Canceled, pb::Cause::Requested, true));
    assert!(ended.attempt_detail.is_none(), "no attempt ended with it");
    town.audit().await;
}

#[tokio::test]
async fn a_snapshot_shows_the_tasks_as_they_stand_and_then_only_what_is_new() {
    let town = Town::start().await;
    for id in ["a", "b", "c"] {
        town.submit(id).await;
    }
    let lease = town.worker("w1").claim_one().await;
    let mut watch = town.watch().await;
    assert_eq!(watch.cursor, "", "a snapshot can't be resumed before it is complete");
    let shown = watch.snapshot().await;
    assert_eq!(shown, town.standings().await);
    lease.complete().await.applied();
    let ended = watch.event().await;
    assert_eq!((ended.revision, ended.state()), (3, TaskState::Completed));
    // From the end of the snapshot on it can be resumed.
    let mut one = town.watch_task("a", |_| {}).await.ok();
    assert_eq!(one.snapshot().await.len(), 1);
    let cursor = one.cursor.clone();
    town.submit("d").await;
    assert_eq!(town.watch_after(&cursor).await.seen(1).await[0].id, "d");
    assert_eq!(watch.seen(1).await[0].id, "d");
    town.audit().await;
}

#[tokio::test]
async fn a_watch_until_the_end_of_a_task_that_has_ended_ends_at_once() {
    let town = Town::start().await;
    town.submit("m-1").await;
    town.worker("w1").claim_one().await.complete().await.applied();
    let until = |request: &mut pb::WatchRequest| request.until_terminal = true;
    let mut watch = town.watch_task("m-1", until).await.ok();
    assert_eq!(watch.snapshot().await["m-1"].1, "COMPLETED");
    assert!(watch.rest().await.unwrap().is_empty());
    let cursor = watch.cursor;
    let after = |r: &mut pb::WatchRequest| {
        until(r);
        r.after_cursor = cursor.clone();
    };
    assert!(town.watch_task("m-1", after).await.ok().rest().await.unwrap().is_empty());
    let now = |r: &mut pb::WatchRequest| {
        until(r);
        r.start = WatchStart::Now as i32;
    };
    assert!(town.watch_task("m-1", now).await.ok().rest().await.unwrap().is_empty());
    // One that has not ends when it has.
    town.submit("m-2").await;
    let mut watch = town.watch_task("m-2", now).await.ok();
    town.worker("w1").claim_one().await.complete().await.applied();
    let rest = watch.rest().await.unwrap();
    assert!(matches!(&rest[..], [Item::Event(leased), Item::Event(ended)] if !leased.terminal && ended.terminal), "{rest:?}");
}

#[tokio::test]
async fn filters_pick_by_what_a_task_is_and_states_by_where_it_comes_from_or_goes_to() {
    let town = Town::start().await;
    let filtered = async |change: fn(&mut pb::TaskFilter)| {
        let with = |request: &mut pb::WatchRequest| {
            request.start = WatchStart::Now as i32;
            change(request.filter.as_mut().expect("it has one"));
        };
        town.watch_with(with).await.ok()
    };
    town.submit("first").await;
    let mut share = filtered(|f| f.fairness_key = Some("tenant".into())).await;
    let mut no_share = filtered(|f| f.fairness_key = Some(String::new())).await;
    let mut label = filtered(|f| drop(f.labels.insert("color".into(), "red".into()))).await;
    let mut key = filtered(|f| f.ordering_key = "k".into()).await;
    let mut subject = filtered(|f| f.subject_id = "m-9".into()).await;
    let mut kind = filtered(|f| f.kind = "mail".into()).await;
    let mut target = filtered(|f| f.target = "d-1".into()).await;
    let mut event = filtered(|f| f.event_id = "evt".into()).await;
    let mut ready = filtered(|f| f.states = vec![TaskState::Ready as i32]).await;
    let mut worker = filtered(|f| f.worker_id = "w2".into()).await;
    let mut other = town
        .watch_with(|r| {
            r.filter.as_mut().unwrap().queue = QUEUE.into();
        })
        .await
        .ok();
    other.snapshot().await;

    town.spec("of-tenant").share("tenant").submit().await;
    town.spec("red").label("color", "red").label("size", "s").submit().await;
    town.spec("keyed").key("k").submit().await;
    let about = vec![pb::Subject { id: "m-9".into(), version: 3, raise_floor: false }];
    town.spec("about").with(|spec| spec.subjects = about).submit().await;
    town.spec("mail").with(|spec| spec.kind = "mail".into()).submit().await;
    town.spec("target").with(|spec| spec.target = "d-1".into()).submit().await;
    town.spec("event").with(|spec| spec.event_id = "evt".into()).submit().await;
    for lease in town.worker("w1").claim_all(7).await {
        lease.complete().await.applied();
    }
    let last = town.worker("w2").claim_one().await;
    last.complete().await.applied();

    let whole = ["SUBMITTED>READY", "LEASED>LEASED", "ENDED>COMPLETED"];
    for (watch, id) in [
        (&mut share, "of-tenant"),
        (&mut label, "red"),
        (&mut key, "keyed"),
        (&mut subject, "about"),
        (&mut kind, "mail"),
        (&mut target, "target"),
        (&mut event, "event"),
    ] {
        let seen = watch.seen(3).await;
        assert!(seen.iter().all(|seen| seen.id == id), "{seen:?} in a watch of {id}");
        assert_eq!(seen.into_iter().map(|seen| seen.what).collect::<Vec<_>>(), whole);
    }
    // Entering READY and leaving it, but not the end, which comes from LEASED.
    let seen = ready.seen(15).await;
    assert_eq!((count(&seen, "SUBMITTED>READY"), count(&seen, "LEASED>LEASED")), (7, 8));
    let seen = worker.seen(2).await;
    assert!(seen.iter().all(|seen| seen.id == last.id()), "{seen:?}");
    assert!(no_share.seen(20).await.iter().all(|seen| seen.id != "of-tenant"));
    assert_eq!(other.seen(23).await, town.log().await[1..]);
}

fn count(seen: &[crate::town::Seen], what: &str) -> usize {
    seen.iter().filter(|seen| seen.what == what).count()
}

#[tokio::test]
async fn a_snapshot_shows_what_its_filter_picks() {
    let town = Town::start().await;
    for id in ["done", "running", "waiting"] {
        town.submit(id).await;
    }
    let leases = town.worker("w1").claim_all(2).await;
    leases[0].complete().await.applied();
    for (states, ids) in
        [(vec![TaskState::Completed, TaskState::Leased], vec!["done", "running"]), (vec![TaskState::Ready], vec!["waiting"])]
    {
        let states = states.into_iter().map(|state| state as i32).collect();
        let mut watch = town.watch_with(|request| request.filter.as_mut().unwrap().states = states).await.ok();
        assert!(watch.snapshot().await.keys().eq(&ids), "{ids:?}");
    }
}

#[tokio::test]
async fn who_asks_for_what_is_not_there_or_can_not_be_is_told() {
    let town = Town::start().await;
    let nobody = |request: &mut pb::WatchRequest| request.filter.as_mut().unwrap().queue = "nobody".into();
    town.watch_with(nobody).await.map_err().refused_as(Code::NotFound, "QUEUE_NOT_FOUND");
    town.watch_task("nobody", |_| {}).await.map_err().refused_as(Code::NotFound, "TASK_NOT_FOUND");
    town.submit("m-1").await;
    town.watch_task("m-2", |_| {}).await.map_err().refused_as(Code::NotFound, "TASK_NOT_FOUND");
    for cursor in ["rubbish", "c1-", "c1-999999999"] {
        let after = |request: &mut pb::WatchRequest| request.after_cursor = cursor.into();
        town.watch_with(after).await.map_err().refused_as(Code::InvalidArgument, "INVALID_FIELD");
    }
    town.watch_with(|request| request.task = Some(task_ref("m-1")))
        .await
        .map_err()
        .refused_as(Code::InvalidArgument, "INVALID_FIELD");
}

impl Answer<Watch> {
    /// For `refused_as`, which wants what can be shown.
    fn map_err(self) -> Answer<()> {
        Answer(self.0.map(drop))
    }
}

#[tokio::test]
async fn an_idle_watch_carries_bookmarks_that_move_on_with_the_log() {
    let town = Town::start().await;
    town.submit("m-1").await;
    let quiet = |request: &mut pb::WatchRequest| {
        request.start = WatchStart::Now as i32;
        request.bookmark_interval = Some(span(BOOKMARKS));
    };
    let mut watch = town.watch_task("m-1", quiet).await.ok();
    assert!(matches!(watch.next().await, Item::Bookmark(_)));
    let first = position(&watch.cursor);
    for number in 0..20 {
        town.spec(&format!("other-{number}")).submit().await;
    }
    // Others' events wake nobody here, and yet the cursor goes on past them.
    let passed = async || {
        assert!(matches!(watch.next().await, Item::Bookmark(_)));
        (position(&watch.cursor) >= first + 20).then_some(())
    };
    eventually("the bookmark has passed the others' events", passed).await;
    let cursor = watch.cursor.clone();
    town.worker("w1").claim_one().await.complete().await.applied();
    assert_eq!(watch.kinds(2).await, ["LEASED>LEASED", "ENDED>COMPLETED"]);
    let after = |request: &mut pb::WatchRequest| request.after_cursor = cursor;
    assert_eq!(town.watch_task("m-1", after).await.ok().kinds(2).await, ["LEASED>LEASED", "ENDED>COMPLETED"]);
}

fn position(cursor: &str) -> i64 {
    cursor.strip_prefix("c1-").and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("no cursor: {cursor:?}"))
}

#[tokio::test]
async fn a_cursor_that_retention_has_passed_is_refused_with_the_oldest_one() {
    let town = Town::start().await;
    let cursor = town.spec("m-1").try_submit().await.ok().cursor;
    town.submit("m-2").await;
    let first: i64 = town.sql("SELECT min(position) FROM events").await;
    town.execute(format!("INSERT INTO forgotten SELECT queue_id, {first} FROM queues WHERE name = '{QUEUE}'")).await;
    let after = |request: &mut pb::WatchRequest| request.after_cursor = cursor.clone();
    let refused = town.watch_with(after).await.map_err().refused_as(Code::OutOfRange, "CURSOR_EXPIRED");
    let oldest = refused.says("oldest_cursor").to_owned();
    assert_eq!(town.watch_after(&oldest).await.seen(1).await[0].id, "m-2");
    // Other queues' cursors are as good as before.
    town.spec("elsewhere").queue("other").submit().await;
    let elsewhere = |r: &mut pb::WatchRequest| {
        after(r);
        r.filter.as_mut().unwrap().queue = "other".into();
    };
    assert_eq!(town.watch_with(elsewhere).await.ok().seen(1).await[0].id, "elsewhere");
    row_held(25, "a cursor that retention has passed was refused with the oldest one", None);
}

#[tokio::test]
async fn a_server_that_drains_ends_its_watches_with_a_cursor_that_any_other_takes() {
    let mut town = Town::with_servers(2).await;
    town.submit("m-1").await;
    let mut watch = town.watch_now().await;
    let worker = town.worker_at(1, "w1");
    let lease = worker.claim_one().await;
    assert_eq!(watch.kinds(1).await, ["LEASED>LEASED"]);
    town.server(0).terminate();
    let status = watch.rest().await.expect_err("a drain is no end");
    let refused = Answer::<()>(Err(status)).refused_as(Code::Unavailable, "DRAINING");
    assert_eq!(town.server_mut(0).stopped().await.code(), Some(0));
    lease.complete().await.applied();
    let cursor = refused.says("last_cursor").to_owned();
    let mut watch = town.watch_at(1, |request| request.after_cursor = cursor).await.ok();
    assert_eq!(watch.kinds(1).await, ["ENDED>COMPLETED"]);
    town.add_server().await;
    town.audit().await;
}

#[tokio::test]
async fn what_happens_at_one_server_is_seen_and_waited_for_at_the_other() {
    let town = Town::with_servers(2).await;
    town.submit("m-1").await;
    let mut watch = town.watch_at(1, |request| request.start = WatchStart::Now as i32).await.ok();
    let waiting = {
        let mut tasks = town.tasks_at(1);
        let until = pb::WaitUntil { states: Vec::new(), timeout: Some(span(SECOND * 30)) };
        tokio::spawn(async move {
            tasks.get_task(pb::GetTaskRequest { task: Some(task_ref("m-1")), view: 0, wait_until: Some(until) }).await
        })
    };
    town.worker("w1").claim_one().await.complete().await.applied();
    assert_eq!(watch.kinds(2).await, ["LEASED>LEASED", "ENDED>COMPLETED"]);
    let task = Answer::from(waiting.await.unwrap()).ok().task.unwrap();
    assert_eq!(state_name(task.state), "COMPLETED");
}
