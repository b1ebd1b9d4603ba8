//! `codex-mcp guard`: for our own use only, see [`supervise::guard`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use common::duration;
use supervise::adoptable::ADOPTION_WAIT;
use supervise::guard;
use supervise::guard::Streams;

/// The name of the verb.
const VERB: &str = "guard";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The program's streams are a terminal, which becomes its own.
    #[arg(long)]
    terminal: bool,
    /// Where the next owner connects, if another process can take the program over.
    #[arg(long, conflicts_with = "terminal")]
    adoption_socket: Option<PathBuf>,
    /// How long the program continues to run after its owner was killed.
    #[arg(long, value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Process id of the owner.
    owner: i32,
    /// The program to run.
    program: OsString,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// The command line of the verb `guard` alone. A guard starts for each program that is run, and
/// should not spend time on building the commands of all verbs.
#[derive(Debug, Parser)]
struct GuardCli {
    #[command(flatten)]
    args: Args,
}

/// Runs a guard if the command line says so.
pub(super) fn run_if_guard(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let name = words.next()?;
    words.next().filter(|verb| verb == VERB)?;
    // The parser of all verbs reports a wrong command line.
    let alone = GuardCli::try_parse_from([name].into_iter().chain(words)).ok()?;
    Some(run(&alone.args))
}

pub(super) fn run(args: &Args) -> ExitCode {
    if let Some(adoption) = &args.adoption_socket {
        let wait = args.wait.unwrap_or(ADOPTION_WAIT);
        return guard::run_adoptable(adoption, wait, &args.program, &args.args);
    }
    let streams = match args.terminal {
        true => Streams::Terminal,
        false => Streams::Pipes,
    };
    guard::run(args.owner, streams, &args.program, &args.args)
}
