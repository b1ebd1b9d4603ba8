//! Where the hosts of a user are found: a socket and a lock for each, in one directory.
//!
//! The lock decides. A host holds it from before it listens until it has ended, so the socket
//! of a lock that is free belongs to a host that was killed, and may be replaced.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use safe_files::state_directory::make_directory;
use safe_files::state_file::open_to_lock;
use tokio::net::{UnixListener, UnixStream};

use crate::confinement;
use crate::logic::handshake::ProofName;

/// The directory of the hosts, in the state directory.
const DIRECTORY: &str = "hosts";

/// The end of a socket's name.
const SOCKET: &str = "sock";

/// The longest path of a socket, in bytes. Linux takes 107, macOS 103 (`sun_path`).
const LONGEST_PATH: usize = 100;

/// Where a host listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlace {
    directory: PathBuf,
    key: String,
}

/// The right to be the host of a place, until this is dropped or the process ends.
#[derive(Debug)]
pub struct HostLock {
    place: HostPlace,
    _file: File,
}

impl HostPlace {
    /// The place of the hosts with this key, see [`environment`](crate::logic::environment).
    #[must_use]
    pub fn new(state: &Path, key: String) -> Self {
        Self {
            directory: state.join(DIRECTORY),
            key,
        }
    }

    /// The places of all hosts that have been started, also of those that have ended.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn all(state: &Path) -> io::Result<Vec<Self>> {
        let directory = state.join(DIRECTORY);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if let (Some(key), true) = (
                path.file_stem().and_then(|stem| stem.to_str()),
                path.extension().is_some_and(|end| end == SOCKET),
            ) {
                all.push(Self::new(state, key.to_owned()));
            }
        }
        all.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(all)
    }

    /// The log of the host.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.file("log")
    }

    /// Checks that nobody else can put a socket here.
    fn check_directory(&self) -> io::Result<()> {
        let about = fs::symlink_metadata(&self.directory)?;
        let is_ours = about.uid() == nix::unistd::geteuid().as_raw();
        match about.is_dir() && is_ours && about.mode() & 0o077 == 0 {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "{} must be a directory that only its owner can use (chmod 700)",
                self.directory.display()
            ))),
        }
    }

    fn file(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.key))
    }

    /// Takes the right to be the host here; `None` if there is one.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn take(&self) -> io::Result<Option<HostLock>> {
        make_directory(&self.directory)?;
        self.check_directory()?;
        let file = open_to_lock(&self.file("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(HostLock {
                place: self.clone(),
                _file: file,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes the file of a proof.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn prove(&self, name: &ProofName) -> io::Result<()> {
        let path = self.directory.join(name.as_str());
        create_new(&path).map(drop)
    }

    /// Connects to the host.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] if there is none.
    /// [`io::ErrorKind::PermissionDenied`] if the process that listens is not this user's, or in a
    /// sandbox.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let socket = self.file(SOCKET);
        fs::symlink_metadata(&socket)?;
        self.check_directory()?;
        let short = ShortPath::of(&socket)?;
        let stream = UnixStream::connect(&short.path).await?;
        check_peer(&stream)?;
        Ok(stream)
    }
}

impl HostLock {
    /// Listens for clients. Only this user can connect.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let socket = self.place.file(SOCKET);
        remove(&socket)?;
        let short = ShortPath::of(&socket)?;
        // The directory keeps others away while the socket has its first mode.
        let listener = UnixListener::bind(&short.path)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    /// Whether a client has made the file of a proof, which is removed.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn take_proof(&self, name: &ProofName) -> io::Result<bool> {
        match fs::remove_file(self.place.directory.join(name.as_str())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the socket, so that new clients start another host.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn close(&self) -> io::Result<()> {
        remove(&self.place.file(SOCKET))
    }
}

/// Checks that the other end of a connection is a process of this user that is not confined in
/// another way than this one.
///
/// # Errors
///
/// [`io::ErrorKind::PermissionDenied`], and those of the system if that cannot be determined.
pub(crate) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    peer.pid().map_or(Ok(()), confinement::check)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A path of a socket that is short enough for the system.
struct ShortPath {
    path: PathBuf,
    /// The directory that the path leads through.
    _directory: Option<OwnedFd>,
}

impl ShortPath {
    fn of(path: &Path) -> io::Result<Self> {
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
        let through = format!("/proc/self/fd/{}", directory.as_raw_fd());
        Ok(Self {
            path: Path::new(&through).join(name),
            _directory: Some(directory),
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a directory of our own state; opening one never waits"
)]
fn open_directory(path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(open(path, flags, Mode::empty())?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of our own state, made anew; nothing at its path is opened"
)]
fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn greet(place: &HostPlace, listener: &UnixListener) {
        let (client, host) = tokio::join!(place.connect(), listener.accept());
        let (mut host, _) = host.unwrap();
        check_peer(&host).unwrap();
        host.write_all(b"hello").await.unwrap();
        drop(host);
        let mut heard = String::new();
        client.unwrap().read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
    }

    #[tokio::test]
    async fn one_host_listens_at_a_place() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(state.path(), "k".to_owned());
        let missing = place.connect().await.unwrap_err().kind();
        assert_eq!(missing, io::ErrorKind::NotFound);
        let lock = place.take().unwrap().unwrap();
        assert!(place.take().unwrap().is_none());
        let listener = lock.listen().unwrap();
        greet(&place, &listener).await;
        let all = HostPlace::all(state.path()).unwrap();
        assert_eq!(all, slice::from_ref(&place));
        lock.close().unwrap();
        drop((lock, listener));
        assert_eq!(HostPlace::all(state.path()).unwrap(), []);
        assert!(place.take().unwrap().is_some());
    }

    #[tokio::test]
    async fn socket_of_a_killed_host_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(state.path(), "k".to_owned());
        drop(place.take().unwrap().unwrap().listen().unwrap());
        let refused = place.connect().await.unwrap_err().kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        let lock = place.take().unwrap().unwrap();
        greet(&place, &lock.listen().unwrap()).await;
    }

    #[tokio::test]
    async fn files_are_closed_to_others() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(state.path(), "k".to_owned());
        let lock = place.take().unwrap().unwrap();
        let _listener = lock.listen().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&state.path().join(DIRECTORY)), 0o700);
        assert_eq!(mode(&place.file(SOCKET)), 0o600);
    }

    #[tokio::test]
    async fn directory_that_others_can_use_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(state.path(), "k".to_owned());
        let lock = place.take().unwrap().unwrap();
        let _listener = lock.listen().unwrap();
        let directory = state.path().join(DIRECTORY);
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let refused = place.connect().await.unwrap_err().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
        assert!(place.take().is_err());
    }

    #[test]
    fn proof_is_taken_once() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(state.path(), "k".to_owned());
        let lock = place.take().unwrap().unwrap();
        let name = ProofName::new([7; 16]);
        assert!(!lock.take_proof(&name).unwrap());
        place.prove(&name).unwrap();
        assert!(place.prove(&name).is_err());
        assert!(lock.take_proof(&name).unwrap());
        assert!(!lock.take_proof(&name).unwrap());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn path_may_be_longer_than_that_of_a_socket() {
        let state = tempfile::tempdir().unwrap();
        let place = HostPlace::new(&state.path().join("x".repeat(200)), "k".to_owned());
        let lock = place.take().unwrap().unwrap();
        greet(&place, &lock.listen().unwrap()).await;
    }
}
