//! Removes directories that Codex could write to, however deep they are.
//!
//! A path to a deep directory is too long for the system, and descending into it takes a descriptor
//! or a stack frame for each level. So each subdirectory is first renamed into the root of the tree
//! to be removed, so that only one level is ever needed. No link is followed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, Mode, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use uuid::Uuid;

use crate::platform::{READ_DIRECTORY as READ, give_permissions};

/// How long a removal may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Removes a directory with its contents. The directory need not exist.
///
/// # Errors
///
/// The errors of the file system, and one after 60 s. The rest can be removed later.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    remove_until(path, Instant::now() + TIME_LIMIT)
}

fn remove_until(path: &Path, until: Instant) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = match openat(CWD, above, READ, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        above => above?,
    };
    let root = match readable(&above, name) {
        Err(Errno::NOENT) => return Ok(()),
        root => root?,
    };
    let mut flattened = RemovalRoot {
        root,
        prefix: Uuid::new_v4().simple().to_string(),
        moved: 0,
        until,
    };
    flattened.empty()?;
    Ok(unlinkat(&above, name, AtFlags::REMOVEDIR)?)
}

/// The directory to be removed, into which the directories below it are renamed.
struct RemovalRoot {
    root: OwnedFd,
    /// The prefix of the new names, which nobody can guess.
    prefix: String,
    moved: u64,
    until: Instant,
}

impl RemovalRoot {
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let mut directories = Vec::new();
            for entry in Dir::read_from(&self.root)? {
                self.check_time()?;
                let entry = entry?;
                if is_below(entry.file_name()) && !is_unlinked(&self.root, entry.file_name())? {
                    directories.push(entry.file_name().to_owned());
                }
            }
            if directories.is_empty() {
                return Ok(());
            }
            while let Some(name) = directories.pop() {
                self.move_up(&name, &mut directories)?;
                match unlinkat(&self.root, &name, AtFlags::REMOVEDIR) {
                    // An entry was added meanwhile. The next pass finds it.
                    Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }

    fn check_time(&self) -> io::Result<()> {
        match Instant::now() >= self.until {
            true => {
                let seconds = TIME_LIMIT.as_secs();
                let why = format!("the directory was not emptied within {seconds} s");
                Err(io::Error::other(why))
            }
            false => Ok(()),
        }
    }

    /// Empties a directory of the root. Its subdirectories are moved into the root, and added to
    /// `directories`.
    fn move_up(&mut self, name: &CStr, directories: &mut Vec<CString>) -> io::Result<()> {
        let directory = readable(&self.root, name)?;
        for entry in Dir::read_from(&directory)? {
            self.check_time()?;
            let entry = entry?;
            let below = entry.file_name();
            if !is_below(below) || is_unlinked(&directory, below)? {
                continue;
            }
            let new = CString::new(format!("{}-{}", self.prefix, self.moved))?;
            self.moved += 1;
            let rename = || renameat(&directory, below, &self.root, &new);
            match rename() {
                // A directory must itself be writable to be moved.
                Err(Errno::ACCESS) => {
                    readable(&directory, below)?;
                    rename()?;
                }
                renamed => renamed?,
            }
            directories.push(new);
        }
        Ok(())
    }
}

fn is_below(name: &CStr) -> bool {
    !matches!(name.to_bytes(), b"." | b"..")
}

/// Removes an entry; `false` if it is a directory.
fn is_unlinked(directory: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Linux returns the first code, POSIX specifies the second.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Opens a directory for reading. The user is first given all permissions if they lack them.
fn readable(above: &OwnedFd, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    give_permissions(above, name)?;
    openat(above, name, READ, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    const LEVELS: usize = 3_000;

    fn deep(path: &Path) {
        fs::create_dir(path).unwrap();
        let mut directory = openat(CWD, path, READ, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = openat(&directory, "d", READ, Mode::empty()).unwrap();
        }
    }

    /// The control is a path, which the system does not take.
    #[test]
    fn directories_of_many_levels_are_removed() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("deep");
        deep(&path);
        let innermost = path.join(vec!["d"; LEVELS].join("/"));
        let control = fs::remove_dir(innermost).unwrap_err();
        assert_eq!(control.kind(), io::ErrorKind::InvalidFilename);
        remove_tree(&path).unwrap();
        assert!(!path.exists());
        remove_tree(&path).unwrap();
        remove_tree(&path.join("x/y")).unwrap();
    }

    #[test]
    fn directories_without_permissions_are_removed_and_links_are_not_followed() {
        let all = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (all.path().join("a"), all.path().join("b"));
        fs::create_dir_all(path.join("x/y/z")).unwrap();
        fs::create_dir_all(elsewhere.join("kept")).unwrap();
        symlink(&elsewhere, path.join("x/link")).unwrap();
        for directory in ["x/y/z", "x/y", "x"] {
            let none = fs::Permissions::from_mode(0o000);
            fs::set_permissions(path.join(directory), none).unwrap();
        }
        remove_tree(&path).unwrap();
        assert!(!path.exists());
        assert!(elsewhere.join("kept").exists());
        symlink(&elsewhere, &path).unwrap();
        assert!(remove_tree(&path).is_err());
        assert!(elsewhere.join("kept").exists());
    }

    #[test]
    fn removal_ends_at_its_time_limit_in_the_root_too() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("a");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "").unwrap();
        assert!(remove_until(&path, Instant::now()).is_err());
        assert!(path.join("file").exists());
    }
}
