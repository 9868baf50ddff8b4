//! Random commands through the server's real write path and through a small model in memory, on several connections and two servers.
//!
//! A round is one command, or a few at once. Of those at once some order must explain every answer and everything that the database
//! holds afterwards: states, tokens, attempts and events. Another seed each time; LEASEHOLD_MODEL_SEED repeats a run.

mod calls;
mod mind;
mod task;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use leasehold::api::proto::{Cause, ErrorClass, TaskState};
use sqlx::Row as _;

use crate::town::{Lease, Town, eventually};
use calls::perform;
use mind::Mind;
use task::{Attempt, Task};
use words::{Answer, Command, Named, Said, Wish};

/// One unit of the model's time: longer than any run takes.
const UNIT: Duration = Duration::from_secs(1_000);
const ROUNDS: u32 = 100;
const KEYS: u32 = 3;
/// What tasks are about, and the `request_id`s of claims.
const SUBJECTS: u32 = 3;
const REQUESTS: u32 = 3;

#[tokio::test]
async fn what_random_commands_make_of_tasks_is_what_the_model_says() {
    play(2, &[]).await;
}

#[tokio::test]
async fn the_model_is_right_about_a_queue_with_few_keys_and_much_to_cancel() {
    play(1, &["cancel"]).await;
}

#[tokio::test]
async fn the_model_is_right_where_floors_rise_often() {
    play(2, &["floors"]).await;
}

#[tokio::test]
async fn the_model_is_right_where_time_moves_often() {
    play(2, &["time"]).await;
}

async fn play(servers: usize, stress: &[&str]) {
    let seed = std::env::var("LEASEHOLD_MODEL_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("LEASEHOLD_MODEL_SEED={seed}");
    let town = Town::with_servers(servers).await;
    let (rng, mind) = (Rng::with_seed(seed), Mind::default());
    let floors = stress.contains(&"floors");
    let mut game = Game { town: &town, servers, floors, rng, mind, leases: Vec::new(), named: 0, recent: VecDeque::new() };
    // A run that leaves out what it is for proves nothing: one that has not been everywhere yet goes on.
    while game.mind.round < ROUNDS || !game.was_everywhere() {
        game.mind.round += 1;
        assert!(game.mind.round <= ROUNDS * 10, "chance never led everywhere: {:?}", game.kinds());
        let time = if stress.contains(&"time") { 4 } else { 10 };
        if game.rng.u32(..time) == 0 { game.time_passes().await } else { game.round(stress.contains(&"cancel")).await }
    }
    game.the_attempts_are_told_as_they_were().await;
    println!("{} rounds, {} tasks: {:?}", game.mind.round, game.mind.tasks.len(), game.kinds());
    town.audit().await;
}

struct Game<'a> {
    town: &'a Town,
    servers: usize,
    /// Whether floors rise often.
    floors: bool,
    rng: Rng,
    mind: Mind,
    leases: Vec<Lease>,
    /// How many task ids were made up so far.
    named: u32,
    recent: VecDeque<String>,
}

/// What the database holds of a task, in the words in which the model is told.
#[derive(Debug, PartialEq)]
struct Seen {
    state: String,
    cause: String,
    cancel: bool,
    attempt: i32,
    charged: i32,
    unknown: i32,
    token: i64,
    revision: i64,
    events: Vec<String>,
}

