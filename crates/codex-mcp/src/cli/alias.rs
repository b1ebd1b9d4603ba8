//! Alias programs: each runs one verb of `codex-mcp`.
//!
//! An alias replaces its process with the `codex-mcp` that is next to it. So the alias is small,
//! and `codex-mcp` finds its own executable as usual.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use common::output;

const PROGRAM: &str = "codex-mcp";

/// Replaces this process with `codex-mcp VERB` and the same arguments. Returns only on failure.
#[must_use]
pub fn as_verb(verb: &str) -> ExitCode {
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = become_program(&program, verb);
    // If stderr is closed too, the exit code reports the failure.
    let _ = writeln!(
        output::stderr(),
        "error: {} cannot be run: {error}. Install {PROGRAM} next to this program, or on PATH.",
        program.display()
    );
    ExitCode::FAILURE
}

fn beside_us() -> Option<PathBuf> {
    let program = env::current_exe().ok()?.with_file_name(PROGRAM);
    program.is_file().then_some(program)
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing is started: this process becomes the program"
)]
fn become_program(program: &PathBuf, verb: &str) -> io::Error {
    let args: Vec<OsString> = env::args_os().skip(1).collect();
    Command::new(program)
        .arg(OsStr::new(verb))
        .args(args)
        .exec()
}
