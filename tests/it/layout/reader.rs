//! Reads a source tree as text: enough of Rust's tokens to tell code from comments and strings, and enough of its shape to find
//! functions, test modules and paths. Not a parser: it relies on files that compile and that rustfmt has laid out.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

/// One file of Rust, and what is left of it when only code or only strings are kept. Both views keep every byte's place, so a place
/// in a view is one in the file.
pub struct Source {
    /// From the repository's root.
    pub path: String,
    pub text: String,
    /// Without comments, strings and `#[cfg(test)] mod … { }`.
    pub code: String,
    /// Only the strings, outside test modules too.
    pub strings: String,
    /// How many lines the test modules take.
    pub test_lines: usize,
}

impl Source {
    fn new(path: &str, text: String) -> Source {
        let (mut code, mut strings) = split(&text);
        let mut test_lines = 0;
        for tests in test_modules(&code) {
            test_lines += code[tests.clone()].matches('\n').count() + 1;
            for view in [&mut code, &mut strings] {
                let blank = blanked(&view[tests.clone()]);
                view.replace_range(tests.clone(), &blank);
            }
        }
        Source { path: path.to_owned(), text, code, strings, test_lines }
    }

    /// The module directly under the crate that this file belongs to.
    pub fn room(&self) -> &str {
        let below = self.path.trim_start_matches("src/");
        below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
    }

    /// Whether the whole file is a module of tests.
    pub fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs")
    }

    pub fn place(&self, at: usize) -> String {
        format!("{}:{}", self.path, self.text[..at].matches('\n').count() + 1)
    }

    /// How many `super::` lead from here to the crate's root.
    fn depth(&self) -> usize {
        self.path.split('/').filter(|part| !matches!(*part, "src" | "mod.rs" | "lib.rs" | "main.rs")).count()
    }
}

/// Every file of Rust below `src`.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> =
        LazyLock::new(|| files("src", "rs").into_iter().map(|(path, text)| Source::new(&path, text)).collect());
    assert!(!SOURCES.is_empty(), "no source was found: a rule would check nothing");
    &SOURCES
}

/// Every file below `folder` with this extension, by its path from the repository's root, in order.
pub fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                found.push((path.strip_prefix(root).unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Where `word` stands by itself, not as a part of a longer name.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let (opens, closes) = (word.starts_with(is_name), word.ends_with(is_name));
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let (before, after) = (&text[..*at], &text[*at + word.len()..]);
        !(opens && before.ends_with(is_name) || closes && after.starts_with(is_name))
    })
}

pub fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The modules directly under the crate that a file names, by `crate::` or by enough `super::`.
pub fn from_the_root(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let code = source.code.as_str();
    let by_crate = words(code, "crate::").map(|at| (at, at + "crate::".len()));
    let by_super = words(code, "super::").filter(|at| !code[..*at].ends_with("super::")).filter_map(|at| {
        let path = code.len() - code[at..].trim_start_matches("super::").len();
        ((path - at) / "super::".len() >= source.depth()).then_some((at, path))
    });
    by_crate.chain(by_super).flat_map(move |(at, path)| heads(&code[path..]).map(move |head| (at, head)))
}

/// Each function that has a body: its name, and where it stands from `fn` to the closing brace.
pub fn functions(code: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    words(code, "fn ").filter_map(|start| {
        let mut at = start;
        loop {
            at += code[at..].find(['(', '[', '{', ';'])?;
            let end = at + closing(&code[at..]);
            match code.as_bytes()[at] {
                b';' => return None,
                b'{' => return Some((name_at(&code[start + "fn ".len()..]), start..end)),
                _ => at = end,
            }
        }
    })
}

/// Where the modules of unit tests stand, from `#[cfg(test)]` to the closing brace.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]\n";
    let marks = code.match_indices(MARK).map(|(at, _)| (at, at + MARK.len()));
    let modules = marks.filter(|(_, item)| code[*item..].trim_start().starts_with("mod "));
    let with_body = modules.filter_map(|(at, item)| {
        let body = item + code[item..].find(['{', ';'])?;
        code[body..].starts_with('{').then(|| at..body + closing(&code[body..]) + 1)
    });
    with_body.collect()
}

