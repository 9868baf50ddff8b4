//! The transaction that leases tasks to the calls of one line.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use super::Batch;
use super::ahead::Mark;
use super::dispatch::{self, Turn};
use super::lows::Look;
use super::unread::Touched;
use crate::domain::attempt::{self, Attempt};
use crate::domain::limits::{ATTEMPT_BYTES, CLAIM_BYTES, HEARTBEATS_PER_LEASE, UNKNOWN_ATTEMPTS};
use crate::domain::names::QueueName;
use crate::domain::queue::Policy;
use crate::domain::record::Task;
use crate::domain::refusal::Refusal;
use crate::domain::spec::{Digest, TaskSpec};
use crate::domain::task::{Command, Context, Grant, Live, Reply, Standing, head_start, step};
use crate::domain::time::Timestamp;
use crate::engine::delivery::{Delivery, GivenBack, Leases, give_back};
use crate::engine::{Aftermath, Engine, LeasedTask, refusal_of, timed};
use crate::store::{self, Changes, Draw, LiveRow, Moment, Place, SpecRow, StoreError, Tx};

/// One Claim call.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: Uuid,
    /// Names its `request_id`, if it had one.
    pub claim: Option<Uuid>,
    pub worker: String,
    pub slots: usize,
    pub span: Option<Duration>,
    pub reports_effect: bool,
}

/// How much of a task's log is read to tell its next worker of unknown attempts: room for the latest of them, with late reports.
const LOG_TAIL: i64 = 200;
/// How many overdue or stale tasks one claim walks past before it leaves the rest to the next one.
pub(super) const OVERDUE: usize = 2_000;

/// What one transaction gave.
pub struct Served {
    /// Leases by call. Calls that got nothing are not among them.
    pub leases: HashMap<Uuid, Leases>,
    /// When a rate lets the next task go. Absent: no rate holds one back.
    pub again: Option<Instant>,
    /// Shares were compared, or budgets counted: one such transaction at a time.
    pub fair: bool,
}

pub(super) async fn run(engine: &Engine, queue_id: i32, batch: &mut Batch<'_>) -> Result<Served, Refusal> {
    let touched = Arc::new(Touched::default());
    let mut tries = 0;
    loop {
        match timed(attempt_once(engine, queue_id, batch, &touched, true)).await {
            Ok(got) => return Ok(got),
            Err(StoreError::Conflict(_) | StoreError::Locked(_)) if tries < 10 => tries += 1,
            // One row that can't be read must not be in the way of the others.
            Err(StoreError::Data(_)) if tries < 10 && engine.pass_over_unreadable(queue_id, &touched).await => tries += 1,
            Err(error) => return Err(refusal_of(&error)),
        }
    }
}

/// `picking`: whether anything new may be leased; else calls only find again what they were given before.
async fn attempt_once(
    engine: &Engine, queue_id: i32, batch: &mut Batch<'_>, touched: &Arc<Touched>, picking: bool,
) -> Result<Served, StoreError> {
    let mut round = Round::begin(engine, queue_id, touched).await?;
    // Before the look: nobody is told that there is nothing by one that is older than their call.
    let mut calls = batch.close();
    let turn = if picking { Some(dispatch::turn(&mut round).await?) } else { None };
    if matches!(turn, Some(Turn::Contested(_))) {
        // While servers waited for one another many calls have come, and the look is yet to be: one transaction for all of them.
        calls = batch.close();
    }
    let before = round.claimed_before(&calls).await?;
    // A call that repeats a `request_id` gets nothing new as long as the due loop has not ended the leases that it got before.
    let open: Vec<&Call> = calls.iter().filter(|call| !before.iter().any(|row| row.claim_id == call.claim)).collect();
    let wanted: usize = if picking { open.iter().map(|call| call.slots).sum() } else { 0 };
    let picked = round.pick(turn, wanted).await?;
    let now = picked.now;
    if picked.policy.paused && picking {
        // Rolled back: the pick has charged its shares, and nobody gets what they would pay for.
        drop(round);
        if before.is_empty() {
            return Ok(Served { leases: HashMap::new(), again: None, fair: false });
        }
        return Box::pin(attempt_once(engine, queue_id, batch, touched, false)).await;
    }
    let read = Instant::now();
    let lasting: Vec<LiveRow> = before.into_iter().filter(|row| row.lease_expire.is_some_and(|expire| expire > now)).collect();
    let lasting = round.fresh(lasting).await?;
    let specs = round.specs(engine, picked.rows.iter().chain(&lasting), &picked.name).await?;
    let (mut granted, aftermath) = round.lease(&open, picked, &specs).await?;
    granted.extend(round.restamp(&calls, lasting).await?);
    let told = round.tell(granted, specs, now, read).await?;
    let (again, fair) = (round.again, round.fair);
    Ok(Served { leases: round.commit(engine, told, aftermath).await?, again, fair })
}

