//! Files of the program's own state. Several processes read and write them at the same time,
//! and each file is whole whenever one of them is killed.
//!
//! A link in place of a file is not followed, as it could lead out of the state directory.
#![expect(
    clippy::disallowed_methods,
    reason = "files of our own state; no link is followed and no pipe waited for"
)]

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;

use crate::untrusted_file::{self, Links, ReadError};

/// How long a lock is waited for. Whoever has one writes some files, which takes
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pauses between two attempts to get a lock.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How many broken files of one name are kept.
const MOST_BROKEN: u32 = 1000;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says so.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Somebody else has it.
    #[error(
        "{} has been locked by another process for {} s; look whether one of codex-mcp is stopped",
        path.display(),
        PATIENCE.as_secs()
    )]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// It is too long.
    #[error("{} is longer than {limit} bytes; move it away", path.display())]
    TooLong {
        /// Which.
        path: PathBuf,
        /// The most that it may have.
        limit: u64,
    },
}

/// Says which file an error is about.
pub fn about(path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io { path, error }
}

/// Whether there is a directory, and no link to one.
pub fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())
}

/// Makes a directory, and those above it, for the user alone.
pub fn make_directory(path: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(about(path))
}

/// Opens a file, if it is there, for reading.
pub fn open(path: &Path) -> Result<Option<File>, FileError> {
    match untrusted_file::open(path, Links::Refused) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(ReadError::Io { error, .. }) => Err(about(path)(error)),
        Err(error) => Err(about(path)(io::Error::other(error))),
    }
}

/// Opens a file that is to be locked, and makes it if it isn't there. Something else
/// than a file is not waited for.
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

/// Opens a file for adding to its end, and makes it if it isn't there.
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

/// Reads an open file, at most so many bytes.
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

/// Replaces a file as a whole: whoever reads it, and whatever happens meanwhile,
/// there is the old one or the new one. One process at a time may do this.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<File, FileError> {
    let new = with_suffix(path, ".new");
    // What a process has left that died while it wrote.
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
        // On a full disk it is in the way; should it stay, the next one removes it.
        let _ = fs::remove_file(&new);
        about(path)(error)
    })?;
    sync_directory(path)?;
    Ok(file)
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(about(path)(error)),
        _ => Ok(()),
    }
}

/// Sees to it that the name of a file is on the disk too.
pub fn sync_directory(file: &Path) -> Result<(), FileError> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(about(directory))
}

/// Gives a broken file another name, so that nothing of it is lost. Returns that.
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

/// Waits for a lock, which ends when the returned file is dropped.
pub fn lock(path: &Path) -> Result<File, FileError> {
    lock_within(path, PATIENCE)
}

/// The same, for so long at the most.
pub fn lock_within(path: &Path, patience: Duration) -> Result<File, FileError> {
    let file = open_to_append(path)?;
    let until = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
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