/// The first names of a path: one, or each of a `{…}` list.
fn heads(path: &str) -> impl Iterator<Item = &str> {
    let list = if path.starts_with('{') { &path[1..closing(path)] } else { name_at(path) };
    let mut depth = 0;
    let parts = list.split(move |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.map(|part| name_at(part.trim_start()))
}

fn name_at(text: &str) -> &str {
    &text[..text.find(|c| !is_name(c)).unwrap_or(text.len())]
}

/// Where the first bracket is closed again; the text's end if it is not.
pub fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth <= 1 => return at,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn blanked(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Parts a file into its code and its strings; comments are in neither.
fn split(text: &str) -> (String, String) {
    let (mut code, mut strings) = (String::new(), String::new());
    let mut at = 0;
    while at < text.len() {
        let (kind, len) = token(text, at);
        let piece = &text[at..at + len];
        let blank = blanked(piece);
        code.push_str(if kind == Kind::Code { piece } else { &blank });
        strings.push_str(if kind == Kind::Literal { piece } else { &blank });
        at += len;
    }
    (code, strings)
}

#[derive(PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What begins at `at`, and how many bytes it takes.
fn token(text: &str, at: usize) -> (Kind, usize) {
    let rest = &text[at..];
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if rest.starts_with('"') {
        return (Kind::Literal, quoted(rest, b'"'));
    }
    // A lifetime has no second quote; a letter in quotes has it right behind.
    if rest.starts_with('\'') && (rest[1..].starts_with('\\') || rest.chars().nth(2) == Some('\'')) {
        return (Kind::Literal, quoted(rest, b'\''));
    }
    if rest.starts_with('r') && !text[..at].trim_end_matches(['b', 'c']).ends_with(is_name) {
        let from_quote = rest[1..].trim_start_matches('#');
        let hashes = rest.len() - 1 - from_quote.len();
        if let Some(content) = from_quote.strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return (Kind::Literal, content.find(&end).map_or(rest.len(), |found| 2 + hashes + found + end.len()));
        }
    }
    let plain = rest.char_indices().skip(1).find(|(_, c)| matches!(c, '/' | '"' | '\'' | 'r'));
    (Kind::Code, plain.map_or(rest.len(), |(next, _)| next))
}

/// The length of a literal in quotes, in which a backslash takes the next quote's meaning away.
fn quoted(literal: &str, quote: u8) -> usize {
    let mut bytes = literal.bytes().enumerate().skip(1);
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => _ = bytes.next(),
            byte if byte == quote => return at + 1,
            _ => {}
        }
    }
    literal.len()
}

/// The length of a block comment, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

#[test]
fn the_reader_tells_code_from_comments_and_strings() {
    let text = r##"// tonic::a
fn f<'a>(x: &'a str) -> char { g("now() \" }", r#"}"#, '}', b'\'', /* { /* { */ */ 1); '"' }
type Call = fn(u8) -> [u8; 4];
trait T { fn no_body(&self) -> [u8; 4]; }
fn h() {}"##;
    let source = Source::new("src/api/convert.rs", text.to_owned());
    assert_eq!(functions(&source.code).map(|(name, _)| name).collect::<Vec<_>>(), ["f", "h"]);
    assert_eq!(words(&source.code, "tonic::").chain(words(&source.code, "now(")).count(), 0);
    assert_eq!(words(&source.strings, "now(").count(), 1);
    assert_eq!(words("app_now() now()", "now(").collect::<Vec<_>>(), [10]);
}

#[test]
fn the_reader_follows_paths_to_the_root_and_no_others() {
    let text = "use crate::{domain::{names, api}, engine};\nuse super::super::super::loops::due;\nuse super::super::cli;\n$crate::store::x";
    let source = Source::new("src/api/convert/task.rs", text.to_owned());
    assert_eq!(from_the_root(&source).map(|(_, name)| name).collect::<Vec<_>>(), ["domain", "engine", "store", "loops"]);
}

#[test]
fn the_reader_passes_over_modules_of_tests() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn long() {}\n}\n#[cfg(test)]\nmod more_tests;\nfn b() {}\n";
    let source = Source::new("src/domain/x.rs", text.to_owned());
    assert_eq!(source.test_lines, 4);
    assert_eq!(functions(&source.code).map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b"]);
}
