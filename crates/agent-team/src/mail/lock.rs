//! The locks of an inbox, for programs of two kinds.
//!
//! atm up to 0.45 locks the file `AGENT.lock`, and leaves it. Claude Code is said to
//! make a directory `AGENT.json.lock` (as the npm package proper-lockfile does), and
//! atm 1.x locks a file of that very name. Whoever holds both locks, taken in this
//! order, is alone with the inbox.

use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use std::{io, thread};

use safe_files::state_file;

use super::MailError;
use crate::claim::is_still;

/// How long a lock is waited for. Peers hold one for some milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest time between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How old a directory is that nobody holds any more. Its holder renews it every 5
/// seconds.
///
/// Source: proper-lockfile, `lib/lockfile.js`, the defaults of `stale` and `update`.
const STALE: Duration = Duration::from_secs(10);

/// The mode of a directory that one of us makes.
const MODE: u32 = 0o700 | STICKY;

/// A bit that says nothing of an empty directory. Only who holds the first lock makes a
/// directory with it, so that who holds the first lock and finds one knows that its
/// maker is dead. Where a system ignores the bit, the directory has to become [`STALE`].
const STICKY: u32 = 0o1000;

/// A file that is locked, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// An inbox that is locked, until it is dropped.
#[derive(Debug)]
pub(super) struct InboxLock {
    // The directory goes first: it was taken last.
    _second: Second,
    _first: FileLock,
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is held until it is dropped")]
enum Second {
    Directory(DirectoryLock),
    File(FileLock),
}

/// A directory whose being there is the lock.
#[derive(Debug)]
struct DirectoryLock {
    path: PathBuf,
    ours: Stamp,
}

/// What tells a directory from another of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

impl InboxLock {
    /// Locks an inbox, a path that ends with `.json`.
    pub(super) fn take(inbox: &Path) -> Result<Self, MailError> {
        let patience = Patience::new();
        let first = wait(&inbox.with_extension("lock"), &patience, try_file)?;
        let second = wait(&inbox.with_extension("json.lock"), &patience, try_second)?;
        Ok(Self {
            _second: second,
            _first: first,
        })
    }
}

impl FileLock {
    /// Locks a file, which is made if it isn't there and stays.
    pub(super) fn take(path: &Path) -> Result<Self, MailError> {
        wait(path, &Patience::new(), try_file)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Unless somebody took us for dead.
        if stamp(&self.path).is_ok_and(|stamp| stamp == self.ours) {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Since when something is waited for.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Self(Instant::now())
    }

    /// Pauses before the next try; false if there is to be none. Pauses differ, so
    /// that those who wait don't all come at once again and again.
    fn pause(&self, tries: u32) -> bool {
        let waited = self.0.elapsed();
        let longest = Duration::from_millis(1_u64 << tries.min(4)).min(LONGEST_PAUSE);
        let some = waited.subsec_nanos() % 1000;
        thread::sleep(longest.mul_f64(0.5 + f64::from(some) / 2000.0));
        waited < PATIENCE
    }
}

/// Tries until it has a lock.
fn wait<T>(
    path: &Path,
    patience: &Patience,
    take: impl Fn(&Path) -> io::Result<Option<T>>,
) -> Result<T, MailError> {
    for tries in 0.. {
        if let Some(lock) = take(path).map_err(MailError::of(path))? {
            return Ok(lock);
        }
        if !patience.pause(tries) {
            break;
        }
    }
    Err(MailError::Busy {
        lock: path.to_owned(),
        waited: patience.0.elapsed(),
    })
}

/// Locks a file; `None` if somebody else has it.
fn try_file(path: &Path) -> io::Result<Option<FileLock>> {
    let file = state_file::open_to_lock(path)?;
    match file.try_lock() {
        Ok(()) if is_still(&file, path)? => Ok(Some(FileLock { _file: file })),
        Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes the lock that is a directory, or a file if one stands there.
fn try_second(path: &Path) -> io::Result<Option<Second>> {
    let made = DirBuilder::new().mode(MODE).create(path);
    match made {
        Ok(()) => {
            let path = path.to_owned();
            let ours = stamp(&path)?;
            Ok(Some(Second::Directory(DirectoryLock { path, ours })))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => occupied(path),
        Err(error) => Err(error),
    }
}

fn occupied(path: &Path) -> io::Result<Option<Second>> {
    let about = match fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if about.is_dir() {
        if is_of_the_dead(&about) || is_stale(&about) {
            remove_stale(path, Stamp::of(&about))?;
        }
        return Ok(None);
    }
    // A link is refused by this.
    Ok(try_file(path)?.map(Second::File))
}

fn is_of_the_dead(about: &Metadata) -> bool {
    about.mode() & STICKY != 0
}

fn is_stale(about: &Metadata) -> bool {
    let changed = about.modified().ok();
    let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_some_and(|age| age > STALE)
}

/// Removes a directory that nobody holds any more. Under another name first: there it
/// can be seen whether it is that directory, and not one that somebody has just made.
/// Nobody else of those who hold the first lock does the same now.
fn remove_stale(path: &Path, stale: Stamp) -> io::Result<()> {
    let aside = path.with_extension("lock.stale");
    // What another one has left there who died at this.
    let _ = fs::remove_dir(&aside);
    match fs::rename(path, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        moved => moved?,
    }
    if stamp(&aside)? == stale {
        return fs::remove_dir(&aside);
    }
    // Where its holder has one again, this fails, and that one counts.
    let _ = fs::rename(&aside, path);
    Ok(())
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    Ok(Stamp::of(&fs::symlink_metadata(path)?))
}

impl Stamp {
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
    fn both_locks_are_held_and_only_the_empty_file_stays() {
        let (directory, inbox) = inbox();
        let lock = InboxLock::take(&inbox).unwrap();
        assert_eq!(names(directory.path()), ["a.b.json.lock", "a.b.lock"]);
        assert!(
            try_file(&directory.path().join("a.b.lock"))
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
    fn a_file_in_the_place_of_the_directory_is_locked_and_left() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::write(&second, "1.x").unwrap();
        let lock = InboxLock::take(&inbox).unwrap();
        assert!(try_file(&second).unwrap().is_none());
        drop(lock);
        assert_eq!(fs::read_to_string(&second).unwrap(), "1.x");
        assert!(try_file(&second).unwrap().is_some());
    }

    #[test]
    fn a_fresh_directory_is_waited_for_and_an_old_one_taken_over() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::create_dir(&second).unwrap();
        assert!(try_second(&second).unwrap().is_none());
        assert!(second.exists());
        let old = SystemTime::now() - STALE - Duration::from_secs(1);
        File::open(&second).unwrap().set_modified(old).unwrap();
        // What one who died at this has left.
        fs::create_dir(directory.path().join("a.b.json.lock.stale")).unwrap();
        drop(InboxLock::take(&inbox).unwrap());
        assert_eq!(names(directory.path()), ["a.b.lock"]);
    }

    #[test]
    fn a_directory_of_one_of_us_who_died_is_taken_over_at_once() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        std::mem::forget(try_second(&second).unwrap().unwrap());
        let begin = Instant::now();
        drop(InboxLock::take(&inbox).unwrap());
        assert!(begin.elapsed() < PATIENCE);
        assert_eq!(names(directory.path()), ["a.b.lock"]);
    }

    #[test]
    fn a_directory_that_is_not_the_stale_one_is_put_back() {
        let (directory, _) = inbox();
        let second = directory.path().join("a.b.json.lock");
        fs::create_dir(&second).unwrap();
        let mut other = stamp(&second).unwrap();
        other.changed.0 -= 60;
        remove_stale(&second, other).unwrap();
        assert!(second.exists());
    }

    #[test]
    fn a_lock_that_was_taken_from_us_is_not_removed() {
        let (directory, inbox) = inbox();
        let second = directory.path().join("a.b.json.lock");
        let lock = InboxLock::take(&inbox).unwrap();
        let other = SystemTime::now() - Duration::from_secs(3);
        File::open(&second).unwrap().set_modified(other).unwrap();
        drop(lock);
        assert!(second.exists());
    }

    #[test]
    fn no_link_is_followed() {
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
