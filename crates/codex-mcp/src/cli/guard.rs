//! `codex-mcp guard`: for our own use only, see [`supervise::guard`].

use std::ffi::OsString;
use std::process::ExitCode;

use supervise::guard;
use supervise::guard::Streams;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What the program talks to is a terminal, which is to be its own.
    #[arg(long)]
    terminal: bool,
    /// Process id of the owner.
    owner: i32,
    /// What to run.
    program: OsString,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let streams = match args.terminal {
        true => Streams::Terminal,
        false => Streams::Pipes,
    };
    guard::run(args.owner, streams, &args.program, &args.args)
}
