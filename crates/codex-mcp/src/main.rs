//! `codex-mcp`: parses the command line, runs the verb, and exits.

use std::process::ExitCode;

fn main() -> ExitCode {
    codex_mcp::cli::run()
}
