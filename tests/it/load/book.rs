//! What was promised.

use std::collections::HashMap;

use leasehold::api::proto::{self as pb, TaskState};

use super::BATCH;
use crate::town::{QUEUE, Town, id_of};

#[derive(Default)]
pub struct Book {
    /// Every id that was sent, and whether its Submit was acknowledged.
    pub sent: HashMap<String, bool>,
    pub atomic: Vec<Vec<String>>,
    /// The end that was acknowledged, and the receipt that was given with it.
    pub ended: HashMap<String, (TaskState, String)>,
    /// Until when a lease was promised, by id and token; without those of which an end was reported.
    pub promised: HashMap<(String, i64), i64>,
    pub broken: Vec<String>,
}

impl Book {
    pub async fn holds_in(&self, town: &Town) {
        let tasks = every_task(town).await;
        let acknowledged = self.sent.iter().filter(|(_, acknowledged)| **acknowledged);
        let lost: Vec<&String> = acknowledged.map(|(id, _)| id).filter(|id| !tasks.contains_key(*id)).collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        let unknown: Vec<&String> = tasks.keys().filter(|id| !self.sent.contains_key(*id)).collect();
        assert!(unknown.is_empty(), "there and never sent: {unknown:?}");
        for batch in &self.atomic {
            let there = batch.iter().filter(|id| tasks.contains_key(*id)).count();
            assert!(there == 0 || there == batch.len(), "{there} of an atomic batch of {}: {batch:?}", batch.len());
        }
        for (id, task) in &tasks {
            let finished = matches!(task.state(), TaskState::Completed | TaskState::Skipped);
            assert!(finished, "{id} became {}", task.state().as_str_name());
        }
        for (id, (state, receipt)) in &self.ended {
            let task = &tasks[id];
            assert_eq!((task.state(), &task.receipt_ref), (*state, receipt), "{id} has another end than was acknowledged");
        }
        assert!(self.ended.len() > BATCH && !self.atomic.is_empty(), "hardly anything happened");
        self.leases_lasted(town).await;
    }

    /// Nobody was given a task before the last promise to its holder had run out.
    async fn leases_lasted(&self, town: &Town) {
        let query = "SELECT t.task_id, e.token, (extract(epoch FROM e.time) * 1000000)::bigint
                     FROM events e JOIN tasks t USING (queue_id, uid) WHERE e.kind = 'LEASED' ORDER BY e.position";
        let leased: Vec<(String, i64, i64)> = sqlx::query_as(query).fetch_all(town.database()).await.expect("the log can be read");
        let mut by_task: HashMap<&str, Vec<(i64, i64)>> = HashMap::new();
        for (id, token, time) in &leased {
            by_task.entry(id).or_default().push((*token, *time));
        }
        assert!(!self.promised.is_empty(), "no lease was ever forgotten");
        for ((id, token), until) in &self.promised {
            let next = by_task[id.as_str()].iter().find(|(later, _)| later > token);
            assert!(
                next.is_none_or(|(_, time)| time >= until),
                "{id}: token {token} was promised until {until}, the next came at {next:?}"
            );
        }
    }
}

/// All tasks of the queue, as the service lists them.
async fn every_task(town: &Town) -> HashMap<String, pb::Task> {
    let mut tasks = HashMap::new();
    let mut page_token = String::new();
    loop {
        let filter = Some(pb::TaskFilter { queue: QUEUE.into(), ..Default::default() });
        let request = pb::ListTasksRequest { filter, page_size: 1_000, page_token };
        let page = town.tasks().list_tasks(request).await.expect("tasks can be listed").into_inner();
        tasks.extend(page.tasks.into_iter().map(|task| (id_of(&task).to_owned(), task)));
        if page.next_page_token.is_empty() {
            return tasks;
        }
        page_token = page.next_page_token;
    }
}
