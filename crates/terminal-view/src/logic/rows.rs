//! Rows of text, each in the style of its meaning.

use std::time::{Duration, SystemTime};

use common::text::visible;
use ratatui::layout::Size;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

/// The most characters of a row. A longer line becomes several rows, so that it can be scrolled.
const LONGEST: usize = 240;

pub(crate) const PLAIN: Style = Style::new();
/// Of less interest: output, thoughts, facts.
pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
/// Commands and prompts.
pub(crate) const INPUT: Style = TITLE.fg(Color::Cyan);
/// Needs a person.
pub(crate) const ASKING: Style = TITLE.fg(Color::Yellow);
/// Success, and added lines of a diff.
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
/// Failures, and removed lines of a diff.
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
/// Where a part of a diff begins.
pub(crate) const PLACE: Style = Style::new().fg(Color::Cyan);

/// A row. Its text has no control characters.
pub(crate) type Row = Line<'static>;

/// Adds a text of somebody else, with `mark` before its first line and spaces before the others.
pub(crate) fn push(rows: &mut Vec<Row>, style: Style, mark: &str, text: &str) {
    let visible = visible(text.trim_end_matches('\n'));
    for (number, line) in visible.split('\n').enumerate() {
        let before = match number {
            0 => mark.to_owned(),
            _ => " ".repeat(mark.len()),
        };
        push_line(
            rows,
            style,
            &format!("{before}{}", line.replace('\t', "    ")),
        );
    }
}

fn push_line(rows: &mut Vec<Row>, style: Style, line: &str) {
    let mut rest = line;
    loop {
        let (text, after) = rest.split_at(cut(rest, LONGEST));
        rows.push(Line::styled(text.to_owned(), style));
        if after.is_empty() {
            return;
        }
        rest = after;
    }
}

/// The end of a row of at most `most` characters. A word goes to the next row, unless it is long.
fn cut(text: &str, most: usize) -> usize {
    let cut = text.char_indices().nth(most);
    cut.map_or(text.len(), |(cut, _)| {
        let space = text.get(..cut).and_then(|row| row.rfind(' '));
        let space = space.filter(|space| *space > cut / 2);
        space.map_or(cut, |space| space + 1)
    })
}

/// Breaks the rows that are higher than the screen, whose first lines could not be scrolled to.
pub(crate) fn fitting(mut rows: Vec<Row>, screen: Size) -> Vec<Row> {
    let mut fitting = Vec::with_capacity(rows.len());
    rows.reverse();
    while let Some(row) = rows.pop() {
        if fits(&row, screen) {
            fitting.push(row);
            continue;
        }
        let text = row.to_string();
        let (begin, end) = text.split_at(cut(&text, text.chars().count() / 2));
        rows.extend([end, begin].map(|part| Line::styled(part.to_owned(), row.style)));
    }
    fitting
}

fn fits(row: &Row, screen: Size) -> bool {
    // A single character has one line.
    let (width, height) = (usize::from(screen.width), usize::from(screen.height).max(1));
    let bytes: usize = row.spans.iter().map(|span| span.content.len()).sum();
    // Most rows need no count: a text has no more columns than bytes, and fills more than a quarter
    // of its lines, wherever words break them.
    bytes * 4 <= width * (height - 1) || wrapped(row.clone()).line_count(screen.width) <= height
}

/// Rows as they are drawn: long ones have several lines.
pub(crate) fn wrapped<'a>(rows: impl Into<Text<'a>>) -> Paragraph<'a> {
    Paragraph::new(rows).wrap(Wrap { trim: false })
}

/// Adds an empty row, unless there is one.
pub(crate) fn gap(rows: &mut Vec<Row>) {
    if rows.last().is_some_and(|last| last.width() > 0) {
        push_line(rows, PLAIN, "");
    }
}

/// A unified diff, or the words for a turn without one.
pub(crate) fn diff(diff: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for line in diff.lines() {
        let style = match line.as_bytes() {
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'd', ..] => TITLE,
            [b'+', ..] => GOOD,
            [b'-', ..] => BAD,
            [b'@', ..] => PLACE,
            _ => PLAIN,
        };
        push(&mut rows, style, "", line);
    }
    if rows.is_empty() {
        let words = "The last turn has no patches. Changes by commands are not shown.";
        push(&mut rows, DIM, "", words);
    }
    rows
}

/// How many columns of a terminal a text has.
#[must_use]
pub fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// How many columns a character adds to a text at most. After some characters, U+FE0F adds one, as it
/// makes them emoji.
#[must_use]
pub fn most_columns(character: char) -> usize {
    match character {
        '\u{fe0f}' => 1,
        _ => columns(character.encode_utf8(&mut [0; 4])),
    }
}

/// How long something has been going on.
pub(crate) fn clock(since: SystemTime, now: SystemTime) -> String {
    let took: Duration = now.duration_since(since).unwrap_or_default();
    let seconds = took.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d", seconds / 86_400),
    }
}
