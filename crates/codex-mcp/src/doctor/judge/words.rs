//! The output of other programs, made safe for a report.

use anstream::adapter::strip_str;
use codex_engine::binary::{CodexBinary, Source};
use common::secrets::mask;
use common::text::{shell_word, visible_line};
use supervise::short_lived::TextOutput;

use super::super::facts::CommandOutcome;

/// The most of a program's output that is repeated, in bytes.
const LONGEST: usize = 400;

/// The most lines that are repeated.
const MOST_LINES: usize = 10;

/// The text without colours, and with credentials masked: people post the report, and the text
/// may quote a configuration file that has some.
fn masked(text: &str) -> String {
    mask(&strip_str(text).to_string()).into_owned()
}

/// One line: without colours and line breaks, with credentials masked, with other hidden characters
/// made visible, and bounded.
pub(super) fn one_line(text: &str) -> String {
    let plain = masked(text);
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = visible_line(&line).into_owned();
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}

/// Several lines, such as an excerpt with a mark below it, made safe in the same way.
pub(super) fn lines(text: &str) -> String {
    let plain = masked(text);
    let lines = plain.trim().lines().take(MOST_LINES);
    let lines = lines.map(|line| visible_line(line.trim_end()).into_owned());
    let mut text = lines.collect::<Vec<_>>().join("\n");
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

/// The failure of a program, as text.
pub(super) fn what_happened(outcome: &CommandOutcome) -> String {
    match outcome {
        CommandOutcome::Ended(finished) => match last_words(finished) {
            words if words.is_empty() => finished.exit.to_string(),
            words => format!("{}; it said: {words}", finished.exit),
        },
        CommandOutcome::TimedOut(after) => format!("did not end within {} s", after.as_secs()),
        CommandOutcome::Failed(reason) => one_line(reason),
    }
}

/// The last output of a program, of stderr if there is any.
pub(super) fn last_words(finished: &TextOutput) -> String {
    let last = |text: &str| {
        let mut lines = text.lines().rev().map(one_line);
        lines.find(|line| !line.is_empty())
    };
    last(&finished.stderr)
        .or_else(|| last(&finished.stdout))
        .unwrap_or_default()
}

/// The command that runs this Codex at a shell.
pub(in super::super) fn command_name(binary: &CodexBinary) -> String {
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

    fn finished(stdout: &str, stderr: &str) -> TextOutput {
        TextOutput {
            exit: Exit::Code(126),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn line_has_no_colours_and_breaks_and_is_bounded() {
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
    fn credential_is_masked_before_the_cut() {
        let key = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
        let cut_within = format!("{} {key}", "x".repeat(LONGEST - 20));
        for shown in [one_line(&cut_within), lines(&cut_within)] {
            assert!(!shown.contains("ghp_"), "{shown}");
        }
        let coloured = "1 | token = \u{1b}[31m\"a b\"\u{1b}[0m x\n  |   ^";
        assert_eq!(lines(coloured), "1 | token = \"[masked]\" x\n  |   ^");
    }

    #[test]
    fn last_words_prefer_stderr() {
        assert_eq!(last_words(&finished("a\nb\n", " \n")), "b");
        assert_eq!(last_words(&finished("a", "x\ny\n\n")), "y");
        assert_eq!(last_words(&finished("", "")), "");
    }
}
