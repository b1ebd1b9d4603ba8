//! Programs that are a verb of `codex-mcp` under a name of their own.
//!
//! They become `codex-mcp`, which is looked for beside them: so they are small, and what
//! it starts of itself it finds as always.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use common::output;

const PROGRAM: &str = "codex-mcp";

/// Becomes `codex-mcp VERB` with our own arguments; returns if it can't.
#[must_use]
pub fn as_verb(verb: &str) -> ExitCode {
    let program = beside_us().unwrap_or_else(|| PROGRAM.into());
    let error = become_program(&program, verb);
    // If stderr is gone too, the exit code has to tell.
    let _ = writeln!(
        output::stderr(),
        "error: {} can't be run: {error}. Install {PROGRAM} beside this program, or on PATH.",
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
