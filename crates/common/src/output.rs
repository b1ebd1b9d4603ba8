//! Standard output and standard error of all verbs.
//!
//! A verb may print text of a repository, a model or another program. [`Output`]
//! shows the hidden characters of all text that is written to it (see [`visible`]), so that
//! only two kinds of escape sequences reach a terminal: the styles given to
//! [`Output::styled`], and the drawing of [`Output::draw_line`]. `clippy.toml` bans the
//! streams themselves. [`answer`] alone passes text on as it is, and only to a pipe.

use std::fmt::Display;
use std::io::{self, IsTerminal, Stderr, Stdout, Write};
use std::sync::OnceLock;

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use serde::Serialize;

use crate::secrets;
use crate::text::{broken, escape_json, visible};

/// Clears the line. DECAWM off and on has the terminal cut a line that is too long for it.
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// Moves the cursor to the first line, and clears from there (ECMA-48: CUP, ED).
const CLEAR_SCREEN: &str = "\u{1b}[H\u{1b}[J";
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";

/// How much is printed in addition to results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors.
    Quiet,
    /// Progress and warnings too.
    Usual,
    /// The whole log.
    Verbose,
}

/// The verbosity of this process, which has one command line.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// Sets the verbosity of this process. Later calls have no effect.
pub fn set_verbosity(verbosity: Verbosity) {
    let _ = VERBOSITY.set(verbosity);
}

/// The verbosity of this process; [`Verbosity::Usual`] unless it was set.
#[must_use]
pub fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or(Verbosity::Usual)
}

/// Whether styles are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Styles are written.
    On,
    /// Styles are left out.
    Off,
}

/// A stream for text that shows hidden characters and writes our own styles.
#[derive(Debug)]
pub struct Output<W> {
    inner: W,
    colours: Colours,
    /// The beginning of a character whose end has not been written yet.
    partial: Vec<u8>,
}

impl<W: Write> Output<W> {
    /// Writes to `inner`.
    pub fn new(inner: W, colours: Colours) -> Self {
        Self {
            inner,
            colours,
            partial: Vec::new(),
        }
    }

