//! What the tasks of a run have in common: whom they belong to, and what holds them back. The peers know none of it: their tasks stay
//! without keys, in one share, without a cap.

use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Load {
    /// Ordering keys that tasks take turns at; 0: no task has one.
    pub keys: u64,
    /// Fairness keys that tasks take turns at; 0: none has one.
    pub shares: u64,
    /// Whether queues and shares have a `max_in_flight`.
    pub caps: bool,
}

impl Load {
    /// Nothing holds a READY task back, so an empty answer means an empty queue.
    pub fn plain(self) -> bool {
        self.keys == 0 && !self.caps
    }

    pub fn ordering_key(self, number: u64) -> String {
        number.checked_rem(self.keys).map_or(String::new(), |key| format!("k-{key}"))
    }

    /// Tasks of one key belong to one share.
    pub fn fairness_key(self, number: u64) -> String {
        let number = number.checked_rem(self.keys).unwrap_or(number);
        number.checked_rem(self.shares).map_or(String::new(), fairness_key)
    }

    /// All of them.
    pub fn fairness_keys(self) -> Vec<String> {
        if self.shares == 0 { vec![String::new()] } else { (0..self.shares).map(fairness_key).collect() }
    }
}

pub fn fairness_key(number: u64) -> String {
    format!("s-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_a_key_belong_to_one_share_and_none_has_what_is_switched_off() {
        let load = Load { keys: 6, shares: 4, caps: false };
        for number in 0..50 {
            assert_eq!(load.fairness_key(number), load.fairness_key(number % 6));
        }
        assert_eq!((load.ordering_key(7), load.fairness_key(7)), ("k-1".to_owned(), "s-1".to_owned()));
        assert_eq!((Load::default().ordering_key(7), Load::default().fairness_key(7)), (String::new(), String::new()));
        assert_eq!(Load::default().fairness_keys(), [""]);
    }
}
