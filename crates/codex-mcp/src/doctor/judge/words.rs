//! Other programs' words, made fit to be repeated.

use anstream::adapter::strip_str;
use codex_engine::binary::{CodexBinary, Source};
use common::text::{shell_word, visible_line};
use supervise::converse::Finished;

use super::super::facts::Asked;

/// How much of what a program said is repeated, in bytes.
const LONGEST: usize = 400;

/// How many lines of it.
const MOST_LINES: usize = 10;

/// A text without colours and line breaks, with other hidden characters shown, and
/// not too long.
pub(super) fn one_line(text: &str) -> String {
    let plain = strip_str(text).to_string();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = visible_line(&line).into_owned();
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}

/// A text with its lines, such as an excerpt with a mark below it, made fit in the same
/// way.
pub(super) fn lines(text: &str) -> String {
    let plain = strip_str(text).to_string();
    let lines = plain.trim().lines().take(MOST_LINES);
    let lines = lines.map(|line| visible_line(line.trim_end()).into_owned());
    let mut text = lines.collect::<Vec<_>>().join("\n");
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

/// What a program did instead of what it should have done.
pub(super) fn what_happened(asked: &Asked) -> String {
    match asked {
        Asked::Ended(finished) => match last_words(finished) {
            words if words.is_empty() => finished.exit.to_string(),
            words => format!("{}; it said: {words}", finished.exit),
        },
        Asked::Silent(after) => format!("did not end within {} s", after.as_secs()),
        Asked::Failed(reason) => one_line(reason),
    }
}

/// The last that a program said, on stderr if anything.
pub(super) fn last_words(finished: &Finished) -> String {
    let last = |text: &str| {
        let mut lines = text.lines().rev().map(one_line);
        lines.find(|line| !line.is_empty())
    };
    last(&finished.stderr)
        .or_else(|| last(&finished.stdout))
        .unwrap_or_default()
}

/// What to type at a shell to run this Codex.
pub(super) fn command_name(binary: &CodexBinary) -> String {
    match (&binary.source, binary.chosen.to_str()) {
        (Source::Path, _) => "codex".to_owned(),
        (_, Some(path)) => shell_word(path),
        (_, None) => "codex".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supervise::exit::Exit;

    fn finished(stdout: &str, stderr: &str) -> Finished {
        Finished {
            exit: Exit::Code(126),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn a_line_has_no_colours_and_no_breaks_and_an_end() {
        assert_eq!(one_line("\u{1b}[31mno\u{1b}[0m\r\n \tway\u{7}\n"), "no way");
        assert_eq!(
            one_line(&"ü".repeat(LONGEST)).chars().count(),
            LONGEST / 2 + 1
        );
    }

    #[test]
    fn excerpt_keeps_its_lines() {
        let excerpt = "line 2, column 3\r\n  |\n2 | \u{1b}[31mx\u{1b}[0m = \u{7}\n  |   ^\n\n";
        assert_eq!(lines(excerpt), "line 2, column 3\n  |\n2 | x =\n  |   ^");
        assert_eq!(lines(&"x\n".repeat(50)).lines().count(), MOST_LINES);
        assert!(lines(&"x".repeat(5000)).len() < 500);
    }

    #[test]
    fn the_last_words_are_those_on_stderr_if_any() {
        assert_eq!(last_words(&finished("a\nb\n", " \n")), "b");
        assert_eq!(last_words(&finished("a", "x\ny\n\n")), "y");
        assert_eq!(last_words(&finished("", "")), "");
    }
}
