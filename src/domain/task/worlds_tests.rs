//! Every interleaving of a small world, driven through `step` and `settle_key` themselves: two tasks of one key, two workers, a clock,
//! calls that are lost, repeated or late, crashes, sweeps, a cancel, and floors that rise. What must hold, holds in every state that can be
//! reached (`properties`); how a step is carried out, and what it may not do, is `world`'s.
//!
//! What decides nothing (revisions, notes, who ran it) is blanked between two steps, so that worlds that differ in it alone are one.

mod properties;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stateright::{Checker, Model, Property};
use uuid::Uuid;

use super::*;
use crate::domain::event::EventKind;
use crate::domain::order::{Place, settle_key};
use crate::domain::queue::{OnRepair, OnUnknown};
use crate::domain::refusal::Refusal;
use crate::domain::report::{Failure, Success};
use crate::domain::spec::tests::spec;
use properties::{can_happen, must_hold};
use world::blank;

/// A lease lasts so many ticks of the clock, a task so many from its acceptance to its deadline, and the clock stops after so many.
const LEASE: i64 = 2;
const TTL: i64 = 4;
const END: i64 = 4;

/// What differs from one small world to another.
#[derive(Clone, Debug)]
struct Rules {
    policy: Policy,
    /// Workers promise to say when the effect begins.
    promised: bool,
    /// How many leases are handed out, over both tasks.
    leases: i64,
    /// How much goes wrong along one history: an answer lost, a crash, a late report, a cancel or a floor that rises each count as one.
    faults: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: i64,
    /// In the order of acceptance.
    tasks: [Task; 2],
    workers: [Worker; 2],
    /// A report that is still under way; its sender has no answer.
    wire: Option<(usize, i64, Says)>,
    /// A lease whose caller went away before it had it.
    orphan: Option<(usize, i64)>,
    /// The latest fencing token.
    token: i64,
    faults: usize,
    /// The first promise that a step broke.
    broken: Option<&'static str>,
}

/// A task, and what the world outside knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Task {
    standing: Standing,
    /// What the log says of its attempts that are over, by token.
    pasts: BTreeMap<i64, PastAttempt>,
    /// Tokens under which the effect happened, and those under which a report counted.
    acted: BTreeSet<i64>,
    reported: BTreeSet<i64>,
    /// A worker was told that its success counts.
    promised_done: bool,
    /// The floor of its subject has risen above it.
    stale: bool,
}

/// What a worker knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Holds {
        task: usize,
        token: i64,
        /// Until when it was promised the lease.
        until: i64,
        /// It may act: it was told that the beginning of its effect is known, or it never promised to say so.
        may_act: bool,
        /// It has said how it ended. It acts no more, and says nothing else.
        said: Option<Says>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Says {
    Succeeded,
    Failed,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// The clock moves on.
    Pass,
    /// Some server looks at what time has decided of a task.
    Sweep(usize),
    /// `heard`: whether the answer came back.
    Claim {
        worker: usize,
        task: usize,
        heard: bool,
    },
    Heartbeat(usize),
    BeginEffect {
        worker: usize,
        heard: bool,
    },
    Act(usize),
    Report(usize, Says),
    /// A report that takes its time: it may arrive long after its sender said it again, or never.
    Send(usize, Says),
    Arrive,
    GiveBack,
    Cancel(usize),
    /// The floor of the task's subject rises; the walk over what is stale then comes by when it does.
    Raise(usize),
    Walk(usize),
    Crash(usize),
}

impl Action {
    fn is_fault(&self) -> bool {
        match self {
            Action::Claim { heard, .. } | Action::BeginEffect { heard, .. } => !heard,
            Action::Send(..) | Action::Cancel(_) | Action::Raise(_) | Action::Crash(_) => true,
            _ => false,
        }
    }
}

fn at(tick: i64) -> Timestamp {
    Timestamp(tick * 1_000_000)
}

fn ticks(count: i64) -> Duration {
    Duration::from_secs(count.unsigned_abs())
}

fn superseded() -> Stale {
    Stale { cause: Cause::Superseded, subject: "m-9".into(), version: 1, floor: Some(2), reason: String::new() }
}

