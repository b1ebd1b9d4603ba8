//! Where the hosts of a user are found: a socket and a lock for each, in one directory.
//!
//! The lock decides. A host holds it from before it listens until it has ended, so the socket
//! of a lock that is free belongs to a host that was killed, and may be replaced. A process that
//! takes the lock of an old host may remove its files, so a lock counts only while its file is there.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use safe_files::state_directory::make_directory;
use safe_files::state_file::{self, open_to_lock};
use supervise::adoptable::AdoptionSockets;
use supervise::private_socket::{self, check_directory, check_peer};
use supervise::proof::{self, ProofName};
use tokio::net::{UnixListener, UnixStream};

/// The directory of the hosts, in the state directory.
const DIRECTORY: &str = "hosts";

/// The end of a socket's name.
pub(crate) const SOCKET: &str = "sock";

/// The end of a lock's name.
pub(crate) const LOCK: &str = "lock";

/// The end of a log's name.
pub(crate) const LOG: &str = "log";

/// Where a host listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEndpoint {
    directory: PathBuf,
    key: String,
}

/// The remains of the last host of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRemains {
    /// It has ended by itself.
    Nothing,
    /// It was killed, or runs.
    Socket,
    /// It was killed and has left app-servers for the next one, or it runs and has some.
    AppServers,
}

/// The right to be the host of an endpoint, until this is dropped or the process ends.
#[derive(Debug)]
pub struct HostLock {
    endpoint: HostEndpoint,
    file: File,
}

impl HostEndpoint {
    /// The endpoint of the hosts with this key, see [`environment`](crate::logic::environment).
    #[must_use]
    pub fn new(state: &Path, key: String) -> Self {
        Self {
            directory: state.join(DIRECTORY),
            key,
        }
    }

    /// The endpoint of the hosts with a key that comes from a file; `None` if it is not a key.
    #[must_use]
    pub fn named(state: &Path, key: String) -> Option<Self> {
        is_key(&key).then(|| Self::new(state, key))
    }

    /// The endpoint in the same directory with a key that comes from a file; `None` if it is not a
    /// key.
    pub(crate) fn beside(&self, key: &str) -> Option<Self> {
        is_key(key).then(|| Self {
            directory: self.directory.clone(),
            key: key.to_owned(),
        })
    }

    /// The directory of all hosts.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The key of its hosts.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The endpoints of all hosts that have been started, also of those that have ended.
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
        self.file(LOG)
    }

    /// Determines what remains of the last host. A host that ends by itself removes its socket before.
    #[must_use]
    pub fn remains(&self) -> HostRemains {
        if fs::symlink_metadata(self.file(SOCKET)).is_err() {
            return HostRemains::Nothing;
        }
        match self.left_app_servers() {
            Ok(left) if !left.is_empty() => HostRemains::AppServers,
            Ok(_) | Err(_) => HostRemains::Socket,
        }
    }

    /// Whether a process is the host here, including one that is starting or ending.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn is_taken(&self) -> io::Result<bool> {
        let opened = state_file::open(&self.file(LOCK)).map_err(io::Error::other)?;
        let Some(file) = opened else {
            return Ok(false);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether app-servers of a killed host wait for the next host.
    async fn has_waiting_app_servers(&self) -> bool {
        for guard in self.left_app_servers().unwrap_or_default() {
            // One whose guard is gone refuses. A guard survives a client that leaves at once.
            if private_socket::connect(&guard).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Whether the last host was killed, and has left app-servers that wait for the next one.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub async fn awaits_host(&self) -> io::Result<bool> {
        // A host that ends by itself removes its socket before it gives up its lock.
        let was_killed = !self.is_taken()? && self.remains() == HostRemains::AppServers;
        Ok(was_killed && self.has_waiting_app_servers().await)
    }

    /// Whether the sessions of a host that does not listen may soon be available again: the host is
    /// starting or ending, or the next one can take over its app-servers.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub async fn is_between_hosts(&self) -> io::Result<bool> {
        // The guards of a host that is ending refuse all other connections. The next host may take the
        // endpoint while they are examined, so the endpoint is checked again after that.
        Ok(self.is_taken()? || self.has_waiting_app_servers().await || self.is_taken()?)
    }

    /// The adoption socket of one more app-server of the host here.
    #[must_use]
    pub fn new_adoption_socket(&self) -> PathBuf {
        self.adoption_sockets().new_socket()
    }

    /// The adoption sockets of the app-servers that the last host here has left.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn left_app_servers(&self) -> io::Result<Vec<PathBuf>> {
        self.adoption_sockets().left()
    }

    fn adoption_sockets(&self) -> AdoptionSockets {
        AdoptionSockets::new(&self.directory, self.key.as_str())
    }

    /// The file of this host whose name has this end.
    pub(crate) fn file(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.key))
    }

    /// Takes the right to be the host here; `None` if there is one, or the files of an old one are
    /// just being removed.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn take(&self) -> io::Result<Option<HostLock>> {
        make_directory(&self.directory)?;
        check_directory(&self.directory)?;
        self.take_by(open_to_lock(&self.file(LOCK))?)
    }

    fn take_by(&self, file: File) -> io::Result<Option<HostLock>> {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The file may have been removed after it was opened.
        Ok(is_at(&file, &self.file(LOCK))?.then(|| HostLock {
            endpoint: self.clone(),
            file,
        }))
    }

    /// Makes the file of a proof.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn prove(&self, name: &ProofName) -> io::Result<Proof> {
        proof::make(&self.directory, name).map_err(|error| {
            let directory = self.directory.display();
            io::Error::new(
                error.kind(),
                format!("cannot make a file in {directory}: {error}"),
            )
        })?;
        Ok(Proof {
            endpoint: self.clone(),
            name: name.clone(),
        })
    }

    /// Connects to the host.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] if there is none, and
    /// [`io::ErrorKind::ConnectionReset`] if it has ended just now.
    /// [`io::ErrorKind::PermissionDenied`] if the process that listens is not this user's, or in a
    /// sandbox.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let socket = self.file(SOCKET);
        fs::symlink_metadata(&socket)?;
        check_directory(&self.directory)?;
        let stream = private_socket::connect(&socket).await?;
        check_peer(&stream)?;
        Ok(stream)
    }
}

