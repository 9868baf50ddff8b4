//! Explain: why a task is not running now.

use super::inspect::not_found;
use super::transition::no_task;
use super::{Engine, Obstacle, ObstacleKind, TaskRef, refusal_of, timed};
use crate::domain::names::TaskId;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::task::{Live, Standing, State};
use crate::domain::time::Timestamp;
use crate::store::{self, LiveRow, StoreError};

impl Engine {
    /// What stands in the way, the nearest obstacle first. Empty: nothing that the service knows of.
    pub async fn explain(&self, task: TaskRef) -> Result<Vec<Obstacle>, Refusal> {
        let queue_id = self.known_queue(&task.queue).await.map_err(|refusal| no_task(refusal, &task))?;
        let found = match timed(self.find_stored(queue_id, &task)).await {
            Ok(found) => found.ok_or_else(|| not_found(&task))?,
            Err(StoreError::Data(_)) => {
                let text = "its row can't be read by this server, so claims pass over it; the server's log says why".into();
                return Ok(vec![obstacle(ObstacleKind::Unreadable, text, None)]);
            }
            Err(error) => return Err(refusal_of(&error)),
        };
        match &found.standing {
            Standing::Ended(ended) => {
                Ok(vec![obstacle(ObstacleKind::Terminal, format!("it has ended: {}", ended.state.as_str()), None)])
            }
            Standing::Live(live) => timed(self.obstacles(queue_id, &task, &found, live)).await.map_err(|error| refusal_of(&error)),
        }
    }

    async fn obstacles(&self, queue_id: i32, task: &TaskRef, found: &Task, live: &Live) -> Result<Vec<Obstacle>, StoreError> {
        let mut obstacles = Vec::new();
        match live.state {
            State::Leased => {
                let worker = live.lease.as_ref().map_or("", |lease| lease.worker.as_str());
                let until = live.lease.as_ref().map(|lease| lease.expire);
                obstacles.push(obstacle(ObstacleKind::Running, format!("worker {worker} holds its lease"), until));
                return Ok(obstacles);
            }
            State::RetryAt => {
                let text = format!("attempt {} ended and the next one is planned", live.attempt);
                obstacles.push(obstacle(ObstacleKind::BackingOff, text, live.wake));
            }
            State::Scheduled => obstacles.push(obstacle(ObstacleKind::NotYet, "its start lies ahead".into(), live.wake)),
            State::Blocked => obstacles.push(self.behind(queue_id, found).await?),
            _ => {}
        }
        let paused = store::find_queue(self.db().reads(), &task.queue).await?.is_some_and(|queue| queue.paused);
        if paused {
            obstacles.push(obstacle(ObstacleKind::QueuePaused, "the queue is paused".into(), None));
        }
        if live.state != State::Ready {
            return Ok(obstacles);
        }
        if let Some(row) = store::live_by_uid(self.db().reads(), &[queue_id], &[found.uid]).await?.first() {
            obstacles.extend(self.over_budget(row).await?);
            let ahead = store::ahead_in_share(self.db(), row).await?;
            if ahead > 0 {
                let text = format!("{ahead} READY tasks of its share go first");
                obstacles.push(Obstacle { ahead: Some(ahead), ..obstacle(ObstacleKind::AheadInShare, text, None) });
            }
        }
        if !self.0.dispatchers.anybody_waits(queue_id) {
            let text = "no worker waits for this queue's tasks on this server".into();
            obstacles.push(obstacle(ObstacleKind::NoWorker, text, None));
        }
        Ok(obstacles)
    }

    /// What budgets hold back.
    async fn over_budget(&self, row: &LiveRow) -> Result<Vec<Obstacle>, StoreError> {
        let Some(left) = store::allowances(self.db(), row.queue_id, row.share_id).await? else { return Ok(Vec::new()) };
        let mut obstacles = Vec::new();
        for (of, allowance, at_cap) in
            [("share", left.share, ObstacleKind::ShareAtCap), ("queue", left.queue, ObstacleKind::QueueAtCap)]
        {
            if allowance.full() {
                obstacles.push(obstacle(at_cap, format!("as many tasks of its {of} are leased as may be"), None));
            }
            if let Some(bucket) = allowance.bucket.filter(|bucket| !bucket.affords(row.cost)) {
                let until = bucket.wait(row.cost).map(|wait| left.now.plus(wait));
                obstacles.push(obstacle(ObstacleKind::RateLimited, format!("the rate of its {of} is used up"), until));
            }
        }
        Ok(obstacles)
    }

    async fn behind(&self, queue_id: i32, found: &Task) -> Result<Obstacle, StoreError> {
        let row = store::live_by_uid(self.db().reads(), &[queue_id], &[found.uid]).await?.pop();
        let Some(key_id) = row.and_then(|row| row.key_id) else {
            return Ok(obstacle(ObstacleKind::BehindKey, "it has come free just now".into(), None));
        };
        if let Some(head) = store::key_head(self.db(), key_id, found.position).await? {
            let name = head.task_id.as_ref().map_or("", |id| id.as_str());
            let text = format!("task {name} keeps its ordering key and is {}", head.state);
            let blocker = head.task_id.map(|id| (id, head.uid));
            return Ok(Obstacle { blocker, ahead: Some(head.ahead + 1), ..obstacle(ObstacleKind::BehindKey, text, None) });
        }
        let hold = store::key_hold(self.db(), key_id, found.position).await?;
        let Some((id, uid)) = hold else {
            return Ok(obstacle(ObstacleKind::BehindKey, "its ordering key has come free just now".into(), None));
        };
        let text = format!("the open repair of task {id} holds its ordering key");
        let blocker = TaskId::parse(&id).ok().map(|id| (id, uid));
        Ok(Obstacle { blocker, ..obstacle(ObstacleKind::KeyHeld, text, None) })
    }
}

fn obstacle(kind: ObstacleKind, text: String, until: Option<Timestamp>) -> Obstacle {
    Obstacle { kind, text, blocker: None, until, ahead: None }
}
