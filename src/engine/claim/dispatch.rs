//! Which tasks the next leases are of: the only awake share's next ones, or an allotment between several and within budgets.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::batch::Round;
use crate::domain::fairness::{Allotment, Contest, Rated, Share, allot};
use crate::domain::time::Timestamp;
use crate::store::{self, Charge, Dispatch, Head, LiveRow, Outlook, StoreError};

/// How many shares one allotment looks at: those with the lowest tags, which are the ones whose turn it is. Those that are out of tokens, or
/// have been at their cap for a while, are parked, and not among them.
const SHARES: i64 = 64;
/// When to look at others, where all of these were full or empty.
const SOON: Duration = Duration::from_millis(5);

/// What a claim goes by. Where something is compared or counted, this transaction's turn to do so has come, until it ends.
pub(super) enum Turn {
    /// Nothing can be leased.
    Nothing,
    /// One share is awake, and nothing has a budget.
    Lone(i32),
    Contested(Dispatch),
}

/// Looks what there is to be leased, and waits for its turn if shares have to be compared.
pub(super) async fn turn(round: &mut Round) -> Result<Turn, StoreError> {
    Ok(match store::outlook(&mut round.tx, round.queue_id).await? {
        Outlook::Nothing => Turn::Nothing,
        Outlook::Lone(share_id) => Turn::Lone(share_id),
        Outlook::Contested => {
            round.fair = true;
            Turn::Contested(store::lock_dispatch(&mut round.tx, round.queue_id).await?)
        }
    })
}

/// Locks up to `wanted` READY tasks in dispatch order that are not stale; `overdue` ones are passed over too.
pub(super) async fn pick(round: &mut Round, turn: Turn, overdue: &[Uuid], wanted: usize) -> Result<Vec<LiveRow>, StoreError> {
    match turn {
        Turn::Nothing => Ok(Vec::new()),
        Turn::Lone(share_id) => pick_from(round, share_id, overdue, wanted).await,
        Turn::Contested(dispatch) => pick_fairly(round, &dispatch, overdue, wanted).await,
    }
}

/// A lone share gets all, and nothing is compared or counted, so nothing is locked or charged.
async fn pick_from(round: &mut Round, share_id: i32, overdue: &[Uuid], wanted: usize) -> Result<Vec<LiveRow>, StoreError> {
    if round.passes_over(share_id) {
        return pick_ahead(round, share_id, overdue, wanted).await;
    }
    let passed_over: Vec<Uuid> = overdue.iter().chain(&round.stale).copied().collect();
    let limit = i64::try_from(wanted).unwrap_or(i64::MAX);
    let from = round.look.from(share_id);
    let picked = store::pick(&mut round.tx, share_id, from, &passed_over, limit).await?;
    round.look.finds(share_id, picked.iter().map(|row| (row.rank, row.position)).min());
    round.touched.add(picked.iter().map(|row| row.uid));
    round.fresh(picked).await
}

/// Where much is to be passed over: looks, and then locks. A second round makes up for picks that others held.
async fn pick_ahead(round: &mut Round, share_id: i32, overdue: &[Uuid], wanted: usize) -> Result<Vec<LiveRow>, StoreError> {
    let mut seen: HashSet<Uuid> = overdue.iter().chain(&round.stale).copied().collect();
    let mut picked: Vec<LiveRow> = Vec::new();
    for _ in 0..2 {
        let heads = round.heads(&[(share_id, wanted + seen.len())]).await?.remove(&share_id).unwrap_or_default();
        let mut order: Vec<Uuid> = heads.into_iter().map(|head| head.uid).filter(|uid| !seen.contains(uid)).collect();
        order.truncate(wanted - picked.len());
        round.touched.add(order.iter().copied());
        round.judge(&order).await?;
        order.retain(|uid| !round.stale.contains(uid));
        if order.is_empty() {
            break;
        }
        seen.extend(order.iter().copied());
        let rows = store::lock_picks(&mut round.tx, round.queue_id, &order).await?;
        let mut locked: HashMap<Uuid, LiveRow> = rows.into_iter().map(|row| (row.uid, row)).collect();
        let all = locked.len() == order.len();
        picked.extend(order.iter().filter_map(|uid| locked.remove(uid)));
        if all || picked.len() >= wanted {
            break;
        }
    }
    Ok(picked)
}

