//! `codex-eyes-mcp`: the same as `codex-mcp eyes-mcp`.

use std::process::ExitCode;

fn main() -> ExitCode {
    codex_mcp::cli::as_verb("eyes-mcp")
}
