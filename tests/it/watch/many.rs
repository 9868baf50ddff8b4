//! Many watchers at once, slow ones, and ones that go without a word: none costs the others anything, and none is left behind.

use std::time::Duration;

use leasehold::api::proto as pb;
use pb::WatchStart;
use pb::watch_response::Item;
use tonic::Code;

use crate::town::{Answer, QUEUE, SECOND, Seen, Spec, Town, eventually, row_held, task_ref};

/// More events than a server keeps in memory for its watchers.
const FLOOD: usize = 18_000;
/// Watches that are opened and cut, and on how many connections at a time.
const OPENED: usize = 3_000;
const CONNECTIONS: usize = 30;

fn now(request: &mut pb::WatchRequest) {
    request.start = WatchStart::Now as i32;
}

impl Town {
    /// Submits so many tasks, a thousand in a call.
    async fn flood(&self, count: usize) {
        for first in (0..count).step_by(1_000) {
            let specs: Vec<Spec<'_>> =
                (first..(first + 1_000).min(count)).map(|number| self.spec(&format!("t-{number}"))).collect();
            for answer in self.submit_batch(specs, false).await.ok() {
                drop(answer.ok());
            }
        }
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_delays_nobody_and_reads_everything_once_it_does() {
    let town = Town::start().await;
    town.submit("first").await;
    let mut slow = town.watch_over(town.server(0).connect().await, now).await.ok();
    let mut quick = town.watch_now().await;
    let reading = tokio::spawn(async move { quick.seen(FLOOD).await });
    town.flood(FLOOD).await;
    let log: Vec<Seen> = town.log().await.split_off(1);
    assert!(reading.await.unwrap() == log, "the quick one has not seen the log");
    assert!(slow.seen(FLOOD).await == log, "the slow one has not seen the log");
    assert!(town.watch_task("t-17999", |_| {}).await.ok().snapshot().await.contains_key("t-17999"));
    row_held(25, &format!("one that did not read for {FLOOD} events read each of them once it did"), None);
}

#[tokio::test]
async fn a_watcher_that_retention_overtakes_is_told_that_it_is_too_slow_and_how_far_it_has_come() {
    let town = Town::start().await;
    let cursor = town.spec("first").try_submit().await.ok().cursor;
    town.flood(FLOOD).await;
    let mut slow = town.watch_over(town.server(0).connect().await, |request| request.after_cursor = cursor).await.ok();
    assert_eq!(slow.seen(1).await[0].id, "first");
    town.execute(format!(
        "INSERT INTO forgotten SELECT queue_id, (SELECT max(position) FROM events) FROM queues WHERE name = '{QUEUE}'"
    ))
    .await;
    let status = loop {
        match slow.try_next().await {
            Ok(item) => assert!(matches!(item, Some(Item::Event(_))), "{item:?}"),
            Err(status) => break status,
        }
    };
    let refused = Answer::<()>(Err(status)).refused_as(Code::ResourceExhausted, "WATCHER_TOO_SLOW");
    assert_eq!(refused.says("last_cursor"), slow.cursor);
    let after = |request: &mut pb::WatchRequest| request.after_cursor = slow.cursor;
    Answer(town.watch_with(after).await.0.map(drop)).refused_as(Code::OutOfRange, "CURSOR_EXPIRED");
}

#[tokio::test]
async fn of_thousands_of_watches_that_are_cut_none_is_left() {
    let town = Town::start().await;
    for number in 0..10 {
        town.submit(&format!("m-{number}")).await;
    }
    let mut opened = 0;
    while opened < OPENED {
        let mut watches = Vec::new();
        for _ in 0..CONNECTIONS {
            let channel = town.server(0).connect().await;
            for number in 0..10 {
                let of_task = |request: &mut pb::WatchRequest| {
                    request.filter = None;
                    request.task = Some(task_ref(&format!("m-{number}")));
                };
                let change = |request: &mut pb::WatchRequest| match number % 3 {
                    0 => {}
                    1 => now(request),
                    _ => of_task(request),
                };
                watches.push(town.watch_over(channel.clone(), change).await.ok());
            }
        }
        opened += watches.len();
        if opened == watches.len() {
            assert!(town.watchers(0).await >= i64::try_from(watches.len()).unwrap(), "they are not counted");
        }
        // Some have read something, the others nothing. Their connections go with them.
        for watch in watches.iter_mut().step_by(10) {
            watch.next().await;
        }
    }
    eventually("no watch is left", async || (town.watchers(0).await == 0).then_some(())).await;
    // Nor a tail: the next one begins anew, and sees what happens.
    let mut watch = town.watch_now().await;
    town.submit("after").await;
    assert_eq!(watch.seen(1).await[0].id, "after");
}

#[tokio::test]
async fn a_server_takes_no_more_watches_than_it_was_told() {
    let town = Town::with_servers_told(1, &["--max-watchers", "2"]).await;
    town.submit("m-1").await;
    let first = town.watch().await;
    let _second = town.watch_now().await;
    let answer = Answer(town.watch_with(now).await.0.map(drop));
    answer.refused_as(Code::Unavailable, "OVERLOADED");
    drop(first);
    eventually("there is room again", async || town.watch_with(now).await.0.ok()).await;
}

#[tokio::test]
async fn a_watch_ends_with_its_callers_deadline() {
    let town = Town::start().await;
    town.submit("m-1").await;
    let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
    let mut request = tonic::Request::new(pb::WatchRequest { filter, ..pb::WatchRequest::default() });
    request.set_timeout(SECOND);
    let mut stream = town.tasks().watch(request).await.expect("it begins").into_inner();
    let status = loop {
        match tokio::time::timeout(Duration::from_secs(30), stream.message()).await.expect("it ends") {
            Ok(message) => assert!(message.is_some(), "a deadline is no good end"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
    eventually("the watch is gone", async || (town.watchers(0).await == 0).then_some(())).await;
}
