//! Submit and SubmitBatch.

mod answer;
mod batch;
mod floors;
mod replay;

use std::sync::Arc;

pub(super) use batch::{Submission, run, run_atomic};
pub(super) use replay::Replaying;

use super::transition::only;
use super::{Accepted, Engine};
use crate::domain::limits::BATCH;
use crate::domain::refusal::Refusal;
use crate::domain::spec::{Subject, TaskSpec};

impl Engine {
    /// Accepts a task, after the commit; a known id with the same content is answered with the task as it stands.
    pub async fn submit(&self, spec: TaskSpec) -> Result<Accepted, Refusal> {
        let submission = Submission { queue_id: self.named_queue(&spec.queue).await?, spec: Arc::new(spec), replay: None };
        let raises = raises(&submission);
        let answer = only(self.0.submissions.call(vec![submission]).await?);
        if answer.as_ref().is_ok_and(|accepted| accepted.created) {
            self.walk_superseded(raises).await;
        }
        answer
    }

    /// Accepts tasks in their order. Atomic: all of them or, with the first refusal, none; otherwise one answer each.
    pub async fn submit_batch(&self, specs: Vec<TaskSpec>, atomic: bool) -> Result<Vec<Result<Accepted, Refusal>>, Refusal> {
        let mut queues = Vec::with_capacity(specs.len());
        for spec in &specs {
            queues.push(self.named_queue(&spec.queue).await?);
        }
        let mut raised = Vec::new();
        let mut tasks =
            queues.into_iter().zip(specs).map(|(queue_id, spec)| Submission { queue_id, spec: Arc::new(spec), replay: None });
        if atomic {
            let tasks: Vec<Submission> = tasks.collect();
            raised.extend(tasks.iter().flat_map(raises));
            let answers = run_atomic(self, tasks).await?;
            self.walk_superseded(raised).await;
            return Ok(answers.into_iter().map(Ok).collect());
        }
        // One part after the other: tasks of one ordering key keep the order of the call.
        let mut answers = Vec::with_capacity(tasks.len());
        while tasks.len() > 0 {
            let part: Vec<Submission> = tasks.by_ref().take(BATCH).collect();
            let count = part.len();
            raised.extend(part.iter().flat_map(raises));
            match self.0.submissions.call(part).await {
                Ok(part) => answers.extend(part),
                Err(refusal) => answers.extend(vec![Err(refusal); count]),
            }
        }
        self.walk_superseded(raised).await;
        Ok(answers)
    }
}

/// The subjects whose floors it raises, if it is accepted.
fn raises(submission: &Submission) -> Vec<(i32, Subject)> {
    let raised = submission.spec.subjects.iter().filter(|subject| subject.raise_floor);
    raised.map(|subject| (submission.queue_id, subject.clone())).collect()
}
