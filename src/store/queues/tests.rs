//! The defaults are said twice: in the schema, for a queue that the first Submit makes, and in `Policy::default`, for fields that
//! are cleared. Here they are held together.

use std::collections::BTreeMap;

use super::*;

/// Column and default of `queues`, as the migrations leave them.
fn column_defaults() -> BTreeMap<String, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut defaults = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        if let Some((_, table)) = text.split_once("CREATE TABLE queues (") {
            let (columns, _) = table.split_once("\n);").unwrap();
            defaults.extend(columns.lines().filter_map(column_default));
        }
        // Whoever changes a default later on has to teach this test to read it.
        let changes = text.split(';').filter(|statement| statement.contains("ALTER TABLE queues"));
        assert!(!changes.into_iter().any(|statement| statement.contains("DEFAULT")), "{} changes a default", file.display());
    }
    defaults
}

/// `name type NOT NULL DEFAULT value …` to name and value.
fn column_default(line: &str) -> Option<(String, String)> {
    let (column, rest) = line.split_once(" DEFAULT ")?;
    let value = rest.split_whitespace().next()?.trim_end_matches(',').trim_matches('\'');
    Some((column.split_whitespace().next()?.to_owned(), value.to_owned()))
}

#[test]
fn a_queue_that_a_submit_makes_has_the_default_policy() {
    let mut columns = column_defaults();
    let mut text = |name: &str| columns.remove(name).unwrap_or_else(|| panic!("{name} has no default"));
    let row = QueueRow {
        queue_id: 1,
        name: "q".to_owned(),
        boundary: text("boundary"),
        paused: text("paused").parse().unwrap(),
        on_unknown: text("on_unknown"),
        on_repair: text("on_repair"),
        max_attempts: text("max_attempts").parse().unwrap(),
        initial_backoff_us: text("initial_backoff_us").parse().unwrap(),
        max_backoff_us: text("max_backoff_us").parse().unwrap(),
        multiplier: text("multiplier").parse().unwrap(),
        jitter: text("jitter").parse().unwrap(),
        default_ttl_us: text("default_ttl_us").parse().unwrap(),
        lease_us: text("lease_us").parse().unwrap(),
        priority_step_us: text("priority_step_us").parse().unwrap(),
        deadline_margin_us: text("deadline_margin_us").parse().unwrap(),
        payload_retention_us: None,
        result_retention_us: None,
        evidence_retention_us: None,
        stalled: None,
        max_in_flight: None,
        rate_per_second: None,
        rate_burst: None,
        max_unfinished: None,
        etag: text("etag").parse().unwrap(),
    };
    assert_eq!(row.policy(), Policy::default());
    // Caps and retentions have no default: they are absent. A default that this test doesn't know would be left here.
    assert_eq!(columns, BTreeMap::new());
}
