//! What earlier answers said that can be used in later calls: ids, leases, cursors, tokens of pages.

use std::collections::{HashMap, VecDeque};

use super::choices::Choices;

/// The names of the texts that are worth to be kept.
const TEXTS: [&str; 6] = ["uid", "task_uid", "cursor", "next_page_token", "etag", "task_id"];
const MESSAGES: [&str; 2] = [".leasehold.v1.LeaseRef", ".leasehold.v1.TaskRef"];
/// The latest of each kind.
const KEPT: usize = 40;

#[derive(Default)]
pub struct Lore {
    texts: HashMap<&'static str, VecDeque<String>>,
    messages: HashMap<&'static str, VecDeque<Vec<u8>>>,
}

impl Lore {
    pub fn note_text(&mut self, name: &str, text: &str) {
        if let Some(name) = TEXTS.into_iter().find(|known| *known == name && !text.is_empty()) {
            keep(self.texts.entry(name).or_default(), text.to_owned());
        }
    }

    pub fn note_message(&mut self, name: &str, bytes: &[u8]) {
        if let Some(name) = MESSAGES.into_iter().find(|known| *known == name) {
            keep(self.messages.entry(name).or_default(), bytes.to_vec());
        }
    }

    pub fn text(&self, name: &str, choices: &mut Choices<'_>) -> Option<String> {
        pick(self.texts.get(name)?, choices)
    }

    pub fn message(&self, name: &str, choices: &mut Choices<'_>) -> Option<Vec<u8>> {
        pick(self.messages.get(name)?, choices)
    }
}

fn keep<T>(kept: &mut VecDeque<T>, value: T) {
    if kept.len() == KEPT {
        kept.pop_back();
    }
    // The latest first: it is what a choice of nothing in particular means.
    kept.push_front(value);
}

fn pick<T: Clone>(kept: &VecDeque<T>, choices: &mut Choices<'_>) -> Option<T> {
    kept.get(choices.below(kept.len().max(1))).cloned()
}
