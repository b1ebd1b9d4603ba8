//! Launches processes that outlive this one and its client: hosts and workers.
//!
//! ```text
//!   we ── launcher (a session of its own) ── the process
//!               └── ends at once, so that the process is nobody's child
//! ```
//!
//! Clients that end a server with all of its descendants then do not find the process, and the
//! process holds no descriptors that the client has left open by mistake.
#![expect(
    clippy::disallowed_methods,
    reason = "the launcher is the small program between spawn and the process"
)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{close, setsid};

/// The open file descriptors of this process.
const DESCRIPTORS: &str = "/dev/fd";

/// The last of the standard streams.
const STDERR: RawFd = 2;

/// Starts a program that inherits only our stdout and stderr. The launcher must call this before
/// anything else, as it closes all other descriptors.
///
/// # Errors
///
/// If the program cannot be started.
pub fn launch(program: &Path, args: &[OsString]) -> io::Result<()> {
    close_inherited()?;
    // Fails only for the leader of a process group, which is already separate from our client.
    let _ = setsid();
    let mut command = Command::new(program);
    let command = command.arg0("codex-mcp").args(args);
    command.stdin(Stdio::null()).spawn().map(drop)
}

fn close_inherited() -> io::Result<()> {
    let mut open: Vec<RawFd> = Vec::new();
    for entry in fs::read_dir(DESCRIPTORS)? {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for descriptor in open.into_iter().filter(|number| *number > STDERR) {
        // Fails for the descriptor of the listed directory, which is closed already.
        let _ = close(descriptor);
    }
    Ok(())
}
