//! What is done where Linux's means are missing.

use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Whether the system signals the death of our owner.
pub(crate) const OWNER_DEATH_IS_SIGNALLED: bool = false;

/// The pause before it is checked whether a group has ended, and how often: for a second.
const PAUSE: Duration = Duration::from_millis(20);
const CHECKS: usize = 50;

/// Does nothing: the guard looks after its owner itself.
///
/// # Errors
///
/// None.
pub(crate) fn tie_to_owner() -> io::Result<()> {
    Ok(())
}

/// Does nothing: the system does not kill the program with its guard.
///
/// # Errors
///
/// None.
pub(crate) fn tie_to_guard() -> io::Result<()> {
    Ok(())
}

/// `None`: the processes are not listed in files.
pub(crate) fn processes() -> Option<iter::Empty<(i32, Vec<u8>)>> {
    None
}

/// Empty: no file has the variables of a process.
pub(crate) fn environment(_process: Pid) -> Vec<u8> {
    Vec::new()
}

/// Ends what is left of the program's process group: SIGTERM first, SIGKILL a second later. The
/// program itself, the leader of the group, has been reaped just now.
///
/// No other group has this number: a number is not given to a new process as long as it is that
/// of a group (POSIX.1-2017, "Process ID Reuse"), and numbers are handed out in order, so that one
/// that has become free is not used again at once.
pub(crate) fn end_left_group(group: Pid) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        if killpg(group, signal).is_err() || has_ended_soon(group) {
            return;
        }
    }
}

/// Waits up to a second for the last process of a group to end. The processes are not our
/// children, so nothing tells us.
fn has_ended_soon(group: Pid) -> bool {
    (0..CHECKS).any(|_| {
        thread::sleep(PAUSE);
        killpg(group, None).is_err()
    })
}

/// The path at which this executable was started.
///
/// # Errors
///
/// If the system does not tell it.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// None: no path leads through an open directory.
pub(crate) fn short_path_to(_directory: &OwnedFd) -> Option<PathBuf> {
    None
}

/// Always succeeds: how a process is confined is only known on Linux.
///
/// # Errors
///
/// None.
pub(crate) fn check_confinement(_process: i32) -> io::Result<()> {
    Ok(())
}
