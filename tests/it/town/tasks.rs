//! What producers and watchers of a town do.

use std::time::Duration;

use leasehold::api::proto as pb;
use pb::task_service_client::TaskServiceClient;
use pb::{TaskState, submit_result, task_spec};
use tonic::transport::Channel;

use super::answer::item_status;
use super::{Answer, PATIENCE, QUEUE, Town, span, state_name};

impl Town {
    /// The first server's TaskService.
    pub fn tasks(&self) -> TaskServiceClient<Channel> {
        self.tasks_at(0)
    }

    pub fn tasks_at(&self, server: usize) -> TaskServiceClient<Channel> {
        TaskServiceClient::new(self.server(server).channel())
    }

    /// A task to submit, with nothing but a name.
    pub fn spec(&self, id: &str) -> Spec<'_> {
        let spec = pb::TaskSpec { queue: QUEUE.into(), task_id: id.into(), kind: "push".into(), ..pb::TaskSpec::default() };
        Spec { town: self, spec, server: 0 }
    }

    pub async fn submit(&self, id: &str) -> pb::Task {
        self.spec(id).submit().await
    }

    /// One answer for each, or one for all.
    pub async fn submit_batch(&self, specs: Vec<Spec<'_>>, atomic: bool) -> Answer<Vec<Answer<pb::SubmitResponse>>> {
        let specs = specs.into_iter().map(|spec| spec.spec).collect();
        let answer = |result: pb::SubmitResult| match result.result.expect("a result is always set") {
            submit_result::Result::Accepted(accepted) => Answer(Ok(accepted)),
            submit_result::Result::Error(error) => Answer(Err(item_status(error))),
        };
        let answers = self.tasks().submit_batch(pb::SubmitBatchRequest { specs, atomic }).await;
        Answer(answers.map(|answers| answers.into_inner().results.into_iter().map(answer).collect()))
    }

    pub async fn look_up(&self, id: &str) -> Answer<pb::GetTaskResponse> {
        let request = pb::GetTaskRequest { task: Some(task_ref(id)), ..pb::GetTaskRequest::default() };
        self.tasks().get_task(request).await.into()
    }

    /// The task as it stands.
    pub async fn task(&self, id: &str) -> pb::Task {
        self.look_up(id).await.ok().task.expect("an answer has a task")
    }

    pub async fn task_with_payload(&self, id: &str) -> pb::Task {
        let request = pb::GetTaskRequest { task: Some(task_ref(id)), view: pb::TaskView::Full as i32, wait_until: None };
        Answer::from(self.tasks().get_task(request).await).ok().task.expect("an answer has a task")
    }

    /// Waits until the task is in this state.
    pub async fn wait_for_state(&self, id: &str, state: TaskState) -> pb::Task {
        let wait = pb::WaitUntil { states: vec![state as i32], timeout: Some(span(PATIENCE)) };
        let request = pb::GetTaskRequest { task: Some(task_ref(id)), view: 0, wait_until: Some(wait) };
        let task = Answer::from(self.tasks().get_task(request).await).ok().task.expect("an answer has a task");
        assert_eq!(task.state(), state, "{id} did not become {} in {PATIENCE:?}", state.as_str_name());
        task
    }

    pub async fn attempts(&self, id: &str) -> Vec<pb::Attempt> {
        let request = pb::ListAttemptsRequest { task: Some(task_ref(id)), page_size: 1_000, page_token: String::new() };
        Answer::from(self.tasks().list_attempts(request).await).ok().attempts
    }

    /// What is in the way of the task.
    pub async fn explain(&self, id: &str) -> Vec<pb::Obstacle> {
        let request = pb::ExplainRequest { task: Some(task_ref(id)) };
        Answer::from(self.tasks().explain(request).await).ok().obstacles
    }

    pub async fn cancel(&self, id: &str) -> Answer<pb::CancelResponse> {
        let request = pb::CancelRequest { task: Some(task_ref(id)), reason: "the message was recalled".into() };
        self.tasks().cancel(request).await.into()
    }

    pub async fn list(&self, filter: pb::TaskFilter) -> Vec<String> {
        let filter = pb::TaskFilter { queue: QUEUE.into(), ..filter };
        let request = pb::ListTasksRequest { filter: Some(filter), page_size: 1_000, page_token: String::new() };
        let page = Answer::from(self.tasks().list_tasks(request).await).ok();
        assert_eq!(page.next_page_token, "", "a test has fewer tasks than a page");
        page.tasks.iter().map(|task| id_of(task).to_owned()).collect()
    }

    /// The kinds of the task's events, in order, with the state after each: `LEASED>LEASED`.
    pub async fn history(&self, id: &str) -> Vec<String> {
        let query = "SELECT e.kind || '>' || e.state FROM events e JOIN tasks t USING (queue_id, uid) WHERE t.task_id = $1 ORDER BY e.revision";
        sqlx::query_scalar(query).bind(id).fetch_all(self.database()).await.expect("the log can be read")
    }

    /// Where each of these tasks stands.
    pub async fn states(&self, ids: &[&str]) -> Vec<&'static str> {
        let mut states = Vec::new();
        for id in ids {
            states.push(state_name(self.task(id).await.state));
        }
        states
    }
}

