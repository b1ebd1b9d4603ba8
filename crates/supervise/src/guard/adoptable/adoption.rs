//! The owners of an adoptable program, one after the other.
//!
//! ```text
//!   waiting for the program's port ──► owned ── control stream ended ──► orphaned
//!                                        ▲                                 │
//!                                        └──────── another owner ──────────┤
//!                                                                nobody ───┴──► the tree ends
//! ```
//!
//! This runs on a separate thread. It tells the guard's main thread by SIGTERM that the tree has to
//! end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::sync::lock;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::program_port::ProgramPort;
use crate::adoptable::kept::KeptValues;
use crate::adoptable::messages::{GuardMessage, KeptValue, LineBuffer, to_line};
use crate::adoptable::send_descriptor;
use crate::confinement;
use crate::exit::Exit;
use crate::private_socket::{self, check_user};
use crate::proof::{self, Challenge, ProofName};

/// How often it is checked that the owner lives while the program starts.
const OWNER_CHECK: Duration = Duration::from_millis(100);

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// How long another process may take for each step of becoming the owner. Meanwhile no other
/// process is served.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the last message to an owner may wait for it to read.
const REPORT_TIMEOUT: Duration = Duration::from_millis(200);

/// The state of a guard that can have several owners.
pub(super) struct Adoption {
    /// The control stream to the first owner.
    first: UnixStream,
    listener: UnixListener,
    /// The directory of the adoption socket.
    directory: PathBuf,
    wait: Duration,
}

/// The current owner, as seen by the main thread.
pub(super) struct Owners {
    /// The control stream to the current owner.
    current: Arc<Mutex<Option<UnixStream>>>,
}

impl Adoption {
    /// Listens for the next owner. Our stdin is the control stream to the first one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn listen(socket: &Path, wait: Duration) -> io::Result<Self> {
        let first = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self {
            first: UnixStream::from(first),
            listener: private_socket::bind(socket)?,
            directory: socket.parent().unwrap_or(Path::new("/")).to_owned(),
            wait,
        })
    }

    /// Begins to serve the owners of this program; `port` receives the port on which the program
    /// listens.
    ///
    /// # Errors
    ///
    /// If the thread cannot be spawned.
    pub(super) fn start(self, program: Pid, port: Receiver<u16>) -> io::Result<Owners> {
        let owners = Owners {
            current: Arc::new(Mutex::new(Some(self.first.try_clone()?))),
        };
        let current = Arc::clone(&owners.current);
        let serve = move || {
            self.serve(program, &port, &current);
            // A failure means that the tree is about to end already.
            let _ = kill(Pid::this(), Signal::SIGTERM);
        };
        thread::Builder::new()
            .name("owners".to_owned())
            .spawn(serve)?;
        Ok(owners)
    }

    /// Serves one owner after the other until there is none.
    fn serve(self, program: Pid, port: &Receiver<u16>, current: &Mutex<Option<UnixStream>>) {
        let mut kept = KeptValues::default();
        let opened = wait_for_port(port, &self.first)
            .and_then(|port| ProgramPort::new(port, program))
            .and_then(|mut port| Ok((port.take_connection()?, port)));
        let mut port = match opened {
            Ok((connection, port)) => {
                // If the owner has died, this is noticed below.
                let _ = hand_over(&self.first, &connection, &kept);
                port
            }
            Err(error) => {
                let failed = GuardMessage::Failed(error.to_string());
                // If nobody reads the message, the end of the stream says enough.
                let _ = send(&self.first, &failed);
                return;
            }
        };
        let mut owner = self.first;
        loop {
            read_until_end(&owner, &mut kept);
            lock(current).take();
            if kept.is_last() {
                return;
            }
            let deadline = Instant::now() + self.wait;
            let next = next_owner(&self.listener, &self.directory, deadline, |stream| {
                hand_over(stream, &port.take_connection()?, &kept)
            });
            match next.and_then(|next| Some((next.try_clone().ok()?, next))) {
                Some((stream, next)) => {
                    *lock(current) = Some(stream);
                    owner = next;
                }
                None => return,
            }
        }
    }
}

