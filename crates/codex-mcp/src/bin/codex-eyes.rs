//! `codex-eyes`: the same as `codex-mcp eyes`.

use std::process::ExitCode;

fn main() -> ExitCode {
    codex_mcp::cli::as_verb("eyes")
}
