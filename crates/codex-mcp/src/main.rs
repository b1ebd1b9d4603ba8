//! `codex-mcp`: parse the command line, do what it says, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    codex_mcp::cli::run()
}
