//! The socket on which the program listens, without its name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::stat::Mode;
use nix::unistd::Pid;

use crate::private_socket;

/// The sockets of the system, see proc_pid_net(5).
const KNOWN_SOCKETS: &str = "/proc/net/unix";

/// The state of a socket that is connected, but not accepted yet (`SS_CONNECTING` in the kernel's
/// `net.h`).
const CONNECTING: &str = "02";

/// The state of a socket that is connected and accepted (`SS_CONNECTED`).
const CONNECTED: &str = "03";

/// The end of the name of the lock that Codex 0.169.0 leaves beside its socket.
const LOCK: &str = ".lock";

/// The socket of the program, without a name. Only this process can connect to it, by a file
/// descriptor.
#[derive(Debug)]
pub(super) struct ProgramSocket {
    descriptor: OwnedFd,
    /// The name that it had.
    name: PathBuf,
}

impl ProgramSocket {
    /// Waits until `program` listens, and makes the first connection. The socket's names are gone
    /// then. Calls `pause` while it waits.
    ///
    /// # Errors
    ///
    /// If another process has connected before, or listens there; those of `pause` and of the
    /// system.
    pub(super) fn wait(
        path: &Path,
        program: Pid,
        mut pause: impl FnMut() -> io::Result<()>,
    ) -> io::Result<(Self, UnixStream)> {
        let socket = loop {
            match Self::open(path) {
                Ok(socket) => break socket,
                Err(error) if error.kind() == io::ErrorKind::NotFound => pause()?,
                Err(error) => return Err(error),
            }
        };
        // Codex 0.169.0 links to its socket once it needs the socket's own name no more.
        let is_linked = socket.name != path;
        if is_linked {
            private_socket::remove(&socket.name)?;
            private_socket::remove(path)?;
        }
        let first = loop {
            match socket.connect() {
                Ok(stream) => break stream,
                // It is bound, and does not listen yet.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => pause()?,
                Err(error) => return Err(error),
            }
        };
        let listening = getsockopt(&first, PeerCredentials)?.pid();
        if listening != program.as_raw() {
            return Err(io::Error::other(format!(
                "process {listening} listens on the socket of Codex, which is process {program}"
            )));
        }
        if !is_linked {
            // Codex 0.153.4 sets the mode by the name after it listens, and ends if the name is
            // gone. It accepts after that.
            while !socket.is_first_accepted()? {
                pause()?;
            }
            private_socket::remove(path)?;
        }
        socket.is_first_accepted()?;
        Ok((socket, first))
    }

    /// Whether the program has accepted the first connection.
    ///
    /// # Errors
    ///
    /// If there are others, or none.
    fn is_first_accepted(&self) -> io::Result<bool> {
        let Connections { accepted, waiting } =
            Connections::parse(&read_known_sockets()?, &self.name);
        match (accepted.len(), waiting) {
            (1, 0) => Ok(true),
            (0, 1) => Ok(false),
            (accepted, waiting) => Err(io::Error::other(format!(
                "another process has connected to the socket of Codex ({} connections)",
                accepted + waiting
            ))),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a socket; O_PATH opens no file, and never waits"
    )]
    fn open(path: &Path) -> io::Result<Self> {
        let name = match fs::symlink_metadata(path)?.is_symlink() {
            // Codex 0.169.0 listens in the system's temporary directory, where its commands can
            // write, and links to the socket.
            true => fs::read_link(path)?,
            false => path.to_owned(),
        };
        if !fs::symlink_metadata(&name)?.file_type().is_socket() {
            return Err(io::Error::other(format!(
                "{} is not a socket",
                name.display()
            )));
        }
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let descriptor = open(&name, flags, Mode::empty())?;
        Ok(Self { descriptor, name })
    }

    /// The file that Codex may leave. Its name is that of no other Codex.
    pub(super) fn lock_file(&self) -> PathBuf {
        let mut name = self.name.clone().into_os_string();
        name.push(LOCK);
        name.into()
    }