/// The file of a proof. Dropping this removes the file, which a host that was killed has not taken.
#[derive(Debug)]
pub(crate) struct Proof {
    endpoint: HostEndpoint,
    name: ProofName,
}

impl Drop for Proof {
    fn drop(&mut self) {
        // Usually, the host has removed it. An empty file that stays does no harm.
        let _ = proof::take(&self.endpoint.directory, &self.name);
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((opened.dev(), opened.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl HostLock {
    /// Listens for clients. Only this user can connect.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let listener = private_socket::bind(&self.endpoint.file(SOCKET))?;
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    }

    /// Whether a client has made the file of a proof, which is removed.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn take_proof(&self, name: &ProofName) -> io::Result<bool> {
        proof::take(&self.endpoint.directory, name)
    }

    /// Removes the socket, so that new clients start another host.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn close(&self) -> io::Result<()> {
        private_socket::remove(&self.endpoint.file(SOCKET))
    }

    /// Gives the right to the next host, for a process that ends at once. The socket stays, as that
    /// of a killed host does: it shows that there are app-servers to take over.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn release(&self) -> io::Result<()> {
        self.file.unlock()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::slice;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn greet(endpoint: &HostEndpoint, listener: &UnixListener) {
        let (client, host) = tokio::join!(endpoint.connect(), listener.accept());
        let (mut host, _) = host.unwrap();
        check_peer(&host).unwrap();
        host.write_all(b"hello").await.unwrap();
        drop(host);
        let mut heard = String::new();
        client.unwrap().read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
    }

    #[tokio::test]
    async fn one_host_listens_at_an_endpoint() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let missing = endpoint.connect().await.unwrap_err().kind();
        assert_eq!(missing, io::ErrorKind::NotFound);
        let lock = endpoint.take().unwrap().unwrap();
        assert!(endpoint.take().unwrap().is_none());
        let listener = lock.listen().unwrap();
        greet(&endpoint, &listener).await;
        let all = HostEndpoint::all(state.path()).unwrap();
        assert_eq!(all, slice::from_ref(&endpoint));
        lock.close().unwrap();
        drop((lock, listener));
        assert_eq!(HostEndpoint::all(state.path()).unwrap(), []);
        assert!(endpoint.take().unwrap().is_some());
    }

