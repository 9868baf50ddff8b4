//! Which events a filter picks. `TaskFilter`'s parts mean of an event what they mean of a task, but for two: `states` picks an event if its
//! state or the one before it is among them, so that leaving is seen too; `worker_id` picks the events of that worker's leases.

use crate::domain::event::Event;
use crate::domain::spec::TaskSpec;
use crate::engine::TaskFilter;

/// Absent: every event.
#[derive(Clone, Debug, Default)]
pub struct EventFilter(Option<Box<TaskFilter>>);

impl EventFilter {
    pub fn all() -> EventFilter {
        EventFilter(None)
    }

    pub fn of(filter: &TaskFilter) -> EventFilter {
        EventFilter(Some(Box::new(filter.clone())))
    }

    pub fn passes(&self, spec: &TaskSpec, event: &Event) -> bool {
        let Some(f) = &self.0 else { return true };
        let asked = |asked: &str, is: &str| asked.is_empty() || asked == is;
        let of_event = |f: &TaskFilter| {
            (f.states.is_empty()
                || f.states.contains(&event.state)
                || event.previous.is_some_and(|state| f.states.contains(&state)))
                && asked(&f.worker_id, event.worker.as_deref().unwrap_or_default())
        };
        let of_task = |f: &TaskFilter| {
            f.fairness_key.as_ref().is_none_or(|key| key == spec.fairness_key.as_str())
                && asked(&f.kind, &spec.kind)
                && asked(&f.target, &spec.target)
                && asked(&f.event_id, &spec.event_id)
                && asked(&f.ordering_key, spec.ordering_key.as_ref().map_or("", |key| key.as_str()))
                && (f.subject_id.is_empty() || spec.subjects.iter().any(|subject| subject.id.as_str() == f.subject_id))
                && f.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
        };
        of_event(f) && of_task(f)
    }
}
