//! The command line: one module for each verb.

mod demo;
mod doctor;
mod guard;
mod log;
mod serve;
mod stdio;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What to do first, for somebody who has just met us.
const FIRST_STEPS: &str = "\
First steps:
  codex-mcp demo     see it work; no account is needed
  codex-mcp doctor   see whether your own Codex can work
  claude mcp add codex -- codex-mcp serve
                     add it to an MCP client, here Claude Code; others want the
                     command `codex-mcp` with the argument `serve`";

/// The MCP server for the OpenAI Codex CLI.
///
/// Lets any MCP client (Claude Code, Cursor, Claude Desktop, VS Code, Codex
/// itself) hand coding tasks to Codex and get the result back.
#[derive(Debug, Parser)]
#[command(after_help = FIRST_STEPS)]
#[command(
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve MCP on stdin and stdout; MCP clients start this themselves.
    ///
    /// Offers the tools `codex`, which begins a thread with Codex and waits for
    /// its final message, and `codex-reply`, which goes on with a thread. What
    /// Codex may do is up to Codex's own configuration, unless a call says
    /// otherwise. The log goes to stderr; CODEX_MCP_LOG=debug tells more.
    Serve(serve::Args),
    /// Watch codex-mcp at work in a few seconds, without an account.
    Demo(demo::Args),
    /// Tell whether Codex can work here, and what to do where it can't.
    ///
    /// Looks at Codex, its login and configuration, its sandbox, git and gh.
    /// Exits with 0 if work can be done, else with 1.
    Doctor(doctor::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

/// Parses the command line and does what it says. Returns the exit code: 0 for
/// success, 1 when something failed, 2 for a wrong command line.
#[must_use]
pub fn run() -> ExitCode {
    match Cli::parse().verb {
        Verb::Serve(args) => serve::run(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Guard(args) => guard::run(&args),
    }
}
