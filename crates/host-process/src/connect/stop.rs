//! Ends and restarts the host.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::{
    ConnectError, PAUSE, START_TIMEOUT, ask_connected, check_no_host, connect_running, status,
    unexpected,
};
use crate::endpoint::HostEndpoint;
use crate::logic::handshake::{Answer, Request};

/// How long a host may take to end (90 s). Before it ends, Codex may write a summary of each thread.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// Tells the host of an endpoint to end, and waits until it has; `false` if there is none.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn stop(endpoint: &HostEndpoint) -> Result<bool, ConnectError> {
    let Some(mut stream) = connect_running(endpoint).await? else {
        return Ok(false);
    };
    match ask_connected(endpoint, &mut stream, &Request::Stop).await? {
        Some(Answer::Stopping) => {}
        Some(other) => return Err(unexpected(&other)),
        None => return Ok(false),
    }
    until_ended(endpoint, stream).await?;
    Ok(true)
}

/// How a host was restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restarted {
    /// There is no host.
    Missing,
    /// It has ended, and had nothing for the next host.
    Ended,
    /// The next host listens. Its log says if it could not take over an app-server.
    HandedOver,
}

/// Tells the host of an endpoint to restart, and waits until the next one listens.
///
/// # Errors
///
/// [`ConnectError::Busy`] if turns would end, [`ConnectError::BetweenHosts`] if the next host may have
/// sessions, and the others.
pub async fn restart(endpoint: &HostEndpoint) -> Result<Restarted, ConnectError> {
    let Some(mut stream) = connect_running(endpoint).await? else {
        return check_no_host(endpoint).await.map(|()| Restarted::Missing);
    };
    let asked = ask_connected(endpoint, &mut stream, &Request::Restart).await;
    let restarted = match asked.map_err(unable_to_restart)? {
        Some(Answer::Stopping) => Restarted::Ended,
        Some(Answer::HandingOver) => Restarted::HandedOver,
        Some(Answer::Busy { pid, turns }) => return Err(ConnectError::Busy { pid, turns }),
        Some(other) => return Err(unexpected(&other)),
        None => return check_no_host(endpoint).await.map(|()| Restarted::Missing),
    };
    until_ended(endpoint, stream).await?;
    if restarted == Restarted::HandedOver {
        until_next(endpoint).await?;
    }
    Ok(restarted)
}

/// The refusal to restart, with what can be done: a host of an older version knows no such request.
fn unable_to_restart(error: ConnectError) -> ConnectError {
    match error {
        ConnectError::Refused(why) => ConnectError::Refused(format!(
            "{why}; if its version is older than this one, only `codex-mcp host stop` ends it, with \
             its turns"
        )),
        other => other,
    }
}

/// Waits until the next host listens, which the last one has started.
async fn until_next(endpoint: &HostEndpoint) -> Result<(), ConnectError> {
    let deadline = Instant::now() + START_TIMEOUT;
    while status(endpoint).await?.is_none() {
        if Instant::now() >= deadline {
            return Err(ConnectError::TooSlow {
                log: endpoint.log(),
            });
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Waits for the end of a host, which closes the connection.
async fn until_ended(endpoint: &HostEndpoint, mut stream: UnixStream) -> Result<(), ConnectError> {
    let mut rest = Vec::new();
    match timeout(STOP_TIMEOUT, stream.read_to_end(&mut rest)).await {
        Ok(_) => Ok(()),
        Err(_) => Err(ConnectError::Silent {
            log: endpoint.log(),
        }),
    }
}