/// What may be leased, and by which tokens, when and under which policy.
struct Picked {
    rows: Vec<LiveRow>,
    /// As many as there are rows, or more.
    tokens: Vec<i64>,
    now: Timestamp,
    name: QueueName,
    policy: Policy,
}

/// A task leased (or found leased) for a call.
struct Granted {
    call: Uuid,
    place: Place,
    live: Live,
    /// This call leased it, and so may give it back. What it only found may be in the hands of a later call's worker by now: the
    /// repetition of a call that was delayed can have been answered before it.
    ours: bool,
}

type Specs = HashMap<Uuid, (Arc<TaskSpec>, Digest)>;

/// One claim transaction.
pub(super) struct Round {
    pub(super) tx: Tx,
    pub(super) queue_id: i32,
    /// It commits without waiting for the disk: a barrier must follow.
    pub(super) fair: bool,
    /// When a rate lets the next task go, as far as was seen.
    again: Option<Instant>,
    pub(super) engine: Engine,
    /// What was read of the tasks that were looked at and are not remembered: what was asked, and the payload.
    pub(super) read: HashMap<Uuid, (SpecRow, Option<Bytes>)>,
    /// The tasks of which it is known whether they are stale, and those that are.
    pub(super) judged: HashSet<Uuid>,
    pub(super) stale: HashSet<Uuid>,
    /// How far claims have looked in shares in which something is to be passed over.
    pub(super) marks: HashMap<i32, Mark>,
    /// Where it begins to look in each share.
    pub(super) look: Look,
    /// The tasks that it dealt with: among them is the one that it fails by, if it fails by one.
    pub(super) touched: Arc<Touched>,
}

impl Round {
    async fn begin(engine: &Engine, queue_id: i32, touched: &Arc<Touched>) -> Result<Round, StoreError> {
        let look = engine.0.lows.look(queue_id);
        let tx = engine.db().begin_claim(queue_id).await?;
        let (judged, stale, read) = (HashSet::new(), HashSet::new(), HashMap::new());
        let (engine, marks, touched) = (engine.clone(), engine.0.marks.of(queue_id), touched.clone());
        Ok(Round { tx, queue_id, fair: false, again: None, engine, read, judged, stale, marks, look, touched })
    }

    /// There may be something to lease after `span` (absent: nothing is known of that).
    pub(super) fn come_back(&mut self, span: Option<Duration>) {
        let at = span.and_then(|span| Instant::now().checked_add(span));
        self.again = self.again.into_iter().chain(at).min();
    }

    /// Something may be leased at `at`, as the database's clock counts from `now`, which it read a moment ago.
    pub(super) fn look_again(&mut self, now: Timestamp, at: Option<Timestamp>) {
        self.come_back(at.map(|at| at.since(now)));
    }

    /// Leases that earlier calls with the same `request_id` were given.
    async fn claimed_before(&mut self, calls: &[Call]) -> Result<Vec<LiveRow>, StoreError> {
        let claims: Vec<Uuid> = calls.iter().filter_map(|call| call.claim).collect();
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        store::lock_claims(&mut self.tx, &claims).await?;
        store::claimed_before(&mut self.tx, &claims).await
    }

    /// The next tasks, locked and in dispatch order, and then what the transaction knows once it holds them.
    async fn pick(&mut self, mut turn: Option<Turn>, wanted: usize) -> Result<Picked, StoreError> {
        // What can't be read is passed over as what is overdue.
        let unread = self.engine.0.unread.of(self.queue_id);
        let mut overdue: Vec<Uuid> = unread.clone();
        loop {
            let passed = self.stale.len();
            let picked = match turn.take() {
                _ if wanted == 0 => Vec::new(),
                Some(turn) => dispatch::pick(self, turn, &overdue, wanted).await?,
                None => {
                    let turn = dispatch::turn(self).await?;
                    dispatch::pick(self, turn, &overdue, wanted).await?
                }
            };
            let moment = store::moment(&mut self.tx, &[self.queue_id], Draw::Tokens(picked.len())).await?;
            let Moment { now, mut policies, drawn: tokens } = moment;
            let (name, policy) = policies.remove(&self.queue_id).ok_or_else(StoreError::silent)?;
            if policy.paused {
                return Ok(Picked { rows: Vec::new(), tokens, now, name, policy });
            }
            let passed = self.stale.len() - passed;
            let found = picked.len() + passed;
            let (late, good): (Vec<LiveRow>, Vec<LiveRow>) = picked.into_iter().partition(|row| row.deadline <= now);
            let nothing = late.is_empty() && passed == 0;
            late.iter().for_each(|row| self.meets(row.share_id));
            let passed_over = overdue.len() - unread.len() + self.stale.len();
            if nothing || !good.is_empty() || found < wanted || passed_over > OVERDUE {
                return Ok(Picked { rows: good, tokens, now, name, policy });
            }
            // All of them are overdue or stale: they are the due loop's or the walk's, and must not hide what stands behind them.
            overdue.extend(late.into_iter().map(|row| row.uid));
        }
    }

