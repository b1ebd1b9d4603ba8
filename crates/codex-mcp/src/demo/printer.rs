//! The output of the demo.

use std::io::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use common::output::Output;
use common::text::wrapped;

use super::message::summary;
use super::wire::{Direction, TappedMessage};

/// The width in columns, which every terminal has.
const WIDTH: usize = 80;

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const STRONG: Style = Style::new().bold();
const QUIET: Style = Style::new().dimmed();
const SENT: Style = AnsiColor::Blue.on_default().bold();
const RECEIVED: Style = AnsiColor::Magenta.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Yellow.on_default().bold();

/// Prints the demo, step by step.
pub(super) struct Printer<W> {
    out: Output<W>,
    step: u32,
}

impl<W: Write> Printer<W> {
    pub(super) fn new(out: Output<W>) -> Self {
        Self { out, step: 0 }
    }

    /// Prints the title and the introduction.
    pub(super) fn title(&mut self, title: &str, about: &str) -> io::Result<()> {
        self.out.styled(STRONG, title)?;
        writeln!(self.out)?;
        self.paragraph("", about, Style::new())
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, title: &str) -> io::Result<()> {
        self.step += 1;
        let step = self.step;
        writeln!(self.out)?;
        let heading = format_args!("{step}. {title}");
        self.out.styled(HEADING, heading)?;
        writeln!(self.out)
    }

    /// Announces the next part.
    pub(super) fn note(&mut self, text: &str) -> io::Result<()> {
        self.paragraph("   ", text, QUIET)
    }

    /// Prints a name and a value.
    pub(super) fn fact(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.field(3, name, 9, value, STRONG)
    }

    /// Prints a message between client and server.
    pub(super) fn message(&mut self, passed: &TappedMessage) -> io::Result<()> {
        let (style, arrow) = match passed.direction {
            Direction::Sent => (SENT, "→"),
            Direction::Received => (RECEIVED, "←"),
        };
        let summary = summary(&passed.message);
        write!(self.out, "   ")?;
        let title = format_args!("{arrow} {}", summary.title);
        self.out.styled(style, title)?;
        if let Some(about) = summary.about {
            let indent = 3 + 2 + summary.title.chars().count() + 2;
            let lines = wrapped(&about, WIDTH.saturating_sub(indent));
            write!(self.out, "  {}", lines.join(&hanging(indent)))?;
        }
        if let Some(id) = summary.id {
            write!(self.out, "  ")?;
            self.out.styled(QUIET, format_args!("id {id}"))?;
        }
        writeln!(self.out)?;
        let widest = summary
            .fields
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or_default();
        for (name, value) in &summary.fields {
            self.field(7, name, widest, value, QUIET)?;
        }
        Ok(())
    }