fn call(token: i64) -> Uuid {
    Uuid::from_u128(token.unsigned_abs().into())
}

impl Says {
    fn report(self) -> Report {
        match self {
            Says::Succeeded => Report::Succeeded(Success::default()),
            Says::Failed => Report::Failed(Failure {
                class: ErrorClass::Transient,
                code: String::new(),
                message: String::new(),
                effect_ref: String::new(),
                retry_after: Duration::ZERO,
            }),
            Says::Released => Report::Released { delay: Duration::ZERO, reason: String::new() },
        }
    }
}

impl Rules {
    fn new(on_repair: OnRepair, on_unknown: OnUnknown, promised: bool, faults: usize) -> Rules {
        let retry = RetryPolicy { max_attempts: 2, jitter: 0.0, ..RetryPolicy::default() };
        let policy =
            Policy { on_repair, on_unknown, default_ttl: ticks(TTL), lease_duration: ticks(LEASE), retry, ..Policy::default() };
        Rules { policy, promised, leases: 3, faults }
    }
}

impl Model for Rules {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let accepted = |busy| Task {
            standing: blank(Standing::Live(accept(&spec("push", ""), &self.policy, at(0), busy).0)),
            pasts: BTreeMap::new(),
            acted: BTreeSet::new(),
            reported: BTreeSet::new(),
            promised_done: false,
            stale: false,
        };
        vec![World {
            now: 0,
            tasks: [accepted(false), accepted(true)],
            workers: [Worker::Idle, Worker::Idle],
            wire: None,
            orphan: None,
            token: 0,
            faults: 0,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < END {
            actions.push(Action::Pass);
        }
        for (number, task) in world.tasks.iter().enumerate() {
            let Standing::Live(live) = &task.standing else { continue };
            actions.push(Action::Sweep(number));
            actions.push(Action::Cancel(number));
            actions.push(if task.stale { Action::Walk(number) } else { Action::Raise(number) });
            // A claim passes over what is overdue or stale. It takes the first idle worker: they are alike.
            if live.state == State::Ready && !task.stale && live.deadline > at(world.now) && world.token < self.leases {
                let idle = world.workers.iter().position(|worker| *worker == Worker::Idle);
                if let Some(worker) = idle {
                    actions.push(Action::Claim { worker, task: number, heard: true });
                }
                if world.orphan.is_none() {
                    actions.push(Action::Claim { worker: 0, task: number, heard: false });
                }
            }
        }
        for (worker, task, token, _, may_act, said) in world.holders() {
            actions.push(Action::Crash(worker));
            if said.is_none() {
                actions.push(Action::Heartbeat(worker));
                if !may_act {
                    actions.extend([true, false].map(|heard| Action::BeginEffect { worker, heard }));
                    actions.push(Action::Report(worker, Says::Released));
                } else if !world.tasks[task].acted.contains(&token) {
                    actions.push(Action::Act(worker));
                }
            }
            for says in [Says::Succeeded, Says::Failed] {
                let acted = world.tasks[task].acted.contains(&token);
                if said.map_or(acted, |said| said == says) {
                    actions.push(Action::Report(worker, says));
                    if world.wire.is_none() {
                        actions.push(Action::Send(worker, says));
                    }
                }
            }
        }
        if world.wire.is_some() {
            actions.push(Action::Arrive);
        }
        if world.orphan.is_some() {
            actions.push(Action::GiveBack);
        }
        actions.retain(|action| !action.is_fault() || world.faults < self.faults);
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = World { faults: before.faults + usize::from(action.is_fault()), ..before.clone() };
        match action {
            Action::Pass => world.now += 1,
            Action::Sweep(task) => drop(world.transact(self, task, &Command::Tick)),
            Action::Cancel(task) => {
                drop(world.transact(self, task, &Command::Cancel { cause: Cause::Requested, reason: String::new() }));
            }
            Action::Raise(task) => world.tasks[task].stale = true,
            Action::Walk(task) => {
                drop(world.transact(self, task, &Command::Cancel { cause: Cause::Superseded, reason: String::new() }));
            }
            Action::Claim { worker, task, heard } => self.claim(&mut world, worker, task, heard),
            Action::GiveBack => {
                let (task, token) = world.orphan.take()?;
                drop(world.transact(self, task, &Command::GiveBack { token, call: call(token) }));
            }
            Action::Arrive => {
                let (task, token, says) = world.wire.take()?;
                drop(world.report(self, task, token, says));
            }
            Action::Crash(worker) => world.workers[worker] = Worker::Idle,
            Action::Heartbeat(worker)
            | Action::BeginEffect { worker, .. }
            | Action::Act(worker)
            | Action::Report(worker, _)
            | Action::Send(worker, _) => self.work(&mut world, worker, action),
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Rules>> {
        let mut all = must_hold();
        all.extend(can_happen(self));
        all
    }
}

impl Rules {
    fn claim(&self, world: &mut World, worker: usize, task: usize, heard: bool) {
        world.token += 1;
        let token = world.token;
        let grant = Grant {
            token,
            worker: String::new(),
            span: ticks(LEASE),
            reports_effect: self.promised,
            call: call(token),
            claim: None,
        };
        if world.transact(self, task, &Command::Claim(grant)) != Ok(Reply::Applied) {
            world.broken = world.broken.or(Some("what is READY can be claimed"));
        }
        if heard {
            let until = (world.now + LEASE).min(TTL);
            world.workers[worker] = Worker::Holds { task, token, until, may_act: !self.promised, said: None };
        } else {
            world.orphan = Some((task, token));
        }
    }

    /// What a worker that holds a lease does.
    fn work(&self, world: &mut World, worker: usize, action: Action) {
        let Worker::Holds { task, token, until, may_act, said } = world.workers[worker] else { return };
        let lease_end = |world: &World| match &world.tasks[task].standing {
            Standing::Live(Live { lease: Some(lease), .. }) => lease.expire.0 / 1_000_000,
            _ => until,
        };
        let still = |until: i64, may_act: bool, said: Option<Says>| Worker::Holds { task, token, until, may_act, said };
        world.workers[worker] = match action {
            Action::Heartbeat(_) => match world.transact(self, task, &Command::Heartbeat { token, span: None, progress: None }) {
                Ok(Reply::Applied) => still(lease_end(world), may_act, said),
                Ok(_) => still(until, may_act, said),
                Err(_) => Worker::Idle,
            },
            Action::BeginEffect { heard, .. } => {
                let begin = Command::BeginEffect { token, effect_ref: String::new(), span: None };
                match (world.transact(self, task, &begin), heard) {
                    (_, false) => still(until, may_act, said),
                    (Ok(_), true) => still(until, true, said),
                    (Err(_), true) => Worker::Idle,
                }
            }
            Action::Act(_) => {
                world.tasks[task].acted.insert(token);
                still(until, may_act, said)
            }
            Action::Send(_, says) => {
                world.wire = Some((task, token, says));
                still(until, may_act, Some(says))
            }
            Action::Report(_, says) => {
                let reply = world.report(self, task, token, says);
                world.tasks[task].promised_done |= says == Says::Succeeded && reply.is_ok();
                Worker::Idle
            }
            _ => return,
        };
    }
}

/// Walks through all of it.
fn explore(rules: Rules) {
    let (leases, faults) = (rules.leases, rules.faults);
    let checker = rules.checker().threads(2).spawn_bfs().join();
    let (all, different, deep) = (checker.state_count(), checker.unique_state_count(), checker.max_depth());
    println!("{leases} leases, {faults} faults: {different} states by {all} ways, at most {deep} steps deep");
    checker.assert_properties();
}

#[test]
fn in_every_world_where_workers_promise_to_report_and_repairs_let_the_key_go_on() {
    explore(Rules::new(OnRepair::Continue, OnUnknown::Retry, true, 1));
}

#[test]
fn in_every_world_where_workers_promise_nothing_and_repairs_let_the_key_go_on() {
    explore(Rules::new(OnRepair::Continue, OnUnknown::Retry, false, 1));
}

#[test]
fn in_every_world_where_workers_promise_nothing_and_repairs_hold_the_key() {
    explore(Rules::new(OnRepair::Hold, OnUnknown::Repair, false, 1));
}
