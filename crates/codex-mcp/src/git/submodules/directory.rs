//! Directories that Codex may have changed, entered one component at a time.
//!
//! No symbolic link is followed. What was seen under a name is what is moved or written
//! beside, as all of it goes through the descriptor of the directory. Nothing is waited
//! for: only regular files are opened.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, chmod, fchmod, fstat, openat, readlinkat,
    renameat, statat,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::state::{Entry, Stamp};

/// The longest file whose contents are kept, in bytes.
const FILE_LIMIT: u64 = 1024 * 1024;

/// The most files that are looked at below one directory of hooks.
const STAMPS_LIMIT: usize = 10_000;

/// How deep they lie.
const DEPTH_LIMIT: usize = 8;

/// A directory can be entered and renamed in without being readable.
#[cfg(target_os = "linux")]
const ENTER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const ENTER: OFlags = READ_DIRECTORY;

const READ_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory that was entered.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a directory is not entered.
#[derive(Debug)]
pub(super) enum NoEntry {
    /// There is none: no submodule to git either.
    Gone,
    /// A component of its path is a symbolic link.
    Link(PathBuf),
    /// The system refuses.
    Refused(io::Error),
}

impl Directory {
    /// The directory of this path, which itself is not in doubt.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            fd: openat(CWD, path, ENTER, Mode::empty())?,
            path: path.to_owned(),
        })
    }

    /// The directory below this one by a relative path.
    pub(super) fn below(&self, path: &Path) -> Result<Self, NoEntry> {
        let mut directory = Self {
            fd: self.fd.try_clone().map_err(NoEntry::Refused)?,
            path: self.path.clone(),
        };
        for component in path.components() {
            let Component::Normal(name) = component else {
                return Err(NoEntry::Gone);
            };
            directory = directory.enter(name)?;
        }
        Ok(directory)
    }

    fn enter(&self, name: &OsStr) -> Result<Self, NoEntry> {
        let path = self.path.join(name);
        match self.stat(name) {
            Ok(Some(stat)) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {}
                FileType::Symlink => return Err(NoEntry::Link(path)),
                _ => return Err(NoEntry::Gone),
            },
            Ok(None) => return Err(NoEntry::Gone),
            Err(error) => return Err(NoEntry::Refused(error)),
        }
        match openat(&self.fd, name, ENTER, Mode::empty()) {
            Ok(fd) => Ok(Self { fd, path }),
            Err(error) => Err(NoEntry::Refused(error.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What lies under a name of this directory.
    pub(super) fn entry(&self, name: &str) -> io::Result<Entry> {
        let Some(stat) = self.stat(OsStr::new(name))? else {
            return Ok(Entry::Missing);
        };
        let other = |target| Entry::Other {
            stamp: stamp(&stat),
            target,
        };
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Entry::Directory,
            FileType::RegularFile => match self.contents(name) {
                Ok(Some(bytes)) => Entry::File {
                    bytes,
                    mode: stat.st_mode & 0o7777,
                },
                Ok(None) | Err(_) => other(OsString::new()),
            },
            FileType::Symlink => {
                let target = readlinkat(&self.fd, name, Vec::new())?;
                other(OsStr::from_bytes(target.as_bytes()).to_owned())
            }
            _ => other(OsString::new()),
        })
    }

    /// The same, by all that lies below it if it is a directory.
    pub(super) fn tree(&self, name: &str) -> io::Result<Entry> {
        let entry = self.entry(name)?;
        if entry != Entry::Directory {
            return Ok(entry);
        }
        let mut stamps = BTreeMap::new();
        let fd = openat(&self.fd, name, READ_DIRECTORY, Mode::empty());
        let whole = match fd {
            Ok(fd) => add_stamps(&fd, Path::new(""), DEPTH_LIMIT, &mut stamps),
            Err(error) => Err(error.into()),
        };
        Ok(Entry::Tree(whole.ok().map(|()| stamps)))
    }

    /// Gives an entry a name that git looks for nowhere, and returns the new path. A
    /// directory is no repository to git there.
    pub(super) fn move_aside(&self, name: &str) -> io::Result<PathBuf> {
        let tag = Uuid::new_v4().simple();
        let new = format!("{}-moved-aside-{tag}", name.trim_start_matches('.'));
        self.make_writable(|| renameat(&self.fd, name, &self.fd, new.as_str()))?;
        let path = self.path.join(&new);
        if let Ok(moved) = self.enter(OsStr::new(&new)) {
            // A directory with these is a repository to a git that is started in it.
            for name in ["HEAD", ".git"] {
                let away = format!("{}-{tag}", name.trim_start_matches('.'));
                match moved.make_writable(|| renameat(&moved.fd, name, &moved.fd, away.as_str())) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(path)
    }

    /// Writes a file that is not there, in one step.
    pub(super) fn write(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let new = format!("codex-mcp-{}", Uuid::new_v4().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let own = Mode::RUSR | Mode::WUSR;
        let fd = self.make_writable(|| openat(&self.fd, new.as_str(), flags, own))?;
        fchmod(&fd, Mode::from_raw_mode(mode))?;
        File::from(fd).write_all(bytes)?;
        Ok(renameat(&self.fd, new.as_str(), &self.fd, name)?)
    }

    fn contents(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.fd, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= FILE_LIMIT).then_some(bytes))
    }

    fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Codex may have taken away the permission to write here, which git does not need.
    fn make_writable<T>(&self, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match act() {
            Err(Errno::ACCESS) => {
                let mode = Mode::from_raw_mode(fstat(&self.fd)?.st_mode);
                let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
                chmod(path, mode | Mode::RWXU)?;
                act()
            }
            done => done,
        }
    }
}

/// Fails where there is more than [`STAMPS_LIMIT`] and [`DEPTH_LIMIT`] allow.
fn add_stamps(
    fd: &OwnedFd,
    below: &Path,
    depth: usize,
    stamps: &mut BTreeMap<PathBuf, Stamp>,
) -> io::Result<()> {
    let too_much = || io::Error::other("there are too many hooks");
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let stat = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if stamps.len() >= STAMPS_LIMIT {
            return Err(too_much());
        }
        stamps.insert(below.join(name), stamp(&stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let depth = depth.checked_sub(1).ok_or_else(too_much)?;
            let directory = openat(fd, name, READ_DIRECTORY, Mode::empty())?;
            add_stamps(&directory, &below.join(name), depth, stamps)?;
        }
    }
    Ok(())
}

/// The time of the last change is the system's: whoever writes cannot choose it.
fn stamp(stat: &Stat) -> Stamp {
    Stamp {
        inode: stat.st_ino,
        size: stat.st_size,
        mode: stat.st_mode,
        changed: (stat.st_ctime, i128::from(stat.st_ctime_nsec)),
    }
}
