//! The command line: one module for each verb.

mod demo;
mod doctor;
mod guard;
mod log;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The MCP server for the OpenAI Codex CLI.
///
/// Lets any MCP client (Claude Code, Cursor, Claude Desktop, VS Code, Codex
/// itself) hand coding tasks to Codex and get the result back.
#[derive(Debug, Parser)]
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
