//! The client's side: asks the host of an endpoint.

mod start;
mod stop;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use common::text::counted;
use safe_files::state_file::FileError;
use serde_json::Value;
use supervise::proof::Challenge;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::time::timeout;

pub use self::start::{READY, TAKEN, serve, start_awaited, start_next};
pub use self::stop::{Restarted, restart, stop};
use crate::endpoint::{HostEndpoint, Proof};
use crate::line;
use crate::logic::handshake::{
    ANSWER_LIMIT, Answer, HostStatus, LINE_LIMIT, Request, SessionAnswer, SessionRequest,
    SessionSummary, WatchRequest,
};

/// How long a host may take to start: about 10 ms, or 10 s if it takes over app-servers. Other
/// clients wait as long for it, and for a host that is ending, which takes 10 s at most without
/// summaries.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a host may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before a host is looked for again: each look starts a process.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a client has no host.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket, or the directory of the hosts, cannot be used.
    #[error("cannot connect to the host process: {0}")]
    Connect(io::Error),
    /// The log of the host cannot be opened.
    #[error(transparent)]
    Log(#[from] FileError),
    /// The process cannot be started.
    #[error("cannot start the host process: {0}")]
    Spawn(io::Error),
    /// The process has reported why it cannot work.
    #[error("the host process cannot work: {0}")]
    Failed(String),
    /// Another host is starting or ending, and takes too long.
    #[error(
        "the host process that is starting or ending takes too long; {} may say why",
        log.display()
    )]
    TooSlow {
        /// Its log.
        log: PathBuf,
    },
    /// This process is told to end.
    #[error("codex-mcp is shutting down")]
    Closing,
    /// The process ended without a message.
    #[error("the host process ended at once; {} may say why", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
    },
    /// The host has not answered in time.
    #[error("the host process does not answer; {} may say why", log.display())]
    Silent {
        /// Its log.
        log: PathBuf,
    },
    /// No host listens, but the sessions may soon be available again.
    #[error(
        "the host process is starting or ending, or it was killed and the next one can continue its \
         sessions; try again in some seconds"
    )]
    BetweenHosts,
    /// The host does not do what this client wants.
    #[error("{0}")]
    Refused(String),
    /// The host does not restart, as turns would end.
    #[error(
        "the host process {pid} is not restarted: the next one cannot take over its Codex, which has \
         {} under way; try again when nothing is under way, or run `codex-mcp host stop`, which also \
         ends the turns",
        counted(*turns, "turn")
    )]
    Busy {
        /// The ID of its process.
        pid: u32,
        /// How many turns.
        turns: usize,
    },
    /// A running host cannot be asked, or its answer cannot be read.
    #[error("cannot ask the host process: {0}")]
    Ask(io::Error),
    /// The connection was lost before the answer.
    #[error(
        "the connection to the host process was lost before it answered; it may have acted all the same: {0}"
    )]
    Unclear(io::Error),
}

impl ConnectError {
    /// Whether the host has gone without an answer, and the next one may have its sessions.
    #[must_use]
    pub fn is_of_lost_host(&self) -> bool {
        match self {
            Self::BetweenHosts => true,
            Self::Unclear(error) => is_closed(error),
            _ => false,
        }
    }
}

/// The state of the host of an endpoint; `None` if there is none.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn status(endpoint: &HostEndpoint) -> Result<Option<HostStatus>, ConnectError> {
    match ask_running(endpoint, &Request::Status).await? {
        Some(Answer::Status(status)) => Ok(Some(status)),
        Some(other) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

/// The sessions of the host of an endpoint; none if there is no host.
///
/// # Errors
///
/// [`ConnectError::BetweenHosts`] if the next host may have sessions, and the others.
pub async fn sessions(endpoint: &HostEndpoint) -> Result<Vec<SessionSummary>, ConnectError> {
    match ask_running(endpoint, &Request::Sessions).await? {
        Some(Answer::Sessions(sessions)) => Ok(sessions),
        Some(other) => Err(unexpected(&other)),
        None => check_no_host(endpoint).await.map(|()| Vec::new()),
    }
}

/// Has the host of an endpoint do something with a session; [`SessionAnswer::Unknown`] if there is
/// no host.
///
/// # Errors
///
/// [`ConnectError::BetweenHosts`] if the next host may have the session, and the others.
pub async fn act(
    endpoint: &HostEndpoint,
    request: &SessionRequest,
) -> Result<SessionAnswer, ConnectError> {
    let acted = act_and_stay(endpoint, request).await?;
    Ok(acted.map_or(SessionAnswer::Unknown, |(answer, _)| answer))
}

/// Has the host of an endpoint do something with a task; `None` if there is no host.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn act_on_task(
    endpoint: &HostEndpoint,
    request: Value,
) -> Result<Option<Value>, ConnectError> {
    let Some(mut stream) = connect_running(endpoint).await? else {
        return Ok(None);
    };
    match ask_to_act(endpoint, &mut stream, &Request::Task(request)).await? {
        Some(Answer::Task(answer)) => Ok(Some(answer)),
        Some(other) => Err(unexpected(&other)),
        None => Ok(None),
    }
}

/// As [`act`], and returns the connection: the host counts it as a client while it is open, if it
/// has answered how Codex's program is opened. `None` if there is no host.
///
/// # Errors
///
/// Those of [`act`].
pub async fn act_and_stay(
    endpoint: &HostEndpoint,
    request: &SessionRequest,
) -> Result<Option<(SessionAnswer, UnixStream)>, ConnectError> {
    let request = Request::Session(request.clone());
    if let Some(mut stream) = connect_running(endpoint).await? {
        match ask_to_act(endpoint, &mut stream, &request).await? {
            Some(Answer::Session(answer)) => return Ok(Some((answer, stream))),
            Some(other) => return Err(unexpected(&other)),
            None => {}
        }
    }
    check_no_host(endpoint).await?;
    Ok(None)
}

