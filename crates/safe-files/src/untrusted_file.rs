//! Opening files that the user may not have written: a repository's, a model's, a team
//! mate's.
//!
//! Opening never waits, whatever lies under the name: a named pipe, a device or a socket
//! is refused. Reading stops at a limit. Work on a network file system can still be slow,
//! so callers in asynchronous code read on a thread of their own.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that opens such files"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Whether the last component of a path may be a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// A link is followed, if its target is a regular file.
    Followed,
    /// A link is refused.
    Refused,
}

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refuses.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A directory, pipe, device, socket or (with [`Links::Refused`]) a link.
    #[error("{} is not a regular file; remove it", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// Longer than the limit.
    #[error("{} is longer than {limit} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most that is read, in bytes.
        limit: u64,
    },
    /// Not UTF-8.
    #[error("{} is not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
}

impl ReadError {
    /// Whether there is nothing under the name.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens a regular file for reading. Never waits, even if the path is a pipe or a device.
///
/// # Errors
///
/// [`ReadError::Io`] and [`ReadError::NotRegular`].
pub fn open(path: &Path, links: Links) -> Result<File, ReadError> {
    let failed = |error: io::Error| match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
        // A link where none may be; a socket; a device without a driver.
        Errno::ELOOP | Errno::ENXIO => not_regular(path),
        _ => ReadError::Io {
            path: path.to_owned(),
            error,
        },
    };
    // Opening a device can have side effects, so the kind of file is checked first.
    let about = match links {
        Links::Followed => fs::metadata(path),
        Links::Refused => fs::symlink_metadata(path),
    };
    if !about.map_err(failed)?.is_file() {
        return Err(not_regular(path));
    }
    let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    if links == Links::Refused {
        flags |= OFlag::O_NOFOLLOW;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .map_err(failed)?;
    // Another file may have taken the name in between.
    match file.metadata().map_err(failed)?.is_file() {
        true => Ok(file),
        false => Err(not_regular(path)),
    }
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
///
/// [`ReadError`], but for [`ReadError::NotText`].
pub fn read(path: &Path, limit: u64, links: Links) -> Result<Vec<u8>, ReadError> {
    let file = open(path, links)?;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| ReadError::Io {
            path: path.to_owned(),
            error,
        })?;
    match bytes.len() as u64 > limit {
        true => Err(ReadError::TooLong {
            path: path.to_owned(),
            limit,
        }),
        false => Ok(bytes),
    }
}

/// Reads a whole text of at most `limit` bytes.
///
/// # Errors
///
/// [`ReadError`].
pub fn read_text(path: &Path, limit: u64, links: Links) -> Result<String, ReadError> {
    let bytes = read(path, limit, links)?;
    String::from_utf8(bytes).map_err(|_| ReadError::NotText {
        path: path.to_owned(),
    })
}

fn not_regular(path: &Path) -> ReadError {
    ReadError::NotRegular {
        path: path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    const LIMIT: u64 = 8;

    #[test]
    fn regular_file_is_read_up_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "12345678").unwrap();
        assert_eq!(read_text(&path, LIMIT, Links::Refused).unwrap(), "12345678");
        fs::write(&path, "123456789").unwrap();
        let refused = read(&path, LIMIT, Links::Refused).unwrap_err();
        assert!(matches!(refused, ReadError::TooLong { limit: LIMIT, .. }));
        fs::write(&path, b"\xff").unwrap();
        let refused = read_text(&path, LIMIT, Links::Refused).unwrap_err();
        assert!(matches!(refused, ReadError::NotText { .. }));
        let missing = read(&directory.path().join("none"), LIMIT, Links::Refused);
        assert!(missing.unwrap_err().is_not_found());
    }

    /// A plain open of the pipe would wait for a writer for ever.
    #[test]
    fn special_file_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        symlink(path("pipe"), path("link to pipe")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        let device = PathBuf::from("/dev/null");
        for path in [
            path("pipe"),
            path("link to pipe"),
            path("directory"),
            path("socket"),
            device,
        ] {
            for links in [Links::Followed, Links::Refused] {
                let refused = open(&path, links).unwrap_err();
                assert!(
                    matches!(refused, ReadError::NotRegular { .. }),
                    "{path:?}: {refused}"
                );
            }
        }
    }

    #[test]
    fn link_is_followed_only_where_links_belong() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "x").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_text(&link, LIMIT, Links::Followed).unwrap(), "x");
        let refused = open(&link, Links::Refused).unwrap_err();
        assert!(matches!(refused, ReadError::NotRegular { .. }));
    }
}
