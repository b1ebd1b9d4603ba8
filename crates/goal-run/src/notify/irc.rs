//! Delivery to an IRC channel over plain TCP: anyone on the network path can read and change
//! the line.
//!
//! [`ChannelSender`] decides the protocol; this module moves bytes.

use std::io;
use std::time::Duration;

use codex_protocol::lines::{Frame, LineDecoder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::connect::{AddressScope, connect};
use crate::logic::irc::address::IrcAddress;
use crate::logic::irc::{ChannelSender, IrcError, ReadEnd};

/// The longest line that is read, in bytes: 512, and up to 8191 of tags before that (IRCv3,
/// message tags). Longer lines are skipped.
const LONGEST_LINE: usize = 8191 + 512;

/// How much is read in all, in bytes: a long message of the day, and the names in a channel
/// of many thousands.
const LONGEST_TALK: usize = 1024 * 1024;

/// Why a line was not sent to a channel.
#[derive(Debug, thiserror::Error)]
pub enum IrcFailure {
    /// There is no connection.
    #[error("{host}, port {port}, cannot be reached: {error}")]
    Unreachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        error: io::Error,
    },
    /// The line was not sent.
    #[error("{host}, port {port}: {error}")]
    NotSent {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        error: IrcError,
    },
}

pub(super) async fn send(
    address: &IrcAddress,
    line: &str,
    limit: Duration,
) -> Result<(), IrcFailure> {
    let until = Instant::now() + limit;
    let (host, port) = (address.host.to_string(), address.port);
    let connected = timeout_at(
        until,
        connect(address.host.as_str(), port, AddressScope::Anywhere),
    )
    .await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) => return Err(IrcFailure::Unreachable { host, port, error }),
    };
    let mut sender = ChannelSender::new(address.channel.clone(), line);
    let talked = timeout_at(until, talk(&mut stream, &mut sender)).await;
    let said = talked
        .unwrap_or(Ok(ReadEnd::TimedOut))
        .and_then(|read_end| sender.end(read_end));
    said.map_err(|error| IrcFailure::NotSent { host, port, error })
}

/// Talks to the server until nothing more is to be read.
async fn talk(stream: &mut TcpStream, sender: &mut ChannelSender) -> Result<ReadEnd, IrcError> {
    let mut decoder = LineDecoder::new(LONGEST_LINE);
    let mut received = 0;
    let mut answer = sender.registration();
    loop {
        // A failed write shows at the next read, perhaps with a reason.
        let _ = stream.write_all(answer.as_bytes()).await;
        answer.clear();
        let count = stream.read(decoder.space()).await.unwrap_or(0);
        received += count;
        match count {
            0 => return Ok(ReadEnd::Closed),
            _ if received > LONGEST_TALK => return Ok(ReadEnd::Flood),
            count => decoder.filled(count),
        }
        while let Some(frame) = decoder.next_frame() {
            if let Frame::Line(line) = frame {
                answer += &sender.receive(line)?;
            }
        }
    }
}
