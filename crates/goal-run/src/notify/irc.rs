//! By IRC, over plain TCP: whoever is on the way can read the line and change it.
//!
//! What is said and understood is decided by [`Speaker`]; here bytes are moved.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use codex_protocol::lines::{Frame, LineDecoder};
use supervise::io_thread::IoThread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::logic::irc::address::IrcAddress;
use crate::logic::irc::{IrcError, Silence, Speaker};

/// The longest line that is listened to, in bytes. They have 512, and up to 8191 of
/// tags before that (IRCv3, message tags); longer ones say nothing to us.
const LONGEST_LINE: usize = 8191 + 512;

/// How much is listened to in all, in bytes: a long message of the day, and the names
/// of a channel of many thousands.
const LONGEST_TALK: usize = 1024 * 1024;

/// How many addresses of a host are tried.
const ADDRESSES: usize = 4;

/// How long each of them may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Why a line was not said in a channel.
#[derive(Debug, thiserror::Error)]
pub enum IrcFailure {
    /// There is no connection.
    #[error("{host}, port {port}, can't be reached: {error}")]
    Unreachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        error: io::Error,
    },
    /// It was not said.
    #[error("{host}, port {port}: {error}")]
    Unsaid {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        error: IrcError,
    },
}

pub(super) async fn tell(
    address: &IrcAddress,
    line: &str,
    patience: Duration,
) -> Result<(), IrcFailure> {
    let until = Instant::now() + patience;
    let (host, port) = (address.host.to_string(), address.port);
    let connected = timeout_at(until, connect(address)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(error) => return Err(IrcFailure::Unreachable { host, port, error }),
    };
    let mut speaker = Speaker::new(address.channel.clone(), line);
    let talked = timeout_at(until, talk(&mut stream, &mut speaker)).await;
    let said = talked
        .unwrap_or(Ok(Silence::TimedOut))
        .and_then(|silence| speaker.end(silence));
    said.map_err(|error| IrcFailure::Unsaid { host, port, error })
}

async fn connect(address: &IrcAddress) -> io::Result<TcpStream> {
    let mut last = io::Error::other("its name has no address");
    for found in resolve(address).await? {
        last = match timeout(CONNECT_PATIENCE, TcpStream::connect(found)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(last)
}

/// The system's resolver blocks.
async fn resolve(address: &IrcAddress) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = (address.host.as_str().to_owned(), address.port);
    let look = move || {
        let found = (host.as_str(), port).to_socket_addrs()?;
        Ok(found.take(ADDRESSES).collect())
    };
    let asked = IoThread::start()?.ask(look).await;
    asked.map_err(io::Error::other)?
}

/// Talks until the server has said all that it will.
async fn talk(stream: &mut TcpStream, speaker: &mut Speaker) -> Result<Silence, IrcError> {
    let mut decoder = LineDecoder::new(LONGEST_LINE);
    let mut heard = 0;
    let mut answer = speaker.greeting();
    loop {
        // That it can't be written shows when it is read on, perhaps with a reason.
        let _ = stream.write_all(answer.as_bytes()).await;
        answer.clear();
        let count = stream.read(decoder.space()).await.unwrap_or(0);
        heard += count;
        match count {
            0 => return Ok(Silence::Closed),
            _ if heard > LONGEST_TALK => return Ok(Silence::Flood),
            count => decoder.filled(count),
        }
        while let Some(frame) = decoder.next_frame() {
            if let Frame::Line(line) = frame {
                answer += &speaker.hear(line)?;
            }
        }
    }
}
