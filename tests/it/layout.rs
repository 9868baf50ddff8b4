//! The rules of the house that can be read off the source tree: which module may use which, what may be named where, one file a
//! statement, one clock, and how long a file or a function may grow.
//!
//! Only text is read (see `reader`), so a rule is one table or one loop. What the compiler and clippy can check is left to them.

mod reader;

use reader::{Source, closing, files, from_the_root, functions, is_name, sources, words};

/// Who may use whom: `main → api, cli, console, loops → engine → store → domain`. The single files at the side may be used where
/// they are named. `lib.rs`, `main.rs` and `cli` put the parts together, so they may use all of them.
const ARROWS: [(&str, &str); 11] = [
    ("domain", ""),
    ("store", "domain"),
    ("engine", "store domain metrics"),
    ("loops", "engine store domain metrics"),
    ("api", "engine domain metrics telemetry"),
    ("console", "api engine domain metrics"),
    ("cli", "api console loops engine store domain config metrics telemetry embedded"),
    ("config", "domain embedded"),
    ("metrics", "domain"),
    ("telemetry", "config"),
    ("embedded", ""),
];

/// Words that belong to a few places. A place that ends in `/` is a folder.
struct Keep {
    words: &'static str,
    to: &'static [&'static str],
}

/// The command line and the console are clients of the contract.
const CONTRACT: Keep = Keep { words: "tonic:: prost:: proto::", to: &["src/api/", "src/cli/", "src/console/", "src/telemetry.rs"] };

/// The bench compares with SQL written by hand.
const SQL: Keep = Keep { words: "sqlx::", to: &["src/store/", "src/cli/bench"] };

const INLINE_SQL: Keep = Keep { words: "query! query_as! query_scalar!", to: &[] };

const UNSAFE: Keep = Keep { words: "unsafe", to: &["src/embedded.rs"] };

/// Calendar time comes from the database. `Instant` measures spans and is no clock; a version 7 UUID is a name.
const CLOCKS: Keep = Keep { words: "SystemTime::now UtcDateTime::now now_utc now_local Utc::now Local::now", to: &[] };

const SQL_CLOCKS: &str = "now( 'now' clock_timestamp transaction_timestamp statement_timestamp current_timestamp localtimestamp \
                          current_date current_time localtime timeofday";

/// What a pure middle cannot know.
const IMPURE: &str = "async await tokio std::fs std::io std::net std::env std::process std::thread Instant SystemTime fastrand rand \
                      new_v4 now_v7";

const FILE_LINES: usize = 400;
const FUNCTION_LINES: usize = 70;

#[test]
fn modules_use_each_other_in_the_direction_of_the_arrows_only() {
    let sources = sources();
    let rooms: Vec<&str> = sources.iter().map(Source::room).collect();
    let mut broken = Vec::new();
    for source in sources.iter().filter(|source| !matches!(source.room(), "lib" | "main")) {
        let room = source.room();
        let Some((_, may_use)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            broken.push(format!("{}: `{room}` is not in ARROWS: say there whom it may use", source.path));
            continue;
        };
        for (at, used) in from_the_root(source) {
            if used != room && rooms.contains(&used) && !may_use.split(' ').any(|allowed| allowed == used) {
                broken.push(format!("{}: `{room}` uses `{used}`", source.place(at)));
            }
        }
    }
    none(&broken, "the arrows are main → api, cli, console, loops → engine → store → domain");
}

#[test]
fn only_the_edge_knows_the_contract() {
    none(&strays(&CONTRACT), "what comes in is parsed in src/api, and what goes out is made there; behind it nobody knows gRPC");
}

#[test]
fn only_the_store_speaks_sql() {
    none(&strays(&SQL), "SQL is the store's: give it a function there that says in which transaction it runs");
}

#[test]
fn unsafe_code_stays_in_the_launcher_of_the_private_postgres() {
    none(&strays(&UNSAFE), "nothing else needs it");
}

#[test]
fn the_domain_knows_no_async_no_io_no_clock_and_no_chance() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| source.room() == "domain") {
        broken.extend(finds(source, &source.code, IMPURE));
    }
    none(&broken, "a decision is a value: hand in what it needs to know, and let the engine carry it out");
}