    /// Leases the picks to the calls, first come first served, each answer filled up to what a client accepts.
    async fn lease(&mut self, calls: &[&Call], picked: Picked, specs: &Specs) -> Result<(Vec<Granted>, Aftermath), StoreError> {
        let Picked { rows, tokens, now, policy, .. } = &picked;
        let mut line: VecDeque<(&Call, usize, usize)> = calls.iter().map(|call| (*call, call.slots, 0)).collect();
        let mut pairs: Vec<(&Call, &LiveRow)> = Vec::new();
        for row in rows {
            let doubts = usize::try_from(row.unknown_attempts).unwrap_or(0).min(UNKNOWN_ATTEMPTS);
            let size = usize::try_from(row.size).unwrap_or(CLAIM_BYTES) + doubts * ATTEMPT_BYTES;
            while line.front().is_some_and(|(_, slots, bytes)| *slots == 0 || (*bytes > 0 && bytes + size > CLAIM_BYTES)) {
                line.pop_front();
            }
            let Some((call, slots, bytes)) = line.front_mut() else { break };
            *slots -= 1;
            *bytes += size;
            pairs.push((*call, row));
        }
        let mut aftermath = Aftermath::default();
        if pairs.is_empty() {
            return Ok((Vec::new(), aftermath));
        }
        let mut changes = Changes::default();
        let mut granted = Vec::with_capacity(pairs.len());
        for ((call, row), &token) in pairs.into_iter().zip(tokens) {
            let own = specs.get(&row.uid).and_then(|(spec, _)| spec.options.lease_duration);
            let grant = Grant {
                token,
                worker: call.worker.clone(),
                span: call.span.or(own).unwrap_or(policy.lease_duration),
                reports_effect: call.reports_effect,
                call: call.id,
                claim: call.claim,
            };
            let place =
                Place { queue_id: row.queue_id, uid: row.uid, share_id: row.share_id, key_id: row.key_id, position: row.position };
            let ctx = Context {
                now: *now,
                policy,
                retry: policy.retry,
                head_start: head_start(0, policy),
                stale: None,
                past: None,
                receipts: &[],
                chance: fastrand::f64(),
            };
            let decision = step(Standing::Live(row.clone().live()?), &Command::Claim(grant), &ctx);
            let (Ok(Reply::Applied), Standing::Live(live)) = (&decision.reply, decision.after) else { continue };
            changes.live(&place, &live);
            decision.events.iter().for_each(|event| changes.event(place.queue_id, place.uid, event));
            aftermath.changed.push(place.uid);
            aftermath.due = Some(aftermath.due.map_or(live.due(), |due| due.min(live.due())));
            granted.push(Granted { call: call.id, place, live, ours: true });
        }
        changes.write(&mut self.tx).await?;
        Ok((granted, aftermath))
    }

    /// What was asked of the tasks at hand, with their payloads.
    async fn specs(
        &mut self, engine: &Engine, rows: impl Iterator<Item = &LiveRow>, name: &QueueName,
    ) -> Result<Specs, StoreError> {
        let queue_id = self.queue_id;
        let mut uids: Vec<Uuid> = rows.map(|row| row.uid).collect();
        let remembered = engine.0.memory.recall(uids.iter().map(|uid| (queue_id, *uid)));
        let mut specs: Specs = remembered.into_iter().map(|((_, uid), spec)| (uid, spec)).collect();
        uids.retain(|uid| !specs.contains_key(uid));
        if uids.is_empty() {
            return Ok(specs);
        }
        let mut rows: Vec<(SpecRow, Option<Bytes>)> = uids.iter().filter_map(|uid| self.read.remove(uid)).collect();
        if rows.len() < uids.len() {
            rows = store::specs_in_full(&mut self.tx, queue_id, &uids).await?;
        }
        let mut read = Vec::with_capacity(rows.len());
        for (row, payload) in rows {
            let uid = row.uid;
            let (spec, digest) = row.spec(name)?;
            let payload = payload.unwrap_or_default();
            read.push((uid, (Arc::new(TaskSpec { payload, ..Arc::unwrap_or_clone(spec) }), digest)));
        }
        engine.0.memory.remember(read.iter().map(|(uid, spec)| ((queue_id, *uid), spec.clone())));
        specs.extend(read);
        Ok(specs)
    }

