//! Reads a request's fields and notes everything that is wrong with them, each by its path (`spec.subjects[2].id`), so that a
//! caller mends them all at once.
//!
//! Here are the kinds of fields (names, texts, numbers, spans, instants). Which request has which is in `convert/`. Nothing that
//! only the database can tell is judged here: there is no clock.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use uuid::Uuid;

use super::times;
use crate::domain::limits::{LABEL_KEY_BYTES, LABEL_VALUE_BYTES, LABELS, MESSAGE_BYTES, PAGE, PAGE_DEFAULT, REFERENCE_BYTES};
use crate::domain::names::NameError;
use crate::domain::refusal::{BadField, Refusal};
use crate::domain::spec::cut;
use crate::domain::time::Timestamp;

/// Reads one request, or one item of it: what `parse` made of it, or everything that was wrong.
pub fn read<T>(parse: impl FnOnce(&mut Fields<'_>) -> Option<T>) -> Result<T, Refusal> {
    let mut found = Found::default();
    let value = parse(&mut Fields { found: &mut found, at: At::ROOT });
    found.judge(value)
}

/// What was wrong so far.
#[derive(Default)]
struct Found {
    bad: Vec<BadField>,
    large: Option<(String, usize)>,
}

impl Found {
    fn judge<T>(mut self, value: Option<T>) -> Result<T, Refusal> {
        match (self.large, value) {
            (None, Some(value)) if self.bad.is_empty() => Ok(value),
            // Alone it has a reason of its own; beside others it is one of the bad fields.
            (Some((path, limit)), ..) if self.bad.is_empty() => Err(Refusal::TooLarge { path, limit }),
            (Some((path, limit)), ..) => {
                self.bad.push(BadField { path, text: format!("must not be larger than {limit} bytes") });
                Err(Refusal::InvalidField(self.bad))
            }
            (None, None) if self.bad.is_empty() => Err(Refusal::Bug("a field was refused without a word".to_owned())),
            (None, ..) => Err(Refusal::InvalidField(self.bad)),
        }
    }
}

/// Where in the request we are: a list along the stack, written out only when something is wrong.
#[derive(Clone, Copy)]
struct At<'a> {
    parent: Option<&'a At<'a>>,
    name: &'static str,
    index: Option<usize>,
}

impl At<'_> {
    const ROOT: At<'static> = At { parent: None, name: "", index: None };

    fn path(&self, name: &str) -> String {
        let mut path = self.to_string();
        if !path.is_empty() && !name.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        path
    }
}

impl Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(parent) = self.parent else { return Ok(()) };
        if parent.parent.is_some() {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// The fields of one message. A reader answers `None` once it has noted what is wrong.
pub struct Fields<'a> {
    found: &'a mut Found,
    at: At<'a>,
}

