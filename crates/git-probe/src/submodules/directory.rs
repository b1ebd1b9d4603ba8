//! Directories that Codex may have changed, entered one component at a time.
//!
//! No symbolic link is followed. All operations go through the descriptor of the directory, so an
//! entry that was inspected under a name is the entry that is moved. Nothing blocks: only regular
//! files are opened.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, RenameFlags, Stat, fchmod, fstat, openat,
    readlinkat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::shown;
use super::state::{Bytes, Entry, FileStamp};
use crate::platform::{ENTER, READ_DIRECTORY, set_mode};

/// The most entries of a directory that are read.
const NAMES_LIMIT: usize = 1_000_000;

/// How much of a name is kept when an entry is moved aside, in bytes. A name has at most 255 bytes.
const NAME_KEPT: usize = 200;

/// A directory that was entered.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a directory is not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    /// The directory does not exist, so git sees no submodule either.
    #[error("there is no such directory")]
    Gone,
    /// A component of its path is a symbolic link.
    #[error("{} is a symbolic link, which is not followed", shown(.0))]
    Link(PathBuf),
    /// The system refuses.
    #[error(transparent)]
    Refused(io::Error),
}

/// An entry that has been moved aside.
#[derive(Debug, Clone)]
pub(super) struct MovedAside {
    /// Its new path.
    pub(super) path: PathBuf,
    /// Entries that were renamed in it, with their new names.
    pub(super) renamed: Vec<(PathBuf, OsString)>,
    /// Why something in it could not be renamed.
    pub(super) failure: Option<String>,
}

/// The failure to put a file in place of an entry.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(super) struct ReplaceError {
    /// The entry, if it has already been moved aside: then nothing is in its place now.
    pub(super) moved: Option<MovedAside>,
    error: io::Error,
}

