//! Tables, for people.

use std::io::{self, Write};

use anstyle::Style;
use codex_mcp_core::text::visible_line;

use crate::output::Output;

const HEADING: Style = Style::new().bold();

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A text of our own.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::coloured(text, Style::new())
    }

    /// The same in a colour.
    pub(super) fn coloured(text: impl Into<String>, style: Style) -> Self {
        let text = text.into();
        Self { text, style }
    }

    /// A text that somebody has made up, see [`shortened`].
    pub(super) fn foreign(text: &str, longest: usize) -> Self {
        Self::plain(shortened(text, longest))
    }
}

/// Writes a table, in colours.
pub(super) fn write<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    let headings = headings.map(|heading| Cell::coloured(heading, HEADING));
    let lines: Vec<[Cell; COLUMNS]> = [headings].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..COLUMNS).filter_map(width).collect();
    lines.iter().try_for_each(|cells| line(cells, &widths, out))
}

fn line(cells: &[Cell], widths: &[usize], out: &mut Output<impl Write>) -> io::Result<()> {
    // What follows the last cell that says something is left out.
    let last = cells.iter().rposition(|cell| !cell.text.is_empty());
    for (column, (Cell { text, style }, width)) in cells.iter().zip(widths).enumerate() {
        match last {
            Some(last) if column < last => {
                out.styled(*style, format_args!("{text:width$}"))?;
                write!(out, "  ")?;
            }
            Some(last) if column == last => out.styled(*style, text)?,
            _ => {}
        }
    }
    writeln!(out)
}

/// One line that does nothing to a terminal, of at most so many characters.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    let line = text.replace(['\n', '\t'], " ");
    let line = visible_line(&line).into_owned();
    match line.char_indices().nth(longest) {
        None => line,
        Some(_) => {
            let begin: String = line.chars().take(longest.saturating_sub(1)).collect();
            format!("{begin}…")
        }
    }
}