    /// Writes a text in a style.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn styled(&mut self, style: Style, text: impl Display) -> io::Result<()> {
        match self.colours {
            Colours::Off => write!(self, "{text}"),
            Colours::On => {
                write!(self.inner, "{style}")?;
                write!(self, "{text}")?;
                write!(self.inner, "{style:#}")
            }
        }
    }

    /// Replaces the line where the cursor is, and leaves the cursor in it. For terminals.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn draw_line(&mut self, line: &str) -> io::Result<()> {
        write!(self.inner, "{CLEAR_LINE}{WRAP_OFF}")?;
        write!(self, "{line}")?;
        write!(self.inner, "{WRAP_ON}")?;
        self.inner.flush()
    }

    /// Like [`Output::draw_line`], for a line whose parts have styles.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn draw_parts(&mut self, parts: &[(Style, String)]) -> io::Result<()> {
        write!(self.inner, "{CLEAR_LINE}{WRAP_OFF}")?;
        for (style, text) in parts {
            self.styled(*style, text)?;
        }
        write!(self.inner, "{WRAP_ON}")?;
        self.inner.flush()
    }

    /// Clears the line where the cursor is. For terminals.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn clear_line(&mut self) -> io::Result<()> {
        write!(self.inner, "{CLEAR_LINE}")?;
        self.inner.flush()
    }

    /// Clears a terminal.
    ///
    /// # Errors
    ///
    /// Those of the stream.
    pub fn clear_screen(&mut self) -> io::Result<()> {
        write!(self.inner, "{CLEAR_SCREEN}")?;
        self.inner.flush()
    }

    /// Writes a text that another part of this program has styled.
    fn write_with_styles(&mut self, text: &str) -> io::Result<()> {
        let text = with_styles(text, self.colours);
        self.inner.write_all(text.as_bytes())?;
        self.inner.flush()
    }

    /// Returns the inner stream.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.extend_from_slice(bytes);
        let written = std::mem::take(&mut self.partial);
        for chunk in written.utf8_chunks() {
            self.inner.write_all(visible(chunk.valid()).as_bytes())?;
            match chunk.invalid() {
                [] => {}
                incomplete if written.ends_with(incomplete) && is_incomplete(incomplete) => {
                    self.partial = incomplete.to_owned();
                }
                _ => write!(self.inner, "{}", char::REPLACEMENT_CHARACTER)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Whether more bytes could make these a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[expect(clippy::disallowed_methods, reason = "this is where it is guarded")]
fn raw_stdout() -> Stdout {
    io::stdout()
}

#[expect(clippy::disallowed_methods, reason = "this is where it is guarded")]
fn raw_stderr() -> Stderr {
    io::stderr()
}

fn colours(choice: ColorChoice) -> Colours {
    match choice {
        ColorChoice::Never => Colours::Off,
        _ => Colours::On,
    }
}

/// Standard output, for texts.
#[must_use]
pub fn stdout() -> Output<Stdout> {
    Output::new(raw_stdout(), stdout_colours())
}

/// Whether styles are written to standard output.
#[must_use]
pub fn stdout_colours() -> Colours {
    colours(AutoStream::choice(&raw_stdout()))
}

/// Standard error, for texts.
#[must_use]
pub fn stderr() -> Output<Stderr> {
    Output::new(raw_stderr(), stderr_colours())
}

/// Whether styles are written to standard error.
#[must_use]
pub fn stderr_colours() -> Colours {
    colours(AutoStream::choice(&raw_stderr()))
}

/// Whether standard output is a terminal.
#[must_use]
pub fn stdout_is_terminal() -> bool {
    raw_stdout().is_terminal()
}

/// The number of columns of standard output: 0 if the terminal does not report it, `None` if
/// standard output is no terminal.
#[must_use]
pub fn stdout_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(raw_stdout()).ok()?;
    Some(size.ws_col.into())
}

/// The number of columns of standard error, as [`stdout_columns`] has that of standard output.
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(raw_stderr()).ok()?;
    Some(size.ws_col.into())
}

/// Prints a message on standard output; at a terminal, its lines are broken between words.
///
/// # Errors
///
/// Those of the stream.
pub fn stdout_message(text: &str) -> io::Result<()> {
    message(text, stdout_columns(), &mut stdout())
}

/// Prints a message on standard error; at a terminal, its lines are broken between words.
///
/// # Errors
///
/// Those of the stream.
pub fn stderr_message(text: &str) -> io::Result<()> {
    message(text, stderr_columns(), &mut stderr())
}

fn message(text: &str, columns: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", broken(text, columns))
}

/// Whether standard error is a terminal.
#[must_use]
pub fn stderr_is_terminal() -> bool {
    raw_stderr().is_terminal()
}

/// Prints the model's answer: byte for byte to a pipe, with its hidden characters shown
/// on a terminal.
///
/// # Errors
///
/// Those of the stream.
pub fn answer(text: &str) -> io::Result<()> {
    let raw = raw_stdout();
    match raw.is_terminal() {
        true => writeln!(stdout(), "{}", text.trim_end()),
        false => writeln!(raw.lock(), "{text}"),
    }
}

/// Prints a value as JSON over several lines.
///
/// # Errors
///
/// Those of the stream, and of the value's serialization.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    json_line(&serde_json::to_string_pretty(value)?)
}

/// Prints JSON that is serialized already.
///
/// # Errors
///
/// Those of the stream.
pub fn json_line(json: &str) -> io::Result<()> {
    writeln!(raw_stdout().lock(), "{}", escape_json(json))
}

/// Prints clap's error about the command line, or the help, in clap's styles.
///
/// # Errors
///
/// Those of the stream.
pub fn command_line(error: &clap::Error) -> io::Result<()> {
    let text = error.render();
    match error.use_stderr() {
        true => stderr().write_with_styles(&text.ansi().to_string()),
        false => stdout().write_with_styles(&text.ansi().to_string()),
    }
}

