//! `codex-mcp guard`: for our own use only, see [`crate::engine::guard`].

use std::ffi::OsString;
use std::process::ExitCode;

use crate::engine::guard;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Process id of the owner.
    owner: i32,
    /// What to run.
    program: OsString,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> ExitCode {
    guard::run(args.owner, &args.program, &args.args)
}
