//! The answers of a submit batch: what was accepted, what was known, and what is refused.

use std::collections::HashMap;

use uuid::Uuid;

use super::batch::{Answer, Fate, Submission};
use super::replay::end;
use crate::domain::names::QueueName;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::spec::Digest;
use crate::domain::task::{Standing, State};
use crate::engine::{Accepted, Aftermath, Engine, inspect};
use crate::store::{StoreError, Tx};

/// Commits and puts the answers together. Tasks that were known before are read after the commit, as they stand then.
pub(super) async fn finish(
    engine: &Engine, items: &[Submission], digests: &[Digest], fates: Vec<Fate>, tx: Tx, atomic: bool, freed: Aftermath,
) -> Result<Vec<Answer>, StoreError> {
    let found = find_known(engine, items, &fates).await?;
    let known_answer = |i: usize| -> Answer {
        let item = &items[i];
        let task = found.get(&(item.queue_id, item.spec.task_id.to_string()));
        let task = task.ok_or_else(|| Refusal::Bug("a known task id leads to no task".into()))?;
        repeated(task.clone(), digests[i])
    };
    if atomic
        && let Some(refusal) = (0..items.len()).filter(|&i| matches!(fates[i], Fate::Known)).find_map(|i| known_answer(i).err())
    {
        return Ok(vec![Err(refusal); items.len()]);
    }
    let conflicts_within = |i: usize| matches!(fates[i], Fate::Repeats(first) if digests[first] != digests[i]);
    if atomic && let Some(i) = (0..items.len()).find(|&i| conflicts_within(i)) {
        let Fate::Repeats(first) = fates[i] else { return Err(StoreError::silent()) };
        let conflict = Refusal::TaskIdConflict { digest: digests[first].to_string(), state: State::Ready, uid: Uuid::nil() };
        return Ok(vec![Err(conflict); items.len()]);
    }
    let rehearsal = items.iter().any(Submission::rehearsal);
    end(tx, rehearsal).await?;
    let known_before: Vec<bool> = fates.iter().map(|fate| matches!(fate, Fate::Known)).collect();
    let mut answers: Vec<Answer> = Vec::with_capacity(items.len());
    let mut aftermath = freed;
    let new = fates.iter().enumerate().filter_map(|(i, fate)| match fate {
        Fate::New { place, .. } => Some(((place.queue_id, place.uid), (items[i].spec.clone(), digests[i]))),
        _ => None,
    });
    engine.0.memory.remember(new);
    for (i, fate) in fates.into_iter().enumerate() {
        let answer = match fate {
            Fate::Known => known_answer(i),
            Fate::Refused(refusal) => Err(refusal),
            // Compared with the task that stands, not with what stands before it in the batch: that may be what was refused.
            Fate::Repeats(first) if known_before[first] => known_answer(i),
            Fate::Repeats(first) => answers[first].clone().and_then(|earlier| repeated(earlier.task, digests[i])),
            Fate::New { live, place, .. } => {
                aftermath.due = Some(aftermath.due.map_or(live.due(), |due| due.min(live.due())));
                if live.state == State::Ready {
                    aftermath.openings.add(place.queue_id, live.rank);
                }
                let task = Task {
                    uid: place.uid,
                    spec: items[i].spec.clone(),
                    digest: digests[i],
                    position: place.position,
                    standing: Standing::Live(live),
                    result: None,
                    repair: None,
                };
                Ok(Accepted { task, created: true, cursor: place.position - 1 })
            }
        };
        answers.push(answer);
    }
    if !rehearsal {
        engine.committed(aftermath);
    }
    Ok(answers)
}

/// The tasks that were known before, as they stand.
async fn find_known(engine: &Engine, items: &[Submission], fates: &[Fate]) -> Result<HashMap<(i32, String), Task>, StoreError> {
    let known = fates.iter().zip(items).filter(|(fate, _)| matches!(fate, Fate::Known));
    let known: Vec<(i32, QueueName, String)> =
        known.map(|(_, item)| (item.queue_id, item.spec.queue.clone(), item.spec.task_id.to_string())).collect();
    let found = inspect::tasks_by_id(engine.db(), &known).await?;
    // Where retention has forgotten one in between, its id is free now.
    if found.len() < known.len() { Err(StoreError::raced()) } else { Ok(found) }
}

/// The answer to a Submit of an id that is known: the existing task, if the content is the same.
fn repeated(task: Task, digest: Digest) -> Answer {
    if task.digest != digest {
        return Err(Refusal::TaskIdConflict { digest: task.digest.to_string(), state: task.standing.state(), uid: task.uid });
    }
    let cursor = task.position - 1;
    Ok(Accepted { task, created: false, cursor })
}