impl Game<'_> {
    async fn round(&mut self, cancels: bool) {
        let count = [1, 1, 1, 2, 3][self.rng.usize(..5)];
        // Those at once meet, every other time, at one task.
        let met = (count > 1 && self.rng.bool()).then(|| self.lease()).flatten();
        let commands: Vec<Command> = (0..count)
            .map(|_| match &met {
                Some(lease) if self.rng.u32(..4) > 0 => self.said_of(lease.clone()),
                Some(lease) => Command::Cancel(lease.id.clone()),
                None => self.command(cancels),
            })
            .collect();
        let (answers, seen) = self.send(&commands).await;
        // A second server that sweeps what the first one has just moved holds it for a moment, and claims pass over it.
        let alone = count == 1 && self.servers == 1;
        let walks: Vec<Option<u32>> = commands.iter().map(raised).collect();
        let orders = orders(count, &walks);
        let minds = orders.iter().map(|order| {
            let mut mind = self.mind.clone();
            let mut unlike = None;
            for &at in order {
                if at >= count {
                    // The walk after the floor that this command raised.
                    mind.carry_out(&Command::Walk(walks[at - count].expect("it raises one")), &Answer::Raised, alone);
                    continue;
                }
                let expected = mind.carry_out(&commands[at], &answers[at], alone);
                if expected != answers[at] && unlike.is_none() {
                    unlike = Some(format!("{:?} was answered {:?}, not {expected:?}", commands[at], answers[at]));
                }
            }
            (mind, unlike)
        });
        let minds = minds.collect();
        self.one_of_them(minds, seen, &commands, &answers);
    }

    /// Some units pass; sometimes a worker calls in the very moment, before or after the sweep has seen what is due.
    async fn time_passes(&mut self) {
        let units = self.rng.u32(1..=2);
        self.recent.push_back(format!("{units} units pass"));
        self.town.clock.advance(UNIT * units).await;
        self.mind.unit += units;
        let racing = self.lease().filter(|_| self.rng.bool());
        let commands: Vec<Command> = racing.into_iter().map(|lease| self.said_of(lease)).collect();
        let (answers, seen) = self.send(&commands).await;
        let mut minds = Vec::new();
        for command_first in [true, false] {
            let mut mind = self.mind.clone();
            if !command_first {
                mind.sweep();
            }
            let mut unlike = None;
            for (command, answer) in commands.iter().zip(&answers) {
                let expected = mind.carry_out(command, answer, true);
                if expected != *answer {
                    unlike = Some(format!("{command:?} was answered {answer:?}, not {expected:?}"));
                }
            }
            mind.sweep();
            minds.push((mind, unlike));
        }
        self.one_of_them(minds, seen, &commands, &answers);
    }

    /// Carries the commands out at once, waits until time has nothing left to move, and looks.
    async fn send(&mut self, commands: &[Command]) -> (Vec<Answer>, BTreeMap<String, Seen>) {
        let servers: Vec<usize> = commands.iter().map(|_| self.rng.usize(..self.servers)).collect();
        let ready = self.mind.tasks.values().filter(|task| task.state == TaskState::Ready).count();
        let least = if commands.len() == 1 { ready } else { 0 };
        let sent = commands.iter().zip(servers).map(|(command, server)| perform(self.town, server, command, &self.leases, least));
        let mut answers = Vec::new();
        for (answer, leases) in join_all(sent).await {
            answers.push(answer);
            self.leases.extend(leases);
        }
        self.recent.extend(commands.iter().zip(&answers).map(|(command, answer)| format!("{command:?} -> {answer:?}")));
        while self.recent.len() > 25 {
            self.recent.pop_front();
        }
        let rest = "SELECT NOT EXISTS (SELECT FROM live WHERE due <= app_now())";
        eventually("time has nothing left to move", async || self.town.sql::<bool>(rest).await.then_some(())).await;
        let walked = "SELECT NOT EXISTS (SELECT FROM subjects WHERE walk_due IS NOT NULL)";
        eventually("no floor is walked below", async || self.town.sql::<bool>(walked).await.then_some(())).await;
        (answers, self.look().await)
    }

    /// The mind that explains everything becomes ours.
    fn one_of_them(
        &mut self, minds: Vec<(Mind, Option<String>)>, seen: BTreeMap<String, Seen>, commands: &[Command], answers: &[Answer],
    ) {
        let mut why = Vec::new();
        for (mut mind, unlike) in minds {
            match unlike.or_else(|| agree(&mut mind, &seen)) {
                Some(unlike) => why.push(unlike),
                None => return self.mind = mind,
            }
        }
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        panic!("no order explains {commands:?}\n{answers:?}\n{}\nafter\n{}", why.join("\n"), recent.join("\n"));
    }

    async fn look(&mut self) -> BTreeMap<String, Seen> {
        let query = "
            SELECT t.task_id, s.*, (SELECT array_agg(e.kind || '>' || e.state || '#' || e.attempt ORDER BY e.revision) FROM events e
                                    WHERE e.queue_id = t.queue_id AND e.uid = t.uid) AS events
            FROM tasks t JOIN (
                SELECT queue_id, uid, state, '' AS cause, cancel_cause IS NOT NULL AS cancel, attempt, charged, unknown_attempts, token, revision,
                       rank, position FROM live
                UNION ALL
                SELECT queue_id, uid, state, coalesce(cause, ''), false, attempt, charged, unknown_attempts, token,
                       (SELECT max(revision) FROM events e WHERE e.queue_id = ended.queue_id AND e.uid = ended.uid), 0, position FROM ended
            ) s USING (queue_id, uid)";
        let rows = sqlx::query(query).fetch_all(self.town.database()).await.expect("the tables can be read");
        self.mind.ties = rows.iter().map(|row| (row.get("task_id"), (row.get("rank"), row.get("position")))).collect();
        let seen = |row: &sqlx::postgres::PgRow| Seen {
            state: row.get("state"),
            cause: row.get("cause"),
            cancel: row.get("cancel"),
            attempt: row.get("attempt"),
            charged: row.get("charged"),
            unknown: row.get("unknown_attempts"),
            token: row.get("token"),
            revision: row.get("revision"),
            events: row.get("events"),
        };
        rows.iter().map(|row| (row.get("task_id"), seen(row))).collect()
    }

    fn command(&mut self, cancels: bool) -> Command {
        let known = self.named;
        if self.rng.u32(..if self.floors { 8 } else { 30 }) == 0 {
            return Command::Raise { subject: self.rng.u32(..SUBJECTS), version: (version(known) - self.rng.i64(0..=2)).max(0) };
        }
        match self.rng.u32(..if cancels { 14 } else { 12 }) {
            0..=3 => Command::Submit(self.wish()),
            4..=6 => {
                let request = (self.rng.u32(..3) == 0).then(|| self.rng.u32(..REQUESTS));
                let (slots, lease) = (self.rng.usize(1..=3), self.rng.u32(1..=4));
                Command::Claim { slots, lease, reports_effect: self.rng.bool(), request }
            }
            7..=10 if known > 0 => match self.lease() {
                Some(lease) => self.said_of(lease),
                None => Command::Cancel(format!("t-{}", self.rng.u32(..known))),
            },
            11..=13 if known > 0 => Command::Cancel(format!("t-{}", self.rng.u32(..known))),
            _ => Command::Submit(self.wish()),
        }
    }

    fn wish(&mut self) -> Wish {
        // Now and then one that was submitted before; what it wishes for is then passed over.
        let again = self.named > 0 && self.rng.u32(..8) == 0;
        let number = if again { self.rng.u32(..self.named) } else { self.named };
        self.named += u32::from(!again);
        let key = Some(number % (KEYS + 2)).filter(|key| *key < KEYS);
        // What a task is about is its content: the same whenever it is submitted.
        let subject = Some((number % (SUBJECTS + 1), version(number))).filter(|(subject, _)| *subject < SUBJECTS);
        let rng = &mut self.rng;
        let raises = subject.is_some() && rng.u32(..8) == 0;
        let delay = if rng.u32(..4) == 0 { rng.u32(1..=3) } else { 0 };
        Wish {
            id: format!("t-{number}"),
            subject,
            raises,
            key,
            delay,
            ttl: rng.u32(4..=40),
            max_attempts: rng.i32(1..=3),
            backoff: rng.u32(1..=3),
        }
    }

    /// Mostly a lease that is held, now and then one that is long lost.
    fn lease(&mut self) -> Option<Named> {
        let named = |lease: &Lease| Named { id: lease.id().to_owned(), token: lease.token() };
        let all: Vec<Named> = self.leases.iter().map(named).collect();
        let is_held = |lease: &&Named| {
            let task = &self.mind.tasks[&lease.id];
            task.state == TaskState::Leased && task.token() == lease.token
        };
        let held: Vec<Named> = all.iter().filter(is_held).cloned().collect();
        let from = if held.is_empty() || self.rng.u32(..4) == 0 { all } else { held };
        self.rng.choice(from)
    }

    /// Something that the holder of a lease says.
    fn said_of(&mut self, lease: Named) -> Command {
        match self.rng.u32(..12) {
            0..=1 => Command::Heartbeat { lease, span: self.rng.u32(1..=4) },
            2..=3 => Command::BeginEffect { lease, effect: format!("effect-{}", self.rng.u32(..2)) },
            saying => {
                let said = match saying {
                    4..=5 => Said::Succeeded(self.rng.u8(..2)),
                    6..=7 => Said::Transient,
                    8 => [Said::Unknown, Said::Permanent][self.rng.usize(..2)].clone(),
                    9 => [Said::Skipped, Said::Canceled][self.rng.usize(..2)].clone(),
                    10 => Said::Released,
                    _ => Said::ReleasedFor(self.rng.u32(1..=3)),
                };
                Command::Report { lease, said }
            }
        }
    }

    fn was_everywhere(&self) -> bool {
        self.kinds().len() >= 8 && self.mind.tasks.len() > 12
    }

    /// The events so far, by kind.
    fn kinds(&self) -> BTreeMap<&str, usize> {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        let events = self.mind.tasks.values().flat_map(|task| &task.events);
        events.filter_map(|event| event.split('>').next()).for_each(|kind| *kinds.entry(kind).or_default() += 1);
        kinds
    }

    /// ListAttempts tells the same story as the model.
    async fn the_attempts_are_told_as_they_were(&self) {
        for (id, task) in &self.mind.tasks {
            let told = self.town.attempts(id).await;
            let told: Vec<_> = told
                .iter()
                .map(|a| (a.fencing_token, a.charged, a.error_class() == ErrorClass::Unknown, a.late_reports.len()))
                .collect();
            let unknown = |attempt: &Attempt| attempt.unknown || attempt.said == Some(Said::Unknown);
            let known: Vec<_> = task.attempts.iter().map(|a| (a.token, a.charged, unknown(a), a.late.len())).collect();
            assert_eq!(told, known, "{id}: {:?}", task.events);
        }
    }
}

