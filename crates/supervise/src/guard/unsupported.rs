//! The guard of a program that another process can take over: there is none on this system.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::exit::Exit;

/// Runs nothing.
///
/// # Errors
///
/// Always [`io::ErrorKind::Unsupported`].
pub(super) fn watch(
    _socket: &Path,
    _wait: Duration,
    _program: &OsString,
    _args: &[OsString],
) -> io::Result<Exit> {
    Err(io::ErrorKind::Unsupported.into())
}
