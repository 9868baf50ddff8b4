//! What must hold in every world that can be reached, and what can happen in some.

use super::*;

pub(super) fn must_hold() -> Vec<Property<Rules>> {
    vec![
        Property::always("no step breaks a promise", |_, world: &World| world.broken.is_none()),
        Property::always("one worker at a time may believe that it holds the key", |_, world: &World| {
            world.holders().filter(|(.., until, _, said)| *until > world.now && said.is_none()).count() <= 1
        }),
        Property::always("the key has one head", |_, world: &World| {
            world.unfinished().iter().filter(|place| !place.blocked).count() <= 1
        }),
        Property::always("the second task waits for the end of the first", |rules: &Rules, world: &World| {
            let [first, second] = &world.tasks;
            let held = rules.policy.on_repair == OnRepair::Hold && first.standing.state() == State::RepairRequired;
            let waits = |task: &Task| task.standing.state() == State::Blocked || task.standing.state().terminal();
            (first.standing.state().terminal() && !held) || (waits(second) && second.standing.token() == 0)
        }),
        Property::always("the key is not left without a head", |rules: &Rules, world: &World| {
            let [first, second] = &world.tasks;
            let held = rules.policy.on_repair == OnRepair::Hold && first.standing.state() == State::RepairRequired;
            second.standing.state() != State::Blocked || !first.standing.state().terminal() || held
        }),
        Property::always("a success that was acknowledged stays", |_, world: &World| {
            world.tasks.iter().all(|task| !task.promised_done || task.standing.state() == State::Completed)
        }),
        Property::always("every effect is reported, counted as unknown, or under a lease that is not over", |_, world: &World| {
            world.tasks.iter().all(|task| {
                let open = task.acted.difference(&task.reported).count();
                let (unknown, running) = match &task.standing {
                    Standing::Live(live) => (live.unknown_attempts, live.lease.is_some() && task.acted.contains(&live.token)),
                    Standing::Ended(ended) => (ended.unknown_attempts, false),
                };
                open <= usize::try_from(unknown).unwrap() + usize::from(running)
            })
        }),
        Property::always("time alone brings every task to an end", |rules: &Rules, world: &World| {
            let mut world = World { now: END, ..world.clone() };
            (0..4).for_each(|look| drop(world.transact(rules, look % 2, &Command::Tick)));
            let [first, second] = world.tasks.map(|task| task.standing.state());
            first.terminal() && second.terminal()
        }),
    ]
}

pub(super) fn ended(task: &Task) -> Option<(State, Option<Cause>)> {
    match &task.standing {
        Standing::Ended(ended) => Some((ended.state, ended.cause)),
        Standing::Live(_) => None,
    }
}

/// What shows that the worlds are not too small to break anything.
pub(super) fn can_happen(rules: &Rules) -> Vec<Property<Rules>> {
    let mut all: Vec<Property<Rules>> = vec![
        Property::sometimes("both are completed", |_, world: &World| {
            world.tasks.iter().all(|task| task.standing.state() == State::Completed)
        }),
        Property::sometimes("a success is refused because of a cancel", |_, world: &World| {
            world.tasks.iter().any(|task| task.standing.state() == State::Canceled && !task.acted.is_disjoint(&task.reported))
        }),
        Property::sometimes("a success is refused because of a floor", |_, world: &World| {
            let superseded = Some((State::Canceled, Some(Cause::Superseded)));
            world.tasks.iter().any(|task| ended(task) == superseded && !task.acted.is_disjoint(&task.reported))
        }),
        Property::sometimes("the deadline passes", |_, world: &World| {
            world.tasks.iter().any(|task| ended(task) == Some((State::RepairRequired, Some(Cause::DeadlinePassed))))
        }),
    ];
    if rules.policy.on_unknown == OnUnknown::Retry {
        all.push(Property::sometimes("a late success is evidence beside another's completion", |_, world: &World| {
            world.tasks.iter().any(|task| {
                let late = task.pasts.values().any(|past| !past.late.is_empty());
                task.standing.state() == State::Completed && task.acted.len() == 2 && late
            })
        }));
        all.push(Property::sometimes("the budget is used up", |_, world: &World| {
            world.tasks.iter().any(|task| ended(task) == Some((State::RepairRequired, Some(Cause::AttemptsExhausted))))
        }));
    } else {
        all.push(Property::sometimes("an unknown outcome goes to people", |_, world: &World| {
            world.tasks.iter().any(|task| ended(task) == Some((State::RepairRequired, Some(Cause::OutcomeUnknown))))
        }));
    }
    all
}
