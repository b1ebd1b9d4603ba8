//! The owner's side: starts an adoptable program, or takes one over.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::incoming::{Handover, Incoming};
use super::keeper::{Keeper, write_all, write_lines};
use super::messages::GuardMessage;
use crate::confinement::check_without_namespaces;
use crate::exit::Exit;
use crate::private_socket::{check_directory, check_user, connect, remove};
use crate::proof::{self, ProofName};
use crate::spawn::{Program, guarded};
use crate::tree_mark::TreeMark;

/// How long the guard may take to hand a program over.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);

/// A running program that another process can take over if this one is killed. Dropping it ends
/// the whole tree.
#[derive(Debug)]
pub struct AdoptableProcess {
    guard: GuardProcess,
    mark: TreeMark,
    stream: Arc<UnixStream>,
    incoming: Incoming,
    keeper: Keeper,
    writer: JoinHandle<()>,
    /// The exit of the program, as reported by the guard.
    exit: Option<Exit>,
    has_ended: bool,
}

/// The guard of a program.
#[derive(Debug)]
struct GuardProcess {
    pid: Pid,
    /// Identifies the guard even if its process ID is reused.
    descriptor: OwnedFd,
    /// Reaps it; `None` if another process started it.
    child: Option<Child>,
}

/// A program that was taken over.
pub struct Adopted {
    /// The program.
    pub process: AdoptableProcess,
    /// A new connection to the program's port.
    pub connection: TcpStream,
    /// The values that earlier owners have stored in the guard. The guard keeps storing them.
    pub kept: BTreeMap<String, String>,
}

impl Debug for Adopted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The values may be secret.
        f.debug_struct("Adopted").finish_non_exhaustive()
    }
}

/// Whether programs can be taken over. This takes Linux 5.3, and permission to listen on loopback.
#[must_use]
pub fn is_supported() -> bool {
    check_supported().is_ok()
}

fn check_supported() -> io::Result<()> {
    pidfd_open(getpid(), PidfdFlags::empty())?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(())
}

/// Starts a program under a guard. The program's arguments must make it listen on a port of
/// 127.0.0.1. Once it listens, it must write a line to stderr that ends with `ws://127.0.0.1:` and
/// the port. Its stdin and stdout are `/dev/null`. The guard copies the program's stderr to the
/// returned stream, as long as the owner lives. `adoption` is the absolute path of the adoption
/// socket, in a directory that only the user can access (mode 0700), and `wait` is how long the program
/// runs without an owner. Call this in a Tokio runtime.
///
/// # Errors
///
/// Those of [`is_supported`] if the program could not be taken over; those of the system if this
/// executable cannot be started again. Other failures show as exit code 127 (the program was not
/// found) or 126, with the reason on its stderr.
#[expect(
    clippy::disallowed_methods,
    reason = "as spawn, it starts a program under a guard"
)]
pub fn spawn_adoptable(
    program: &Program,
    adoption: &Path,
    wait: Duration,
) -> io::Result<(AdoptableProcess, ChildStderr)> {
    check_supported()?;
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let stream = UnixStream::from_std(ours)?;
    let wait = format!("{}ms", wait.as_millis());
    let options = [
        OsStr::new("--adoption-socket"),
        adoption.as_os_str(),
        OsStr::new("--wait"),
        OsStr::new(&wait),
    ];
    let mark = TreeMark::of_socket(adoption);
    let mut child = guarded(program, &mark, &options)?
        .process_group(0)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let missing = || io::Error::other("a piped stream of the child is missing");
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let pid = id.map(Pid::from_raw).ok_or_else(missing)?;
    let guard = GuardProcess {
        pid,
        descriptor: open_process(pid)?,
        child: Some(child),
    };
    let process = AdoptableProcess::new(guard, mark, stream, Incoming::default());
    Ok((process, stderr))
}

/// Takes over a program whose owner has died, through its adoption socket. `None` if no guard
/// listens there any more, or if it ends meanwhile; then the socket file and remaining processes
/// are removed. No other process may try the same at the same time. Call this in a Tokio runtime.
///
/// # Errors
///
/// [`io::ErrorKind::TimedOut`] after 5 s: the program has an owner, or the guard is busy.
/// [`io::ErrorKind::PermissionDenied`] if the listening process is not this user's, or is in a
/// sandbox; the guard's reason if it does not accept this process as the owner; those of the
/// system.
pub async fn adopt(adoption: &Path) -> io::Result<Option<Adopted>> {
    let adopted = match timeout(HANDOVER_TIMEOUT, try_adopt(adoption)).await {
        Ok(Err(error)) if has_guard_ended(&error) => None,
        Ok(adopted) => adopted?,
        Err(_) => return Err(io::ErrorKind::TimedOut.into()),
    };
    if adopted.is_none() {
        // The guard may have been killed.
        TreeMark::of_socket(adoption).end().await;
    }
    Ok(adopted)
}

fn has_guard_ended(error: &io::Error) -> bool {
    // For a process ID without a process, the error has no `ErrorKind`.
    let is_gone = error.raw_os_error() == Some(Errno::ESRCH as i32);
    let kind_says_so = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotFound
    );
    is_gone || kind_says_so
}

