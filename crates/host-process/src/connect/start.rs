//! Starts the host that a client needs.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use safe_files::state_file::{self, FileError};
use supervise::spawn::{DetachedProgram, spawn_detached};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep, timeout};

use super::{
    ANSWER_TIMEOUT, ConnectError, PAUSE, START_TIMEOUT, ask, is_closed, is_missing, is_refused,
    unexpected,
};
use crate::endpoint::HostEndpoint;
use crate::logic::handshake::{Answer, Request, ServeRequest};

/// The only line that a host prints on stdout: this, [`TAKEN`], or why it cannot work.
pub const READY: &str = "ready";

/// The line of a host that has found another one, see [`READY`].
pub const TAKEN: &str = "taken";

/// Connects to the host of an endpoint, which is started if there is none, and asks it to serve.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn serve(
    endpoint: &HostEndpoint,
    args: &[OsString],
    request: &ServeRequest,
) -> Result<UnixStream, ConnectError> {
    let request = Request::Serve(request.clone());
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let mut stream = match endpoint.connect().await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error) && Instant::now() >= deadline => {
                return Err(ConnectError::TooSlow {
                    log: endpoint.log(),
                });
            }
            Err(error) if is_missing(&error) => {
                match start(endpoint, args).await? {
                    Started::Ready => {}
                    Started::Taken => sleep(PAUSE).await,
                }
                continue;
            }
            Err(error) => return Err(ConnectError::Connect(error)),
        };
        match timeout(ANSWER_TIMEOUT, ask(endpoint, &mut stream, &request)).await {
            Ok(Ok(Some(Answer::Serving))) => return Ok(stream),
            Ok(Ok(Some(Answer::Refused { why }))) => return Err(ConnectError::Refused(why)),
            Ok(Ok(Some(other))) => {
                return Err(unexpected(&other));
            }
            Ok(Err(error)) if is_refused(&error) => return Err(ConnectError::Connect(error)),
            Ok(Err(error)) if !is_closed(&error) => return Err(ConnectError::Ask(error)),
            // It has left just now.
            Ok(Ok(None) | Err(_)) if Instant::now() < deadline => sleep(PAUSE).await,
            Ok(Ok(None) | Err(_)) => {
                return Err(ConnectError::Ended {
                    log: endpoint.log(),
                });
            }
            Err(_) => {
                return Err(ConnectError::Silent {
                    log: endpoint.log(),
                });
            }
        }
    }
}

/// Starts the next host of an endpoint, if the last one was killed and app-servers wait for the next.
/// Returns whether one was started.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn start_awaited(
    endpoint: &HostEndpoint,
    args: &[OsString],
) -> Result<bool, ConnectError> {
    let is_awaited = endpoint.awaits_host().await;
    if !is_awaited.map_err(ConnectError::Connect)? {
        return Ok(false);
    }
    // Another process may have been faster.
    let (Started::Ready | Started::Taken) = start(endpoint, args).await?;
    Ok(true)
}

/// The result of starting a host.
enum Started {
    Ready,
    /// Another process is the host, or still is while it ends.
    Taken,
}

/// Starts the next host of an endpoint, for a host that has released its lock and ends at once.
///
/// # Errors
///
/// [`ConnectError::Log`] and [`ConnectError::Spawn`].
pub fn start_next(endpoint: &HostEndpoint, args: &[OsString]) -> Result<(), ConnectError> {
    spawn_host(endpoint, args).map(drop)
}

/// Starts a host. Returns its stdout.
fn spawn_host(endpoint: &HostEndpoint, args: &[OsString]) -> Result<ChildStdout, ConnectError> {
    let log = open_log(&endpoint.log())?;
    let program = DetachedProgram {
        args: args.to_vec(),
        env: Vec::new(),
    };
    spawn_detached(&program, log).map_err(ConnectError::Spawn)
}

/// Starts a host, and waits until it listens.
async fn start(endpoint: &HostEndpoint, args: &[OsString]) -> Result<Started, ConnectError> {
    let path = endpoint.log();
    let stdout = spawn_host(endpoint, args)?;
    let mut lines = BufReader::new(stdout).lines();
    match timeout(START_TIMEOUT, lines.next_line()).await {
        Err(_) => Err(ConnectError::Silent { log: path }),
        Ok(Ok(Some(line))) if line == READY => Ok(Started::Ready),
        Ok(Ok(Some(line))) if line == TAKEN => Ok(Started::Taken),
        Ok(Ok(Some(why))) => Err(ConnectError::Failed(why)),
        Ok(Ok(None) | Err(_)) => Err(ConnectError::Ended { log: path }),
    }
}

fn open_log(path: &Path) -> Result<File, FileError> {
    if let Some(directory) = path.parent() {
        let made = safe_files::state_directory::make_directory(directory);
        made.map_err(|error| FileError::Io {
            path: directory.to_owned(),
            error,
        })?;
    }
    let log = state_file::open_to_append(path)?;
    // So that a host with another key does not remove it as an old one while the host here starts.
    // If that fails, the host may lose its log.
    let _ = log.set_modified(SystemTime::now());
    Ok(log)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn opened_log_counts_as_changed() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("hosts/k.log");
        let before = SystemTime::now() - Duration::from_secs(60);
        let long_ago = SystemTime::UNIX_EPOCH;
        open_log(&path).unwrap().set_modified(long_ago).unwrap();
        let log = open_log(&path).unwrap();
        assert!(log.metadata().unwrap().modified().unwrap() > before);
    }
}
