//! Who is next between shares: start-time fair queueing at dispatch time (Goyal, Vin, Cheng 1996), pure.
//!
//! Each share keeps a virtual tag. Repeatedly the share with the smallest effective tag max(tag, V) gives its next task; V becomes
//! that tag, and the share's tag grows by cost / weight. So a share that was away banks no credit, and one that took much is not
//! forgotten. Only shares within their budgets take part; the queue's own budget bounds them all.

use std::time::Duration;

use super::budget::Bucket;

/// What may be leased now. Absent: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowance {
    /// Places that are free under the cap.
    pub places: Option<usize>,
    pub bucket: Option<Bucket>,
}

impl Allowance {
    pub fn full(&self) -> bool {
        self.places == Some(0)
    }

    fn allows(&self, cost: i32) -> bool {
        !self.full() && self.bucket.is_none_or(|bucket| bucket.affords(cost))
    }

    fn less(self, cost: i32) -> Allowance {
        Allowance {
            places: self.places.map(|places| places.saturating_sub(1)),
            bucket: self.bucket.map(|bucket| bucket.less(cost)),
        }
    }
}

/// A share that may have READY tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub id: i32,
    pub tag: f64,
    /// 0.01 to 1,000.
    pub weight: f64,
    pub allowance: Allowance,
}

/// The shares of a queue that compete for its next leases.
#[derive(Clone, Debug, PartialEq)]
pub struct Contest {
    pub shares: Vec<Share>,
    pub virtual_time: f64,
    /// The queue's own.
    pub allowance: Allowance,
}

/// Whether the rate of something lets its next task go, and if not, when it will (absent: not before the policy changes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rated {
    Free,
    In(Option<Duration>),
}

/// What came of an allotment.
#[derive(Clone, Debug, PartialEq)]
pub struct Allotment {
    /// Indexes into the shares, in dispatch order: each entry takes that share's next waiting task.
    pub picks: Vec<usize>,
    pub after: Contest,
    /// Of each share, as far as its waiting tasks are known.
    pub rated: Vec<Rated>,
    /// The queue's own rate. It holds back the task whose turn it is, however little those behind it would cost: else they passed it for
    /// ever.
    pub queue_rated: Rated,
}

/// Fills up to `slots` places. `waiting[i]` are the costs of share i's waiting tasks, the next one first. In tag order, one at a time:
/// to take several from one pick would be as many times less fair.
pub fn allot(before: &Contest, waiting: &[Vec<i32>], slots: usize) -> Allotment {
    let mut after = before.clone();
    let mut taken = vec![0usize; after.shares.len()];
    let mut picks = Vec::with_capacity(slots);
    let mut queue_rated = Rated::Free;
    let next_cost = |taken: &[usize], share: usize| waiting[share].get(taken[share]).copied();
    while picks.len() < slots && !after.allowance.full() {
        let now = after.virtual_time;
        let eligible = after.shares.iter().enumerate().filter_map(|(i, share)| {
            let cost = next_cost(&taken, i).filter(|cost| share.allowance.allows(*cost))?;
            Some((i, share.tag.max(now), share.id, cost))
        });
        let Some((next, tag, _, cost)) = eligible.min_by(|a, b| a.1.total_cmp(&b.1).then(a.2.cmp(&b.2))) else { break };
        queue_rated = rated(after.allowance.bucket, cost);
        if queue_rated != Rated::Free {
            break;
        }
        let share = &mut after.shares[next];
        share.tag = tag + f64::from(cost) / share.weight;
        share.allowance = share.allowance.less(cost);
        after.allowance = after.allowance.less(cost);
        after.virtual_time = tag;
        taken[next] += 1;
        picks.push(next);
    }
    let of_share =
        |(i, share): (usize, &Share)| next_cost(&taken, i).map_or(Rated::Free, |cost| rated(share.allowance.bucket, cost));
    let rated = after.shares.iter().enumerate().map(of_share).collect();
    Allotment { picks, after, rated, queue_rated }
}

fn rated(bucket: Option<Bucket>, cost: i32) -> Rated {
    match bucket {
        Some(bucket) if !bucket.affords(cost) => Rated::In(bucket.wait(cost)),
        _ => Rated::Free,
    }
}

/// A share's tag after a change of its weight: what it owes weighs as much less as it weighs more. (`share_write.sql` says the same.)
#[cfg(test)]
fn rescaled(tag: f64, virtual_time: f64, old: f64, new: f64) -> f64 {
    virtual_time + (tag - virtual_time).max(0.0) * old / new
}

#[cfg(test)]
mod tests;
