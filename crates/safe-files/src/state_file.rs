//! Files of the program's own state. Several processes read and write them at the same time,
//! and each file stays complete if one of the processes is killed.
//!
//! A link in place of a file is not followed, as it could lead out of the state directory.
#![expect(
    clippy::disallowed_methods,
    reason = "files of our own state; no link is followed and no pipe waited for"
)]

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use crate::untrusted_file::{self, Links, ReadError};

/// How long a process waits for a lock. Its holder writes some files, which takes
/// milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses between two attempts to get a lock.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How many broken files of one name are kept.
const MOST_BROKEN: u32 = 1000;

/// An error of reading, writing or locking a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system reports an error.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process holds the lock.
    #[error(
        "{} has been locked by another process for {} s; look whether one of codex-mcp is stopped",
        path.display(),
        LOCK_TIMEOUT.as_secs()
    )]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// The file is longer than the limit.
    #[error("{} is longer than {limit} bytes; move it away", path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
}

/// Adds the path to an error.
pub fn about(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { path, error }
}

/// Whether the path is a directory, and not a link to one.
pub fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// Creates a directory and its parents, accessible to this user only.
pub fn make_directory(path: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(about(path))
}

/// Opens a file for reading; `None` if it does not exist.
pub fn open(path: &Path) -> Result<Option<File>, FileError> {
    match untrusted_file::open(path, Links::Refused) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(ReadError::Io { error, .. }) => Err(about(path)(error)),
        Err(error) => Err(about(path)(io::Error::other(error))),
    }
}

/// Opens a file that is to be locked, and creates it if it does not exist. Never waits, even if
/// the path is a pipe or a device.
pub fn open_to_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
}

/// Opens a file for appending, and creates it if it does not exist.
pub fn open_to_append(path: &Path) -> Result<File, FileError> {
    let opened = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path);
    opened.map_err(about(path))
}

/// Appends a whole line to a file that was opened for reading and appending, or nothing: half a line
/// would spoil the next one too. Half a line that is there, as after a power failure, is ended first.
///
/// Half of this line stays only if somebody else appends at the same moment, which callers prevent by
/// a lock, or which the next line ends.
///
/// # Errors
///
/// The error of the operating system; [`StorageFull`](io::ErrorKind::StorageFull) if only a part
/// could be written.
pub fn append_line(file: &File, line: &[u8]) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    let begun;
    let line = match last == [b'\n'] {
        true => line,
        false => {
            begun = [b"\n", line].concat();
            &begun
        }
    };
    let mut file = file;
    let written = file.write(line)?;
    if written == line.len() {
        return Ok(());
    }
    // What another process has added meanwhile stays.
    if file.metadata()?.len() == length + written as u64 {
        file.set_len(length)?;
    }
    Err(io::ErrorKind::StorageFull.into())
}

/// Reads an open file of at most `limit` bytes.
pub fn read(file: &File, path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
    match read.map_err(about(path))? as u64 > limit {
        true => Err(FileError::TooLong {
            path: path.to_owned(),
            limit,
        }),
        false => Ok(bytes),
    }
}

/// Replaces a file atomically: a reader sees either the old content or the new one, also after
/// a crash. Only one process at a time may call this.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<File, FileError> {
    let new = with_suffix(path, ".new");
    // A process that died while it wrote may have left one.
    remove(&new)?;
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new);
    let mut file = made.map_err(about(&new))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| fs::rename(&new, path));
    renamed.map_err(|error| {
        // On a full disk it takes up room; if it stays, the next call removes it.
        let _ = fs::remove_file(&new);
        about(path)(error)
    })?;
    sync_directory(path)?;
    Ok(file)
}

/// Removes a file, if it exists.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(path)(error)),
        _ => Ok(()),
    }
}

/// Syncs the directory of a file, so that its name is on the disk too.
pub fn sync_directory(file: &Path) -> Result<(), FileError> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(about(directory))
}

/// Renames a broken file, so that its content is kept. Returns the new path.
pub fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    let names = (1..=MOST_BROKEN).map(|number| with_suffix(path, &format!(".broken-{number}")));
    let free = |name: &PathBuf| fs::symlink_metadata(name).is_err();
    let aside = names.into_iter().find(free).ok_or_else(|| {
        let error = io::Error::other("there are too many broken ones of it; move them away");
        about(path)(error)
    })?;
    fs::rename(path, &aside).map_err(about(path))?;
    sync_directory(path)?;
    Ok(aside)
}

/// Waits for a lock, which is released when the returned file is dropped.
pub fn lock(path: &Path) -> Result<File, FileError> {
    lock_within(path, LOCK_TIMEOUT)
}

/// Like [`lock`], but waits at most for `timeout`.
pub fn lock_within(path: &Path, timeout: Duration) -> Result<File, FileError> {
    let file = open_to_append(path)?;
    wait_for_lock(&file, path, timeout)?;
    Ok(file)
}

/// Like [`lock`], for a file or directory that is open already. Not every file system can lock
/// directories.
pub fn lock_open(file: &File, path: &Path) -> Result<(), FileError> {
    wait_for_lock(file, path, LOCK_TIMEOUT)
}

fn wait_for_lock(file: &File, path: &Path, timeout: Duration) -> Result<(), FileError> {
    let until = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(pause),
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(FileError::Busy { path });
            }
            Err(TryLockError::Error(error)) => return Err(about(path)(error)),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The path with a suffix after its name, such as `.new`.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use testkit::SmallDisk;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn line_is_appended_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let disk = SmallDisk::on(directory.path(), 64);
        let path = disk.path().join("lines");
        let file = open_to_append(&path).unwrap();
        append_line(&file, b"first\n").unwrap();
        let ballast = disk.fill();
        // The rest of the first page is all the room that there is.
        let long = [&[b'x'; 10_000], b"\n".as_slice()].concat();
        let error = append_line(&file, &long).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"first\n");
        drop(ballast);
        append_line(&file, b"second\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first\nsecond\n");
    }

    #[test]
    fn partial_line_is_terminated_before_an_append() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        fs::write(&path, "{\"half").unwrap();
        let file = open_to_append(&path).unwrap();
        append_line(&file, b"whole\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{\"half\nwhole\n");
    }
}
