//! `codex-mcp config`: shows the settings, and the source of each.

use std::io;
use std::process::ExitCode;

use common::output;

use super::settings::Settings;
use super::stored::{complain, load_partial};

/// The sources of settings, highest precedence first.
const SOURCES: &str = "\
Each setting comes from the first of these sources that has it: the command line, a variable, the \
preset of the role, `[plugins.codex-mcp]` in the nearest .atm.toml from here up to the top of the \
repository (which can only make settings stricter unless it is trusted, see `codex-mcp trust`), \
the same in ~/.config/atm/config.toml (below ATM_HOME if that is set), the default. Identity and \
team may also be set in `[core]` of the same files. A dash marks a setting that is not set; \
Codex's own configuration decides it.

A picture in a tool's answer has at most 12500000 bytes, or 150000 before Codex 0.105; larger \
ones are scaled down. `codex-mcp eyes` shows pictures unscaled.";

#[derive(Debug, clap::Args)]
#[command(after_help = SOURCES)]
pub(super) struct Args {
    /// Print one JSON object instead of a table: {KEY: {"value", "source"}}.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let config = match load_partial(&args.settings.flags()) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string()),
    };
    for warning in &config.warnings {
        complain("warning", &warning.to_string());
    }
    let printed = match args.json {
        true => output::json(&settings::as_json(&config)),
        false => settings::as_text(&config, output::stdout_columns(), &mut output::stdout()),
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the settings: {error}")),
    }
}

fn fail(why: &str) -> ExitCode {
    complain("error", why);
    ExitCode::FAILURE
}