/// Makes a request that may have been followed even if no answer comes; `None` if the host has closed
/// the connection before it was asked.
async fn ask_to_act(
    endpoint: &HostEndpoint,
    stream: &mut UnixStream,
    request: &Request,
) -> Result<Option<Answer>, ConnectError> {
    let asked = timeout(ANSWER_TIMEOUT, ask(endpoint, stream, request)).await;
    match asked.map_err(|_| ConnectError::Silent {
        log: endpoint.log(),
    })? {
        Ok(Some(Answer::Refused { why })) => Err(ConnectError::Refused(why)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(ConnectError::Unclear(error)),
    }
}

/// A connection on which a host tells what happens.
#[derive(Debug)]
pub struct Watch {
    stream: BufReader<UnixStream>,
    _proof: Proof,
}

/// Has the host of an endpoint tell what happens; `None` if there is no host.
///
/// # Errors
///
/// [`ConnectError`].
pub async fn watch(
    endpoint: &HostEndpoint,
    request: WatchRequest,
) -> Result<Option<Watch>, ConnectError> {
    let Some(mut stream) = connect_running(endpoint).await? else {
        return Ok(None);
    };
    let request = Request::Watch(request);
    let asked = timeout(ANSWER_TIMEOUT, send(endpoint, &mut stream, &request));
    match asked.await {
        Ok(Ok(Some(proof))) => Ok(Some(Watch {
            stream: BufReader::new(stream),
            _proof: proof,
        })),
        // It has left just now.
        Ok(Ok(None)) => Ok(None),
        Ok(Err(error)) => Err(ConnectError::Connect(error)),
        Err(_) => Err(ConnectError::Silent {
            log: endpoint.log(),
        }),
    }
}

impl Watch {
    /// The next answer, whenever it comes; `None` at the end. It is lost if this is dropped while it
    /// arrives.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Refused`], and [`ConnectError::Connect`] if the connection fails.
    pub async fn next(&mut self) -> Result<Option<Answer>, ConnectError> {
        match line::read(&mut self.stream, ANSWER_LIMIT).await {
            Ok(Some(Answer::Refused { why })) => Err(ConnectError::Refused(why)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(ConnectError::Connect(error)),
        }
    }
}

fn unexpected(answer: &Answer) -> ConnectError {
    ConnectError::Refused(format!("unexpected answer: {answer:?}"))
}

async fn connect_running(endpoint: &HostEndpoint) -> Result<Option<UnixStream>, ConnectError> {
    match endpoint.connect().await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(ConnectError::Connect(error)),
    }
}

/// Checks, after a failed connection, that no host is about to have the sessions of the last one.
async fn check_no_host(endpoint: &HostEndpoint) -> Result<(), ConnectError> {
    let is_between = endpoint.is_between_hosts().await;
    match is_between.map_err(ConnectError::Connect)? {
        true => Err(ConnectError::BetweenHosts),
        false => Ok(()),
    }
}

async fn ask_running(
    endpoint: &HostEndpoint,
    request: &Request,
) -> Result<Option<Answer>, ConnectError> {
    match connect_running(endpoint).await? {
        Some(mut stream) => ask_connected(endpoint, &mut stream, request).await,
        None => Ok(None),
    }
}

/// Asks the host at the other end of a connection; `None` if it is ending, and closes the
/// connection before it is asked.
async fn ask_connected(
    endpoint: &HostEndpoint,
    stream: &mut UnixStream,
    request: &Request,
) -> Result<Option<Answer>, ConnectError> {
    match timeout(ANSWER_TIMEOUT, ask(endpoint, stream, request)).await {
        Ok(Ok(Some(Answer::Refused { why }))) => Err(ConnectError::Refused(format!(
            "the host process refuses to answer: {why}"
        ))),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(ConnectError::Ask(error)),
        Err(_) => Err(ConnectError::Silent {
            log: endpoint.log(),
        }),
    }
}

/// Asks the host, as a client that can write beside its socket; `None` if the host has closed the
/// connection before it was asked.
async fn ask(
    endpoint: &HostEndpoint,
    stream: &mut UnixStream,
    request: &Request,
) -> io::Result<Option<Answer>> {
    let Some(_proof) = send(endpoint, stream, request).await? else {
        return Ok(None);
    };
    let answer: Option<Answer> = match request {
        // What follows the answer belongs to others.
        Request::Serve(_) => line::read(stream, ANSWER_LIMIT).await?,
        _ => line::read(&mut BufReader::new(stream), ANSWER_LIMIT).await?,
    };
    match answer {
        Some(answer) => Ok(Some(answer)),
        None => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the connection was closed before the answer",
        )),
    }
}

/// Sends a request. Returns the proof, which the host needs until it answers; `None` if the host has
/// closed the connection.
async fn send(
    endpoint: &HostEndpoint,
    stream: &mut UnixStream,
    request: &Request,
) -> io::Result<Option<Proof>> {
    let challenge: Option<Challenge> = match line::read(stream, LINE_LIMIT).await {
        // The host has ended before it accepted the connection.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
        read => read?,
    };
    let Some(Challenge { file }) = challenge else {
        return Ok(None);
    };
    let proof = endpoint.prove(&file)?;
    line::write(stream, request).await?;
    Ok(Some(proof))
}

/// Whether this process cannot write beside the socket.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether the host has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

/// Whether no host listens. A host that ends resets the connections that it has not accepted.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}
