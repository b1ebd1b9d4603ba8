//! Listens, and bounds what a client may take of this process.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
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

/// The most connections at a time. Further ones wait to be accepted.
const CONNECTIONS: usize = 512;

/// How long a client may take to send the head of a request, also the next one of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client may take nothing of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The most that is read ahead of a connection, in bytes: the limit of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;

/// The pause after a failure to accept a connection, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `closing` is cancelled. Open connections end with it.
pub(crate) async fn serve(listener: TcpListener, routes: Router, closing: CancellationToken) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let accepting = async {
        loop {
            // The semaphore is never closed.
            let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, from)) => {
                    let connection = connection(stream, from, routes.clone(), permit);
                    let closing = closing.clone();
                    tokio::spawn(async move {
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

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    routes: Router,
    _permit: OwnedSemaphorePermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("small messages may be late: {error}");
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

/// Listens at an address.
///
/// # Errors
///
/// When the address is taken, or not one of this machine.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

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
