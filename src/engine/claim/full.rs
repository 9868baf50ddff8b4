//! Which shares claims have found at their cap, and for how long. One that is full for a moment only, as all are where workers are as many
//! as places, is not worth parking: the end of its next lease would only let it go again. A hint: parking counts again.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::engine::wake::held;

/// A share that claims have found full for so long is parked.
const LASTS: Duration = Duration::from_millis(50);

/// Since when shares have been full, by queue.
#[derive(Default)]
pub struct Full(Mutex<HashMap<i32, HashMap<i32, Instant>>>);

impl Full {
    /// Notes the shares of a queue that are at their cap, of all that a claim looked at; those that have been for long.
    pub(super) fn lasting(&self, queue_id: i32, full: &[i32], now: Instant) -> Vec<i32> {
        let mut queues = held(&self.0);
        let before = queues.remove(&queue_id).unwrap_or_default();
        if full.is_empty() {
            return Vec::new();
        }
        let since = |share: &i32| (*share, before.get(share).copied().unwrap_or(now));
        let shares: HashMap<i32, Instant> = full.iter().map(since).collect();
        let lasting = full.iter().copied().filter(|share| now.duration_since(shares[share]) >= LASTS).collect();
        queues.insert(queue_id, shares);
        lasting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_worth_parking_once_every_claim_of_a_while_has_found_it_full() {
        let full = Full::default();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert!(full.lasting(1, &[5, 6], at(0)).is_empty());
        assert!(full.lasting(2, &[5], at(60)).is_empty(), "another queue's");
        assert!(full.lasting(1, &[5], at(49)).is_empty());
        assert_eq!(full.lasting(1, &[5, 6], at(50)), [5], "6 had a place meanwhile");
        assert_eq!(full.lasting(1, &[5, 6], at(100)), [5, 6]);
        assert!(full.lasting(1, &[], at(110)).is_empty() && held(&full.0).len() == 1);
        assert!(full.lasting(1, &[5], at(120)).is_empty(), "it was not full for once");
    }
}
