//! Process control where Linux's means are missing.

use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::stat::{Mode, umask as set_umask};
use nix::unistd::Pid;

/// Whether the system signals the death of our owner.
pub(crate) const OWNER_DEATH_IS_SIGNALLED: bool = false;

/// Does nothing: the guard itself checks whether its owner lives.
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

/// `None`: these systems do not list processes in files.
pub(crate) fn processes() -> Option<iter::Empty<(i32, Vec<u8>)>> {
    None
}

/// Empty: these systems have no file with the variables of a process.
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

/// The umask of this process in octal digits. Reading it requires setting it: for a moment it is
/// one that denies everybody else access to new files.
pub(crate) fn umask() -> String {
    let umask = set_umask(Mode::S_IRWXG | Mode::S_IRWXO);
    set_umask(umask);
    format!("{:04o}", umask.bits())
}

/// Always `None`: no path leads through an open directory.
pub(crate) fn short_path_to(_directory: &OwnedFd) -> Option<PathBuf> {
    None
}

/// Always succeeds: the confinement of a process can be determined only on Linux.
///
/// # Errors
///
/// None.
pub(crate) fn check_confinement(_process: i32) -> io::Result<()> {
    Ok(())
}
