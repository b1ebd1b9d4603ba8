//! Tables for people.

use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;
use common::output::{self, Output};
use common::text::visible_line;
use terminal_view::{columns, most_columns};

use crate::environment;

const HEADING: Style = Style::new().bold();

/// The least width of a table at a terminal, in columns of the terminal.
const WIDTH: usize = 80;

/// The least width to which a column is cut, in columns of the terminal.
const NARROWEST: usize = 8;

/// The gap between two columns.
const GAP: &str = "  ";

/// The end of a text that is cut off in a table that is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Nothing,
    Begin,
    End,
}

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    style: Style,
    cut: Cut,
    /// The longest part of the text that is shown at a terminal, in columns of the terminal.
    longest: Option<usize>,
}

impl Cell {
    /// A cell with a text of our own.
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::coloured(text, Style::new())
    }

    /// A cell with a text of our own, in the given style.
    pub(super) fn coloured(text: impl Into<String>, style: Style) -> Self {
        Self {
            text: text.into(),
            style,
            cut: Cut::Nothing,
            longest: None,
        }
    }

    /// The same cell, which may be cut at the end `cut` if the table is too wide.
    pub(super) fn losing(self, cut: Cut) -> Self {
        Self { cut, ..self }
    }

    /// The text, cut to `width` columns if it may be cut.
    fn within(&self, width: usize) -> String {
        if columns(&self.text) <= width {
            return self.text.clone();
        }
        let kept = width.saturating_sub(1);
        let characters = self.text.chars();
        match self.cut {
            Cut::Nothing => self.text.clone(),
            Cut::End => {
                let begin = fitting(characters, kept);
                begin.into_iter().chain(['…']).collect()
            }
            Cut::Begin => {
                let end = fitting(characters.rev(), kept);
                ['…'].into_iter().chain(end.into_iter().rev()).collect()
            }
        }
    }

    /// A cell with a text that others have written, as one line. At a terminal it has at most
    /// `longest` columns.
    pub(super) fn foreign(text: &str, longest: usize) -> Self {
        Self {
            longest: Some(longest),
            ..Self::plain(shortened(text, usize::MAX)).losing(Cut::End)
        }
    }

    /// The cell as a terminal with enough room shows it.
    fn at_terminal(self) -> Self {
        match self.longest {
            Some(longest) => Self {
                text: self.within(longest),
                ..self
            },
            None => self,
        }
    }
}

/// The first of these characters, as many as have at most `width` columns.
fn fitting(characters: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut taken = 0;
    let fits = |one: &char| {
        taken += most_columns(*one);
        taken <= width
    };
    characters.take_while(fits).collect()
}

/// Writes a table, in colours. At a terminal it has the terminal's width; in a pipe
/// nothing is cut.
pub(super) fn write<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    write_within(headings, rows, output::stdout_columns(), out)
}

/// Like [`write()`], for a terminal of the given width; `None` stands for a pipe.
pub(super) fn write_within<const COLUMNS: usize>(
    headings: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [Cell; COLUMNS]>,
    terminal: Option<usize>,
    out: &mut Output<impl Write>,
) -> io::Result<()> {
    let headings = headings.map(|heading| Cell::coloured(heading, HEADING));
    let rows = rows.into_iter().map(|cells| match terminal {
        Some(_) => cells.map(Cell::at_terminal),
        None => cells,
    });
    let lines: Vec<[Cell; COLUMNS]> = [headings].into_iter().chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| columns(&cell.text)).max()
    };
    let mut widths: Vec<usize> = (0..COLUMNS).filter_map(width).collect();
    let can_be_cut = |column: usize| {
        let mut cells = lines.iter().filter_map(|line| line.get(column));
        cells.any(|cell| cell.cut != Cut::Nothing)
    };
    if let Some(width) = terminal {
        fit(&mut widths, can_be_cut, width.max(WIDTH));
    }
    lines.iter().try_for_each(|cells| line(cells, &widths, out))
}

/// Narrows the widest of the columns that can be cut until the table fits.
fn fit(widths: &mut [usize], can_be_cut: impl Fn(usize) -> bool, most: usize) {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > most {
        let columns = widths.iter_mut().enumerate();
        let narrowed = columns.filter(|(column, width)| can_be_cut(*column) && **width > NARROWEST);
        match narrowed.max_by_key(|(_, width)| **width) {
            Some((_, width)) => *width -= 1,
            None => return,
        }
    }
}

fn line(cells: &[Cell], widths: &[usize], out: &mut Output<impl Write>) -> io::Result<()> {
    // Empty cells at the end are left out.
    let last = cells.iter().rposition(|cell| !cell.text.is_empty());
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let text = cell.within(*width);
        match last {
            Some(last) if column < last => {
                let padding = width.saturating_sub(columns(&text));
                out.styled(cell.style, format_args!("{text}{:padding$}", ""))?;
                write!(out, "{GAP}")?;
            }
            Some(last) if column == last => out.styled(cell.style, text)?,
            _ => {}
        }
    }
    writeln!(out)
}

/// One line without control characters, of at most `longest` characters.
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

/// One line without control characters, at a terminal no wider than a table.
pub(super) fn within_terminal(text: &str) -> String {
    let width = output::stdout_columns().map_or(usize::MAX, |width| width.max(WIDTH));
    Cell::foreign(text, width).at_terminal().text
}

/// The path of a directory, with `~` for the home directory.
pub(super) fn shown_directory(path: &str) -> String {
    below_home(path, environment::home().as_deref())
}

fn below_home(cwd: &str, home: Option<&Path>) -> String {
    let below = home.and_then(|home| Path::new(cwd).strip_prefix(home).ok());
    match below {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => cwd.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use common::output::Colours;

    use super::*;

    #[test]
    fn wide_characters_count_as_two_columns() {
        let rows = [
            "漢".repeat(60),
            "a漢".repeat(40),
            "⚠\u{fe0f}".repeat(60),
            "plain".to_owned(),
        ];
        let rows = rows.map(|text| [Cell::foreign(&text, 100), Cell::plain("|")]);
        let mut written = Vec::new();
        let mut out = Output::new(&mut written, Colours::Off);
        write_within(["DOING", "|"], rows, Some(80), &mut out).unwrap();
        for line in String::from_utf8(written).unwrap().lines() {
            assert_eq!(columns(line), 80, "{line}");
            assert!(line.ends_with('|'), "{line}");
        }
        let end = Cell::plain("漢字").losing(Cut::Begin);
        assert_eq!(end.within(3), "…字");
        assert_eq!(end.within(2), "…");
    }

    #[test]
    fn home_directory_is_a_tilde() {
        let home = Some(Path::new("/home/me"));
        assert_eq!(below_home("/home/me", home), "~");
        assert_eq!(below_home("/home/me/x", home), "~/x");
        assert_eq!(below_home("/home/men", home), "/home/men");
    }
}
