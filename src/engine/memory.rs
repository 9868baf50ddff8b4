//! What was asked of the tasks that passed through this server lately. A spec never changes once its task was accepted, so what is
//! remembered is as good as what is read, and a claim or report finds it without a look at the database. Whether the task still stands is
//! never remembered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::wake::held;
use crate::domain::spec::{Digest, TaskSpec};

/// How much one generation remembers, in bytes of specs; there are two.
const GENERATION: usize = 16 * 1024 * 1024;
/// Larger specs, payloads included, are not remembered.
const LARGEST: usize = 8 * 1024;

/// A spec, its payload included, and its digest.
pub(super) type Remembered = (Arc<TaskSpec>, Digest);

/// Two generations: when the young one is full, the old one is forgotten as a whole. What is asked for stays young.
#[derive(Default)]
pub(super) struct Memory(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<(i32, Uuid), Remembered>,
    old: HashMap<(i32, Uuid), Remembered>,
    /// Bytes in the young one.
    size: usize,
}

impl Memory {
    /// Those of the tasks that are remembered.
    pub(super) fn recall(&self, tasks: impl Iterator<Item = (i32, Uuid)>) -> HashMap<(i32, Uuid), Remembered> {
        let mut generations = held(&self.0);
        tasks.filter_map(|task| Some((task, generations.recall(task)?))).collect()
    }

    /// Only specs with their payloads, of tasks that are in the database.
    pub(super) fn remember(&self, tasks: impl Iterator<Item = ((i32, Uuid), Remembered)>) {
        let mut generations = held(&self.0);
        tasks.for_each(|(task, remembered)| generations.remember(task, remembered));
    }
}

impl Generations {
    fn recall(&mut self, task: (i32, Uuid)) -> Option<Remembered> {
        if let Some(found) = self.young.get(&task) {
            return Some(found.clone());
        }
        let found = self.old.remove(&task)?;
        self.remember(task, found.clone());
        Some(found)
    }

    fn remember(&mut self, task: (i32, Uuid), remembered: Remembered) {
        let size = remembered.0.weight() + remembered.0.payload.len();
        if size > LARGEST {
            return;
        }
        if self.size + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
            self.size = 0;
        }
        if self.young.insert(task, remembered).is_none() {
            self.size += size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn spec(payload: usize) -> Remembered {
        let spec = TaskSpec { payload: Bytes::from(vec![7; payload]), ..crate::domain::spec::tests::spec("push", "") };
        let digest = spec.digest();
        (Arc::new(spec), digest)
    }

    #[test]
    fn what_is_asked_for_stays_and_what_is_not_goes_when_a_generation_is_full() {
        let memory = Memory::default();
        let name = |n: u128| (1, Uuid::from_u128(n));
        let one = spec(6_000);
        memory.remember([(name(0), one.clone()), (name(1), one.clone())].into_iter());
        for n in 2..20_000 {
            memory.remember(std::iter::once((name(n), one.clone())));
            assert_eq!(memory.recall(std::iter::once(name(0))).len(), 1, "forgotten at {n} though always asked for");
            let generations = held(&memory.0);
            assert!(generations.size <= GENERATION);
        }
        assert!(memory.recall(std::iter::once(name(1))).is_empty());
        assert_eq!(memory.recall(std::iter::once((2, Uuid::from_u128(0)))).len(), 0, "another queue's");
    }

    #[test]
    fn large_ones_are_not_remembered() {
        let memory = Memory::default();
        memory.remember(std::iter::once(((1, Uuid::nil()), spec(LARGEST))));
        assert!(memory.recall(std::iter::once((1, Uuid::nil()))).is_empty());
    }
}
