//! `clear_fields`: names of fields to set back to their defaults.

use crate::api::fields::Fields;
use crate::domain::limits::CLEAR_FIELDS;
use crate::domain::queue::Edit;

/// A field that can be given and cleared, by its name in the contract.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) given: bool,
}

/// Whether clearing `cleared` clears the field `name`: it is that field, or the message that it is in.
pub(super) fn covers(cleared: &str, name: &str) -> bool {
    cleared == name || (!cleared.is_empty() && name.strip_prefix(cleared).is_some_and(|rest| rest.starts_with('.')))
}

/// The names in `clear_fields`, each of a field that can be cleared and isn't given.
pub(super) fn cleared(f: &mut Fields<'_>, fields: &[Field], names: Vec<String>) -> Option<Vec<String>> {
    f.count("clear_fields", names.len(), 0..=CLEAR_FIELDS)?;
    let mut whole = true;
    for (index, name) in names.iter().enumerate() {
        let meant: Vec<&Field> = fields.iter().filter(|field| covers(name, field.name)).collect();
        let why = match meant.as_slice() {
            [] => "names no field that can be cleared",
            meant if meant.iter().any(|field| field.given) => "names a field that is also given",
            _ => continue,
        };
        f.item("clear_fields", index).bad_here(why);
        whole = false;
    }
    whole.then_some(names)
}

pub(super) struct Clears<'a>(pub(super) &'a [String]);

impl Clears<'_> {
    pub(super) fn or_set<T>(&self, name: &str, given: Option<T>) -> Edit<T> {
        match given {
            Some(value) => Edit::Set(value),
            None if self.0.iter().any(|cleared| covers(cleared, name)) => Edit::Clear,
            None => Edit::Keep,
        }
    }
}
