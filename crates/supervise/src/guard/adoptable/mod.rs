//! The guard of a program that another process can take over.

mod adoption;
mod program_port;
mod stderr_copy;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::prctl::{set_child_subreaper, set_dumpable};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Guard, Owner, Streams, block_signals, command, start};
use crate::exit::Exit;
use crate::private_socket;

/// How many files the program may have open, as far as the system allows it.
const OPEN_FILES: u64 = 65_536;

/// Runs a program under guard, see [`run_adoptable`](super::run_adoptable).
///
/// # Errors
///
/// Those of the system.
pub(super) fn watch(
    socket: &Path,
    wait: Duration,
    program: &OsString,
    args: &[OsString],
) -> io::Result<Exit> {
    // Called before the first thread is spawned, as threads inherit the mask.
    let signals = block_signals()?;
    set_child_subreaper(true)?;
    // Commands in Codex's sandbox run as the same user. If they can see our memory in /proc, they
    // could read the values that the owner has stored here.
    set_dumpable(false)?;
    let adoption = adoption::Adoption::listen(socket, wait)?;
    let mut command = command(program, args);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    raise_file_limit()?;
    let exit = start(Streams::Pipes, &mut command).and_then(|mut child| {
        let missing = || io::Error::other("the program has no stderr");
        let (copy, port) = stderr_copy::start(child.stderr.take().ok_or_else(missing)?)?;
        let owner = Owner::OnStream {
            adoption: socket.to_owned(),
        };
        let mut guard = Guard::new(owner, Streams::Pipes, &child)?;
        let owners = adoption.start(guard.codex, port)?;
        let exit = guard.until_ended(&signals)?;
        copy.finish();
        owners.report(exit);
        Ok(exit)
    });
    // If this fails, the next owner removes it.
    let _ = private_socket::remove(socket);
    exit
}

/// Raises the limit of open files, which the program inherits, since other processes can connect to
/// the program.
fn raise_file_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = limit
        .maximum
        .map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    let current = limit.current.map_or(most, |current| current.max(most));
    let raised = Rlimit {
        current: Some(current),
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
