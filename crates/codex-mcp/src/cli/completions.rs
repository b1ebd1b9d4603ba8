//! `codex-mcp completions`: a script for a shell.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;
use common::output;

use super::stored::{self, Failure};

/// Where each shell looks for the script.
const PLACES: &str = "\
Where to put it:
  bash  ~/.local/share/bash-completion/completions/codex-mcp
  zsh   _codex-mcp in a directory of $fpath
  fish  ~/.config/fish/completions/codex-mcp.fish

Example:
  codex-mcp completions zsh > ~/.zfunc/_codex-mcp";

#[derive(Debug, clap::Args)]
#[command(after_help = PLACES)]
pub(super) struct Args {
    /// The shell to complete for.
    shell: Shell,
}

pub(super) fn run(args: &Args) -> ExitCode {
    stored::exit(print(args.shell))
}

fn print(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut super::shown(), "codex-mcp", &mut script);
    if shell == Shell::Bash {
        script = with_one_name(&script);
    }
    output::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// clap_complete (4.6.11) writes the dash of a program's name in two ways in bash's
/// script, so that nothing after a verb would be completed.
fn with_one_name(script: &[u8]) -> Vec<u8> {
    let script = String::from_utf8_lossy(script);
    script
        .replace("codex__subcmd__mcp", "codex__mcp")
        .into_bytes()
}
