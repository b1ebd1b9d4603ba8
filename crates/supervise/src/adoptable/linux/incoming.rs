//! Reads the guard's messages on the owner's side of the control stream.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use super::descriptors::receive;
use super::messages::{GuardMessage, LineBuffer};

/// The size of the read buffer, in bytes.
const BUFFER: usize = 64 << 10;

/// Reads the messages of a guard.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    lines: LineBuffer,
    /// Messages of lines that were read and not returned yet.
    messages: VecDeque<GuardMessage>,
    /// The file descriptor that came last.
    descriptor: Option<OwnedFd>,
}

/// The connection and values that a new owner gets.
#[derive(Debug)]
pub(super) struct Handover {
    pub(super) connection: TcpStream,
    pub(super) kept: BTreeMap<String, String>,
}

impl Incoming {
    /// The next message; `None` at the end of the stream. Nothing is lost if the future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Those of the stream, and [`io::ErrorKind::InvalidData`] for a line that is no message.
    pub(super) async fn next(&mut self, stream: &UnixStream) -> io::Result<Option<GuardMessage>> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Ok(Some(message));
            }
            let mut buffer = vec![0; BUFFER];
            let read = || receive(stream, &mut buffer);
            let (count, descriptor) = match stream.async_io(Interest::READABLE, read).await {
                Ok(received) => received,
                // The guard has ended with unread data in its socket.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            };
            if count == 0 {
                return Ok(None);
            }
            self.descriptor = descriptor.or(self.descriptor.take());
            self.add(buffer.get(..count).unwrap_or_default())?;
        }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut result = Ok(());
        let messages = &mut self.messages;
        self.lines
            .push(bytes, |line| match serde_json::from_slice(line) {
                Ok(message) => messages.push_back(message),
                Err(error) => result = Err(error.into()),
            });
        result
    }

    /// Waits until the program is handed over.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the program or the guard ends before; the guard's
    /// reason if it does not hand the program over.
    pub(super) async fn handover(&mut self, stream: &UnixStream) -> io::Result<Handover> {
        let mut kept = BTreeMap::new();
        loop {
            match self.next(stream).await? {
                Some(GuardMessage::Keep(entry)) => {
                    kept.insert(entry.key, entry.value);
                }
                Some(GuardMessage::HandedOver) => break,
                Some(GuardMessage::Failed(why)) => return Err(io::Error::other(why)),
                Some(GuardMessage::Challenge(_)) => return Err(io::ErrorKind::InvalidData.into()),
                Some(GuardMessage::Exit(_)) | None => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "the connection is missing");
        let connection = StdTcpStream::from(self.descriptor.take().ok_or_else(missing)?);
        connection.set_nonblocking(true)?;
        let connection = TcpStream::from_std(connection)?;
        Ok(Handover { connection, kept })
    }
}