async fn try_adopt(adoption: &Path) -> io::Result<Option<Adopted>> {
    let directory = adoption.parent().ok_or(io::ErrorKind::InvalidInput)?;
    check_directory(directory)?;
    let stream = match connect(adoption).await {
        Ok(stream) => stream,
        // The guard was killed.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            remove(adoption)?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let peer = stream.peer_cred()?;
    check_user(peer.uid())?;
    let pid = peer.pid().ok_or(io::ErrorKind::PermissionDenied)?;
    check_without_namespaces(pid)?;
    let guard = GuardProcess {
        pid: Pid::from_raw(pid),
        // An answer after this shows that the guard was alive when its process was opened, and so
        // that this ID was the guard's.
        descriptor: open_process(Pid::from_raw(pid))?,
        child: None,
    };
    let mut incoming = Incoming::default();
    let challenge = match incoming.next(&stream).await? {
        Some(GuardMessage::Challenge(challenge)) => challenge,
        Some(GuardMessage::Failed(why)) => return Err(io::Error::other(why)),
        Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        None => return Ok(None),
    };
    let _proof = ProofFile::make(directory, challenge.file)?;
    write_all(&stream, b"\n").await?;
    let Handover { connection, kept } = incoming.handover(&stream).await?;
    Ok(Some(Adopted {
        process: AdoptableProcess::new(guard, TreeMark::of_socket(adoption), stream, incoming),
        connection,
        kept,
    }))
}

fn open_process(pid: Pid) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid.as_raw()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// The file of a proof. It is removed when this is dropped, as the guard may have ended before
/// removing it.
struct ProofFile {
    directory: PathBuf,
    name: ProofName,
}

impl ProofFile {
    fn make(directory: &Path, name: ProofName) -> io::Result<Self> {
        proof::make(directory, &name)?;
        let directory = directory.to_owned();
        Ok(Self { directory, name })
    }
}

impl Drop for ProofFile {
    fn drop(&mut self) {
        // An empty file does no harm.
        let _ = proof::take(&self.directory, &self.name);
    }
}

impl AdoptableProcess {
    fn new(guard: GuardProcess, mark: TreeMark, stream: UnixStream, incoming: Incoming) -> Self {
        let stream = Arc::new(stream);
        let (keeper, queue) = Keeper::new();
        let writer = tokio::spawn(write_lines(Arc::clone(&stream), queue));
        Self {
            guard,
            mark,
            stream,
            incoming,
            keeper,
            writer,
            exit: None,
            has_ended: false,
        }
    }

    /// Waits until the program listens, and returns the first connection to it. Only for a
    /// program that [`spawn_adoptable`] has started, once.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the program ends before it listens; the guard's reason
    /// if it ends the program.
    pub async fn connection(&mut self) -> io::Result<TcpStream> {
        let handover = self.incoming.handover(&self.stream).await?;
        Ok(handover.connection)
    }

    /// The process ID of the guard, until [`wait`](Self::wait) has returned.
    #[must_use]
    pub fn pid(&self) -> Option<Pid> {
        (!self.has_ended).then_some(self.guard.pid)
    }

    /// A keeper, which stores values in the guard for the next owner.
    #[must_use]
    pub fn keeper(&self) -> Keeper {
        self.keeper.clone()
    }

    /// Waits until the program and all processes that it started have ended. Returns
    /// [`Exit::Unknown`] if the guard of a program that was taken over ends without reporting an
    /// exit.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        while let Some(message) = self.incoming.next(&self.stream).await? {
            if let GuardMessage::Exit(exit) = message {
                self.exit = Some(exit);
            }
        }
        // A guard that has ended its tree reports the exit in its last message.
        let is_complete = self.exit.is_some();
        if let Some(child) = &mut self.guard.child {
            let status = child.wait().await?;
            // The guard exits as the program did.
            self.exit.get_or_insert(Exit::from_status(status));
        }
        if !is_complete {
            self.mark.end().await;
        }
        self.has_ended = true;
        Ok(self.exit.unwrap_or(Exit::Unknown))
    }

    /// Waits for the program to end by itself, and ends it after `timeout`.
    ///
    /// # Errors
    ///
    /// If waiting fails.
    pub async fn end_after(&mut self, timeout: Duration) -> io::Result<Exit> {
        match tokio::time::timeout(timeout, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                self.terminate();
                self.wait().await
            }
        }
    }

    /// Tells the guard to end the whole tree: with SIGTERM first, with SIGKILL a second later.
    /// Never waits.
    pub fn terminate(&self) {
        // A failure means that it has ended meanwhile.
        let _ = pidfd_send_signal(&self.guard.descriptor, Signal::TERM);
        // A stopped process handles no signal until it is continued.
        let _ = pidfd_send_signal(&self.guard.descriptor, Signal::CONT);
    }
}

impl Drop for AdoptableProcess {
    fn drop(&mut self) {
        self.terminate();
        self.writer.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::private_socket::bind;

    #[tokio::test]
    async fn stale_adoption_socket_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        let adoption = directory.path().join("a");
        assert!(adopt(&adoption).await.unwrap().is_none());
        drop(bind(&adoption).unwrap());
        assert!(adopt(&adoption).await.unwrap().is_none());
        assert!(!adoption.exists());
    }
}
