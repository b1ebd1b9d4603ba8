//! Process control that only Linux has.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

pub(crate) use crate::confinement::check as check_confinement;

/// Whether the system signals the death of a guard's owner.
pub(crate) const OWNER_DEATH_IS_SIGNALLED: bool = true;

/// Prepares this process as a guard: it becomes the parent of all processes below it that lose
/// theirs, and the system sends it SIGTERM when its own parent ends.
///
/// # Errors
///
/// Those of prctl(2).
pub(crate) fn tie_to_owner() -> io::Result<()> {
    set_child_subreaper(true)?;
    set_pdeathsig(Signal::SIGTERM)?;
    Ok(())
}

/// Makes the system kill this process when its guard ends. A single system call, as it runs between
/// fork and exec.
///
/// # Errors
///
/// Those of prctl(2).
pub(crate) fn tie_to_guard() -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

/// The number of each process that this user may see, and its line in `/proc/PID/stat`. `None` if
/// `/proc` is missing.
pub(crate) fn processes() -> Option<impl Iterator<Item = (i32, Vec<u8>)>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let processes = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, read(format!("/proc/{pid}/stat"))?))
    });
    Some(processes)
}

/// The children of the main thread of this process, and the processes that it has adopted. Empty if
/// the kernel does not list them (`CONFIG_PROC_CHILDREN`).
///
/// Source: `/proc/PID/task/TID/children` in proc(5).
pub(crate) fn children() -> Vec<Pid> {
    let this = Pid::this();
    let listed = read(format!("/proc/self/task/{this}/children")).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed);
    let pids = listed.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(Pid::from_raw).collect()
}

/// The variables with which a process was started, each followed by a zero. Empty if they cannot
/// be read.
pub(crate) fn environment(process: Pid) -> Vec<u8> {
    read(format!("/proc/{process}/environ")).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "the system's own files in /proc")]
fn read(path: String) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

/// This executable, even if an upgrade has replaced its file.
///
/// # Errors
///
/// None.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

/// The umask of this process in octal digits. Empty before Linux 4.7, which does not report it.
pub(crate) fn umask() -> String {
    let status = read("/proc/self/status".to_owned()).unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.unwrap_or_default().trim().to_owned()
}

/// A short path to a directory, valid in this process as long as the directory is open.
pub(crate) fn short_path_to(directory: &OwnedFd) -> Option<PathBuf> {
    let descriptor = directory.as_raw_fd().to_string();
    Some(Path::new("/proc/self/fd").join(descriptor))
}
