//! The locks of an inbox, for programs of two kinds.
//!
//! atm up to 0.45 locks the file `AGENT.lock`, and leaves it. Claude Code is said to make a
//! directory `AGENT.json.lock` (as the npm package proper-lockfile does), and atm 1.x locks a file
//! of that very name. A process that holds both locks, taken in this order, has the inbox to
//! itself.

use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use safe_files::state_file;

use super::MailError;
use crate::claim::is_still;

/// The longest wait for a lock. Peers hold one for some milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time between two tries.
const MAX_PAUSE: Duration = Duration::from_millis(10);

/// The age from which a lock directory is stale. Its owner renews it every 5 seconds.
///
/// Source: proper-lockfile, `lib/lockfile.js`, the defaults of `stale` and `update`.
const STALE_AGE: Duration = Duration::from_secs(10);

/// The mode of a lock directory that codex-mcp creates.
const DIRECTORY_MODE: u32 = 0o700 | STICKY;

/// A mode bit without effect on an empty directory. Only the holder of the first lock creates a
/// directory with it: if the holder of the first lock finds one, its creator is dead. Where the
/// system ignores the bit, such a directory is taken over after [`STALE_AGE`].
const STICKY: u32 = 0o1000;

/// A file that is locked, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// An inbox that is locked, until it is dropped.
#[derive(Debug)]
pub(super) struct InboxLock {
    // The second lock is dropped first, as it was taken last.
    _second: SecondLock,
    _first: FileLock,
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is held until it is dropped")]
enum SecondLock {
    Directory(DirectoryLock),
    File(FileLock),
}

/// A lock that is held as long as its directory exists.
#[derive(Debug)]
struct DirectoryLock {
    path: PathBuf,
    ours: DirectoryStamp,
}

/// Distinguishes a directory from a later one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryStamp {
    inode: u64,
    changed: (i64, i64),
}

impl InboxLock {
    /// Locks an inbox, a path that ends with `.json`.
    pub(super) fn take(inbox: &Path) -> Result<Self, MailError> {
        let timer = RetryTimer::new();
        let first = acquire(&inbox.with_extension("lock"), &timer, try_file_lock)?;
        let second = acquire(&inbox.with_extension("json.lock"), &timer, try_second_lock)?;
        Ok(Self {
            _second: second,
            _first: first,
        })
    }
}

