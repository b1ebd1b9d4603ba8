//! Unix sockets for processes of this user outside of Codex's sandbox.
//!
//! The socket lies in a directory that only the user can access, each end checks the other one with
//! [`check_peer`], and the server demands a [proof](crate::proof).

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use tokio::net::UnixStream;
use tokio::time::sleep;

use crate::platform;

/// The longest path of a socket that every system takes, in bytes. Linux takes 107, macOS 103
/// (`sun_path`).
const LONGEST_PATH: usize = 100;

/// How long a connection is tried while the queue of the socket is full, and the pause between
/// attempts.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Checks that nobody else can put a socket in this directory.
///
/// # Errors
///
/// Those of the file system, and an error that says what to do.
pub fn check_directory(directory: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(directory)?;
    let is_ours = about.uid() == nix::unistd::geteuid().as_raw();
    match about.is_dir() && is_ours && about.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} must be a directory that only its owner can use (chmod 700)",
            directory.display()
        ))),
    }
}

/// Listens at a path, replacing a socket that exists there. Only this user can connect. The path
/// must lie in a directory that [`check_directory`] accepts.
///
/// # Errors
///
/// Those of the file system.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    remove(path)?;
    let short = ShortPath::of(path)?;
    // Until the mode of the socket is set, the directory keeps other users away.
    let listener = UnixListener::bind(&short)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes a socket. It is no error if there is none.
///
/// # Errors
///
/// Those of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks that the other end of a connection is a process of this user, and confined in the same
/// way as this one.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`], and those of the system if that cannot be determined.
pub fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    check_user(peer.uid())?;
    peer.pid().map_or(Ok(()), platform::check_confinement)
}

/// Checks that the other end of a connection belongs to this user.
pub(crate) fn check_user(peer: u32) -> io::Result<()> {
    match peer == nix::unistd::geteuid().as_raw() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// A path of a socket that is short enough for the system. It is valid in this process, until
/// this is dropped.
#[derive(Debug)]
pub struct ShortPath {
    path: PathBuf,
    /// The open directory through which the path leads.
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    /// A short path to the same file. On Linux, paths longer than 100 bytes lead through
    /// `/proc/self/fd`. On other systems they stay as they are, and no socket can be created there.
    ///
    /// # Errors
    ///
    /// If the directory of the file cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        let parts = path.parent().zip(path.file_name());
        let Some((directory, name)) = parts.filter(|_| path.as_os_str().len() > LONGEST_PATH)
        else {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let directory = open_directory(directory, flags)?;
        let path = match platform::short_path_to(&directory) {
            Some(through) => through.join(name),
            None => path.to_owned(),
        };
        Ok(Self {
            path,
            _directory: Some(directory),
        })
    }
}

impl AsRef<Path> for ShortPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a directory of our own state; opening one never waits"
)]
fn open_directory(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(open(path, flags, Mode::empty())?)
}

/// Connects to a socket. If its queue is full, tries again for 2 s.
///
/// # Errors
///
/// Those of connect(2).
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + QUEUE_TIMEOUT;
    loop {
        match UnixStream::connect(&ShortPath::of(path)?).await {
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                sleep(QUEUE_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn socket_replaces_a_stale_one_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        check_directory(directory.path()).unwrap();
        // A long path leads through /proc/self/fd, if the system has it.
        let parent = match cfg!(all(target_os = "linux", not(portable))) {
            true => directory.path().join("x".repeat(200)),
            false => directory.path().join("x"),
        };
        fs::create_dir(&parent).unwrap();
        let path = parent.join("s");
        drop(bind(&path).unwrap());
        let listener = bind(&path).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let short = ShortPath::of(&path).unwrap();
        assert!(short.as_ref().as_os_str().len() <= LONGEST_PATH);
        let stream = UnixStream::connect(&short).await.unwrap();
        check_peer(&stream).unwrap();
        drop(listener);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn directory_that_others_can_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let refused = check_directory(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
    }
}
