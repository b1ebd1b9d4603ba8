//! Listens for connections, and bounds the resources of this process that clients may use.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{Extension, Router};
use common::sync::lock;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::logic::access::CredentialId;

/// The most connections at a time. To admit one more, the oldest connection of the client with the
/// most connections is closed.
const CONNECTIONS: usize = 512;

/// The most connections at a time with the same credential, and of all clients without a valid one.
/// To admit one more, the oldest is closed.
const CONNECTIONS_OF_ONE: usize = 128;

/// The number of attempts to find a port that is free at all addresses.
const PORTS: usize = 16;

/// How long a client may take to send the head of a request, including the next one on the same
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may read nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The most that is read ahead of a connection, in bytes: the limit of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;

/// The pause after a failure to accept a connection, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sockets of the endpoint.
#[derive(Debug)]
pub struct Listener {
    main: TcpListener,
    /// The same port at the other loopback address. A browser that is given `localhost`, or a name
    /// below it, tries both addresses, and another user of this machine could take the one that we
    /// leave free.
    other: Option<TcpListener>,
}

impl Listener {
    /// Listens at an address. If `localhost` leads there, also listens at the other loopback
    /// address.
    ///
    /// # Errors
    ///
    /// When the address is taken, or not one of this machine.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        for _ in 1..PORTS {
            match Self::bind_once(address).await {
                // The port that is free at one address is taken at the other one.
                Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Self::bind_once(address).await
    }

    async fn bind_once(address: SocketAddr) -> io::Result<Self> {
        let main = TcpListener::bind(address).await?;
        let other: IpAddr = match address.ip() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
            _ => return Ok(Self { main, other: None }),
        };
        let port = main.local_addr()?.port();
        let other = match TcpListener::bind((other, port)).await {
            Ok(other) => Some(other),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // There is no such address where the system has no IPv6.
            Err(error) => {
                tracing::debug!("cannot listen at {other}: {error}");
                None
            }
        };
        Ok(Self { main, other })
    }

    /// The address at which it was asked to listen, with the port that it has.
    ///
    /// # Errors
    ///
    /// When the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.main.local_addr()
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let Some(other) = &self.other else {
            return self.main.accept().await;
        };
        tokio::select! {
            accepted = self.main.accept() => accepted,
            accepted = other.accept() => accepted,
        }
    }
}

/// The open connections, oldest first, each with the credential that its client has shown. If one
/// credential, or the clients without one, have too many, the oldest of them is closed, so that
/// they cannot keep others out.
#[derive(Debug, Default)]
struct Connections(Mutex<Vec<OpenConnection>>);

#[derive(Debug)]
struct OpenConnection {
    number: u64,
    owner: Option<CredentialId>,
    closing: CancellationToken,
}

impl Connections {
    fn add(&self, number: u64) -> CancellationToken {
        let closing = CancellationToken::new();
        let mut all = lock(&self.0);
        make_room(&mut all, None);
        if all.len() >= CONNECTIONS {
            close_of_greediest(&mut all);
        }
        all.push(OpenConnection {
            number,
            owner: None,
            closing: closing.clone(),
        });
        closing
    }

    /// Notes that the client of a connection has shown a valid credential.
    fn recognise(&self, number: u64, owner: &CredentialId) {
        let mut all = lock(&self.0);
        let Some(at) = all.iter().position(|one| one.number == number) else {
            return;
        };
        if all
            .get(at)
            .is_some_and(|one| one.owner.as_ref() == Some(owner))
        {
            return;
        }
        let mut connection = all.remove(at);
        make_room(&mut all, Some(owner));
        connection.owner = Some(owner.clone());
        let at = all.partition_point(|one| one.number < number);
        all.insert(at, connection);
    }

    fn remove(&self, number: u64) {
        lock(&self.0).retain(|one| one.number != number);
    }
}

/// Makes room for one more connection of an owner.
fn make_room(all: &mut Vec<OpenConnection>, owner: Option<&CredentialId>) {
    let is_theirs = |one: &OpenConnection| one.owner.as_ref() == owner;
    if all.iter().filter(|one| is_theirs(one)).count() >= CONNECTIONS_OF_ONE
        && let Some(at) = all.iter().position(is_theirs)
    {
        all.remove(at).closing.cancel();
    }
}

/// Closes the oldest connection of the owner with the most.
fn close_of_greediest(all: &mut Vec<OpenConnection>) {
    let owners = all.iter().map(|one| &one.owner);
    let mut counts = HashMap::<_, usize>::new();
    owners.for_each(|owner| *counts.entry(owner).or_default() += 1);
    let greediest = counts.into_iter().max_by_key(|(_, count)| *count);
    let oldest = greediest.and_then(|(owner, _)| all.iter().position(|one| one.owner == *owner));
    if let Some(at) = oldest {
        all.remove(at).closing.cancel();
    }
}