impl FileLock {
    /// Locks a file, which is created if it is missing, and stays.
    pub(super) fn take(path: &Path) -> Result<Self, MailError> {
        acquire(path, &RetryTimer::new(), try_file_lock)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Not if another process has taken the lock over.
        if stamp(&self.path).is_ok_and(|stamp| stamp == self.ours) {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Paces the tries for a lock, and ends them after [`LOCK_TIMEOUT`].
struct RetryTimer(Instant);

impl RetryTimer {
    fn new() -> Self {
        Self(Instant::now())
    }

    /// Pauses before the next try; `false` when the time is over. The pauses vary, so that waiting
    /// processes do not all try at once.
    fn pause(&self, tries: u32) -> bool {
        let waited = self.0.elapsed();
        let longest = Duration::from_millis(1_u64 << tries.min(4)).min(MAX_PAUSE);
        let some = waited.subsec_nanos() % 1000;
        thread::sleep(longest.mul_f64(0.5 + f64::from(some) / 2000.0));
        waited < LOCK_TIMEOUT
    }
}

/// Tries to take a lock until the timer ends.
fn acquire<T>(
    path: &Path,
    timer: &RetryTimer,
    take: impl Fn(&Path) -> io::Result<Option<T>>,
) -> Result<T, MailError> {
    for tries in 0.. {
        if let Some(lock) = take(path).map_err(MailError::of(path))? {
            return Ok(lock);
        }
        if !timer.pause(tries) {
            break;
        }
    }
    Err(MailError::Busy {
        lock: path.to_owned(),
        waited: timer.0.elapsed(),
    })
}

/// Locks a file; `None` if another process has locked it.
fn try_file_lock(path: &Path) -> io::Result<Option<FileLock>> {
    let file = state_file::open_to_lock(path)?;
    match file.try_lock() {
        Ok(()) if is_still(&file, path)? => Ok(Some(FileLock { _file: file })),
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the second lock: a directory, or the file of that name if there is one.
fn try_second_lock(path: &Path) -> io::Result<Option<SecondLock>> {
    let made = DirBuilder::new().mode(DIRECTORY_MODE).create(path);
    match made {
        Ok(()) => {
            let path = path.to_owned();
            let ours = stamp(&path)?;
            Ok(Some(SecondLock::Directory(DirectoryLock { path, ours })))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => try_existing(path),
        Err(error) => Err(error),
    }
}

fn try_existing(path: &Path) -> io::Result<Option<SecondLock>> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if about.is_dir() {
        if has_dead_owner(&about) || is_stale(&about) {
            remove_stale(path, DirectoryStamp::of(&about))?;
        }
        return Ok(None);
    }
    // This refuses a link.
    Ok(try_file_lock(path)?.map(SecondLock::File))
}

fn has_dead_owner(about: &Metadata) -> bool {
    about.mode() & STICKY != 0
}

fn is_stale(about: &Metadata) -> bool {
    let changed = about.modified().ok();
    let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_some_and(|age| age > STALE_AGE)
}

/// Removes a stale lock directory. It is renamed first, to check that it is this directory and not
/// one that was just created. As the caller holds the first lock, no other process of ours does the
/// same now.
fn remove_stale(path: &Path, stale: DirectoryStamp) -> io::Result<()> {
    let aside = path.with_extension("lock.stale");
    // A process that died at this point has left the directory behind.
    let _ = fs::remove_dir(&aside);
    match fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved?,
    }
    if stamp(&aside)? == stale {
        return fs::remove_dir(&aside);
    }
    // This fails if the owner has created a new directory, which then counts.
    let _ = fs::rename(&aside, path);
    Ok(())
}

fn stamp(path: &Path) -> io::Result<DirectoryStamp> {
    Ok(DirectoryStamp::of(&fs::symlink_metadata(path)?))
}

impl DirectoryStamp {
    fn of(about: &Metadata) -> Self {
        Self {
            inode: about.ino(),
            changed: (about.mtime(), about.mtime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn inbox() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let inbox = directory.path().join("a.b.json");
        (directory, inbox)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn both_locks_are_held_and_only_the_lock_file_stays() {
        let (directory, inbox) = inbox();
        let lock = InboxLock::take(&inbox).unwrap();
        assert_eq!(names(directory.path()), ["a.b.json.lock", "a.b.lock"]);
        assert!(
            try_file_lock(&directory.path().join("a.b.lock"))
                .unwrap()
                .is_none()
        );
        drop(lock);
        assert_eq!(names(directory.path()), ["a.b.lock"]);
        assert_eq!(
            fs::metadata(directory.path().join("a.b.lock"))
                .unwrap()
                .len(),
            0
        );
        drop(InboxLock::take(&inbox).unwrap());
    }

    #[test]
    fn file_in_place_of_the_lock_directory_is_locked_and_kept() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::write(&second, "1.x").unwrap();
        let lock = InboxLock::take(&inbox).unwrap();
        assert!(try_file_lock(&second).unwrap().is_none());
        drop(lock);
        assert_eq!(fs::read_to_string(&second).unwrap(), "1.x");
        assert!(try_file_lock(&second).unwrap().is_some());
    }

    #[test]
    fn fresh_lock_directory_is_awaited_and_a_stale_one_is_taken_over() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::create_dir(&second).unwrap();
        assert!(try_second_lock(&second).unwrap().is_none());
        assert!(second.exists());
        let old = SystemTime::now() - STALE_AGE - Duration::from_secs(1);
        File::open(&second).unwrap().set_modified(old).unwrap();
        // Left behind by a process that died during the takeover.
        fs::create_dir(directory.path().join("a.b.json.lock.stale")).unwrap();
        drop(InboxLock::take(&inbox).unwrap());
        assert_eq!(names(directory.path()), ["a.b.lock"]);
    }

    #[test]
    fn lock_directory_of_a_dead_codex_mcp_is_taken_over_at_once() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        std::mem::forget(try_second_lock(&second).unwrap().unwrap());
        let begin = Instant::now();
        drop(InboxLock::take(&inbox).unwrap());
        assert!(begin.elapsed() < LOCK_TIMEOUT);
        assert_eq!(names(directory.path()), ["a.b.lock"]);
    }

    #[test]
    fn lock_directory_that_changed_meanwhile_is_restored() {
        let (directory, _) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::create_dir(&second).unwrap();
        let mut other = stamp(&second).unwrap();
        other.changed.0 -= 60;
        remove_stale(&second, other).unwrap();
        assert!(second.exists());
    }

    #[test]
    fn lock_directory_of_a_new_owner_is_not_removed() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        let lock = InboxLock::take(&inbox).unwrap();
        let other = SystemTime::now() - Duration::from_secs(3);
        File::open(&second).unwrap().set_modified(other).unwrap();
        drop(lock);
        assert!(second.exists());
    }

    #[test]
    fn lock_file_that_is_a_link_is_refused() {
        for name in ["a.b.lock", "a.b.json.lock"] {
            let (directory, inbox) = inbox();
            let victim = directory.path().join("victim");
            symlink(&victim, directory.path().join(name)).unwrap();
            assert!(matches!(
                InboxLock::take(&inbox),
                Err(MailError::File { .. })
            ));
            assert!(!victim.exists());
        }
    }
}
