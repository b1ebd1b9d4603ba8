//! Progress on stderr while a person waits: lines that stay, and in a terminal one line that is
//! redrawn.

use std::env;
use std::io::Write;

use anstyle::Style;
use common::output::{self, Verbosity};

use super::table::shortened;

/// The longest line that is drawn, in characters; a narrower terminal shows less.
const LONGEST: usize = 200;

/// The kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Screen {
    /// Lines can be drawn again.
    Terminal,
    /// Lines cannot be drawn again.
    Plain,
}

/// Prints lines and redraws the progress line.
#[derive(Debug)]
pub(super) struct ProgressLine {
    screen: Screen,
    drawn: Option<String>,
}

impl ProgressLine {
    /// A progress line on our stderr.
    pub(super) fn on_stderr() -> Self {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let is_quiet = output::verbosity() == Verbosity::Quiet;
        let screen = match output::stderr_is_terminal() && !is_dumb && !is_quiet {
            true => Screen::Terminal,
            false => Screen::Plain,
        };
        Self {
            screen,
            drawn: None,
        }
    }

    /// The kind of output.
    pub(super) fn screen(&self) -> Screen {
        self.screen
    }

    /// Prints a line that stays; nothing with `--quiet`. If stderr is closed, the exit code is
    /// the only report.
    pub(super) fn say(&mut self, what: &str) {
        if output::verbosity() != Verbosity::Quiet {
            self.clear();
            let _ = output::stderr_message(what);
        }
    }

    /// Prints a line that must be seen, such as a question.
    pub(super) fn ask(&mut self, what: &str) {
        self.clear();
        let _ = writeln!(output::stderr(), "{what}");
    }

    /// Draws the line if it has changed.
    pub(super) fn draw(&mut self, line: &str) {
        let line = shortened(line, LONGEST);
        if self.screen == Screen::Terminal && self.drawn.as_ref() != Some(&line) {
            let _ = output::stderr().draw_line(&line);
            self.drawn = Some(line);
        }
    }

    /// Draws a line whose parts have styles, if it has changed.
    pub(super) fn draw_parts(&mut self, parts: &[(Style, String)]) {
        let parts = parts.iter();
        let parts: Vec<(Style, String)> = parts
            .map(|(style, text)| (*style, shortened(text, LONGEST)))
            .collect();
        let line = parts.iter().map(|(_, text)| text.as_str()).collect();
        if self.screen == Screen::Terminal && self.drawn.as_ref() != Some(&line) {
            let _ = output::stderr().draw_parts(&parts);
            self.drawn = Some(line);
        }
    }

    /// Erases the line.
    pub(super) fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = output::stderr().clear_line();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
