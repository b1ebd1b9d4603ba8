//! Process control where Linux's means are missing.

use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::stat::{Mode, umask as set_umask};
use nix::unistd::Pid;

/// Whether the system signals the death of our owner.
pub(crate) const OWNER_DEATH_IS_SIGNALLED: bool = false;

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

/// The path at which this executable was started.
///
/// # Errors
///
/// If the system does not tell it.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// The umask of this process in octal digits. It is set to read it, for a moment to one that lets
/// nobody else use a new file.
pub(crate) fn umask() -> String {
    let umask = set_umask(Mode::S_IRWXG | Mode::S_IRWXO);
    set_umask(umask);
    format!("{:04o}", umask.bits())
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