impl Owners {
    /// Reports the program's exit to the owner.
    pub(super) fn report(&self, exit: Exit) {
        let owner = lock(&self.current).take();
        if let Some(owner) = owner {
            // An owner that does not read for that long has died.
            let _ = owner.set_write_timeout(Some(REPORT_TIMEOUT));
            let _ = send(&owner, &GuardMessage::Exit(exit));
        }
    }
}

/// Waits for the program to report the port on which it listens.
///
/// # Errors
///
/// [`io::ErrorKind::BrokenPipe`] if the owner dies: the program may never listen, and ending it
/// loses nothing. [`io::ErrorKind::UnexpectedEof`] if the program closes its stderr.
fn wait_for_port(port: &Receiver<u16>, owner: &UnixStream) -> io::Result<u16> {
    loop {
        match port.recv_timeout(OWNER_CHECK) {
            Ok(port) => return Ok(port),
            Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(RecvTimeoutError::Timeout) => check_alive(owner)?,
        }
    }
}

fn check_alive(owner: &UnixStream) -> io::Result<()> {
    // Messages of the owner are read later.
    let mut ends = [PollFd::new(owner, PollFlags::RDHUP)];
    match poll(&mut ends, Some(&Timespec::default())) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => Err(error.into()),
    }
}

/// Hands a connection to the program, and the stored values, to an owner.
fn hand_over(owner: &UnixStream, connection: &TcpStream, kept: &KeptValues) -> io::Result<()> {
    send_descriptor(owner, connection)?;
    for (key, value) in kept.iter() {
        let value = KeptValue {
            key: key.clone(),
            value: value.clone(),
        };
        send(owner, &GuardMessage::Keep(value))?;
    }
    send(owner, &GuardMessage::HandedOver)
}

fn send(mut owner: &UnixStream, message: &GuardMessage) -> io::Result<()> {
    owner.write_all(&to_line(message)?)
}

/// Applies the messages of an owner until it has died.
fn read_until_end(mut owner: &UnixStream, kept: &mut KeptValues) {
    let mut lines = LineBuffer::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match owner.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let read = buffer.get(..count).unwrap_or_default();
                lines.push(read, |line| kept.apply_line(line));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Waits for a process that can be the owner, and hands the program over to it; `None` at the
/// deadline.
fn next_owner(
    listener: &UnixListener,
    directory: &Path,
    deadline: Instant,
    mut hand_over: impl FnMut(&UnixStream) -> io::Result<()>,
) -> Option<UnixStream> {
    while wait_for_client(listener, deadline) {
        let Ok((stream, _)) = listener.accept() else {
            // Too many files are open, or there is no memory.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let taken = check(&stream, directory)
            .and_then(|()| hand_over(&stream))
            .and_then(|()| set_timeouts(&stream, None));
        match taken {
            Ok(()) => return Some(stream),
            Err(error) => {
                let failed = GuardMessage::Failed(error.to_string());
                // The process may have gone.
                let _ = send(&stream, &failed);
            }
        }
    }
    None
}

/// Waits until somebody connects; `false` at the deadline.
fn wait_for_client(listener: &UnixListener, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            // The deadline applies even if clients connect all the time.
            return false;
        }
        let Ok(timeout) = Timespec::try_from(left) else {
            return false;
        };
        let mut clients = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut clients, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(error) if error == rustix::io::Errno::INTR => {}
            Err(_) => return false,
        }
    }
}

/// Checks that a process may become the owner: it must be this user's, be confined as we are, and
/// be able to write in the directory of the adoption socket.
fn check(mut stream: &UnixStream, directory: &Path) -> io::Result<()> {
    set_timeouts(stream, Some(STEP_TIMEOUT))?;
    let peer = getsockopt(stream, PeerCredentials)?;
    check_user(peer.uid())?;
    confinement::check(peer.pid())?;
    let file = ProofName::random()?;
    let challenge = GuardMessage::Challenge(Challenge { file: file.clone() });
    send(stream, &challenge)?;
    let mut line = [0];
    let answered = stream.read_exact(&mut line);
    // Called even if the client has gone, so that no file is left.
    let is_proved = proof::take(directory, &file)?;
    answered?;
    match is_proved {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the process cannot write in the directory of the adoption socket",
        )),
    }
}

fn set_timeouts(stream: &UnixStream, timeout: Option<Duration>) -> io::Result<()> {
    stream.set_read_timeout(timeout)?;
    stream.set_write_timeout(timeout)
}
