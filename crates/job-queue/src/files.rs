//! The files next to a store: locks and logs, accessible only to this user.
#![expect(
    clippy::disallowed_methods,
    reason = "files of our own state; no link is followed and no pipe waited for"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use safe_files::state_directory::make_directory;

/// Opens a file for appending, and creates it and its directory if they do not exist. A link
/// is not followed, and a pipe does not block.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    make_directory_of(path)?;
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
}

fn make_directory_of(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    match directory {
        Some(directory) => make_directory(directory),
        None => Ok(()),
    }
}
