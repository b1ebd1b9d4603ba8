//! The loopback port on which the program listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

/// The text before the port in the line with which the program reports where it listens. Source:
/// the output of Codex 0.130.0, 0.153.4 and 0.169.0: `  listening on: ws://127.0.0.1:40393`.
const ADDRESS: &[u8] = b"ws://127.0.0.1:";

/// The longest line that is searched, in bytes.
const LINE_LIMIT: usize = 4096;

/// How long a connection may take. On loopback, a connection waits only while the queue of
/// unaccepted connections is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of a program.
///
/// A connection is made long before an owner gets it. A program that ends closes its port first
/// (Codex 0.153.4 and 0.169.0 live some 30 ms longer). A connection made after that could lead to
/// another process, which must not receive the secret with which the owner proves that it may
/// connect.
#[derive(Debug)]
pub(super) struct ProgramPort {
    port: u16,
    /// The connection for the next owner.
    spare: Option<TcpStream>,
    /// Identifies the program even if its process ID is reused.
    program: OwnedFd,
}

impl ProgramPort {
    /// # Errors
    ///
    /// If the program has been reaped.
    pub(super) fn new(port: u16, program: Pid) -> io::Result<Self> {
        let program =
            rustix::process::Pid::from_raw(program.as_raw()).ok_or(io::ErrorKind::NotFound)?;
        let mut found = Self {
            port,
            spare: None,
            program: pidfd_open(program, PidfdFlags::empty())?,
        };
        found.spare = Some(found.connect()?);
        Ok(found)
    }

    /// Takes the connection for the next owner, and makes one for the owner after that.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] if the program has ended; those of connect(2).
    pub(super) fn take_connection(&mut self) -> io::Result<TcpStream> {
        let spare = self.spare.take().filter(is_open);
        let connection = match spare {
            Some(spare) => spare,
            None => self.connect()?,
        };
        self.spare = self.connect().ok();
        match self.has_ended()? {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(connection),
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
    }

    fn has_ended(&self) -> io::Result<bool> {
        let mut program = [PollFd::new(&self.program, PollFlags::IN)];
        match poll(&mut program, Some(&Timespec::default())) {
            Ok(count) => Ok(count > 0),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the peer has not closed the connection. The peer sends nothing before a request.
fn is_open(stream: &TcpStream) -> bool {
    let peeked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut [0]));
    matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// Finds the port in the program's stderr.
#[derive(Debug, Default)]
pub(super) struct PortFinder {
    line: Vec<u8>,
}

impl PortFinder {
    /// The port, once its line is complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<u16> {
        for &byte in bytes {
            if byte == b'\n' {
                let found = port_in(&self.line);
                self.line.clear();
                if found.is_some() {
                    return found;
                }
            } else if self.line.len() < LINE_LIMIT {
                self.line.push(byte);
            }
        }
        None
    }
}

fn port_in(line: &[u8]) -> Option<u16> {
    let mut places = line.windows(ADDRESS.len());
    let start = places.position(|place| place == ADDRESS)? + ADDRESS.len();
    let after = line.get(start..)?;
    let length = after
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let (digits, rest) = after.split_at_checked(length)?;
    // Codex colours the address if FORCE_COLOR is set.
    let is_end = matches!(rest.first(), None | Some(b' ' | b'\r' | 0x1b));
    let port = std::str::from_utf8(digits).ok()?.parse().ok();
    port.filter(|_| is_end)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn port_is_found_in_any_pieces() {
        let said = b"WARNING: x\ncodex app-server (WebSockets)\n  listening on: \
            ws://127.0.0.1:40393\n  readyz: http://127.0.0.1:40393/readyz\n";
        for size in 1..said.len() {
            let mut finder = PortFinder::default();
            let found = said.chunks(size).find_map(|piece| finder.push(piece));
            assert_eq!(found, Some(40393), "{size}");
        }
    }

    #[test]
    fn port_is_found_in_colour() {
        let said = b"  listening on: \x1b[32mws://127.0.0.1:40393\x1b[0m\n";
        assert_eq!(PortFinder::default().push(said), Some(40393));
    }

    #[test]
    fn other_lines_have_no_port() {
        let long = "x".repeat(2 * LINE_LIMIT);
        for said in [
            "ws://127.0.0.1:4039",
            "ws://127.0.0.1:\n",
            "ws://127.0.0.1:70000\n",
            "ws://127.0.0.1:1/x\n",
            "ws://[::1]:40393\n",
            &format!("{long}ws://127.0.0.1:4039\n"),
        ] {
            assert_eq!(PortFinder::default().push(said.as_bytes()), None, "{said}");
        }
    }

    /// The port of a program that has ended belongs to another one.
    #[test]
    fn port_of_an_ended_program_is_not_used() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        #[expect(clippy::disallowed_methods, reason = "a program that ends by itself")]
        let mut program = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let id = i32::try_from(program.id()).unwrap();
        let mut found = ProgramPort::new(port, Pid::from_raw(id)).unwrap();
        let before = listener.accept().unwrap();
        let connection = found.take_connection().unwrap();
        assert_eq!(
            connection.local_addr().unwrap(),
            before.1,
            "it was made before"
        );
        drop(program.stdin.take());
        program.wait().unwrap();
        let kind = found.take_connection().unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::NotConnected);
    }

    #[test]
    fn connection_that_the_program_has_closed_is_made_again() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut found = ProgramPort::new(port, Pid::this()).unwrap();
        drop(listener.accept().unwrap());
        let connection = found.take_connection().unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        assert_eq!(connection.local_addr().unwrap(), peer);
    }
}
