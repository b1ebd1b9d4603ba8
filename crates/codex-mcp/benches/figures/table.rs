//! The results, for people and for programs.

use std::borrow::Borrow;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::stats::Summary;

/// The page with the tables, in the directory of the documentation.
pub(crate) const PAGE: &str = "bench.md";

/// The unit of the values in a [`Summary`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    /// Bytes too few for mebibytes.
    FewBytes,
    PerSecond,
    /// A part of one.
    Ratio,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        let (scale, digits, name) = self.scale(value);
        format!("{:.digits$} {name}", value / scale)
    }

    /// A median and its spread, all at the scale of the median.
    fn show_spread(self, summary: &Summary) -> String {
        let (scale, digits, name) = self.scale(summary.median);
        let [median, p10, p90] =
            [summary.median, summary.p10, summary.p90].map(|value| value / scale);
        format!("{median:.digits$} ({p10:.digits$} – {p90:.digits$}) {name}")
    }

    /// The divisor, the number of digits, and the name of the scaled unit.
    fn scale(self, value: f64) -> (f64, usize, &'static str) {
        match self {
            Self::Seconds if value < 1e-3 => (1e-6, 0, "µs"),
            Self::Seconds if value < 0.01 => (1e-3, 2, "ms"),
            Self::Seconds if value < 1.0 => (1e-3, 1, "ms"),
            Self::Seconds => (1.0, 2, "s"),
            Self::Bytes => (1024.0 * 1024.0, 1, "MiB"),
            Self::FewBytes => (1.0, 0, "B"),
            Self::PerSecond if value < 1e4 => (1e3, 2, "k/s"),
            Self::PerSecond => (1e3, 0, "k/s"),
            Self::Ratio => (0.01, 1, "%"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Bytes | Self::FewBytes => "bytes",
            Self::PerSecond => "per second",
            Self::Ratio => "of one",
        }
    }
}

/// The target of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Ours as a multiple of direct.
    RatioAtMost(f64),
    /// Ours beyond direct.
    AddedAtMost(f64),
}

/// One figure.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) figure: &'static str,
    pub(crate) unit: Unit,
    pub(crate) ours: Summary,
    pub(crate) direct: Option<Summary>,
    pub(crate) target: Target,
    /// Further notes.
    pub(crate) notes: Vec<String>,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        let direct = self.direct.as_ref()?;
        Some(self.ours.median / direct.median)
    }

    pub(crate) fn is_reached(&self) -> bool {
        match self.target {
            Target::AtMost(most) => self.ours.median <= most,
            Target::AtLeast(least) => self.ours.median >= least,
            Target::RatioAtMost(most) => self.ratio().is_some_and(|ratio| ratio <= most),
            Target::AddedAtMost(most) => {
                let direct = self.direct.as_ref();
                direct.is_some_and(|direct| self.ours.median - direct.median <= most)
            }
        }
    }

    fn target(&self) -> String {
        match self.target {
            Target::AtMost(most) => format!("≤ {}", self.unit.show(most)),
            Target::AtLeast(least) => format!("≥ {}", self.unit.show(least)),
            Target::RatioAtMost(most) => format!("≤ {most} ×"),
            Target::AddedAtMost(most) => format!("≤ + {}", self.unit.show(most)),
        }
    }

    fn cells(&self) -> [String; 6] {
        [
            self.figure.to_owned(),
            self.unit.show_spread(&self.ours),
            self.direct
                .as_ref()
                .map(|direct| self.unit.show_spread(direct))
                .unwrap_or_default(),
            self.ratio().map(times).unwrap_or_default(),
            self.target(),
            if self.is_reached() { "yes" } else { "NO" }.to_owned(),
        ]
    }
}

/// Enough digits to tell a miss from a hit.
fn times(ratio: f64) -> String {
    let digits = if ratio < 10.0 { 3 } else { 0 };
    format!("{ratio:.digits$} ×")
}

const HEADINGS: [&str; 6] = ["figure", "ours", "direct", "ratio", "to reach", "reached"];

/// Prints the table, in colour where stdout is a terminal.
pub(crate) fn print(rows: &[Row]) {
    let bold = Style::new().bold();
    let cells: Vec<[String; 6]> = rows.iter().map(Row::cells).collect();
    let widths = widths(&cells);
    println!(
        "codex-mcp beside Codex {} spoken to directly: median (p10 – p90)\n",
        testkit::codex::newest()
    );
    anstream::println!(
        "{bold}{}{bold:#}",
        Line(&HEADINGS.map(str::to_owned), widths)
    );
    for (row, cells) in rows.iter().zip(&cells) {
        let colour = if row.is_reached() {
            AnsiColor::Green
        } else {
            AnsiColor::Red
        };
        let style = colour.on_default();
        anstream::println!("{style}{}{style:#}", Line(cells, widths));
        for note in &row.notes {
            println!("  {note}");
        }
    }
}

fn widths(cells: &[[String; 6]]) -> [usize; 6] {
    let mut widths = HEADINGS.map(str::len);
    for row in cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

/// A line of the table.
struct Line<'a>(&'a [String; 6], [usize; 6]);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [figure, ours, direct, ratio, target, reached] = self.0;
        let [w0, w1, w2, w3, w4, _] = self.1;
        write!(
            f,
            "{figure:w0$}  {ours:>w1$}  {direct:>w2$}  {ratio:>w3$}  {target:>w4$}  {reached}"
        )
    }
}

/// The results as a table of Markdown.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut table = heading(&HEADINGS);
    for row in rows {
        writeln!(table, "| {} |", row.cells().join(" | ")).unwrap();
    }
    table
}

/// The heading of a table of Markdown, whose columns are numbers but for the first.
pub(crate) fn heading<S: Borrow<str>>(columns: &[S]) -> String {
    let rule = " --: |".repeat(columns.len() - 1);
    format!("| {} |\n| --- |{rule}\n", columns.join(" | "))
}

/// Puts a table between its two lines of a page.
pub(crate) fn write(page: &Path, name: &str, table: &str) {
    let text = fs::read_to_string(page).unwrap();
    let begin = format!("<!-- begin: {name} -->\n");
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    fs::write(
        page,
        format!("{before}{begin}\n{table}\n<!-- end -->\n{after}"),
    )
    .unwrap();
}

/// The results as JSON: values in seconds, bytes or per second.
pub(crate) fn json(rows: &[Row]) -> Value {
    rows.iter()
        .map(|row| {
            json!({
                "figure": row.figure,
                "unit": row.unit.name(),
                "ours": row.ours,
                "direct": row.direct,
                "ratio": row.ratio(),
                "target": row.target(),
                "reached": row.is_reached(),
                "notes": row.notes,
            })
        })
        .collect()
}