impl Directory {
    /// Opens the directory at an absolute path. No component of the path may be a link.
    pub(super) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let path = path.strip_prefix("/").map_err(|_| DirectoryError::Gone)?;
        let fd = openat(CWD, "/", ENTER, Mode::empty());
        let root = Self {
            fd: fd.map_err(|error| DirectoryError::Refused(error.into()))?,
            path: PathBuf::from("/"),
        };
        root.below(path)
    }

    /// Opens a directory below this one, by a relative path.
    pub(super) fn below(&self, path: &Path) -> Result<Self, DirectoryError> {
        let mut directory = Self {
            fd: self.fd.try_clone().map_err(DirectoryError::Refused)?,
            path: self.path.clone(),
        };
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(DirectoryError::Gone);
            };
            directory = directory.enter(name)?;
        }
        Ok(directory)
    }

    /// Opens the subdirectory of this name.
    pub(super) fn enter(&self, name: &OsStr) -> Result<Self, DirectoryError> {
        let path = self.path.join(name);
        match self.stat(name) {
            Ok(Some(stat)) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => return Err(DirectoryError::Link(path)),
                _ => return Err(DirectoryError::Gone),
            },
            Ok(None) => return Err(DirectoryError::Gone),
            Err(error) => return Err(DirectoryError::Refused(error)),
        }
        match openat(&self.fd, name, ENTER, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(error) => Err(DirectoryError::Refused(error.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names in this directory.
    ///
    /// # Errors
    ///
    /// The errors of the system, and one for more than [`NAMES_LIMIT`] names.
    pub(super) fn names(&self) -> io::Result<Vec<OsString>> {
        let open = || openat(&self.fd, ".", READ_DIRECTORY, Mode::empty());
        let fd = self.with_permission(open)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() >= NAMES_LIMIT {
                return Err(io::Error::other(format!(
                    "there are more than {NAMES_LIMIT} entries"
                )));
            }
            names.push(name.to_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Reads the entry of this name. The contents of a file are kept up to `limit` bytes; `None`
    /// keeps none.
    pub(super) fn entry(&self, name: &OsStr, limit: Option<u64>) -> io::Result<Entry> {
        let Some(stat) = self.stat(name)? else {
            return Ok(Entry::Missing);
        };
        let other = |target| Entry::Other {
            stamp: stamp(&stat),
            target,
        };
        let is_kept = |limit: &u64| u64::try_from(stat.st_size).is_ok_and(|size| size <= *limit);
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Entry::Directory,
            FileType::RegularFile => match limit.filter(is_kept) {
                Some(limit) => match self.contents(name, limit) {
                    Ok(Some(bytes)) => Entry::File {
                        bytes: Bytes(bytes),
                        mode: permissions(&stat),
                    },
                    Ok(None) | Err(_) => other(Bytes::default()),
                },
                None => other(Bytes::default()),
            },
            FileType::Symlink => {
                let target = readlinkat(&self.fd, name, Vec::new())?;
                other(Bytes(target.into_bytes()))
            }
            _ => other(Bytes::default()),
        })
    }

    /// Moves an entry to a new name in `aside`, where git does not look for it. A directory is
    /// changed so that git does not take it for a repository there.
    pub(super) fn move_aside(&self, name: &OsStr, aside: &Self) -> io::Result<MovedAside> {
        let new = aside.free_name(name);
        self.rename(name, aside, &new)?;
        Ok(aside.disarmed(&new))
    }

    /// Puts a file in place of an entry, which is moved to a new name in `aside`. The file is on
    /// the disk before anything is renamed. If the file system can exchange two names, one of the
    /// two is in place at every moment.
    pub(super) fn replace(
        &self,
        name: &OsStr,
        aside: &Self,
        bytes: &[u8],
        mode: RawMode,
    ) -> Result<Option<MovedAside>, ReplaceError> {
        let new = aside.free_name(name);
        let written = aside.write_new(&new, bytes, mode);
        written.map_err(|error| ReplaceError { moved: None, error })?;
        match self.exchange(name, aside, &new) {
            Ok(()) => return Ok(Some(aside.disarmed(&new))),
            Err(Errno::NOENT) => {
                let renamed = aside.rename(&new, self, name);
                renamed.map_err(|error| aside.not_replaced(&new, None, error.into()))?;
                return Ok(None);
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(aside.not_replaced(&new, None, error.into())),
        }
        let moved = self.move_aside(name, aside);
        let moved = moved.map_err(|error| aside.not_replaced(&new, None, error))?;
        match aside.rename(&new, self, name) {
            Ok(()) => Ok(Some(moved)),
            Err(error) => Err(aside.not_replaced(&new, Some(moved), error.into())),
        }
    }

    /// Removes the file that was meant to replace the entry.
    fn not_replaced(
        &self,
        new: &OsStr,
        moved: Option<MovedAside>,
        error: io::Error,
    ) -> ReplaceError {
        // The error that is reported is the one before.
        let _ = unlinkat(&self.fd, new, AtFlags::empty());
        ReplaceError { moved, error }
    }

    /// An unused name for an entry. It does not begin with a dot, so that people see it.
    fn free_name(&self, name: &OsStr) -> OsString {
        let name = name.as_bytes();
        let bare = name.strip_prefix(b".").unwrap_or(name);
        let mut new = OsStr::from_bytes(bare.get(..NAME_KEPT).unwrap_or(bare)).to_owned();
        new.push(format!("-moved-aside-{}", Uuid::new_v4().simple()));
        new
    }

    /// Writes a new file, and removes it if writing fails.
    fn write_new(&self, name: &OsStr, bytes: &[u8], mode: RawMode) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let own = Mode::RUSR | Mode::WUSR;
        let fd = self.with_permission(|| openat(&self.fd, name, flags, own))?;
        let written = write_whole(fd, bytes, mode);
        if written.is_err() {
            // The error that is reported is the one before.
            let _ = unlinkat(&self.fd, name, AtFlags::empty());
        }
        written
    }

    fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> Result<(), Errno> {
        let rename = || renameat(&self.fd, name, &to.fd, new);
        self.with_permission(|| to.with_permission(rename))
    }

    fn exchange(&self, name: &OsStr, other: &Self, other_name: &OsStr) -> Result<(), Errno> {
        let flags = RenameFlags::EXCHANGE;
        let exchange = || renameat_with(&self.fd, name, &other.fd, other_name, flags);
        self.with_permission(|| other.with_permission(exchange))
    }

    /// Renames `HEAD` and `.git` in a directory: with either, it may be a repository to a git that
    /// is started in it.
    fn disarmed(&self, name: &OsStr) -> MovedAside {
        let mut aside = MovedAside {
            path: self.path.join(name),
            renamed: Vec::new(),
            failure: None,
        };
        let moved = match self.enter(name) {
            Ok(moved) => moved,
            Err(DirectoryError::Gone | DirectoryError::Link(_)) => return aside,
            Err(DirectoryError::Refused(error)) => {
                aside.failure = Some(error.to_string());
                return aside;
            }
        };
        for name in ["HEAD", ".git"].map(OsStr::new) {
            let away = moved.free_name(name);
            match moved.rename(name, &moved, &away) {
                Ok(()) => aside.renamed.push((moved.path.join(name), away)),
                Err(Errno::NOENT) => {}
                Err(error) => aside.failure = Some(io::Error::from(error).to_string()),
            }
        }
        aside
    }

    fn contents(&self, name: &OsStr, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.fd, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= limit).then_some(bytes))
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs `act`. If the user lacks permission to read or write here, they get it while `act`
    /// runs: Codex may have removed the permission, which git does not need.
    fn with_permission<T>(&self, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match act() {
            Err(Errno::ACCESS) => {
                let before = Mode::from_raw_mode(fstat(&self.fd)?.st_mode);
                set_mode(&self.fd, before | Mode::RWXU)?;
                let done = act();
                // A failure only leaves the user's directory with more permissions than before.
                let _ = set_mode(&self.fd, before);
                done
            }
            done => done,
        }
    }
}

fn write_whole(fd: OwnedFd, bytes: &[u8], mode: RawMode) -> io::Result<()> {
    fchmod(&fd, Mode::from_raw_mode(mode))?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.sync_all()
}

fn permissions(stat: &Stat) -> RawMode {
    stat.st_mode & 0o7777
}

fn stamp(stat: &Stat) -> FileStamp {
    FileStamp {
        inode: stat.st_ino,
        size: stat.st_size,
        mode: stat.st_mode,
        changed: (stat.st_ctime, i128::from(stat.st_ctime_nsec)),
    }
}
