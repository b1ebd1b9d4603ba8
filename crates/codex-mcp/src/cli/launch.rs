//! `codex-mcp launch`: for our own use only, see [`supervise::detached`].

use std::ffi::OsString;
use std::process::ExitCode;

use common::output;
use supervise::detached::launch;
use supervise::spawn::{LAUNCHER, own_executable};

/// Runs a launcher if the command line says so. Its arguments are not parsed here.
pub(super) fn run_if_launcher(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    words.next()?;
    words.next().filter(|verb| verb == LAUNCHER)?;
    let args: Vec<OsString> = words.collect();
    let launched = own_executable().and_then(|program| launch(&program, &args));
    Some(match launched {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The process that waits for the launched one reads here why there is none. That
            // process may have gone.
            let _ = output::answer(&error.to_string());
            ExitCode::FAILURE
        }
    })
}