    /// Makes another connection.
    ///
    /// # Errors
    ///
    /// Those of connect(2).
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let number = self.descriptor.as_raw_fd();
        UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{number}")))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel, which never waits"
)]
fn read_known_sockets() -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(KNOWN_SOCKETS)?).into_owned())
}

/// The connections to a socket. Each has a socket at the program's end, which has the name of the
/// one that listens.
#[derive(Debug, Default, PartialEq, Eq)]
struct Connections {
    /// The inodes of those that are accepted: one may be listed twice when others come and go
    /// meanwhile.
    accepted: BTreeSet<String>,
    /// How many wait to be accepted. They have no inode yet.
    waiting: usize,
}

impl Connections {
    fn parse(known: &str, path: &Path) -> Self {
        let ours = path.to_string_lossy();
        let mut connections = Self::default();
        for line in known.lines() {
            let before = line
                .strip_suffix(&*ours)
                .and_then(|line| line.strip_suffix(' '));
            // Num RefCount Protocol Flags Type St Inode Path
            let fields: Vec<&str> = before.unwrap_or_default().split_whitespace().collect();
            match *fields {
                [_, _, _, _, _, CONNECTED, inode] => {
                    connections.accepted.insert(inode.to_owned());
                }
                [_, _, _, _, _, CONNECTING, _] => connections.waiting += 1,
                _ => {}
            }
        }
        connections
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    fn pause() -> io::Result<()> {
        sleep(Duration::from_millis(1));
        Ok(())
    }

    #[test]
    fn name_stays_until_the_program_accepts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut pauses = 0;
        let mut accepted = None;
        let (socket, _first) = ProgramSocket::wait(&path, Pid::this(), || {
            pauses += 1;
            // As Codex 0.153.4, which ends if this fails.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            accepted = (pauses == 3).then(|| listener.accept().unwrap());
            Ok(())
        })
        .unwrap();
        assert!(accepted.is_some() && !path.exists());
        let _second = socket.connect().unwrap();
    }

    #[test]
    fn failed_pause_ends_the_wait() {
        let directory = tempfile::tempdir().unwrap();
        let gone = || Err(io::ErrorKind::BrokenPipe.into());
        let failed = ProgramSocket::wait(&directory.path().join("s"), Pid::this(), gone);
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn only_the_guard_has_connected() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("s"), directory.path().join("l"));
        let listener = UnixListener::bind(&path).unwrap();
        symlink(&path, &link).unwrap();
        let (socket, _first) = ProgramSocket::wait(&link, Pid::this(), pause).unwrap();
        assert!(!path.exists() && !link.is_symlink());
        let _second = socket.connect().unwrap();
        for _ in 0..2 {
            listener.accept().unwrap();
        }
    }

    #[test]
    fn earlier_connection_is_noticed() {
        for is_accepted in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("s");
            let listener = UnixListener::bind(&path).unwrap();
            let _before = UnixStream::connect(&path).unwrap();
            let _accepted = is_accepted.then(|| listener.accept().unwrap());
            let refused = ProgramSocket::wait(&path, Pid::this(), pause).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains("2 connections"), "{refused}");
        }
    }

    #[test]
    fn socket_of_another_process_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = UnixListener::bind(&path).unwrap();
        let refused = ProgramSocket::wait(&path, Pid::from_raw(1), pause).unwrap_err();
        assert!(refused.to_string().contains("listens on"), "{refused}");
    }

    #[test]
    fn file_that_is_no_socket_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        fs::create_dir(&path).unwrap();
        assert!(ProgramSocket::wait(&path, Pid::this(), pause).is_err());
    }

    #[test]
    fn sockets_of_other_names_do_not_count() {
        let known = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1 /a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 2 /a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 3 /x/a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 02     0 /a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 02     0 /a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 2 /a b/s\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 5\n";
        let expected = Connections {
            accepted: BTreeSet::from(["2".to_owned()]),
            waiting: 2,
        };
        assert_eq!(Connections::parse(known, Path::new("/a b/s")), expected);
        let none = Connections::default();
        assert_eq!(Connections::parse(known, Path::new("/s")), none);
    }
}