impl Fields<'_> {
    /// The message in the field `name`.
    pub fn inside(&mut self, name: &'static str) -> Fields<'_> {
        Fields { found: self.found, at: At { parent: Some(&self.at), name, index: None } }
    }

    /// The `index`-th message in the repeated field `name`.
    pub fn item(&mut self, name: &'static str, index: usize) -> Fields<'_> {
        Fields { found: self.found, at: At { parent: Some(&self.at), name, index: Some(index) } }
    }

    /// Notes a bad field. The text never quotes a value: it may be private.
    pub fn bad(&mut self, name: &str, text: impl Into<String>) {
        self.found.bad.push(BadField { path: self.at.path(name), text: text.into() });
    }

    /// Notes that this message itself is bad.
    pub fn bad_here(&mut self, text: impl Into<String>) {
        self.bad("", text);
    }

    /// Bytes of at most `limit`.
    pub fn bytes(&mut self, name: &str, bytes: bytes::Bytes, limit: usize) -> Option<bytes::Bytes> {
        if bytes.len() <= limit {
            return Some(bytes);
        }
        self.found.large = Some((self.at.path(name), limit));
        None
    }

    pub fn required<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.bad(name, "is required");
        }
        value
    }

    pub fn name<T>(&mut self, name: &str, text: &str, parse: fn(&str) -> Result<T, NameError>) -> Option<T> {
        parse(text).map_err(|error| self.bad(name, error.to_string())).ok()
    }

    /// As `name`; empty: there is none.
    pub fn optional_name<T>(&mut self, name: &str, text: &str, parse: fn(&str) -> Result<T, NameError>) -> Option<Option<T>> {
        if text.is_empty() { Some(None) } else { self.name(name, text, parse).map(Some) }
    }

    /// Text of at most `limit` bytes; empty: there is none.
    pub fn text(&mut self, name: &str, text: String, limit: usize) -> Option<String> {
        match bad_text(&text, limit) {
            None => Some(text),
            Some(why) => {
                self.bad(name, why);
                None
            }
        }
    }

    /// As `text`, and there must be one.
    pub fn some_text(&mut self, name: &str, text: String, limit: usize) -> Option<String> {
        if text.is_empty() {
            self.bad(name, NameError::Empty.to_string());
            return None;
        }
        self.text(name, text, limit)
    }

    /// A text for people, which is cut rather than refused when it is long.
    pub fn prose(&mut self, name: &str, mut text: String, limit: usize) -> Option<String> {
        if text.contains('\0') {
            self.bad(name, NameError::Nul.to_string());
            return None;
        }
        let end = cut(&text, limit).len();
        text.truncate(end);
        Some(text)
    }

    /// A reason for people; `required`: there must be one.
    pub fn reason(&mut self, text: String, required: bool) -> Option<String> {
        if required && text.is_empty() {
            self.bad("reason", NameError::Empty.to_string());
            return None;
        }
        self.prose("reason", text, MESSAGE_BYTES)
    }

    pub fn uuid(&mut self, name: &str, text: &str) -> Option<Uuid> {
        Uuid::try_parse(text).map_err(|_| self.bad(name, if text.is_empty() { "must not be empty" } else { "must be a UUID" })).ok()
    }

    pub fn number<T: PartialOrd + Display>(&mut self, name: &str, value: T, range: RangeInclusive<T>) -> Option<T> {
        // NaN is in no range.
        if range.contains(&value) {
            return Some(value);
        }
        self.bad(name, format!("must be from {} to {}", range.start(), range.end()));
        None
    }

    /// A number from 0 on.
    pub fn amount(&mut self, name: &str, value: i64) -> Option<i64> {
        if value < 0 {
            self.bad(name, "must not be negative");
        }
        (value >= 0).then_some(value)
    }

    pub fn optional_number<T: PartialOrd + Display>(
        &mut self, name: &str, value: Option<T>, range: RangeInclusive<T>,
    ) -> Option<Option<T>> {
        value.map_or(Some(None), |value| self.number(name, value, range).map(Some))
    }

    /// How many items a repeated field has. Nothing of the items is read when it is wrong.
    pub fn count(&mut self, name: &str, count: usize, range: RangeInclusive<usize>) -> Option<()> {
        if range.contains(&count) {
            return Some(());
        }
        self.bad(name, format!("must have {} to {} items, not {count}", range.start(), range.end()));
        None
    }

    pub fn span(&mut self, name: &str, span: prost_types::Duration, range: RangeInclusive<Duration>) -> Option<Duration> {
        match times::span(&span) {
            Some(span) if range.contains(&span) => Some(span),
            Some(_) => {
                self.bad(name, format!("must be from {:?} to {:?}", range.start(), range.end()));
                None
            }
            None => {
                self.bad(name, "must be a Duration that is not negative");
                None
            }
        }
    }

    pub fn optional_span(
        &mut self, name: &str, span: Option<prost_types::Duration>, range: RangeInclusive<Duration>,
    ) -> Option<Option<Duration>> {
        span.map_or(Some(None), |span| self.span(name, span, range).map(Some))
    }

    pub fn instant(&mut self, name: &str, instant: prost_types::Timestamp) -> Option<Timestamp> {
        let parsed = times::instant(&instant);
        if parsed.is_none() {
            self.bad(name, "must be a Timestamp of the years 1 to 9999");
        }
        parsed
    }

    /// A value of an enum. `parse` doesn't know UNSPECIFIED where it means nothing.
    pub fn choice<T>(&mut self, name: &str, value: i32, parse: fn(i32) -> Option<T>) -> Option<T> {
        let parsed = parse(value);
        if parsed.is_none() {
            self.bad(name, if value == 0 { "is required" } else { "has a value that this server doesn't know" });
        }
        parsed
    }

    pub fn labels(&mut self, name: &'static str, labels: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
        let before = self.found.bad.len();
        if labels.len() > LABELS {
            self.bad(name, format!("must have 0 to {LABELS} items, not {}", labels.len()));
            return None;
        }
        for (key, value) in &labels {
            let why = match bad_text(key, LABEL_KEY_BYTES) {
                None if key.is_empty() => Some("must not have an empty key".to_owned()),
                None => bad_text(value, LABEL_VALUE_BYTES),
                Some(why) => Some(format!("the key {why}")),
            };
            if let Some(why) = why {
                self.bad(&format!("{name}[{:?}]", cut(key, LABEL_KEY_BYTES)), why);
            }
        }
        (self.found.bad.len() == before).then_some(labels)
    }

    /// `page_size` and `page_token`.
    pub fn page(&mut self, size: i32, token: String) -> Option<(i32, String)> {
        let size = self.number("page_size", size, 0..=PAGE).map(|size| if size == 0 { PAGE_DEFAULT } else { size });
        let token = self.text("page_token", token, REFERENCE_BYTES);
        size.zip(token)
    }
}

fn bad_text(text: &str, limit: usize) -> Option<String> {
    if text.len() > limit {
        let mut why = String::new();
        let _ = write!(why, "must not be longer than {limit} bytes");
        return Some(why);
    }
    text.contains('\0').then(|| NameError::Nul.to_string())
}
