//! Directories that the user may not read, which Linux alone can enter.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

#[cfg(not(all(target_os = "linux", not(portable))))]
use elsewhere as system;
#[cfg(all(target_os = "linux", not(portable)))]
use linux as system;

/// Opens a directory so that it can be read.
pub(crate) const READ_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Opens a directory so that its entries can be used and renamed, on Linux even if it cannot be
/// read.
pub(crate) const ENTER: OFlags = system::ENTER;

/// Sets the permissions of a directory that was opened with [`ENTER`].
///
/// # Errors
///
/// Those of fchmod(2).
pub(crate) fn set_mode(directory: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    system::set_mode(directory, mode)
}

/// Gives the user all permissions for a directory, without following a link. If the system cannot
/// do this, the next use of the directory fails.
///
/// # Errors
///
/// Those of openat(2) and fchmodat(2).
pub(crate) fn give_permissions(above: &OwnedFd, name: impl Arg + Copy) -> Result<(), Errno> {
    system::give_permissions(above, name)
}

#[cfg(all(target_os = "linux", not(portable)))]
#[expect(
    clippy::disallowed_methods,
    reason = "the path of a directory is not opened to be read"
)]
mod linux {
    use std::os::fd::AsRawFd;

    use rustix::fs::{chmod, fstat, openat};

    use super::{Arg, Errno, Mode, OFlags, OwnedFd, READ_DIRECTORY};

    pub(super) const ENTER: OFlags = OFlags::PATH
        .union(OFlags::DIRECTORY)
        .union(OFlags::NOFOLLOW)
        .union(OFlags::CLOEXEC);

    pub(super) fn set_mode(directory: &OwnedFd, mode: Mode) -> Result<(), Errno> {
        // The descriptor of a path has no fchmod(2).
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        chmod(path.as_str(), mode)
    }

    pub(super) fn give_permissions(above: &OwnedFd, name: impl Arg + Copy) -> Result<(), Errno> {
        let found = openat(above, name, READ_DIRECTORY | OFlags::PATH, Mode::empty())?;
        let mode = Mode::from_raw_mode(fstat(&found)?.st_mode);
        match mode.contains(Mode::RWXU) {
            true => Ok(()),
            false => set_mode(&found, mode | Mode::RWXU),
        }
    }
}

#[cfg(not(all(target_os = "linux", not(portable))))]
mod elsewhere {
    use rustix::fs::{AtFlags, chmodat, fchmod, statat};

    use super::{Arg, Errno, Mode, OFlags, OwnedFd};

    pub(super) const ENTER: OFlags = super::READ_DIRECTORY;

    pub(super) fn set_mode(directory: &OwnedFd, mode: Mode) -> Result<(), Errno> {
        fchmod(directory, mode)
    }

    pub(super) fn give_permissions(above: &OwnedFd, name: impl Arg + Copy) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        if !mode.contains(Mode::RWXU) {
            // Linux cannot do this without following a link.
            let _ = chmodat(above, name, mode | Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW);
        }
        Ok(())
    }
}