/// In what the mind and the database differ, if they do.
fn agree(mind: &mut Mind, seen: &BTreeMap<String, Seen>) -> Option<String> {
    if mind.tasks.len() != seen.len() {
        return Some(format!("there are {} tasks, not {}", seen.len(), mind.tasks.len()));
    }
    for (id, task) in &mut mind.tasks {
        let seen = seen.get(id)?;
        // One that is overdue behind its key may be let go before it ends, or end there.
        if let [.., unblocked, ended] = &seen.events[..]
            && unblocked.starts_with("UNBLOCKED>")
            && task.events.last() == Some(ended)
            && task.events.len() + 1 == seen.events.len()
            && task.cause == Some(Cause::DeadlinePassed)
        {
            task.events.insert(task.events.len() - 1, unblocked.clone());
        }
        let known = known(task);
        if known != *seen {
            return Some(format!("{id} is\n  {seen:?}, not\n  {known:?}"));
        }
    }
    None
}

fn known(task: &Task) -> Seen {
    Seen {
        state: task.state.as_str_name().trim_start_matches("TASK_STATE_").to_owned(),
        cause: task.cause.map_or(String::new(), |cause| cause.as_str_name().trim_start_matches("CAUSE_").to_owned()),
        cancel: task.cancel.is_some() && !task.terminal(),
        attempt: task.attempts.len() as i32,
        charged: task.charged() as i32,
        unknown: task.unknown() as i32,
        token: task.token(),
        revision: task.events.len() as i64,
        events: task.events.clone(),
    }
}

/// The version of a subject that tasks of about this number are about.
fn version(number: u32) -> i64 {
    i64::from(number / 8)
}

/// The subject whose floor a command raises, if it raises one.
fn raised(command: &Command) -> Option<u32> {
    match command {
        Command::Raise { subject, .. } => Some(*subject),
        Command::Submit(wish) if wish.raises => wish.subject.map(|(subject, _)| subject),
        _ => None,
    }
}

/// The orders in which so many commands may have been carried out; `count + n` stands for the walk after the floor that command n raised.
fn orders(count: usize, walks: &[Option<u32>]) -> Vec<Vec<usize>> {
    let walks = (0..count).filter(|n| walks[*n].is_some()).map(|n| count + n);
    let mut orders = vec![Vec::new()];
    for step in (0..count).chain(walks) {
        let mut longer = Vec::new();
        for order in &orders {
            let first = if step < count { 0 } else { order.iter().position(|at| *at == step - count).expect("it is there") + 1 };
            for place in first..=order.len() {
                let mut order = order.clone();
                order.insert(place, step);
                longer.push(order);
            }
        }
        orders = longer;
    }
    orders
}