pub fn task_ref(id: &str) -> pb::TaskRef {
    pb::TaskRef { queue: QUEUE.into(), task_id: id.into(), uid: String::new() }
}

pub fn id_of(task: &pb::Task) -> &str {
    &task.spec.as_ref().expect("a task has a spec").task_id
}

/// What is asked for, before it is sent.
#[derive(Clone)]
pub struct Spec<'a> {
    town: &'a Town,
    pub spec: pb::TaskSpec,
    server: usize,
}

impl Spec<'_> {
    /// Submitted at this server.
    pub fn at(self, server: usize) -> Self {
        Spec { server, ..self }
    }

    pub fn with(mut self, change: impl FnOnce(&mut pb::TaskSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub fn queue(self, queue: &str) -> Self {
        self.with(|spec| spec.queue = queue.into())
    }

    /// Its ordering key.
    pub fn key(self, key: &str) -> Self {
        self.with(|spec| spec.ordering_key = key.into())
    }

    /// Its fairness key.
    pub fn share(self, key: &str) -> Self {
        self.with(|spec| spec.fairness_key = key.into())
    }

    pub fn payload(self, payload: &[u8]) -> Self {
        self.with(|spec| spec.payload = payload.to_vec().into())
    }

    pub fn label(self, key: &str, value: &str) -> Self {
        self.with(|spec| drop(spec.labels.insert(key.into(), value.into())))
    }

    pub fn priority(self, priority: i32) -> Self {
        self.with(|spec| spec.priority = priority)
    }

    pub fn start_delay(self, delay: Duration) -> Self {
        self.with(|spec| spec.start = Some(task_spec::Start::StartDelay(span(delay))))
    }

    /// From acceptance to the deadline.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|spec| spec.end = Some(task_spec::End::Ttl(span(ttl))))
    }

    /// So many charged attempts, and always the same wait between them.
    pub fn retry(self, max_attempts: i32, backoff: Duration) -> Self {
        let retry = pb::RetryPolicy {
            max_attempts: Some(max_attempts),
            initial_backoff: Some(span(backoff)),
            max_backoff: Some(span(backoff)),
            multiplier: Some(1.0),
            jitter: Some(0.0),
        };
        self.with(|spec| spec.retry = Some(retry))
    }

    pub fn lease(self, lease: Duration) -> Self {
        self.with(|spec| spec.lease_duration = Some(span(lease)))
    }

    pub async fn try_submit(self) -> Answer<pb::SubmitResponse> {
        self.town.tasks_at(self.server).submit(pb::SubmitRequest { spec: Some(self.spec) }).await.into()
    }

    /// It must be new.
    pub async fn submit(self) -> pb::Task {
        let accepted = self.try_submit().await.ok();
        assert!(accepted.created, "the task was known before");
        accepted.task.expect("an answer has a task")
    }
}
