//! What the demo says, for a terminal.

use std::io::{self, IsTerminal as _, Write};
use std::time::Instant;

const GREEN: &str = "32";
const RED: &str = "31;1";
const BOLD: &str = "1";
const DIM: &str = "2";

pub(super) struct Show {
    out: Box<dyn Write>,
    begin: Instant,
    colors: bool,
    broken: usize,
}

impl Show {
    /// To the standard output; in colors if that is a terminal and `NO_COLOR` is not set.
    pub(super) fn on_stdout() -> Self {
        let colors = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Show { out: Box::new(io::stdout()), begin: Instant::now(), colors, broken: 0 }
    }

    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(BOLD, text);
        writeln!(self.out, "\n{text}\n")
    }

    /// Something that happens now: who does it, and what comes of it.
    pub(super) fn step(&mut self, who: &str, what: &str) -> io::Result<()> {
        let time = format!("{:6.2} s", self.begin.elapsed().as_secs_f64());
        self.row(&time, who, what)
    }

    /// More about the last step.
    pub(super) fn more(&mut self, what: &str) -> io::Result<()> {
        self.row("", "", what)
    }

    fn row(&mut self, time: &str, who: &str, what: &str) -> io::Result<()> {
        // Padded before it is painted: escapes have no width.
        let (time, who) = (self.paint(DIM, &format!("{time:>10}")), self.paint(BOLD, &format!("{who:<9}")));
        writeln!(self.out, "{time}  {who} {what}")
    }

    /// A promise, and whether what was seen keeps it.
    pub(super) fn promise(&mut self, text: &str, kept: bool) -> io::Result<()> {
        let mark = if kept { self.paint(GREEN, "✓") } else { self.paint(RED, "✗ BROKEN:") };
        self.broken += usize::from(!kept);
        writeln!(self.out, "  {mark} {text}")
    }

    /// How many promises were not kept.
    pub(super) fn broken(&self) -> usize {
        self.broken
    }

    fn paint(&self, color: &str, text: &str) -> String {
        if self.colors { format!("\u{1b}[{color}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