/// A connection, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<ConnectionGuard>);

#[derive(Debug)]
struct ConnectionGuard {
    number: u64,
    connections: Arc<Connections>,
}

impl Connection {
    /// Notes that the client has shown a valid credential.
    pub(crate) fn recognise(&self, owner: &CredentialId) {
        self.0.connections.recognise(self.0.number, owner);
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.remove(self.number);
    }
}

/// Serves until `closing` is cancelled. Open connections end with it.
pub(crate) async fn serve(listener: Listener, routes: Router, closing: CancellationToken) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = Arc::new(Connections::default());
    let accepting = async {
        for number in 0.. {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let given_up = connections.add(number);
                    // A connection that was just closed releases its permit. The semaphore is never
                    // closed.
                    let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
                        return;
                    };
                    let guard = ConnectionGuard {
                        number,
                        connections: Arc::clone(&connections),
                    };
                    let connection = Connection(Arc::new(guard));
                    let routes = routes.clone().layer(Extension(connection));
                    let connection = serve_connection(stream, from, routes, permit);
                    let closing = closing.clone();
                    tokio::spawn(async move {
                        let connection = given_up.run_until_cancelled(connection);
                        closing.run_until_cancelled(connection).await;
                    });
                }
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    closing.run_until_cancelled(accepting).await;
}

async fn serve_connection(
    stream: TcpStream,
    from: SocketAddr,
    routes: Router,
    _permit: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("cannot set TCP_NODELAY: {error}");
    }
    let mut routes = routes.into_make_service_with_connect_info::<SocketAddr>();
    let Ok(service) = routes.call(from).await;
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(
            TokioIo::new(in_time(stream)),
            TowerToHyperService::new(service),
        )
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection has ended: {error}");
    }
}

/// The stream of a client, which fails if the client does not read.
fn in_time<S: AsyncRead + AsyncWrite>(stream: S) -> Pin<Box<TimeoutStream<S>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    Box::pin(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn both_loopback_addresses_are_listened_at() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let listener = Listener::bind((v4, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Without IPv6 nobody can take it.
        let taken = TcpListener::bind((v6, port)).await;
        assert!(taken.is_err(), "{taken:?}");
        drop(listener);
        if let Ok(theirs) = TcpListener::bind((v6, 0)).await {
            let port = theirs.local_addr().unwrap().port();
            let error = Listener::bind((v4, port).into()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    }

    #[test]
    fn oldest_of_too_many_connections_of_one_client_is_given_up() {
        let (mine, theirs) = (
            CredentialId::of_test("mine"),
            CredentialId::of_test("theirs"),
        );
        for owner in [None, Some(&theirs)] {
            let connections = Connections::default();
            let open = |number, owner: Option<&CredentialId>| {
                let closing = connections.add(number);
                if let Some(owner) = owner {
                    connections.recognise(number, owner);
                    // Each further request shows it again.
                    connections.recognise(number, owner);
                }
                closing
            };
            let first = open(0, owner);
            let known = open(1, Some(&mine));
            let others: Vec<_> = (2..=CONNECTIONS_OF_ONE as u64)
                .map(|number| open(number, owner))
                .collect();
            assert!(!first.is_cancelled(), "{owner:?}");
            let last = open(1000, owner);
            assert!(first.is_cancelled(), "{owner:?}");
            let kept = others.iter().chain([&known, &last]);
            assert!(!kept.into_iter().any(CancellationToken::is_cancelled));
        }
    }

    #[test]
    fn greedy_clients_keep_nobody_out() {
        let connections = Connections::default();
        let few = CredentialId::of_test("few");
        let mine: Vec<_> = (0..3)
            .map(|number| open(&connections, number, &few))
            .collect();
        let greedy = (3..2000).map(|number| {
            let owner = CredentialId::of_test(&(number % 7).to_string());
            open(&connections, number, &owner)
        });
        let greedy: Vec<_> = greedy.collect();
        let kept = greedy.iter().filter(|one| !one.is_cancelled()).count();
        assert_eq!(kept + mine.len(), CONNECTIONS);
        assert!(!mine.iter().any(CancellationToken::is_cancelled));
    }

    fn open(connections: &Connections, number: u64, owner: &CredentialId) -> CancellationToken {
        let closing = connections.add(number);
        connections.recognise(number, owner);
        closing
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_given_up() {
        let (near, mut far) = duplex(16);
        let mut near = in_time(near);
        near.write_all(&[0; 16]).await.unwrap();
        // It reads slowly, and is waited for.
        let writing = near.write_all(&[0; 3]);
        let reading = async {
            for _ in 0..3 {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(writing, reading);
        written.unwrap();
        let error = near.write_all(&[0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
