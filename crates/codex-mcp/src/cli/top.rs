//! `codex-mcp top`: shows all work in a terminal, where a person can watch it and answer questions.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;

use agent_team::ClaimError;
use common::output::{self, Colours};
use settings::ConfigError;

use super::exit::COULD_NOT;
use super::serve::{self, HostEndpointError};
use super::shutdown::{self, Shutdown};
use super::stored::{complain, partial_configuration};
use super::{log, runtime, work_board};

const MEANING: &str = "\
The list has the work that needs you, runs or has ended: sessions of all MCP clients that a host \
process serves, jobs and runs, but no `codex-mcp run` without --detach. Enter opens an entry: its \
live conversation, commands with their output, and Codex's questions. A number chooses an answer, \
and Enter confirms it. `?` shows all keys. Everything continues when you quit with `q`.

`codex-mcp web` serves the same as a page, and `codex-mcp ps` prints the list.

Exit codes: 0 you have quit; 3 the view cannot be shown, as stderr explains; 130 after SIGINT.";

#[derive(Debug, clap::Args)]
#[command(after_help = MEANING)]
pub(super) struct Args {}

/// Why the view cannot be shown.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("this needs a terminal on stdin and stdout; `codex-mcp ps` lists the work without one")]
    NoTerminal,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Home(#[from] ClaimError),
    #[error(transparent)]
    Host(#[from] HostEndpointError),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("cannot use the terminal: {0}")]
    Terminal(io::Error),
}

pub(super) fn run(_args: &Args) -> ExitCode {
    show().unwrap_or_else(|error| {
        complain("error", &error.to_string());
        ExitCode::from(COULD_NOT)
    })
}

fn show() -> Result<ExitCode, Failure> {
    if !io::stdin().is_terminal() || !output::stdout_is_terminal() {
        return Err(Failure::NoTerminal);
    }
    // On a terminal, the log would be written across the view.
    if !output::stderr_is_terminal() {
        log::start_quietly();
    }
    // What the view starts reads the settings again.
    let config = partial_configuration::<Failure>()?;
    let board = Arc::new(work_board::of(&config, &serve::state()?));
    let has_colours = output::stdout_colours() == Colours::On;
    let showing = async {
        let shutdown = Shutdown::on_signals(shutdown::TOOL_LIMIT);
        let shown = terminal_view::run(board, has_colours, shutdown.closing.cancelled()).await;
        shown.map_err(Failure::Terminal)?;
        Ok(shutdown.exit_code())
    };
    runtime::block_on(showing).map_err(Failure::Runtime)?
}
