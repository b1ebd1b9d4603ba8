//! The file of requests: `.codex-eyes/requests.jsonl` in Codex's working directory.
//!
//! Neither the file nor its directory may be a link, as a link in the repository could lead
//! requests into any other file. Each line is written at once under a lock; reading takes no
//! lock.
#![expect(
    clippy::disallowed_methods,
    reason = "opened below a descriptor, with the same checks as untrusted_file"
)]

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};

use crate::logic::contract::QUEUE;
use crate::logic::queue::{Queue, Request, WrapperId};

/// The length above which the file is emptied, in bytes (1 MiB): by then its requests have long
/// been read.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The most that is read at a time, in bytes. The tool never writes more, as it empties the file,
/// but any command can write more, and a sparse file can have any length.
const MAX_UNREAD: u64 = 2 * MAX_FILE_SIZE;

/// The size of the read buffer, in bytes.
const PART: usize = 64 * 1024;

/// How long to wait for the lock, which is held while one line is written.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between attempts to take the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Makes git ignore the directory, so that requests are not committed.
const IGNORE: &[u8] = b"*\n";

/// Why the file of requests cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The file or its directory was replaced by something else.
    #[error(
        "{} cannot be used: the file, or its directory, is a link or something else than that, or the file has another name too; remove what is there",
        .0.display()
    )]
    NotOurs(PathBuf),
    /// Another process holds the lock.
    #[error("{} has been locked by another process for {} s", .0.display(), LOCK_TIMEOUT.as_secs())]
    Busy(PathBuf),
    /// The system returned an error.
    #[error("cannot access the request log {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// Appends a request, and creates the file if it does not exist.
///
/// # Errors
///
/// [`QueueError`]; nothing was requested then.
pub fn append(directory: &Path, request: &Request) -> Result<(), QueueError> {
    let path = directory.join(QUEUE);
    let about = |error| queue_error(&path, error);
    let file = open_queue(&path, Access::Write).map_err(about)?;
    write(&file, request).map_err(about)
}

fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(LOCK_RETRY_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Err(Errno::EWOULDBLOCK.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn write(mut file: &File, request: &Request) -> io::Result<()> {
    lock(file)?;
    let length = file.metadata()?.len();
    let mut line = request.line();
    if length > MAX_FILE_SIZE {
        file.set_len(0)?;
    } else if let Some(last) = length.checked_sub(1) {
        let mut end = [0];
        file.read_exact_at(&mut end, last)?;
        // A writer was killed in the middle of a line.
        if end != *b"\n" {
            line.insert(0, '\n');
        }
    }
    file.write_all(line.as_bytes())
}

/// Reads new requests of a directory.
#[derive(Debug)]
pub struct QueueReader {
    path: PathBuf,
    queue: Queue,
    file: Option<FileIdentity>,
}

impl QueueReader {
    /// Skips existing requests, and requests for other wrappers. Creates the file if it does not
    /// exist, so that an error shows before Codex asks for a picture.
    ///
    /// # Errors
    ///
    /// [`QueueError`].
    pub fn from_now_on(directory: &Path, wrapper: WrapperId) -> Result<Self, QueueError> {
        let path = directory.join(QUEUE);
        let opened = open_queue(&path, Access::Write).and_then(|file| file.metadata());
        let about = opened.map_err(|error| queue_error(&path, error))?;
        Ok(Self {
            queue: Queue::after(about.len()).for_wrapper(wrapper),
            path,
            file: Some(identity(&about)),
        })
    }

    /// Reads to the end of the file. If more than 2 MiB of it are new, they are skipped.
    ///
    /// # Errors
    ///
    /// [`QueueError`]; earlier requests stay.
    pub fn read(&mut self) -> Result<&Queue, QueueError> {
        match self.read_to_end() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(queue_error(&self.path, error)),
        }
        Ok(&self.queue)
    }

    fn read_to_end(&mut self) -> io::Result<()> {
        let mut file = open_queue(&self.path, Access::Read)?;
        let about = file.metadata()?;
        let this = Some(identity(&about));
        if self.file != this {
            self.file = this;
            self.queue.restart();
        }
        let length = about.len();
        let from = self.queue.next(length);
        let unread = length.saturating_sub(from);
        if unread > MAX_UNREAD {
            self.queue.skip_to(length);
            return Ok(());
        }
        file.seek(SeekFrom::Start(from))?;
        // Lines appended meanwhile are read the next time.
        let mut new = file.take(unread);
        let mut part = vec![0; PART];
        loop {
            let read = new.read(&mut part)?;
            match part.get(..read) {
                None | Some([]) => return Ok(()),
                Some(bytes) => self.queue.take(bytes),
            }
        }
    }
}

/// The identity of a file: device, inode, which may be reused, and creation time, if the
/// system knows it.
type FileIdentity = (u64, u64, Option<SystemTime>);

fn identity(about: &Metadata) -> FileIdentity {
    (about.dev(), about.ino(), about.created().ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Opens the file component by component, without following links.
fn open_queue(path: &Path, access: Access) -> io::Result<File> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    if access == Access::Write {
        make_directory(directory)?;
    }
    let directory = open_directory(directory)?;
    if access == Access::Write {
        ignore(&directory)?;
    }
    let how = match access {
        Access::Read => OFlag::O_RDONLY,
        Access::Write => OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT,
    };
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(
        &directory,
        name,
        how | flags,
        Mode::S_IRUSR | Mode::S_IWUSR,
    )?);
    let about = file.metadata()?;
    match about.is_file() && about.nlink() == 1 {
        true => Ok(file),
        false => Err(Errno::ELOOP.into()),
    }
}

fn open_directory(directory: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(directory, OFlag::O_RDONLY | flags, Mode::empty())
}

fn make_directory(path: &Path) -> Result<(), Errno> {
    match mkdirat(nix::fcntl::AT_FDCWD, path, Mode::S_IRWXU) {
        Err(Errno::EEXIST) => Ok(()),
        made => made,
    }
}

fn ignore(directory: &OwnedFd) -> io::Result<()> {
    let new = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    match openat(directory, ".gitignore", new, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(file) => File::from(file).write_all(IGNORE),
        // The file was written before, or is the user's own.
        Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn queue_error(path: &Path, error: io::Error) -> QueueError {
    let path = path.to_owned();
    match error.raw_os_error().map(Errno::from_raw) {
        // The errors of `O_NOFOLLOW`: for a link (with or without `O_DIRECTORY`), for a pipe
        // without a reader, and for a directory.
        Some(Errno::ELOOP | Errno::ENOTDIR | Errno::ENXIO | Errno::EISDIR) => {
            QueueError::NotOurs(path)
        }
        Some(Errno::EWOULDBLOCK) => QueueError::Busy(path),
        _ => QueueError::Io { path, error },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn request(ts: u64) -> Request {
        Request {
            ts,
            path: "a.png".parse().unwrap(),
            thread: None,
            wrapper: None,
        }
    }

    fn reader(directory: &Path) -> QueueReader {
        QueueReader::from_now_on(directory, "w".parse().unwrap()).unwrap()
    }

    fn last(reader: &mut QueueReader) -> Option<u64> {
        reader.read().unwrap().last().map(|(_, request)| request.ts)
    }

    #[test]
    fn new_requests_are_read_and_old_ones_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let mut early = reader(directory.path());
        assert_eq!(last(&mut early), None);
        append(directory.path(), &request(1)).unwrap();
        let mut late = reader(directory.path());
        assert_eq!((last(&mut early), last(&mut late)), (Some(1), None));
        append(directory.path(), &request(2)).unwrap();
        assert_eq!((last(&mut early), last(&mut late)), (Some(2), Some(2)));
        let mode = |path: &str| {
            let about = fs::metadata(directory.path().join(path)).unwrap();
            about.permissions().mode() & 0o777
        };
        assert_eq!((mode(".codex-eyes"), mode(QUEUE)), (0o700, 0o600));
        let ignored = fs::read(directory.path().join(".codex-eyes/.gitignore")).unwrap();
        assert_eq!(ignored, IGNORE);
    }

    #[test]
    fn line_after_a_partial_line_is_read() {
        let directory = tempfile::tempdir().unwrap();
        append(directory.path(), &request(1)).unwrap();
        let path = directory.path().join(QUEUE);
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"ts\":");
        fs::write(&path, bytes).unwrap();
        let mut reader = QueueReader {
            path,
            queue: Queue::default(),
            file: None,
        };
        append(directory.path(), &request(3)).unwrap();
        assert_eq!(last(&mut reader), Some(3));
    }

    #[test]
    fn full_file_is_emptied_before_the_next_request() {
        let directory = tempfile::tempdir().unwrap();
        append(directory.path(), &request(1)).unwrap();
        let path = directory.path().join(QUEUE);
        fs::write(
            &path,
            vec![b'\n'; usize::try_from(MAX_FILE_SIZE).unwrap() + 1],
        )
        .unwrap();
        let mut reader = reader(directory.path());
        append(directory.path(), &request(2)).unwrap();
        assert_eq!(last(&mut reader), Some(2));
        assert!(fs::metadata(&path).unwrap().len() < 100);
    }

    #[test]
    fn sparse_file_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = reader(directory.path());
        append(directory.path(), &request(1)).unwrap();
        let path = directory.path().join(QUEUE);
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(2 * MAX_UNREAD).unwrap();
        assert_eq!(last(&mut reader), None);
        append(directory.path(), &request(2)).unwrap();
        assert_eq!(last(&mut reader), Some(2));
    }

    #[test]
    fn replaced_file_is_read_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        append(directory.path(), &request(1)).unwrap();
        let mut reader = reader(directory.path());
        assert_eq!(last(&mut reader), None);
        fs::remove_dir_all(directory.path().join(".codex-eyes")).unwrap();
        append(directory.path(), &request(2)).unwrap();
        assert_eq!(last(&mut reader), Some(2));
    }

    #[test]
    fn lock_held_by_another_process_times_out() {
        let directory = tempfile::tempdir().unwrap();
        append(directory.path(), &request(1)).unwrap();
        let file = File::open(directory.path().join(QUEUE)).unwrap();
        file.lock().unwrap();
        let error = append(directory.path(), &request(2)).unwrap_err();
        assert!(matches!(error, QueueError::Busy(_)), "{error}");
    }

    #[test]
    fn concurrent_writers_write_whole_lines() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let directory = directory.path();
                let write = move || {
                    for ts in 0..50 {
                        append(directory, &request(writer * 100 + ts)).unwrap();
                    }
                };
                scope.spawn(write);
            }
        });
        let text = fs::read_to_string(directory.path().join(QUEUE)).unwrap();
        let read: Result<Vec<Request>, _> = text.lines().map(serde_json::from_str).collect();
        assert_eq!(read.unwrap().len(), 200);
    }

    #[test]
    fn links_and_special_files_are_refused() {
        type Replacement = fn(&Path);
        let puts: [Replacement; 5] = [
            |directory| {
                fs::create_dir(directory.join(".codex-eyes")).unwrap();
                fs::write(directory.join("victim"), "").unwrap();
                fs::hard_link(directory.join("victim"), directory.join(QUEUE)).unwrap();
            },
            |directory| {
                fs::create_dir(directory.join("elsewhere")).unwrap();
                symlink("elsewhere", directory.join(".codex-eyes")).unwrap();
            },
            |directory| fs::write(directory.join(".codex-eyes"), "").unwrap(),
            |directory| {
                fs::create_dir(directory.join(".codex-eyes")).unwrap();
                fs::write(directory.join("victim"), "").unwrap();
                symlink("../victim", directory.join(QUEUE)).unwrap();
            },
            |directory| {
                fs::create_dir(directory.join(".codex-eyes")).unwrap();
                nix::unistd::mkfifo(&directory.join(QUEUE), Mode::S_IRWXU).unwrap();
            },
        ];
        for put in puts {
            let directory = tempfile::tempdir().unwrap();
            put(directory.path());
            let error = append(directory.path(), &request(1)).unwrap_err();
            assert!(matches!(error, QueueError::NotOurs(_)), "{error}");
            let error =
                QueueReader::from_now_on(directory.path(), "w".parse().unwrap()).unwrap_err();
            assert!(matches!(error, QueueError::NotOurs(_)), "{error}");
            let victim = fs::read(directory.path().join("victim")).unwrap_or_default();
            assert!(victim.is_empty());
            let elsewhere = fs::read_dir(directory.path().join("elsewhere"));
            assert_eq!(elsewhere.map_or(0, Iterator::count), 0);
        }
    }
}
