//! The host's side: takes clients until it is told to end, or has had none for a while.

use std::io;
use std::process;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::line;
use crate::logic::handshake::{
    Answer, HostStatus, LINE_LIMIT, Request, ServeRequest, SessionSummary,
};
use crate::place::{HostLock, accept};

/// How long a client may take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a failure to accept a client, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The clients of a host, counted.
#[derive(Debug, Clone)]
pub struct Clients {
    count: Rc<watch::Sender<usize>>,
    since: Instant,
}

/// A client while it is served.
#[derive(Debug)]
pub struct Client {
    count: Rc<watch::Sender<usize>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            count: Rc::new(watch::Sender::new(0)),
            since: Instant::now(),
        }
    }
}

impl Clients {
    fn enter(&self) -> Client {
        self.count.send_modify(|count| *count += 1);
        Client {
            count: Rc::clone(&self.count),
        }
    }

    fn status(&self) -> HostStatus {
        HostStatus {
            pid: process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.since.elapsed(),
            clients: *self.count.borrow(),
        }
    }

    /// Completes when there has been no client for this long.
    async fn idle_for(&self, idle: Duration) {
        let mut count = self.count.subscribe();
        loop {
            let is_empty = *count.borrow_and_update() == 0;
            let deadline = Instant::now() + idle;
            tokio::select! {
                // Fails only without the sender, which this has.
                _ = count.changed() => {}
                () = sleep_until(deadline), if is_empty => return,
            }
        }
    }

    /// Completes when there is no client.
    async fn gone(&self) {
        let mut count = self.count.subscribe();
        // Fails only without the sender, which this has.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

/// The work of a host.
pub trait HostService: 'static {
    /// Begins to serve a client, on a task of its own, which ends when the host closes.
    fn serve(&self, request: ServeRequest, stream: UnixStream, client: Client);

    /// All sessions.
    fn sessions(&self) -> Vec<SessionSummary>;
}

/// Takes clients until `closing` is cancelled or nobody has been served for `idle`, and then
/// waits for those that are served.
///
/// # Errors
///
/// When the socket cannot be removed.
pub async fn run(
    lock: &HostLock,
    listener: UnixListener,
    idle: Duration,
    closing: CancellationToken,
    service: impl HostService,
) -> io::Result<()> {
    let clients = Clients::default();
    let service = Rc::new(service);
    tokio::select! {
        () = take(&listener, &clients, &closing, service) => {}
        () = clients.idle_for(idle) => tracing::info!("the host leaves: it serves nobody"),
        () = closing.cancelled() => {}
    }
    // A client that connects from now on starts another host.
    lock.close()?;
    drop(listener);
    clients.gone().await;
    Ok(())
}

async fn take(
    listener: &UnixListener,
    clients: &Clients,
    closing: &CancellationToken,
    service: Rc<impl HostService>,
) {
    loop {
        match accept(listener).await {
            Ok(stream) => {
                let (clients, closing) = (clients.clone(), closing.clone());
                let service = Rc::clone(&service);
                tokio::task::spawn_local(async move {
                    if let Err(error) = answer(stream, &clients, &closing, &*service).await {
                        tracing::warn!("a client could not be answered: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("a client could not be accepted: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn answer(
    mut stream: UnixStream,
    clients: &Clients,
    closing: &CancellationToken,
    service: &impl HostService,
) -> io::Result<()> {
    let request = timeout(REQUEST_TIMEOUT, line::read(&mut stream, LINE_LIMIT)).await;
    match request {
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
        // It has only looked whether there is a host.
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(Request::Serve(wanted)))) => {
            service.serve(wanted, stream, clients.enter());
            Ok(())
        }
        Ok(Ok(Some(Request::Status))) => {
            line::write(&mut stream, &Answer::Status(clients.status())).await
        }
        Ok(Ok(Some(Request::Sessions))) => {
            line::write(&mut stream, &Answer::Sessions(service.sessions())).await
        }
        Ok(Ok(Some(Request::Stop))) => {
            closing.cancel();
            line::write(&mut stream, &Answer::Stopping).await
        }
        Ok(Err(error)) => {
            let why = error.to_string();
            line::write(&mut stream, &Answer::Refused { why }).await
        }
    }
}

/// Tells a client that it is served from now on, or why it is not.
///
/// # Errors
///
/// When the client has gone.
pub async fn reply(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    line::write(stream, answer).await
}
