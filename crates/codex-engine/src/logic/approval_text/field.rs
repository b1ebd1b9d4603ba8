//! Formats a labelled value: makes it visible, cuts its middle, and breaks it into lines.

use std::iter;

use common::text::{is_hidden, push_escape};

use super::{LEFT_OUT, MAX_COLUMNS};

/// The prefix of the second and further lines of a value.
pub(super) const CONTINUED: &str = "  | ";

/// The longest run of a white space character that is shown character by character.
const SHORT_RUN: usize = 4;

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    /// A value that describes the action.
    Plain,
    /// A statement by Codex or a server, in quotes.
    Quoted,
}

/// A labelled field, with the most lines that its value may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) label: &'a str,
    pub(super) lines: usize,
    pub(super) quoting: Quoting,
}

/// Characters of a value that are shown together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    shown: String,
    columns: usize,
    /// The number of characters of the value that it represents.
    characters: usize,
}

impl Piece {
    fn of(shown: String, characters: usize) -> Self {
        let columns = shown.chars().map(columns).sum();
        Self {
            shown,
            columns,
            characters,
        }
    }
}

/// The columns that a character counts as, in a text that is bounded by columns. A combining
/// character counts as one, and every character as at least half of its bytes, so that the bound on
/// columns also bounds the bytes.
fn columns(character: char) -> usize {
    let is_wide = matches!(
        u32::from(character),
        // Unicode's East Asian Width, classes W and F, as whole blocks.
        0x1100..=0x115f | 0x231a..=0x231b | 0x2e80..=0x303e | 0x3041..=0xa4cf | 0xa960..=0xa97f
            | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60
            | 0xffe0..=0xffe6 | 0x1_0000..
    );
    let narrow = character.len_utf8().div_ceil(2).min(2);
    if is_wide { 2 } else { narrow }
}

impl Field<'_> {
    /// The lines of the label and a value.
    pub(super) fn lines(self, value: &str) -> Vec<String> {
        let begin = format!("{}: ", self.label);
        let columns_of = |text: &str| text.chars().map(columns).sum::<usize>();
        let quotes = match self.quoting {
            Quoting::Plain => 0,
            Quoting::Quoted => 2,
        };
        // A wide character may leave a column unused at the end of each line.
        let per_line = MAX_COLUMNS - CONTINUED.len() - 1;
        let room = (per_line * self.lines)
            .saturating_sub(columns_of(&begin) + quotes)
            .saturating_add(CONTINUED.len());
        let mut pieces = cut(pieces(value, self.quoting), room);
        if self.quoting == Quoting::Quoted {
            pieces.insert(0, Piece::of("\"".to_owned(), 0));
            pieces.push(Piece::of("\"".to_owned(), 0));
        }
        broken(begin, &pieces)
    }
}

/// Splits a value into pieces. White space other than a single blank, hidden characters,
/// and our own marks in the value are made visible.
fn pieces(value: &str, quoting: Quoting) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        let is_space = is_hidden(character) || character.is_whitespace();
        if !is_space {
            pieces.push(Piece::of(plain(character, quoting), 1));
            continue;
        }
        let same = iter::from_fn(|| rest.next_if_eq(&character)).count();
        match (character, 1 + same) {
            (' ', 1) => pieces.push(Piece::of(" ".to_owned(), 1)),
            (space, count) if count <= SHORT_RUN => {
                let shown = name(space);
                pieces.extend((0..count).map(|_| Piece::of(shown.clone(), 1)));
            }
            (space, count) => pieces.push(Piece::of(run(space, count), count)),
        }
    }
    pieces
}

fn plain(character: char, quoting: Quoting) -> String {
    match (character, quoting) {
        // These characters are our marks.
        ('␣' | '⇥' | '⏎' | '…', _) => escape(character),
        ('"', Quoting::Quoted) => "\\\"".to_owned(),
        (other, _) => other.to_string(),
    }
}

/// The mark of a white space character.
fn name(space: char) -> String {
    match space {
        ' ' => "␣".to_owned(),
        '\t' => "⇥".to_owned(),
        '\n' => "⏎".to_owned(),
        other => escape(other),
    }
}

/// The mark of a long run of a white space character.
fn run(space: char, count: usize) -> String {
    let count = grouped(count);
    match space {
        ' ' => format!("[… {count} spaces …]"),
        '\t' => format!("[… {count} tabs …]"),
        '\n' => format!("[… {count} line breaks …]"),
        other => format!("[… {count} times {} …]", escape(other)),
    }
}

fn escape(character: char) -> String {
    let mut text = String::new();
    push_escape(&mut text, character);
    text
}

/// Cuts pieces to at most `room` columns: the beginning, the number of characters left
/// out, and the end.
fn cut(pieces: Vec<Piece>, room: usize) -> Vec<Piece> {
    let all: usize = pieces.iter().map(|piece| piece.columns).sum();
    if all <= room {
        return pieces;
    }
    let characters = |pieces: &[Piece]| pieces.iter().map(|piece| piece.characters).sum::<usize>();
    let mark = |count| Piece::of(format!(" … {} characters{LEFT_OUT} ", grouped(count)), 0);
    let room = room.saturating_sub(mark(characters(&pieces)).columns);
    let begin = fitting(pieces.iter(), room - room / 3);
    let (begin, rest) = pieces.split_at(begin);
    let end = fitting(rest.iter().rev(), room / 3);
    let (left_out, end) = rest.split_at(rest.len() - end);
    let mark = mark(characters(left_out));
    [begin, &[mark], end].concat()
}

/// The number of these pieces that fit.
fn fitting<'a>(pieces: impl Iterator<Item = &'a Piece>, room: usize) -> usize {
    pieces
        .scan(0, |used, piece| {
            *used += piece.columns;
            Some(*used)
        })
        .take_while(|used| *used <= room)
        .count()
}

/// Lines of at most [`MAX_COLUMNS`] columns, broken anywhere.
fn broken(begin: String, pieces: &[Piece]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut used = begin.chars().map(columns).sum::<usize>();
    let mut line = begin;
    for piece in pieces {
        for character in piece.shown.chars() {
            if used + columns(character) > MAX_COLUMNS {
                lines.push(std::mem::replace(&mut line, CONTINUED.to_owned()));
                used = CONTINUED.len();
            }
            line.push(character);
            used += columns(character);
        }
    }
    lines.push(line);
    lines
}

/// `1842` as `1,842`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
