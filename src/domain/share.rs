//! A share's policy, and how it is changed.

use super::budget::{BudgetEdit, Budgets};
use super::queue::Edit;

/// The policy of a share. What a share that nobody configured has is [`SharePolicy::default`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharePolicy {
    /// Its part of the dispatches, relative to the other shares that have work: 0.01 to 1,000.
    pub weight: f64,
    pub budgets: Budgets,
}

impl Default for SharePolicy {
    fn default() -> Self {
        SharePolicy { weight: 1.0, budgets: Budgets::default() }
    }
}

/// A change of a share's policy, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareEdit {
    pub weight: Edit<f64>,
    pub budgets: BudgetEdit,
}

impl SharePolicy {
    #[must_use]
    pub fn edited(self, edit: &ShareEdit) -> SharePolicy {
        let default = SharePolicy::default();
        SharePolicy { weight: edit.weight.over(self.weight, default.weight), budgets: self.budgets.edited(&edit.budgets) }
    }
}
