//! The one place that knows what a cursor looks like. To callers it is opaque; the prefix lets a later server read the cursors
//! of an older one.

const PREFIX: &str = "c1-";

/// The cursor of a position in the event log.
pub fn encode(position: i64) -> String {
    format!("{PREFIX}{position}")
}

/// Absence: not a cursor of ours.
pub fn decode(cursor: &str) -> Option<i64> {
    let digits = cursor.strip_prefix(PREFIX)?;
    // `parse` would also take "+1".
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_none() {
        for position in [0, 1, i64::MAX] {
            assert_eq!(decode(&encode(position)), Some(position));
        }
        for text in ["", "c1-", "c1-+1", "c1--1", "c1-9223372036854775808", "c2-1", "1", "c1-1 "] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
