//! `codex-mcp` without a verb: shows the state of everything in some lines, and the next useful
//! command. If stdin is not a terminal, a client has started the program, and it serves instead.
//!
//! Nothing is changed: no host or worker is started, and no file is written.

mod gather;
mod state;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use common::output::{self, Output};
use settings::Flags;

use super::runtime;
use super::stored::{self, Failure, complain};
use state::{Line, Tone, in_lines};

/// The narrowest terminal that lines are cut for, in characters.
const NARROWEST: usize = 80;

/// The width of the labels, with the gap behind them.
const LABEL_WIDTH: usize = 9;

/// Whether a person has started the program. To a person, a server would only seem to hang.
pub(super) fn is_wanted() -> bool {
    io::stdin().is_terminal()
}

pub(super) fn run() -> ExitCode {
    stored::exit(show())
}

fn show() -> Result<ExitCode, Failure> {
    let config = stored::load_partial(&Flags::default());
    for warning in config.iter().flat_map(|config| &config.warnings) {
        complain("warning", &warning.to_string());
    }
    let state = runtime::block_on(gather::gather(config)).map_err(Failure::Runtime)?;
    // Some terminals report no size.
    let columns = output::stdout_columns().map(|columns| columns.max(NARROWEST));
    let mut out = output::stdout();
    for line in in_lines(&state) {
        write_line(&line, columns, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn write_line(line: &Line, columns: Option<usize>, out: &mut Output<impl Write>) -> io::Result<()> {
    let style = match line.tone {
        Tone::Plain => Style::new(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Attention => AnsiColor::Yellow.on_default(),
        Tone::Command => Style::new().bold(),
    };
    let width = match line.label {
        "" => 0,
        _ => LABEL_WIDTH,
    };
    write!(out, "{:width$}", line.label)?;
    let room = columns.map(|columns| columns.saturating_sub(width));
    out.styled(style, line.within(room))?;
    writeln!(out)
}
