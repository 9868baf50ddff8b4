//! How often this server refused because a queue or share was full. Refusals leave no row, so they are counted in memory, for an hour.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::submit::Submission;
use super::wake::held;
use crate::domain::refusal::Refusal;

/// Shares that are counted by name, each with up to 3,600 seconds; others count for their queue alone.
const NAMED: usize = 512;
/// The longest window that anybody asks for.
const KEPT: u32 = 3_600;

/// A queue, and a share of it; absent: those that are not counted by name.
type Name = (i32, Option<String>);

pub(super) struct Refused {
    begin: Instant,
    counts: Mutex<HashMap<Name, Seconds>>,
}

/// Refusals by the second in which they happened, the oldest first; seconds without any are left out.
#[derive(Default)]
struct Seconds(VecDeque<(u32, u32)>);

impl Default for Refused {
    fn default() -> Self {
        Refused { begin: Instant::now(), counts: Mutex::default() }
    }
}

impl Refused {
    /// Counts those that found no room.
    pub(super) fn note<T>(&self, items: &[Submission], answers: &[Result<T, Refusal>]) {
        let full = |answer: &Result<T, Refusal>| matches!(answer, Err(Refusal::QueueFull { .. } | Refusal::ShareFull { .. }));
        let refused = items.iter().zip(answers).filter(|(_, answer)| full(answer));
        let mut refused = refused.map(|(item, _)| (item.queue_id, item.spec.fairness_key.as_str())).peekable();
        if refused.peek().is_some() {
            // The clock is read under the lock, so that seconds come in their order.
            let mut counts = held(&self.counts);
            let now = self.second();
            refused.for_each(|(queue_id, key)| count(&mut counts, queue_id, key, now));
        }
    }

    /// How many of the queue there were within the window that ends now, by share. A share that is absent: of those without a name here.
    pub(super) fn within(&self, queue_id: i32, window: Duration) -> Vec<(Option<String>, i64)> {
        let first = self.second().saturating_sub(u32::try_from(window.as_secs()).unwrap_or(KEPT));
        let counts = held(&self.counts);
        let of_queue = counts.iter().filter(|((queue, _), _)| *queue == queue_id);
        of_queue.map(|((_, key), seconds)| (key.clone(), seconds.since(first))).filter(|(_, count)| *count > 0).collect()
    }

    fn second(&self) -> u32 {
        u32::try_from(self.begin.elapsed().as_secs()).unwrap_or(u32::MAX)
    }
}

fn count(counts: &mut HashMap<Name, Seconds>, queue_id: i32, key: &str, now: u32) {
    let mut name = (queue_id, Some(key.to_owned()));
    if counts.len() >= NAMED && !counts.contains_key(&name) {
        counts.retain(|(_, key), seconds| key.is_none() || seconds.since(now.saturating_sub(KEPT)) > 0);
        if counts.len() >= NAMED {
            name.1 = None;
        }
    }
    counts.entry(name).or_default().add(now);
}

impl Seconds {
    fn add(&mut self, now: u32) {
        while self.0.front().is_some_and(|(second, _)| now - *second > KEPT) {
            self.0.pop_front();
        }
        match self.0.back_mut() {
            Some((second, count)) if *second == now => *count = count.saturating_add(1),
            _ => self.0.push_back((now, 1)),
        }
    }

    /// From this second on.
    fn since(&self, first: u32) -> i64 {
        self.0.iter().rev().take_while(|(second, _)| *second >= first).map(|(_, count)| i64::from(*count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_counts_its_seconds_and_what_is_older_than_an_hour_is_forgotten() {
        let mut seconds = Seconds::default();
        for second in [0, 10, 10, 3_599] {
            seconds.add(second);
        }
        assert_eq!([0, 1, 10, 11, 3_600].map(|first| seconds.since(first)), [4, 3, 3, 1, 0]);
        seconds.add(3_605);
        assert_eq!(seconds.0.front(), Some(&(10, 2)));
        for second in 4_000..20_000 {
            seconds.add(second);
        }
        assert!(seconds.0.len() <= 3_601);
    }

    #[test]
    fn shares_beyond_those_that_fit_count_for_their_queue_and_silent_ones_make_room() {
        let mut counts = HashMap::new();
        for number in 0..10_000 {
            count(&mut counts, 7, &number.to_string(), 1);
        }
        let all: i64 = counts.values().map(|seconds| seconds.since(0)).sum();
        assert_eq!((counts.len(), all), (NAMED + 1, 10_000));
        count(&mut counts, 7, "later", 5_000);
        assert_eq!(counts[&(7, Some("later".to_owned()))].since(0), 1);
        assert_eq!(counts.len(), 2);
    }
}
