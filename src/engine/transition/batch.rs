//! A batch of commands: carried out together, and taken apart when a row is held or at fault.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Instant;

use uuid::Uuid;

use super::round::carry_out;
use crate::domain::names::TaskId;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::task::{Command, Reply};
use crate::domain::time::Timestamp;
use crate::engine::batcher::{Load, Ticket};
use crate::engine::{Engine, refusal_of, timed};
use crate::store::{self, StoreError, Tx};

/// One command on one task.
#[derive(Clone, Debug)]
pub struct Item {
    pub queue_id: i32,
    pub target: Target,
    pub command: Command,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Id(TaskId),
    Uid(Uuid),
}

/// What became of an item that was not refused.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub task: Task,
    pub reply: Reply,
    /// The transaction's reading of the database's clock, and ours at that moment.
    pub now: Timestamp,
    pub read: Instant,
}

pub type Answer = Result<Outcome, Refusal>;
type Tickets = Vec<Ticket<Item, Answer>>;

/// Begins a transaction, and only then takes its batch: who calls meanwhile is carried out with the others.
pub async fn run(engine: &Engine, load: Load<Item, Answer>) {
    let begun = timed(engine.db().begin()).await;
    let tickets = load.take();
    if tickets.is_empty() {
        return;
    }
    match begun {
        Ok(tx) => run_in(engine, tickets, Some(tx)).await,
        Err(error) => refuse_all(tickets, &error),
    }
}

/// Carries out a batch and answers everyone. What is held by somebody else is set aside and carried out alone, off the lane.
async fn run_in(engine: &Engine, tickets: Tickets, begun: Option<Tx>) {
    let items: Vec<Item> = tickets.iter().flat_map(|ticket| ticket.items.iter().cloned()).collect();
    match attempt_often(engine, &items, false, begun).await {
        Ok(answers) => answer_all(tickets, answers),
        Err(StoreError::Locked(_)) if tickets.len() > 1 => set_aside(engine, tickets).await,
        Err(StoreError::Locked(_)) => spawn_alone(engine, tickets),
        Err(StoreError::Data(_)) if tickets.len() > 1 => {
            // Halving finds the culprit, and its neighbours go on.
            let mut first = tickets;
            let second = first.split_off(first.len() / 2);
            run_boxed(engine.clone(), first).await;
            run_boxed(engine.clone(), second).await;
        }
        Err(error) => refuse_all(tickets, &error),
    }
}

/// `run_in`, for parts of a batch that it calls itself with.
fn run_boxed(engine: Engine, tickets: Tickets) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move { run_in(&engine, tickets, None).await })
}

fn refuse_all(tickets: Tickets, error: &StoreError) {
    let refusal = refusal_of(error);
    let count = tickets.iter().map(|ticket| ticket.items.len()).sum();
    answer_all(tickets, vec![Err(refusal); count]);
}

fn answer_all(tickets: Tickets, answers: Vec<Answer>) {
    let mut answers = answers.into_iter();
    for ticket in tickets {
        let own = answers.by_ref().take(ticket.items.len()).collect();
        ticket.answer(own);
    }
}

/// Finds out which rows nobody holds: those tickets go on together, the others wait each on its own.
async fn set_aside(engine: &Engine, tickets: Tickets) {
    let uids: Vec<(i32, Uuid)> = tickets
        .iter()
        .flat_map(|ticket| &ticket.items)
        .filter_map(|item| match item.target {
            Target::Uid(uid) => Some((item.queue_id, uid)),
            Target::Id(_) => None,
        })
        .collect();
    let held: BTreeSet<Uuid> = match timed(store::held_by_others(engine.db(), &uids)).await {
        Ok(held) => held,
        Err(error) => return refuse_all(tickets, &error),
    };
    let waits = |ticket: &Ticket<Item, Answer>| {
        ticket.items.iter().any(|item| match item.target {
            Target::Uid(uid) => held.contains(&uid),
            Target::Id(_) => true,
        })
    };
    let (aside, free): (Tickets, Tickets) = tickets.into_iter().partition(waits);
    if !aside.is_empty() {
        aside.into_iter().for_each(|ticket| spawn_alone(engine, vec![ticket]));
        if !free.is_empty() {
            run_boxed(engine.clone(), free).await;
        }
        return;
    }
    // Whoever held a row has let go of it since, or holds a key: halving finds out, and the lane need not wait for it.
    let mut first = free;
    let second = first.split_off(first.len() / 2);
    for half in [first, second] {
        let engine = engine.clone();
        tokio::spawn(run_boxed(engine, half));
    }
}

fn spawn_alone(engine: &Engine, tickets: Tickets) {
    let engine = engine.clone();
    tokio::spawn(async move {
        let items: Vec<Item> = tickets.iter().flat_map(|ticket| ticket.items.iter().cloned()).collect();
        let answers = match attempt_often(&engine, &items, true, None).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(refusal_of(&error)); items.len()],
        };
        answer_all(tickets, answers);
    });
}

/// Lost races are run again, with everything read anew: nothing of them was written. `begun`: a transaction to begin in.
async fn attempt_often(engine: &Engine, items: &[Item], patient: bool, mut begun: Option<Tx>) -> Result<Vec<Answer>, StoreError> {
    let mut tries = 0;
    loop {
        match timed(carry_out(engine, items, patient, begun.take())).await {
            Err(StoreError::Conflict(error)) if tries < 10 => {
                tracing::debug!(%error, "a batch lost a race and runs again");
                tries += 1;
            }
            other => return other,
        }
    }
}
