//! What watchers of a town see.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use leasehold::api::proto as pb;
use pb::watch_response::Item;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::{Answer, PATIENCE, QUEUE, Town, id_of, state_name, task_ref};

impl Town {
    /// A watch of the town's queue, from a snapshot on.
    pub async fn watch(&self) -> Watch {
        self.watch_with(|_| {}).await.ok()
    }

    /// A watch of what is yet to happen.
    pub async fn watch_now(&self) -> Watch {
        self.watch_with(|request| request.start = pb::WatchStart::Now as i32).await.ok()
    }

    pub async fn watch_after(&self, cursor: &str) -> Watch {
        self.watch_with(|request| request.after_cursor = cursor.into()).await.ok()
    }

    /// A watch of one task.
    pub async fn watch_task(&self, id: &str, change: impl FnOnce(&mut pb::WatchRequest)) -> Answer<Watch> {
        self.watch_with(|request| {
            request.filter = None;
            request.task = Some(task_ref(id));
            change(request);
        })
        .await
    }

    /// A watch of the town's queue, with a change to what is asked.
    pub async fn watch_with(&self, change: impl FnOnce(&mut pb::WatchRequest)) -> Answer<Watch> {
        self.watch_at(0, change).await
    }

    pub async fn watch_at(&self, server: usize, change: impl FnOnce(&mut pb::WatchRequest)) -> Answer<Watch> {
        self.watch_over(self.server(server).channel(), change).await
    }

    pub async fn watch_over(&self, channel: Channel, change: impl FnOnce(&mut pb::WatchRequest)) -> Answer<Watch> {
        let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..pb::TaskFilter::default() });
        let mut request = pb::WatchRequest { filter, ..pb::WatchRequest::default() };
        change(&mut request);
        let answer = pb::task_service_client::TaskServiceClient::new(channel).watch(request).await;
        Answer::from(answer)
            .0
            .map_or_else(|status| Answer(Err(status)), |stream| Answer(Ok(Watch { stream, cursor: String::new() })))
    }

    /// How many watches are open at a server, as its metrics say.
    pub async fn watchers(&self, server: usize) -> i64 {
        let text = self.server(server).http_get("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix("leasehold_watchers "));
        line.unwrap_or_else(|| panic!("no count of watchers in {text:?}")).parse().expect("a number")
    }

    /// All events of the log, in the order of their positions, as a watcher would see them.
    pub async fn log(&self) -> Vec<Seen> {
        let query = "SELECT t.task_id, e.revision, e.kind || '>' || e.state FROM events e JOIN tasks t USING (queue_id, uid) ORDER BY position";
        let rows: Vec<(String, i64, String)> = sqlx::query_as(query).fetch_all(self.database()).await.expect("the log can be read");
        rows.into_iter().map(|(id, revision, what)| Seen { id, revision, what }).collect()
    }

    /// Where each task stands, from the tables.
    pub async fn standings(&self) -> BTreeMap<String, (i64, String)> {
        let query = "SELECT t.task_id, s.revision, s.state FROM tasks t JOIN (SELECT queue_id, uid, revision, state FROM live UNION ALL
                     SELECT queue_id, uid, (SELECT max(revision) FROM events v WHERE v.queue_id = e.queue_id AND v.uid = e.uid), state
                     FROM ended e) s USING (queue_id, uid)";
        let rows: Vec<(String, i64, String)> =
            sqlx::query_as(query).fetch_all(self.database()).await.expect("the tables can be read");
        rows.into_iter().map(|(id, revision, state)| (id, (revision, state))).collect()
    }
}

/// An event in short: `LEASED>LEASED`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub id: String,
    pub revision: i64,
    pub what: String,
}

impl From<&pb::TaskEvent> for Seen {
    fn from(event: &pb::TaskEvent) -> Self {
        let kind = event.kind().as_str_name().trim_start_matches("TASK_EVENT_KIND_");
        let task = event.task.as_ref().expect("an event is of a task");
        Seen { id: task.task_id.clone(), revision: event.revision, what: format!("{kind}>{}", state_name(event.state)) }
    }
}

pub struct Watch {
    stream: Streaming<pb::WatchResponse>,
    /// Of the last thing that had one.
    pub cursor: String,
}

impl Watch {
    pub fn of(stream: Streaming<pb::WatchResponse>) -> Watch {
        Watch { stream, cursor: String::new() }
    }

    /// The next thing, whatever it is; absent: the stream ended with OK.
    pub async fn try_next(&mut self) -> Result<Option<Item>, Status> {
        let next = tokio::time::timeout(PATIENCE, self.stream.message()).await;
        let Some(response) = next.unwrap_or_else(|_| panic!("nothing came in {PATIENCE:?}"))? else { return Ok(None) };
        if !response.cursor.is_empty() {
            self.cursor = response.cursor;
        }
        Ok(Some(response.item.expect("an item is always set")))
    }

    pub async fn next(&mut self) -> Item {
        self.try_next().await.unwrap_or_else(|status| panic!("the watch ended: {status:?}")).expect("the watch goes on")
    }

    /// The next event; bookmarks are passed over.
    pub async fn event(&mut self) -> pb::TaskEvent {
        let begin = Instant::now();
        loop {
            match self.next().await {
                Item::Event(event) => return event,
                Item::Bookmark(_) => assert!(begin.elapsed() < PATIENCE, "nothing but bookmarks came"),
                other => panic!("expected an event: {other:?}"),
            }
        }
    }

    pub async fn seen(&mut self, count: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while seen.len() < count {
            seen.push(Seen::from(&self.event().await));
        }
        seen
    }

    /// The kinds of the next events, with the state after each.
    pub async fn kinds(&mut self, count: usize) -> Vec<String> {
        self.seen(count).await.into_iter().map(|seen| seen.what).collect()
    }

    /// The ids of the snapshot's tasks with their revisions and states, up to its end.
    pub async fn snapshot(&mut self) -> BTreeMap<String, (i64, String)> {
        let mut tasks = BTreeMap::new();
        loop {
            match self.next().await {
                Item::Snapshot(task) => {
                    let twice = tasks.insert(id_of(&task).to_owned(), (task.revision, state_name(task.state).to_owned()));
                    assert_eq!(twice, None, "{} was shown twice", id_of(&task));
                }
                Item::SnapshotDone(_) => return tasks,
                other => panic!("expected a snapshot: {other:?}"),
            }
        }
    }

    /// Nothing more comes; how it ended.
    pub async fn rest(&mut self) -> Result<Vec<Item>, Status> {
        let mut rest = Vec::new();
        while let Some(item) = self.try_next().await? {
            rest.push(item);
        }
        Ok(rest)
    }

    /// No event comes in this time.
    pub async fn is_silent_for(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(message) = tokio::time::timeout_at(end, self.stream.message()).await {
            let item = message.expect("the watch goes on").expect("the watch goes on").item;
            assert!(matches!(item, Some(Item::Bookmark(_))), "not silent: {item:?}");
        }
    }
}
