//! Stalls: whether leases end because of their tasks, or because the whole fleet of a queue went silent (its network broke, the database
//! was away). A task whose workers die again and again is used up by its budget; a stall is not its fault.
//!
//! The rule. When a lease has run out at a moment, look at all leases of its queue that had begun by then. One is *silent* if its worker
//! had not been heard of (claim, heartbeat, BeginEffect) for half of the lease: a worker that lives speaks three times in that time. If
//! at least eight leases of at least two workers are silent, and they are more than half of all, the fleet has stalled, and the leases that were
//! silent at that moment end uncharged, whenever they end. One worker that dies is no fleet, however much it held; and where the others go on
//! claiming or heartbeating, they are most. So that a task that kills whole fleets is not free for ever, a stall excuses at most five
//! attempts of one task.

use std::time::Duration;

use super::limits::RELEASES_UNCHARGED;
use super::task::{Lease, Live};
use super::time::Timestamp;

/// How many leases must be silent together for it to be a stall.
pub const LEASES: usize = 8;
/// How many workers must have held them.
pub const WORKERS: usize = 2;
/// Attempts of one task that may end uncharged without its worker's word.
pub const EXCUSES: i32 = 5;

/// When a lease's worker was last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub worker: String,
    pub heard: Timestamp,
    /// The lease's length.
    pub span: Duration,
}

impl Word {
    pub fn of(lease: &Lease) -> Word {
        let later = lease.heartbeat.into_iter().chain(lease.effect_begun);
        Word { worker: lease.worker.clone(), heard: later.fold(lease.begin, Timestamp::max), span: lease.span }
    }

    fn silent(&self, at: Timestamp) -> bool {
        self.heard.plus(self.span / 2) <= at
    }
}

/// Whether the fleet had stalled at `at`, by the leases of the queue that had begun by then.
pub fn stalled(leases: &[Word], at: Timestamp) -> bool {
    let silent: Vec<&Word> = leases.iter().filter(|lease| lease.silent(at)).collect();
    let mut workers: Vec<&str> = silent.iter().map(|lease| lease.worker.as_str()).collect();
    workers.sort_unstable();
    workers.dedup();
    silent.len() >= LEASES && workers.len() >= WORKERS && silent.len() * 2 > leases.len()
}

/// Whether this lease, which has ended without a word, is one of those that a stall at `at` made silent.
pub fn excused(live: &Live, lease: &Lease, at: Timestamp) -> bool {
    let released = live.releases.min(RELEASES_UNCHARGED);
    // The running attempt is counted and charged, so it cancels out.
    let excused = live.attempt - live.charged - released;
    excused < EXCUSES && Word::of(lease).silent(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(30);

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn words(heard: impl IntoIterator<Item = i64>) -> Vec<Word> {
        let word = |(n, heard)| Word { worker: format!("w{}", n % 4), heard: at(heard), span: SPAN };
        heard.into_iter().enumerate().map(word).collect()
    }

    #[test]
    fn a_fleet_that_fell_silent_together_has_stalled() {
        // Their heartbeats came every ten seconds until the network broke at 100; the first lease ends at 121.
        assert!(stalled(&words((91..=100).cycle().take(40)), at(121)));
    }

    #[test]
    fn where_the_others_are_heard_of_some_that_end_are_no_stall() {
        let healthy = words((0..20).map(|_| 91).chain((0..20).map(|n| 111 + n % 10)));
        assert!(!stalled(&healthy, at(121)), "half is not most");
        assert!(stalled(&words((0..21).map(|_| 91).chain((0..20).map(|_| 115))), at(121)));
    }

    #[test]
    fn few_leases_or_one_worker_say_nothing_about_a_fleet() {
        assert!(!stalled(&words((0..7).map(|_| 91)), at(121)));
        assert!(stalled(&words((0..8).map(|_| 91)), at(121)));
        let mut one = words((0..100).map(|_| 91));
        one.iter_mut().for_each(|word| word.worker = "w".into());
        assert!(!stalled(&one, at(121)));
    }

    #[test]
    fn silence_is_measured_by_each_leases_own_length() {
        let mut long = words((0..20).map(|_| 91));
        long.iter_mut().for_each(|word| word.span = SPAN * 10);
        assert!(!stalled(&long, at(121)));
    }
}