#[test]
fn app_now_is_the_only_clock() {
    let mut broken = strays(&CLOCKS);
    for source in sources() {
        broken.extend(finds(source, &source.strings, SQL_CLOCKS));
    }
    for (path, text) in files("src", "sql").into_iter().chain(files("migrations", "sql")) {
        for (index, line) in text.to_lowercase().lines().enumerate() {
            let statement = line.split("--").next().unwrap_or_default();
            let clocks = SQL_CLOCKS.split(' ').filter(|word| words(statement, word).next().is_some());
            let its_own_definition = statement.contains("function app_now()");
            broken.extend(clocks.filter(|_| !its_own_definition).map(|word| format!("{path}:{}: `{word}`", index + 1)));
        }
    }
    none(&broken, "tests move time by replacing app_now(); what asks another clock, they cannot move");
}

#[test]
fn every_statement_has_a_file_a_header_and_one_place_that_runs_it() {
    let mut broken = strays(&INLINE_SQL);
    for (path, text) in files("src/store/sql", "sql") {
        let header = format!("-- {}: ", path.rsplit('/').next().unwrap_or_default());
        if !text.starts_with(&header) {
            broken.push(format!("{path}:1: does not begin with `{header}` and what it is for"));
        }
        let uses: Vec<String> = sources().iter().flat_map(|source| runs_of(source, &path)).collect();
        match uses.as_slice() {
            [_] => {}
            [] => broken.push(format!("{path}: no `query_file…!` runs it")),
            many => broken.push(format!("{path}: run in {} places: {}", many.len(), many.join(", "))),
        }
    }
    none(&broken, "one statement, one file, one header, one function that runs it");
}

#[test]
fn no_file_has_outgrown_its_room() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let lines = source.text.lines().count() - source.test_lines;
        if lines > FILE_LINES {
            broken.push(format!("{}: {lines} lines", source.path));
        }
    }
    none(&broken, &format!("a file of more than {FILE_LINES} lines hides a second one: look for its name"));
}

#[test]
fn no_function_has_outgrown_a_page() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (name, body) in functions(&source.code) {
            let lines = source.code[body.clone()].matches('\n').count() + 1;
            if lines > FUNCTION_LINES {
                broken.push(format!("{}: `{name}` has {lines} lines", source.place(body.start)));
            }
        }
    }
    none(&broken, &format!("a function of more than {FUNCTION_LINES} lines does two things: look for the second one's name"));
}

#[test]
fn every_file_says_at_its_head_what_is_in_it() {
    let silent = sources().iter().filter(|source| !source.text.starts_with("//!"));
    let silent: Vec<String> = silent.map(|source| source.path.clone()).collect();
    none(&silent, "a file begins with `//!`: what is here, and what is deliberately not");
}

fn none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "\n{rule}\n  {}\n", broken.join("\n  "));
}

/// Where words are used outside the places that they are kept to.
fn strays(keep: &Keep) -> Vec<String> {
    let outside = sources().iter().filter(|source| !keep.to.iter().any(|place| source.path.starts_with(place)));
    outside.flat_map(|source| finds(source, &source.code, keep.words)).collect()
}

/// Where words stand in a view of a file.
fn finds(source: &Source, view: &str, list: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in list.split(' ') {
        found.extend(words(view, word).map(|at| format!("{}: `{word}`", source.place(at))));
    }
    found
}

/// Each place where a file of Rust names this statement in a `query_file…!`.
fn runs_of(source: &Source, path: &str) -> Vec<String> {
    let code = &source.code;
    let by_macro = source.strings.match_indices(path).map(|(at, _)| at).filter(|at| {
        let Some(bang) = code[..*at].rfind("!(") else { return false };
        let within = bang + 1 + closing(&code[bang + 1..]) > *at;
        within && code[..bang].rsplit(|c| !is_name(c)).next().is_some_and(|name| name.starts_with("query_file"))
    });
    by_macro.map(|at| source.place(at)).collect()
}
