//! `leasehold watch`: follows a queue or a task, a line a change, and goes on by itself where it was when a server drains or dies.

mod json;
mod lines;

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use tonic::{Code, Status, Streaming};

use super::Failure;
use super::connection::{connect, reason, refused};
use crate::api::proto::task_service_client::TaskServiceClient;
use crate::api::proto::{TaskFilter, TaskRef, TaskState, WatchRequest, WatchResponse, WatchStart};

/// Until the server begins to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries to go on.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(super) struct Arguments {
    /// The server's gRPC address.
    #[arg(long, env = "LEASEHOLD_SERVER", default_value = "http://127.0.0.1:7233")]
    server: String,
    /// The queue.
    #[arg(long)]
    queue: String,
    /// Only this task, by its id.
    #[arg(long, conflicts_with_all = ["states", "share", "label"])]
    task: Option<String>,
    /// Go on after this cursor, as --json shows them, without a snapshot.
    #[arg(long, conflicts_with = "now")]
    after: Option<String>,
    /// Only what happens from now on, without a snapshot.
    #[arg(long)]
    now: bool,
    /// End when the task has.
    #[arg(long, requires = "task")]
    until_terminal: bool,
    /// Only tasks in these states, and changes into and out of them, e.g. READY,LEASED.
    #[arg(long, value_delimiter = ',', value_parser = state)]
    states: Vec<TaskState>,
    /// Only the share of this fairness key; empty: of those without one.
    #[arg(long)]
    share: Option<String>,
    /// Only tasks with this label, as key=value; all of them, if there are several.
    #[arg(long, value_parser = label)]
    label: Vec<(String, String)>,
    /// A JSON object a line, bookmarks included, with cursors for --after.
    #[arg(long)]
    json: bool,
}

fn state(name: &str) -> Result<TaskState, String> {
    let known = TaskState::from_str_name(&format!("TASK_STATE_{}", name.trim().to_uppercase()));
    known.filter(|state| *state != TaskState::Unspecified).ok_or_else(|| format!("there is no state {name}"))
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is given as key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Arguments {
    fn request(&self) -> WatchRequest {
        let task = self.task.as_ref().map(|id| TaskRef { queue: self.queue.clone(), task_id: id.clone(), uid: String::new() });
        let filter = TaskFilter {
            queue: self.queue.clone(),
            states: self.states.iter().map(|state| *state as i32).collect(),
            fairness_key: self.share.clone(),
            labels: self.label.iter().cloned().collect(),
            ..TaskFilter::default()
        };
        WatchRequest {
            filter: task.is_none().then_some(filter),
            task,
            start: if self.now { WatchStart::Now as i32 } else { 0 },
            after_cursor: self.after.clone().unwrap_or_default(),
            until_terminal: self.until_terminal,
            bookmark_interval: None,
        }
    }
}

pub(super) fn run(arguments: Arguments) -> Result<(), Failure> {
    match super::block_on(follow(&arguments)) {
        // Whoever reads has had enough.
        Err(error) if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) => Ok(()),
        other => other,
    }
}

async fn follow(arguments: &Arguments) -> Result<(), Failure> {
    let mut request = arguments.request();
    let mut stream = open(arguments, &request).await?.map_err(refused("Watch"))?;
    loop {
        let status = match show(arguments, &mut request, &mut stream).await? {
            Ok(()) => return Ok(()),
            Err(status) if passes(&status) => status,
            Err(status) => return Err(refused("Watch")(status)),
        };
        let why = reason(&status);
        tell(&format!("{}; it goes on by itself", if why.is_empty() { "the connection was lost" } else { &why }))?;
        stream = loop {
            tokio::time::sleep(AGAIN.mul_f64(0.5 + fastrand::f64())).await;
            match open(arguments, &request).await {
                Ok(Ok(stream)) => break stream,
                Ok(Err(status)) if !passes(&status) => return Err(refused("Watch")(status)),
                // Nobody there yet, or nobody who can serve.
                _ => {}
            }
        };
    }
}

/// The stream, or what the server said instead; a failure: no server answers.
async fn open(arguments: &Arguments, request: &WatchRequest) -> Result<Result<Streaming<WatchResponse>, Status>, Failure> {
    let channel = connect(&arguments.server, PATIENCE).await?;
    let opened = TaskServiceClient::new(channel).watch(request.clone()).await;
    Ok(opened.map(tonic::Response::into_inner))
}

/// Shows what comes until the stream ends; the request then goes on where it was.
async fn show(
    arguments: &Arguments, request: &mut WatchRequest, stream: &mut Streaming<WatchResponse>,
) -> Result<Result<(), Status>, Failure> {
    loop {
        let response = match stream.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return Ok(Ok(())),
            Err(status) => return Ok(Err(status)),
        };
        let line = if arguments.json { Some(json::line(&response)) } else { lines::line(&response) };
        if let Some(line) = line {
            let mut out = io::stdout().lock();
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        if !response.cursor.is_empty() {
            request.after_cursor = response.cursor;
            request.start = 0;
        }
    }
}

/// Whether another try may get further: the server went away, or could not take more just then.
fn passes(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => true,
        // What the transport says of a connection that broke.
        Code::Unknown | Code::Internal | Code::Cancelled => reason(status).is_empty(),
        Code::ResourceExhausted => reason(status) == "WATCHER_TOO_SLOW",
        _ => false,
    }
}

fn tell(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "leasehold watch: {text}")
}