/// The log's stream: keeps the styles of the log's own format. `tracing-subscriber`
/// (0.3.20 and later) has already escaped the styles within logged values.
#[derive(Debug)]
pub struct LogOutput {
    inner: Stderr,
    styles: Colours,
}

/// Standard error, for a log whose format has styles or not.
#[must_use]
pub fn log(styles: Colours) -> LogOutput {
    LogOutput {
        inner: raw_stderr(),
        styles,
    }
}

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The log writes each event at once.
        let event = String::from_utf8_lossy(bytes);
        self.inner
            .write_all(logged(&event, self.styles).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// An event of the log, with credentials masked: prompts and Codex's stderr may hold some.
fn logged(event: &str, styles: Colours) -> String {
    let event = secrets::mask(event);
    match styles {
        Colours::On => with_styles(&event, Colours::On),
        Colours::Off => visible(&event).into_owned(),
    }
}

/// A text with its styles (SGR sequences) kept or left out, and other hidden characters
/// shown.
fn with_styles(text: &str, colours: Colours) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out.push_str(&visible(before));
        match style_length(after) {
            Some(length) => {
                let (style, following) = after.split_at(length);
                if colours == Colours::On {
                    out.push('\u{1b}');
                    out.push_str(style);
                }
                rest = following;
            }
            None => {
                out.push_str(&visible("\u{1b}"));
                rest = after;
            }
        }
    }
    out.push_str(&visible(rest));
    out
}

/// The length of an SGR sequence after its ESC, such as `[0;31m`.
fn style_length(after: &str) -> Option<usize> {
    let parameters = after.strip_prefix('[')?;
    let end = parameters.find(|one: char| !matches!(one, '0'..='9' | ';' | ':'))?;
    parameters
        .get(end..)?
        .starts_with('m')
        .then_some(1 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(colours: Colours, write: impl Fn(&mut Output<Vec<u8>>) -> io::Result<()>) -> String {
        let mut out = Output::new(Vec::new(), colours);
        write(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn output_keeps_own_styles_only() {
        let print = |out: &mut Output<Vec<u8>>| {
            out.styled(Style::new().bold(), "a\u{1b}[31mb")?;
            writeln!(out, "\u{1b}]52;c;eA==\u{7}\tä\u{9b}m")
        };
        let shown = "a\\u{1b}[31mb";
        let rest = "\\u{1b}]52;c;eA==\\u{7}\tä\\u{9b}m\n";
        assert_eq!(
            written(Colours::On, print),
            format!("\u{1b}[1m{shown}\u{1b}[0m{rest}")
        );
        assert_eq!(written(Colours::Off, print), format!("{shown}{rest}"));
    }

    #[test]
    fn output_joins_characters_written_in_pieces() {
        let text = "ä漢👍\u{9b}x";
        let pieces = written(Colours::Off, |out| {
            text.bytes().try_for_each(|byte| out.write_all(&[byte]))
        });
        assert_eq!(pieces, "ä漢👍\\u{9b}x");
        let broken = written(Colours::Off, |out| out.write_all(b"a\xffb\xe6\xbc|"));
        assert_eq!(broken, "a\u{fffd}b\u{fffd}|");
    }

    #[test]
    fn log_masks_credentials() {
        let event = "the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789\u{7}\n";
        for styles in [Colours::On, Colours::Off] {
            let shown = logged(event, styles);
            assert!(shown.starts_with("the key is "), "{shown}");
            assert!(!shown.contains("abcdefghijkl"), "{shown}");
            assert!(shown.ends_with("\\u{7}\n"), "{shown}");
        }
    }

    #[test]
    fn styled_text_keeps_sgr_sequences_only() {
        let text = "\u{1b}[1;31mred\u{1b}[0m \u{1b}[2J\u{1b}]0;t\u{7}\u{1b}[3\u{1b}";
        let rest = " \\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{1b}[3\\u{1b}";
        assert_eq!(
            with_styles(text, Colours::On),
            format!("\u{1b}[1;31mred\u{1b}[0m{rest}")
        );
        assert_eq!(with_styles(text, Colours::Off), format!("red{rest}"));
    }
}