    /// Makes the calls that repeat a `request_id` the holders of the leases that it was answered with.
    async fn restamp(&mut self, calls: &[Call], repeated: Vec<LiveRow>) -> Result<Vec<Granted>, StoreError> {
        let mut granted = Vec::with_capacity(repeated.len());
        for row in repeated {
            let Some(call) = calls.iter().find(|call| call.claim == row.claim_id) else { continue };
            let mut live = row.live()?;
            if let Some(lease) = &mut live.lease {
                lease.call = call.id;
            }
            let place =
                Place { queue_id: row.queue_id, uid: row.uid, share_id: row.share_id, key_id: row.key_id, position: row.position };
            granted.push(Granted { call: call.id, place, live, ours: false });
        }
        if !granted.is_empty() {
            granted.sort_by_key(|one| one.live.token);
            let uids: Vec<Uuid> = granted.iter().map(|one| one.place.uid).collect();
            let holders: Vec<Uuid> = granted.iter().map(|one| one.call).collect();
            store::restamp(&mut self.tx, self.queue_id, &uids, &holders).await?;
        }
        Ok(granted)
    }

    /// Completes the leases by what their holders are told: the spec, and the attempts of which nothing is known.
    async fn tell(
        &mut self, granted: Vec<Granted>, mut specs: Specs, now: Timestamp, read: Instant,
    ) -> Result<Vec<(Uuid, LeasedTask, Option<GivenBack>)>, StoreError> {
        if granted.is_empty() {
            return Ok(Vec::new());
        }
        let doubted: Vec<Uuid> = granted.iter().filter(|one| one.live.unknown_attempts > 0).map(|one| one.place.uid).collect();
        let mut unknown = self.unknown_attempts(&doubted).await?;
        let mut told = Vec::with_capacity(granted.len());
        for Granted { call, place, live, ours } in granted {
            let (spec, digest) = specs.remove(&place.uid).ok_or_else(|| StoreError::absent(place.uid))?;
            let lease = live.lease.as_ref().ok_or_else(|| StoreError::absent(place.uid))?;
            let passed = read.elapsed();
            let given = ours.then_some(GivenBack { queue_id: place.queue_id, uid: place.uid, token: live.token, call });
            let leased = LeasedTask {
                token: live.token,
                attempt: live.attempt,
                attempts_left: live.max_attempts - live.charged,
                remaining: lease.expire.since(now).saturating_sub(passed),
                deadline_remaining: live.deadline.since(now).saturating_sub(passed),
                expire: lease.expire,
                heartbeat_interval: lease.span / HEARTBEATS_PER_LEASE,
                unknown_attempts: unknown.remove(&place.uid).unwrap_or_default(),
                task: Task {
                    uid: place.uid,
                    spec,
                    digest,
                    position: place.position,
                    standing: Standing::Live(live),
                    result: None,
                    repair: None,
                },
            };
            told.push((call, leased, given));
        }
        Ok(told)
    }

    async fn unknown_attempts(&mut self, uids: &[Uuid]) -> Result<HashMap<Uuid, Vec<Attempt>>, StoreError> {
        if uids.is_empty() {
            return Ok(HashMap::new());
        }
        let queues = vec![self.queue_id; uids.len()];
        let logs = store::log_tails(&mut self.tx, &queues, uids, LOG_TAIL).await?;
        let unknown = |log: &Vec<_>| {
            let mut unknown: Vec<Attempt> = attempt::fold(log).into_iter().filter(Attempt::unknown).collect();
            unknown.drain(..unknown.len().saturating_sub(UNKNOWN_ATTEMPTS));
            unknown
        };
        Ok(logs.iter().map(|(uid, log)| (*uid, unknown(log))).collect())
    }

    /// Commits, and only then lets leases and events out. What nobody may have been told of is given back.
    async fn commit(
        self, engine: &Engine, told: Vec<(Uuid, LeasedTask, Option<GivenBack>)>, aftermath: Aftermath,
    ) -> Result<HashMap<Uuid, Leases>, StoreError> {
        let behind = self.fair && !told.is_empty();
        let durable = if behind { self.tx.commit_behind_barrier().await } else { self.tx.commit().await };
        if let Err(error) = durable {
            give_back(engine.clone(), told.into_iter().filter_map(|(_, _, given)| given).collect());
            return Err(error);
        }
        engine.committed(aftermath);
        let mut calls: HashMap<Uuid, (Vec<LeasedTask>, Vec<GivenBack>)> = HashMap::new();
        for (call, leased, given) in told {
            let entry = calls.entry(call).or_default();
            entry.0.push(leased);
            entry.1.extend(given);
        }
        let answer = |(leases, given)| Leases { leases, delivery: Delivery::new(engine, given) };
        Ok(calls.into_iter().map(|(call, parts)| (call, answer(parts))).collect())
    }
}
