//! `codex-mcp guard`: for our own use only, see [`supervise::guard`].

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use supervise::guard;
use supervise::guard::Streams;

/// Its name.
const VERB: &str = "guard";

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

/// The command line of a guard alone: one is started for each program that is run, and need
/// not build the commands of all verbs first.
#[derive(Debug, Parser)]
struct Alone {
    #[command(flatten)]
    args: Args,
}

/// Runs a guard, if that is what this process is to be.
pub(super) fn run_alone(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = words.next()?;
    words.next().filter(|verb| verb == VERB)?;
    // Of what is wrong, the command line with all verbs tells.
    let alone = Alone::try_parse_from([name].into_iter().chain(words)).ok()?;
    Some(run(&alone.args))
}

pub(super) fn run(args: &Args) -> ExitCode {
    let streams = match args.terminal {
        true => Streams::Terminal,
        false => Streams::Pipes,
    };
    guard::run(args.owner, streams, &args.program, &args.args)
}
