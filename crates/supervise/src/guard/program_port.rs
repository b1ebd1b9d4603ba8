//! The loopback port on which the program listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

/// What precedes the port in the line in which the program says where it listens. The source is
/// the output of Codex 0.130.0, 0.153.4 and 0.169.0: `  listening on: ws://127.0.0.1:40393`.
const ADDRESS: &[u8] = b"ws://127.0.0.1:";

/// The longest line that is searched, in bytes.
const LINE_LIMIT: usize = 4096;

/// How long a connection may take. On loopback it waits only while too many others are not
/// accepted.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The port of a program.
#[derive(Debug)]
pub(super) struct ProgramPort {
    port: u16,
    /// Means the program also when its ID has become that of another process.
    program: OwnedFd,
}

impl ProgramPort {
    /// # Errors
    ///
    /// If the program has been reaped.
    pub(super) fn new(port: u16, program: Pid) -> io::Result<Self> {
        let program =
            rustix::process::Pid::from_raw(program.as_raw()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            port,
            program: pidfd_open(program, PidfdFlags::empty())?,
        })
    }

    /// Makes another connection.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] if the program has ended; those of connect(2).
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        // The port of a program that has ended may be that of another one by now, which must not
        // get what the owner sends to prove that it may connect. The program holds its port as
        // long as it lives, so it had the port when the connection was made if it lives now.
        match self.has_ended()? {
            true => Err(io::ErrorKind::NotConnected.into()),
            false => Ok(stream),
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        let mut program = [PollFd::new(&self.program, PollFlags::IN)];
        match poll(&mut program, Some(&Timespec::default())) {
            Ok(count) => Ok(count > 0),
            Err(error) => Err(error.into()),
        }
    }
}

/// Finds the port in what the program writes to its stderr.
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
    let digits = line.get(start..)?.trim_ascii_end();
    std::str::from_utf8(digits).ok()?.parse().ok()
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
        let found = ProgramPort::new(port, Pid::from_raw(id)).unwrap();
        assert!(found.connect().is_ok());
        drop(program.stdin.take());
        program.wait().unwrap();
        let kind = found.connect().unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::NotConnected);
    }
}
