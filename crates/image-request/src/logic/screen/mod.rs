//! Determines from the content of Codex's screen whether Codex waits for a picture.
//!
//! Codex draws its conversation in blocks. Each block begins with a sign in the first column, and
//! continues with indented rows:
//!
//! ```text
//! › look at the error            what somebody has sent
//!
//! • Called image-request-mcp.request_image({"path":"./a.png"})
//!   └ ./a.png was requested. Now print exactly <<WAITING_FOR_IMAGE>> and …
//!
//! • <<WAITING_FOR_IMAGE>>        what Codex says
//!
//! › Ask Codex to do anything     where somebody types
//! ```
//!
//! Source: the screens of Codex 0.104.0, 0.153.4 and 0.169.0 in `screens/`.
//!
//! **The rule.** Codex waits if the following holds for the blocks that Codex or the user has
//! begun:
//!
//! 1. the last block of Codex is a message, not the result of a tool (results have a `└` below
//!    their title), and
//! 2. one of its paragraphs ends with the marker, alone on its row or rows, and
//! 3. exactly one block of the user comes after it: the input field.
//!
//! So the following do not count: the tool's acknowledgement and a file that Codex shows (1); words
//! about the marker (2); a text that the user has sent or is typing, as its rows belong to the
//! user's block (1); the old conversation after a resume, as the prompt of the resume comes after
//! it (3); a Codex that still works, as its `• Working` comes after the message (1); and a message
//! whose beginning has left the screen, as its author is unknown. Codex is asked to print only the
//! marker, so its message has few rows and comes last.
//!
//! Codex 0.169.0 shows a `└ Tip: …` below some messages, until it draws them again. A block with
//! the marker right above the `└`, alone on its row or rows, is such a message: the title of a
//! tool's result says what the tool has done, and to what, so it does not end with a bare marker.
//!
//! The screen alone does not end Codex. The [`machine`](super::machine) also requires a request
//! that has not been answered, and the screen to stay like this for a while: in the middle of a
//! redraw or of a resume, it may look so for a moment. Counting markers instead would not work: if
//! a marker were new when there are more of them than before the request, scrolling would hide a
//! new one as an old one leaves the screen, and a redraw would make old ones new. So the rule uses
//! the position of the last marker, which stays the same after scrolling, redrawing and resizing,
//! and on either screen of the terminal. One case remains: while a request is open, the user
//! scrolls back to where the message of an earlier wait is the last block of Codex in view, and
//! stays there. Then Codex is resumed early, with the picture that it asked for.
//!
//! Codex breaks rows itself, with an indentation, and within the marker if the terminal is narrow.
//! Rows that the terminal wraps continue in the first column, and so do rows that Codex breaks
//! again because the terminal has just become narrower. So a text about the marker that ends with
//! it may leave the marker alone on a row. That counts as waiting: while a request is open, the
//! last message of Codex is meant so. Colours are ignored.

use super::contract::MARKER;

/// A row of the screen, as the terminal parser returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The text of the row.
    pub text: &'a str,
    /// Its end.
    pub end: RowEnd,
}

/// The end of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowEnd {
    /// The row ends here.
    Closed,
    /// The terminal wrapped the line: the next row continues it.
    Wrapped,
}

/// The state of Codex according to its screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScreenState {
    /// Codex waits for a picture.
    Waiting,
    /// Codex does not wait, or its state is unknown.
    Other,
}

/// Determines the state from all rows of the screen, from the top.
#[must_use]
pub fn screen_state(rows: &[Row<'_>]) -> ScreenState {
    let lines = unwrapped(rows);
    let blocks = blocks(&lines);
    let Some(last) = blocks
        .iter()
        .rposition(|block| block.author == BlockAuthor::Codex)
    else {
        return ScreenState::Other;
    };
    let after = blocks.iter().skip(last + 1);
    let typing = after.filter(|block| block.author == BlockAuthor::User);
    let waits = blocks.get(last).is_some_and(Block::waits) && typing.count() == 1;
    match waits {
        true => ScreenState::Waiting,
        false => ScreenState::Other,
    }
}

/// The author of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockAuthor {
    Codex,
    User,
    /// A warning, a separator, or the rest of a block.
    Other,
}

/// A block: its lines without the sign and surrounding spaces. Lines between paragraphs are
/// empty.
#[derive(Debug)]
struct Block<'a> {
    author: BlockAuthor,
    lines: Vec<&'a str>,
}

impl Block<'_> {
    fn waits(&self) -> bool {
        let mut parts = self.lines.splitn(2, |line| hangs_below(line));
        let above = parts.next().unwrap_or_default();
        let mut paragraphs = above.split(|line| line.is_empty());
        match parts.next() {
            Some(_) => paragraphs.next_back().is_some_and(ends_with_marker),
            None => paragraphs.any(ends_with_marker),
        }
    }
}

/// Whether a line begins the result of a tool, a queued message, or a tip.
fn hangs_below(line: &str) -> bool {
    ["└ ", "↳ "].iter().any(|sign| line.starts_with(sign))
}

/// Whether the last rows of a paragraph are the marker, with nothing else in them.
fn ends_with_marker(paragraph: &[&str]) -> bool {
    let mut rest = MARKER;
    for line in paragraph.iter().rev() {
        let Some(before) = rest.strip_suffix(line) else {
            return false;
        };
        if before.is_empty() {
            return true;
        }
        rest = before;
    }
    false
}

/// The lines, joined from rows that the terminal wrapped.
fn unwrapped(rows: &[Row<'_>]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut before = RowEnd::Closed;
    for row in rows {
        match (before, lines.last_mut()) {
            (RowEnd::Wrapped, Some(line)) => line.push_str(row.text),
            _ => lines.push(row.text.to_owned()),
        }
        before = row.end;
    }
    lines
}

/// The blocks. Lines above the first one belong to a block that has scrolled off.
fn blocks(lines: &[String]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut above = "";
    for line in lines {
        let block_start = block_start(line);
        let indented = line.starts_with(char::is_whitespace) || line.is_empty();
        let broken = block_start.author == BlockAuthor::Other && !above.is_empty();
        match (indented || broken, blocks.last_mut()) {
            (true, Some(block)) => block.lines.push(line.trim()),
            (true, None) => {}
            (false, _) => blocks.push(block_start),
        }
        above = line.trim();
    }
    blocks
}

fn block_start(line: &str) -> Block<'_> {
    let signs = [
        ('•', BlockAuthor::Codex),
        // The sign of a working Codex, which alternates with `•` every 600 ms.
        ('◦', BlockAuthor::Codex),
        ('›', BlockAuthor::User),
    ];
    let speaks = |(sign, author)| {
        let rest = line.strip_prefix(sign)?;
        let fits = rest.is_empty() || rest.starts_with(' ');
        fits.then_some((author, rest))
    };
    let (author, text) = signs
        .into_iter()
        .find_map(speaks)
        .unwrap_or((BlockAuthor::Other, line));
    Block {
        author,
        lines: vec![text.trim()],
    }
}

#[cfg(test)]
mod tests;
