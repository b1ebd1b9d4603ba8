//! TCP connections to servers by name.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use supervise::io_thread::IoThread;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How many addresses of a host are tried.
const ADDRESSES: usize = 4;

/// How long a connection to each address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Which addresses of a host are connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressScope {
    /// All.
    Anywhere,
    /// Those of this machine.
    Loopback,
}

/// Connects to a host; an IPv6 address has no brackets.
pub(super) async fn connect(host: &str, port: u16, scope: AddressScope) -> io::Result<TcpStream> {
    let mut last = io::Error::other("its name has no address");
    for found in resolve(host, port, scope).await? {
        last = match timeout(CONNECT_TIMEOUT, TcpStream::connect(found)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(last)
}

/// The system's resolver blocks.
async fn resolve(host: &str, port: u16, scope: AddressScope) -> io::Result<Vec<SocketAddr>> {
    let host = host.to_owned();
    let look = move || {
        let found = (host.as_str(), port).to_socket_addrs()?;
        let fits =
            |address: &SocketAddr| scope == AddressScope::Anywhere || address.ip().is_loopback();
        Ok(found.filter(fits).take(ADDRESSES).collect())
    };
    let asked = IoThread::start()?.run(look).await;
    asked.map_err(io::Error::other)?
}