/// Read candidates → allot → lock the picks → charge what was locked. A second round makes up for picks that others held.
async fn pick_fairly(round: &mut Round, dispatch: &Dispatch, overdue: &[Uuid], wanted: usize) -> Result<Vec<LiveRow>, StoreError> {
    let queue_id = round.queue_id;
    let mut field = store::field(&mut round.tx, dispatch, SHARES).await?;
    round.look_again(field.now, field.wake_at);
    if field.contest.allowance.full() || field.contest.shares.is_empty() {
        return Ok(Vec::new());
    }
    let before = field.contest.shares.clone();
    let (mut empty, mut rated) = (Vec::new(), vec![Rated::Free; before.len()]);
    let mut seen: HashSet<Uuid> = overdue.iter().chain(&round.stale).copied().collect();
    let mut picked: Vec<LiveRow> = Vec::new();
    for turn in 0..2 {
        let mut waiting = waiting(round, &field.contest, &seen, wanted, turn == 0, &mut empty).await?;
        let (got, order) = fresh_order(round, &field.contest, &mut waiting, &seen, wanted - picked.len()).await?;
        rated.clone_from(&got.rated);
        if let Rated::In(Some(wait)) = got.queue_rated {
            round.look_again(field.now, Some(field.now.plus(wait)));
        }
        if order.is_empty() {
            break;
        }
        seen.extend(order.iter().copied());
        let rows = store::lock_picks(&mut round.tx, queue_id, &order).await?;
        let mut locked: HashMap<Uuid, LiveRow> = rows.into_iter().map(|row| (row.uid, row)).collect();
        let taken: Vec<Vec<Head>> =
            waiting.iter().map(|heads| heads.iter().filter(|head| locked.contains_key(&head.uid)).copied().collect()).collect();
        let (charged, order_taken) = in_order(&field.contest, &taken, locked.len());
        picked.extend(order_taken.iter().filter_map(|uid| locked.remove(uid)));
        field.contest = charged.after;
        if order_taken.len() < order.len() {
            // Others hold some of them, so less was spent than was planned: nobody is parked for it.
            rated.fill(Rated::Free);
        }
        if picked.len() >= wanted || order_taken.len() == order.len() {
            break;
        }
    }
    let mut full: Vec<i32> = before.iter().filter(|share| share.allowance.full()).map(|share| share.id).collect();
    let lasting = round.engine.0.full.lasting(queue_id, &full, Instant::now());
    // Those that are full must not hide others: no more than so many are looked at.
    let hidden = i64::try_from(before.len()).is_ok_and(|looked| looked >= SHARES);
    if hidden && picked.len() < wanted && full.len() + empty.len() > 0 {
        round.come_back(Some(SOON));
    } else if !hidden && !picked.is_empty() {
        full = lasting;
    }
    let charges = charges(&before, &field.contest.shares, &rated, field.now);
    charges.iter().for_each(|charge| round.look_again(field.now, charge.wake_at));
    if !charges.is_empty() {
        store::charge(&mut round.tx, dispatch, &field, &charges).await?;
    }
    store::rest_shares(&mut round.tx, &empty, &full).await?;
    Ok(picked)
}

/// The next tasks of each share that has a place, as far as they could be taken; on the first look, which shares have none at all.
async fn waiting(
    round: &mut Round, contest: &Contest, seen: &HashSet<Uuid>, wanted: usize, first: bool, empty: &mut Vec<i32>,
) -> Result<Vec<Vec<Head>>, StoreError> {
    // One more than there are places: whether a share's rate holds something back is told by what waits.
    let places_of = |share: &Share| share.allowance.places.map_or(wanted, |places| wanted.min(places + 1));
    let depth_of = |share: &Share| places_of(share) + seen.len();
    let open = contest.shares.iter().filter(|share| !share.allowance.full());
    let depths: Vec<(i32, usize)> = open.map(|share| (share.id, depth_of(share))).collect();
    let mut heads = round.heads(&depths).await?;
    if first {
        empty.extend(depths.iter().map(|(id, _)| *id).filter(|id| !heads.contains_key(id)));
    }
    // What is judged is not judged again: a second look must not take for fresh what the first one found stale.
    let open = |head: &Head| !seen.contains(&head.uid) && !round.stale.contains(&head.uid);
    let of = |share: &Share| heads.remove(&share.id).unwrap_or_default().into_iter().filter(open).collect();
    Ok(contest.shares.iter().map(of).collect())
}

/// The next `wanted` tasks, once those that are stale are taken out of `waiting`: they cost their shares nothing. Where there is one, more of
/// their kind stand behind it: that share is looked at again, past them.
async fn fresh_order(
    round: &mut Round, contest: &Contest, waiting: &mut [Vec<Head>], seen: &HashSet<Uuid>, wanted: usize,
) -> Result<(Allotment, Vec<Uuid>), StoreError> {
    loop {
        let (got, order) = in_order(contest, waiting, wanted);
        round.touched.add(order.iter().copied());
        if round.judge(&order).await? == 0 {
            return Ok((got, order));
        }
        for (share, heads) in contest.shares.iter().zip(waiting.iter_mut()) {
            if heads.iter().any(|head| round.stale.contains(&head.uid)) {
                round.meets(share.id);
                *heads = round.heads(&[(share.id, wanted + seen.len())]).await?.remove(&share.id).unwrap_or_default();
                heads.retain(|head| !seen.contains(&head.uid) && !round.stale.contains(&head.uid));
            }
        }
    }
}

/// An allotment, and its picks by name.
fn in_order(contest: &Contest, waiting: &[Vec<Head>], slots: usize) -> (Allotment, Vec<Uuid>) {
    let costs: Vec<Vec<i32>> = waiting.iter().map(|heads| heads.iter().map(|head| head.cost).collect()).collect();
    let got = allot(contest, &costs, slots);
    let mut next = vec![0usize; waiting.len()];
    let take = |share: &usize| {
        next[*share] += 1;
        waiting[*share][next[*share] - 1].uid
    };
    let order = got.picks.iter().map(take).collect();
    (got, order)
}

/// What has to be written of the shares: those that gave something, and those whose rate holds back their next task.
fn charges(before: &[Share], after: &[Share], rated: &[Rated], now: Timestamp) -> Vec<Charge> {
    let changed = before.iter().zip(after).zip(rated).filter(|((before, after), rated)| before != after || **rated != Rated::Free);
    let charge = |((_, share), rated): ((&Share, &Share), &Rated)| match rated {
        Rated::In(wait) => {
            let rest = |wait| now.plus(share.allowance.bucket.map_or(wait, |bucket| bucket.rest(wait)));
            Charge { share: *share, parked: true, wake_at: wait.map(rest) }
        }
        Rated::Free => Charge { share: *share, parked: false, wake_at: None },
    };
    changed.map(charge).collect()
}
