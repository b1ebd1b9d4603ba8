//! The client's side of the beginning: finds the host, or starts it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::text::counted;
use safe_files::state_file::{self, FileError};
use serde_json::Value;
use supervise::proof::Challenge;
use supervise::spawn::{DetachedProgram, spawn_detached};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::ChildStdout;
use tokio::time::{Instant, sleep, timeout};

use crate::endpoint::{HostEndpoint, Proof};
use crate::line;
use crate::logic::handshake::{
    ANSWER_LIMIT, Answer, HostStatus, LINE_LIMIT, Request, ServeRequest, SessionAnswer,
    SessionRequest, SessionSummary, WatchRequest,
};

/// How long a host may take to start: about 10 ms, or 10 s if it takes over app-servers. Other
/// clients wait as long for it, and for a host that is ending, which takes 10 s at most without
/// summaries.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a host may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a host may take to end: its clients' threads may write summaries.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

/// The pause before a host is looked for again: each look starts a process.
const PAUSE: Duration = Duration::from_millis(100);

/// The only line that a host prints on stdout: this, [`TAKEN`], or why it cannot work.
pub const READY: &str = "ready";

/// The line of a host that has found another one, see [`READY`].
pub const TAKEN: &str = "taken";

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
    use supervise::private_socket;
    use supervise::proof::ProofName;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;

    use super::*;
    use crate::logic::handshake::SessionAct;

    /// The moment at which a host closes a connection.
    #[derive(Debug, Clone, Copy)]
    enum Close {
        BeforeChallenge,
        BeforeAnswer,
        /// After it has sent this line.
        AfterAnswer(&'static str),
    }

    /// Accepts clients, and closes each connection at this moment.
    async fn accept(listener: UnixListener, close: Close) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if let Close::BeforeChallenge = close {
                continue;
            }
            let file = ProofName::random().unwrap();
            line::write(&mut stream, &Challenge { file }).await.unwrap();
            let request: Option<Request> = line::read(&mut stream, LINE_LIMIT).await.unwrap();
            assert!(request.is_some());
            if let Close::AfterAnswer(answer) = close {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    /// Asks a host that closes each connection at this moment.
    async fn ask_host_that_closes<T>(close: Close, ask: impl AsyncFnOnce(HostEndpoint) -> T) -> T {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let listener = lock.listen().unwrap();
        tokio::select! {
            answer = ask(endpoint) => answer,
            () = accept(listener, close) => panic!("the host accepts clients for ever"),
        }
    }

    /// Accepts one client, sends it this line, and closes the connection.
    async fn answer_one(listener: &UnixListener, answer: &str) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let file = ProofName::random().unwrap();
        line::write(&mut stream, &Challenge { file }).await.unwrap();
        let request: Option<Request> = line::read(&mut stream, LINE_LIMIT).await.unwrap();
        assert!(request.is_some());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn restart_waits_for_the_next_host() {
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let first = lock.listen().unwrap();
        let status = Answer::Status(HostStatus {
            pid: 7,
            version: "1.0.0".to_owned(),
            uptime: Duration::ZERO,
            clients: 0,
        });
        let status = format!("{}\n", serde_json::to_string(&status).unwrap());
        let hosts = async {
            answer_one(&first, "\"handing_over\"\n").await;
            drop(first);
            let next = lock.listen().unwrap();
            answer_one(&next, &status).await;
        };
        let (restarted, ()) = tokio::join!(restart(&endpoint), hosts);
        assert_eq!(restarted.unwrap(), Restarted::HandedOver);
    }

    #[tokio::test]
    async fn restart_of_a_host_without_work_waits_for_no_other() {
        let stopping = Close::AfterAnswer("\"stopping\"\n");
        let asking = ask_host_that_closes(stopping, async |endpoint| restart(&endpoint).await);
        assert_eq!(asking.await.unwrap(), Restarted::Ended);
    }

    #[tokio::test]
    async fn restart_between_two_hosts_is_an_error() {
        let leaving = Close::BeforeChallenge;
        let asking = ask_host_that_closes(leaving, async |endpoint| restart(&endpoint).await);
        let error = asking.await.unwrap_err();
        assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
        let state = tempfile::tempdir().unwrap();
        let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
        let lock = endpoint.take().unwrap().unwrap();
        let error = restart(&endpoint).await.unwrap_err();
        assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
        drop((lock.listen().unwrap(), lock));
        let guard = private_socket::bind(&endpoint.new_adoption_socket()).unwrap();
        let error = restart(&endpoint).await.unwrap_err();
        assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
        drop(guard);
        assert_eq!(restart(&endpoint).await.unwrap(), Restarted::Missing);
    }

    #[tokio::test]
    async fn host_that_cannot_restart_is_an_error_that_names_the_way_out() {
        let why = "unknown variant `restart`, expected `serve`";
        let older = format!("{{\"refused\":{{\"why\":\"{why}\"}}}}\n");
        let busy = "{\"busy\":{\"pid\":7,\"turns\":1}}\n".to_owned();
        for (answer, told) in [(older, why), (busy, "has 1 turn under way")] {
            let state = tempfile::tempdir().unwrap();
            let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
            let lock = endpoint.take().unwrap().unwrap();
            let listener = lock.listen().unwrap();
            let host = answer_one(&listener, &answer);
            let (restarted, ()) = tokio::join!(restart(&endpoint), host);
            let error = restarted.unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(error.contains("`codex-mcp host stop`"), "{error}");
        }
    }

    /// The answers to all questions that tolerate a missing host.
    struct Answers {
        status: Result<Option<HostStatus>, ConnectError>,
        sessions: Result<Vec<SessionSummary>, ConnectError>,
        stop: Result<bool, ConnectError>,
    }

    impl Answers {
        async fn of_host_that_closes(close: Close) -> Self {
            ask_host_that_closes(close, async |endpoint| Self {
                status: status(&endpoint).await,
                sessions: sessions(&endpoint).await,
                stop: stop(&endpoint).await,
            })
            .await
        }

        /// The errors, of which there has to be one for each question.
        fn errors(self) -> [ConnectError; 3] {
            [
                self.status.unwrap_err(),
                self.sessions.unwrap_err(),
                self.stop.unwrap_err(),
            ]
        }
    }

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

    #[tokio::test]
    async fn host_that_closes_before_its_challenge_is_none() {
        let answers = Answers::of_host_that_closes(Close::BeforeChallenge).await;
        assert_eq!(answers.status.unwrap(), None);
        // It still has the lock.
        let between = answers.sessions.unwrap_err();
        assert!(matches!(between, ConnectError::BetweenHosts), "{between}");
        assert!(!answers.stop.unwrap());
    }

    /// At its end, the system resets a connection that the host has not accepted.
    #[tokio::test]
    async fn act_that_a_killed_host_was_not_asked_for_can_wait_for_the_next_host() {
        let request = SessionRequest {
            session: "s".to_owned(),
            act: SessionAct::Interrupt,
        };
        for is_accepted in [false, true] {
            let state = tempfile::tempdir().unwrap();
            let endpoint = HostEndpoint::new(state.path(), "k".to_owned());
            let lock = endpoint.take().unwrap().unwrap();
            let listener = lock.listen().unwrap();
            let guard = private_socket::bind(&endpoint.new_adoption_socket()).unwrap();
            let killed = async {
                if is_accepted {
                    drop(listener.accept().await.unwrap());
                }
                drop((listener, lock));
            };
            let (acted, ()) = tokio::join!(act(&endpoint, &request), killed);
            let error = acted.unwrap_err();
            assert!(matches!(error, ConnectError::BetweenHosts), "{error}");
            drop(guard);
        }
    }

    #[tokio::test]
    async fn host_that_does_not_answer_is_an_error() {
        for close in [Close::BeforeAnswer, Close::AfterAnswer("nonsense\n")] {
            let answers = Answers::of_host_that_closes(close).await;
            for error in answers.errors() {
                assert!(matches!(error, ConnectError::Ask(_)), "{close:?}: {error}");
            }
        }
    }

    /// As one for which the disk is too full. A host that has closed the connection is looked for
    /// again, until the time limit.
    #[tokio::test]
    async fn failure_that_stays_is_reported_at_once() {
        let request = ServeRequest {
            args: Vec::new(),
            directory: "/".into(),
            stdio: Value::Null,
            client: "c".to_owned(),
            identity_key: None,
        };
        let close = Close::AfterAnswer("nonsense\n");
        let asking = ask_host_that_closes(close, async |endpoint| {
            serve(&endpoint, &[], &request).await
        });
        let error = asking.await.unwrap_err();
        assert!(matches!(error, ConnectError::Ask(_)), "{error}");
    }

    #[tokio::test]
    async fn host_that_refuses_is_an_error() {
        let refused = Close::AfterAnswer("{\"refused\":{\"why\":\"no room\"}}\n");
        for error in Answers::of_host_that_closes(refused).await.errors() {
            let text = error.to_string();
            assert_eq!(text, "the host process refuses to answer: no room");
        }
        let serving = Close::AfterAnswer("\"serving\"\n");
        for error in Answers::of_host_that_closes(serving).await.errors() {
            assert!(
                error.to_string().starts_with("unexpected answer"),
                "{error}"
            );
        }
    }
}