    /// Prints a command that is run.
    pub(super) fn prompt(&mut self, command: &str) -> io::Result<()> {
        for (index, line) in command.lines().enumerate() {
            let mark = if index == 0 { "$" } else { " " };
            write!(self.out, "   ")?;
            self.out.styled(QUIET, mark)?;
            write!(self.out, " ")?;
            self.out.styled(STRONG, line)?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// Prints a command and its output.
    pub(super) fn command(&mut self, command: &str, output: &str) -> io::Result<()> {
        self.prompt(command)?;
        for line in output.lines() {
            writeln!(self.out, "   {line}")?;
        }
        Ok(())
    }

    /// Prints a line of a run's progress.
    pub(super) fn run_line(&mut self, line: &str) -> io::Result<()> {
        if line.is_empty() {
            return writeln!(self.out);
        }
        let text = line.trim_start();
        let indent = 3 + line.len() - text.len();
        // A path is to be copied, and a command with one.
        let lines = match text.contains(" /") {
            true => vec![text.to_owned()],
            false => wrapped(text, WIDTH.saturating_sub(indent + 2)),
        };
        write!(self.out, "{:indent$}", "")?;
        let text = lines.join(&hanging(indent + 2));
        self.out.styled(run_line_style(line), text)?;
        writeln!(self.out)
    }

    /// Prints the duration and the final note.
    pub(super) fn done(&mut self, took: Duration, rest: &str) -> io::Result<()> {
        let seconds = took.as_secs_f64();
        let done = format!("Done in {seconds:.1} s.");
        writeln!(self.out)?;
        self.out.styled(GOOD, done)?;
        writeln!(self.out, " {rest}")
    }

    /// Prints a next step: a sentence and a command to copy, whose lines are never wrapped.
    pub(super) fn next(&mut self, text: &str, command: &str) -> io::Result<()> {
        writeln!(self.out)?;
        self.paragraph("", text, Style::new())?;
        write!(self.out, "\n   ")?;
        let command = command.replace('\n', &hanging(3));
        self.out.styled(STRONG, command)?;
        writeln!(self.out)
    }

    fn paragraph(&mut self, indent: &str, text: &str, style: Style) -> io::Result<()> {
        for line in wrapped(text, WIDTH.saturating_sub(indent.len())) {
            write!(self.out, "{indent}")?;
            self.out.styled(style, line)?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        indent: usize,
        name: &str,
        name_width: usize,
        value: &str,
        style: Style,
    ) -> io::Result<()> {
        let place = indent + name_width + 2;
        let lines = wrapped(value, WIDTH.saturating_sub(place));
        let value = lines.join(&hanging(place));
        write!(self.out, "{:indent$}", "")?;
        let name = format_args!("{name:name_width$}");
        self.out.styled(style, name)?;
        writeln!(self.out, "  {value}")
    }
}

/// The style of a run's line, by its beginning.
fn run_line_style(line: &str) -> Style {
    match line.split_whitespace().next() {
        Some("turn") => STRONG,
        Some("holds" | "done") => GOOD,
        Some("unknown" | "promised" | "denied" | "failed" | "not") => BAD,
        _ => Style::new(),
    }
}

/// A line break with an indent, so that the text continues below its beginning.
fn hanging(indent: usize) -> String {
    format!("\n{:indent$}", "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use common::output::Colours;

    fn shown(print: impl FnOnce(&mut Printer<Vec<u8>>) -> io::Result<()>) -> String {
        let mut printer = Printer::new(Output::new(Vec::new(), Colours::Off));
        print(&mut printer).unwrap();
        String::from_utf8(printer.out.into_inner()).unwrap()
    }

    #[test]
    fn message_is_laid_out_in_columns() {
        let text = shown(|printer| {
            printer.message(&TappedMessage {
                direction: Direction::Sent,
                message: json!({
                    "jsonrpc": "2.0", "id": 2, "method": "tools/call",
                    "params": {"name": "codex", "arguments": {
                        "cwd": "/repo",
                        "prompt": "one two three four five six seven eight nine ten eleven twelve thirteen fourteen",
                    }},
                }),
            })
        });
        insta::assert_snapshot!(text, @r"
           → tools/call  codex  id 2
               prompt  one two three four five six seven eight nine ten eleven twelve
                       thirteen fourteen
               cwd     /repo
        ");
    }

    #[test]
    fn command_and_run_lines_are_indented() {
        let text = shown(|printer| {
            printer.prompt("codex-mcp run \\\n    --until pr")?;
            printer.run_line("turn 1 of 10")?;
            printer.run_line("")?;
            printer.run_line("  holds    pr: #1")?;
            printer.run_line("  not met  files: one-file.txt, another-file.txt, a-third-file.txt and the-last-one.txt")
        });
        insta::assert_snapshot!(text, @r"
           $ codex-mcp run \
                 --until pr
           turn 1 of 10

             holds    pr: #1
             not met  files: one-file.txt, another-file.txt, a-third-file.txt and
               the-last-one.txt
        ");
    }

    #[test]
    fn steps_are_counted() {
        let text = shown(|printer| {
            printer.step("Begin")?;
            printer.step("End")
        });
        assert_eq!(text, "\n1. Begin\n\n2. End\n");
    }
}
