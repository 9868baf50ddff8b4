//! Pictures of what was measured: panels below each other in one SVG. Few enough shapes that a library would be more to read.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use super::counters::precise;
use super::measure::percentile;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
/// Room for what is written beside the lines.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 240.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 35.0;
/// Points of a line over time.
const BUCKETS: i64 = 120;
const COLOURS: [&str; 6] = ["#1f6fb4", "#d1495b", "#2a9d5c", "#8e5bb5", "#c98a1b", "#4a4a4a"];

#[derive(Serialize)]
pub struct Panel {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    /// Sizes that grow tenfold.
    pub log_x: bool,
    pub lines: Vec<Line>,
}

#[derive(Serialize)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A median line and one of the slowest hundredth, from (second, milliseconds).
pub fn over_time(name: &str, values: impl Iterator<Item = (f64, f64)>) -> [Line; 2] {
    let mut values: Vec<(f64, f64)> = values.collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let end = values.last().map_or(0.0, |(at, _)| *at);
    let mut lines = ["p50", "p99"].map(|part| Line { name: format!("{name} {part}"), points: Vec::new() });
    let mut rest = values.as_slice();
    for bucket in 1..=BUCKETS {
        let until = end * precise(bucket) / precise(BUCKETS);
        let (now, later) = rest.split_at(rest.partition_point(|(at, _)| *at <= until));
        rest = later;
        let mut latencies: Vec<Duration> = now.iter().map(|(_, millis)| Duration::from_secs_f64(millis / 1e3)).collect();
        latencies.sort_unstable();
        if !latencies.is_empty() {
            for (line, part) in lines.iter_mut().zip([0.50, 0.99]) {
                line.points.push((until, percentile(&latencies, part).as_secs_f64() * 1e3));
            }
        }
    }
    lines
}

/// All panels as one picture.
pub fn svg<'a>(panels: impl Iterator<Item = &'a Panel>) -> Result<String, fmt::Error> {
    let (mut body, mut top) = (String::new(), 0.0);
    for panel in panels {
        writeln!(body, "<g transform=\"translate(0 {top})\">")?;
        panel.draw(&mut body)?;
        body.push_str("</g>\n");
        top += HEIGHT;
    }
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    ))
}

impl Panel {
    fn draw(&self, out: &mut String) -> fmt::Result {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let place = |x: f64| if self.log_x { x.max(1.0).log10() } else { x };
        let (low, high) =
            points().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), (x, _)| (low.min(place(*x)), high.max(place(*x))));
        let most = points().fold(0.0, |most: f64, (_, y)| most.max(*y));
        let (span, most) = ((high - low).max(1e-9), if most > 0.0 { most * 1.05 } else { 1.0 });
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let at_x = |x: f64| LEFT + (place(x) - low) / span * (right - LEFT);
        let at_y = |y: f64| floor - y / most * (floor - TOP);
        text(out, LEFT, TOP - 12.0, "start", &format!("{} ({} over {})", self.title, self.y, self.x))?;
        for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let y = at_y(most * part);
            writeln!(out, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>")?;
            text(out, LEFT - 6.0, y + 4.0, "end", &short(most * part))?;
            if low.is_finite() {
                let x = if self.log_x { 10f64.powf(low + span * part) } else { low + span * part };
                text(out, at_x(x), floor + 16.0, "middle", &short(x))?;
            }
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let path: Vec<String> = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y))).collect();
            writeln!(out, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>", path.join(" "))?;
            let y = TOP + 14.0 * precise(i64::try_from(number).unwrap_or(0));
            writeln!(out, "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"3\" fill=\"{colour}\"/>", right + 12.0, y - 4.0)?;
            text(out, right + 28.0, y, "start", &line.name)?;
        }
        Ok(())
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) -> fmt::Result {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
}

fn short(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{:.1} M", large / 1e6),
        large if large >= 10_000.0 => format!("{:.0} k", large / 1e3),
        large if large >= 10.0 => format!("{large:.0}"),
        small => format!("{small:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_line_for_each_name_and_writes_no_markup_of_others() {
        let lines = over_time("claim", (0..1_000).map(|n| (f64::from(n) / 100.0, f64::from(n % 10)))).into();
        let panel = Panel { title: "a < b".into(), x: "s", y: "ms", log_x: false, lines };
        let picture = svg([&panel].into_iter()).unwrap();
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(picture.contains("a &lt; b") && picture.contains("claim p99") && !picture.contains("NaN"), "{picture}");
        assert_eq!(panel.lines[0].points.len(), usize::try_from(BUCKETS).unwrap());
    }

    #[test]
    fn what_was_never_measured_makes_an_empty_picture() {
        let panel =
            Panel { title: String::new(), x: "tasks", y: "ms", log_x: true, lines: over_time("none", [].into_iter()).into() };
        assert!(!svg([&panel].into_iter()).unwrap().contains("NaN"));
    }
}