    #[test]
    fn lock_of_a_removed_file_is_not_taken() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        drop(endpoint.take().unwrap().unwrap());
        let path = endpoint.file(LOCK);
        let removed = open_to_lock(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(endpoint.take_by(removed).unwrap().is_none());
        // Nor is it while another process has made a new one.
        let removed = open_to_lock(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let lock = endpoint.take().unwrap().unwrap();
        assert!(endpoint.take_by(removed).unwrap().is_none());
        drop(lock);
        let kept = open_to_lock(&path).unwrap();
        assert!(endpoint.take_by(kept).unwrap().is_some());
    }

    #[tokio::test]
    async fn socket_of_a_killed_host_is_replaced() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        drop(endpoint.take().unwrap().unwrap().listen().unwrap());
        let refused = endpoint.connect().await.unwrap_err().kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        let lock = endpoint.take().unwrap().unwrap();
        greet(&endpoint, &lock.listen().unwrap()).await;
    }

    #[tokio::test]
    async fn killed_host_leaves_its_socket() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        assert_eq!(endpoint.remains(), HostRemains::Nothing);
        let lock = endpoint.take().unwrap().unwrap();
        drop(lock.listen().unwrap());
        assert_eq!(endpoint.remains(), HostRemains::Socket);
        open_to_lock(&endpoint.new_adoption_socket()).unwrap();
        assert_eq!(endpoint.remains(), HostRemains::AppServers);
        lock.close().unwrap();
        assert_eq!(endpoint.remains(), HostRemains::Nothing);
    }

    #[test]
    fn released_lock_can_be_taken_before_its_holder_ends() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        lock.release().unwrap();
        let next = endpoint.take().unwrap();
        drop(lock);
        assert!(next.is_some());
        assert!(endpoint.is_taken().unwrap());
    }

    #[tokio::test]
    async fn only_a_killed_host_with_app_servers_is_followed_by_another() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        assert!(!endpoint.awaits_host().await.unwrap());
        assert!(!endpoint.is_between_hosts().await.unwrap());
        let host = endpoint.take().unwrap().unwrap();
        let listener = host.listen().unwrap();
        let guard = private_socket::bind(&endpoint.new_adoption_socket()).unwrap();
        assert!(!endpoint.awaits_host().await.unwrap(), "it runs");
        drop((host, listener));
        assert!(endpoint.awaits_host().await.unwrap());
        assert!(endpoint.is_between_hosts().await.unwrap());
        let host = endpoint.take().unwrap().unwrap();
        assert!(endpoint.is_between_hosts().await.unwrap(), "it is starting");
        host.close().unwrap();
        assert!(!endpoint.awaits_host().await.unwrap(), "it is ending");
        drop(host);
        assert!(!endpoint.awaits_host().await.unwrap(), "it was stopped");
        let host = endpoint.take().unwrap().unwrap();
        drop((host.listen().unwrap(), host, guard));
        assert!(!endpoint.awaits_host().await.unwrap(), "Codex has ended");
        assert!(!endpoint.is_between_hosts().await.unwrap());
    }

    #[tokio::test]
    async fn files_are_closed_to_others() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let _listener = lock.listen().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(&state.path().join(DIRECTORY)), 0o700);
        assert_eq!(mode(&endpoint.file(SOCKET)), 0o600);
    }

    #[tokio::test]
    async fn directory_that_others_can_use_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let _listener = lock.listen().unwrap();
        let directory = state.path().join(DIRECTORY);
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        let refused = endpoint.connect().await.unwrap_err().to_string();
        assert!(refused.contains("chmod 700"), "{refused}");
        assert!(endpoint.take().is_err());
    }

    #[test]
    fn proof_is_taken_once() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let name = ProofName::new([7; 16]);
        assert!(!lock.take_proof(&name).unwrap());
        let _proof = endpoint.prove(&name).unwrap();
        assert!(endpoint.prove(&name).is_err());
        assert!(lock.take_proof(&name).unwrap());
        assert!(!lock.take_proof(&name).unwrap());
    }

    #[test]
    fn proof_that_no_host_has_taken_is_removed_by_its_client() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let name = ProofName::new([7; 16]);
        drop(endpoint.prove(&name).unwrap());
        assert!(!lock.take_proof(&name).unwrap());
    }

    #[cfg(all(target_os = "linux", not(portable)))]
    #[tokio::test]
    async fn path_may_be_longer_than_that_of_a_socket() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(&state.path().join("x".repeat(200)), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        greet(&endpoint, &lock.listen().unwrap()).await;
    }
}
