//! A running `codex app-server`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codex_protocol::codex::{
    ClientInfo, InitializeCapabilities, InitializeParams, InitializeResponse, Method,
};
use common::sync::lock;
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use supervise::adoptable::{AdoptableProcess, Keeper, spawn_adoptable};
use supervise::exit::{Exit, ExitCause};
use supervise::spawn::{Process, Program, spawn};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::access_token::AccessToken;
use super::account::{Account, ReadAccount, bad_configuration};
use super::connection::{CallError, Closing, Connection, Listener};
use super::kept::{TOKEN, keep_as};
use super::stderr_log::{StderrLog, StderrTail};

/// How long Codex may take from its start to its first answer. A start takes
/// 0.1 to 0.25 s; a cold disk and a busy machine take longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long Codex may take to exit once its input is closed. It first has its threads write their
/// rollouts, for up to 10 s (`shutdown_threads` in codex-rs/app-server); SIGTERM would cut this
/// short, and no process can resume a thread without a rollout. Only a busy machine reaches this
/// limit, as an idle Codex exits at once. If a client kills us before the limit, the guard ends
/// Codex. An adoptable Codex gets 1 s, see [`Closing::Orderly`].
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The same limit for a Codex that has closed the connection itself, was never used, or no longer
/// responds to requests. It is shorter because sessions and requests wait for the exit.
const ABRUPT_END_TIMEOUT: Duration = Duration::from_secs(1);

/// How long sessions and requests wait until Codex and all processes that it started have exited.
/// The guard ends them within 2 s after [`END_TIMEOUT`], but a process that the user may not kill
/// is waited for until it exits.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why an app-server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process cannot be started.
    #[error("cannot start Codex: {0}")]
    Spawn(#[from] std::io::Error),
    /// It ended before it answered.
    #[error("Codex {exit} before it answered{stderr_tail}")]
    Ended {
        /// How it ended.
        exit: Exit,
        /// The end of its stderr.
        stderr_tail: StderrTail,
    },
    /// The process does not answer, or does not answer as Codex does.
    #[error("{reason}{stderr_tail}")]
    NotAnAppServer {
        /// Why the process is not usable as an app-server.
        reason: String,
        /// The end of its stderr.
        stderr_tail: StderrTail,
    },
}

/// A connection that is closed when it is dropped.
struct ConnectionGuard(Connection);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.close(Closing::Abrupt);
    }
}

/// A running `codex app-server`. Dropping it closes its input.
pub(crate) struct AppServer {
    connection: ConnectionGuard,
    ended: watch::Receiver<Option<Exit>>,
    /// The guard above Codex, while there is one.
    guard: Option<Pid>,
    /// Stores values in the guard, for a process that adopts this app-server. `None` if the
    /// app-server is not adoptable.
    keeper: Option<Keeper>,
    /// The address and the token for further clients. `None` if it has no port.
    access: Option<RemoteAccess>,
    /// Codex's response to `initialize`.
    pub(crate) about: InitializeResponse,
    /// Whether it can use its model provider.
    account: Mutex<ReadAccount>,
    /// Why Codex cannot load its configuration, if there is no account.
    pub(super) bad_configuration: Option<String>,
}

/// The data that a further client needs to connect to an app-server.
#[derive(Debug, Clone)]
pub(super) struct RemoteAccess {
    /// The address of its port.
    pub(super) address: SocketAddr,
    /// The token that it demands of clients.
    pub(super) token: AccessToken,
    /// The Codex program of the app-server, which can also act as a client.
    pub(super) program: PathBuf,
}

/// A Codex process under its guard, by what happens to it when this process dies.
enum CodexProcess {
    /// It ends with us.
    Bound(Process),
    /// Another process can take it over.
    Adoptable(AdoptableProcess),
}

impl CodexProcess {
    fn guard(&self) -> Option<Pid> {
        match self {
            Self::Bound(process) => process.pid(),
            Self::Adoptable(process) => process.pid(),
        }
    }

    /// Waits for the exit of Codex, and ends it after a time that depends on how its connection was
    /// closed. An adoptable Codex does not exit with its connection, so it is ended at once if we
    /// closed the connection.
    async fn end(&mut self, closing: Option<Closing>) -> Exit {
        let limit = match closing {
            Some(Closing::Orderly) => END_TIMEOUT,
            Some(Closing::Abrupt) | None => ABRUPT_END_TIMEOUT,
        };
        let ended = match self {
            Self::Bound(process) => process.end_after(limit).await,
            Self::Adoptable(process) => {
                if closing.is_some() {
                    process.terminate();
                }
                process.end_after(limit).await
            }
        };
        ended.unwrap_or_else(|error| {
            tracing::error!("cannot determine how Codex ended: {error}");
            Exit::Unknown
        })
    }
}

/// The receivers of an app-server's messages and exit, and its line limit.
pub(super) struct AppServerSetup {
    /// The longest message that is accepted, in bytes.
    pub(super) line_limit: usize,
    pub(super) listener: Arc<dyn Listener>,
    /// Receives the exit.
    pub(super) ending: watch::Sender<Option<Exit>>,
}

impl AppServer {
    /// Starts an app-server and initialises the connection. When the app-server and all processes
    /// that it started have exited, `on_exit` is called once and `ending` gets the exit, even if the
    /// caller no longer waits for the start. If they take longer than [`EXIT_TIMEOUT`], `on_exit` is
    /// called at that limit, and `ending` still waits for the exit.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no process is left running then.
    pub(super) async fn start(
        program: &Program,
        setup: AppServerSetup,
        on_exit: impl FnOnce(Exit, ExitCause) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (process, streams) = spawn(program)?;
        let stderr_log = StderrLog::listen(streams.stderr);
        let AppServerSetup {
            line_limit,
            listener,
            ending,
        } = setup;
        let (connection, run) =
            Connection::open(streams.stdout, streams.stdin, line_limit, listener);
        let ended = ending.subscribe();
        let process = CodexProcess::Bound(process);
        let guard = process.guard();
        let closed = connection.clone();
        tokio::spawn(async move {
            run.await;
            end(process, closed.closing(), ending, on_exit).await;
        });
        let introduced = Self::introduce(connection, ended.clone()).await;
        let server = introduced.map(|server| Self { guard, ..server });
        started_or_why(server, ended, stderr_log).await
    }

    /// Starts an app-server that demands this token from its clients. If this process dies, another
    /// one can take the app-server over through the socket `adoption` for this long. Otherwise as
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`StartError`]; no process is left running then.
    pub(super) async fn start_adoptable(
        program: &Program,
        (adoption, wait, token): (&Path, Duration, AccessToken),
        setup: AppServerSetup,
        on_exit: impl FnOnce(Exit, ExitCause) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (process, stderr) = spawn_adoptable(program, adoption, wait)?;
        let stderr_log = StderrLog::listen(stderr);
        let ended = setup.ending.subscribe();
        let codex = (token, program.path.clone());
        let server = Self::on_port(process, codex, None, setup, on_exit).await;
        started_or_why(server, ended, stderr_log).await
    }

    /// Takes over an app-server of this program by a new connection to it.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the app-server is ended then.
    pub(super) async fn adopt(
        process: AdoptableProcess,
        (connection, token, program): (TcpStream, AccessToken, PathBuf),
        setup: AppServerSetup,
        on_exit: impl FnOnce(Exit, ExitCause) + Send + 'static,
    ) -> Result<Self, StartError> {
        let codex = (token, program);
        let server = Self::on_port(process, codex, Some(connection), setup, on_exit).await;
        server.map_err(|error| StartError::NotAnAppServer {
            reason: error.to_string(),
            stderr_tail: StderrTail::default(),
        })
    }

    /// Waits until an app-server listens on its port, and initialises the connection.
    async fn on_port(
        mut process: AdoptableProcess,
        (token, program): (AccessToken, PathBuf),
        stream: Option<TcpStream>,
        setup: AppServerSetup,
        on_exit: impl FnOnce(Exit, ExitCause) + Send + 'static,
    ) -> Result<Self, CallError> {
        let AppServerSetup {
            line_limit,
            listener,
            ending,
        } = setup;
        let ended = ending.subscribe();
        let (guard, keeper) = (process.pid(), process.keeper());
        keep_as(&keeper, TOKEN, &token);
        let (mut opened, opening) = oneshot::channel();
        let sent = token.clone();
        tokio::spawn(async move {
            let opens = async {
                let stream = match stream {
                    Some(stream) => stream,
                    None => process.connection().await?,
                };
                let address = stream.peer_addr()?;
                let opened = Connection::open_web_socket(stream, &sent, line_limit, listener);
                let (connection, run) = opened.await?;
                Ok::<_, io::Error>((connection, run, address))
            };
            let closing = tokio::select! {
                biased;
                // A Codex that does not listen yet is not waited for without a caller.
                () = opened.closed() => Some(Closing::Abrupt),
                opens = timeout(START_TIMEOUT, opens) => match opens {
                    Ok(Ok((connection, run, address))) => {
                        if opened.send((connection.clone(), address)).is_err() {
                            connection.close(Closing::Abrupt);
                        }
                        run.await;
                        connection.closing()
                    }
                    Ok(Err(error)) => {
                        tracing::warn!("cannot connect to Codex: {error}");
                        None
                    }
                    Err(_) => None,
                },
            };
            end(CodexProcess::Adoptable(process), closing, ending, on_exit).await;
        });
        let (connection, address) = opening
            .await
            .map_err(|_| CallError::Closed(Method::Initialize))?;
        let server = Self::introduce(connection, ended).await?;
        Ok(Self {
            guard,
            keeper: Some(keeper),
            access: Some(RemoteAccess {
                address,
                token,
                program,
            }),
            ..server
        })
    }

    /// Initialises a connection; `ended` later receives the exit. The connection is
    /// closed if this fails or is dropped.
    pub(super) async fn introduce(
        connection: Connection,
        ended: watch::Receiver<Option<Exit>>,
    ) -> Result<Self, CallError> {
        let connection = ConnectionGuard(connection);
        let about = connection
            .0
            .call(Method::Initialize, &introduction(), START_TIMEOUT)
            .await?;
        connection.0.notify("initialized");
        let account = ReadAccount::read(&connection.0).await;
        let bad_configuration = match account.account {
            Account::Missing => bad_configuration(&connection.0).await,
            _ => None,
        };
        if !connection.0.is_open() {
            return Err(CallError::Closed(Method::AccountRead));
        }
        Ok(Self {
            connection,
            ended,
            guard: None,
            keeper: None,
            access: None,
            about,
            account: Mutex::new(account),
            bad_configuration,
        })
    }

    /// The login, as far as Codex has told it.
    pub(super) fn account(&self) -> Account {
        lock(&self.account).account
    }

    /// The login. If Codex could not tell it, it is asked again after a pause.
    pub(super) async fn current_account(&self) -> Account {
        let is_worth_another_try = lock(&self.account).is_worth_another_try();
        if is_worth_another_try {
            let read = ReadAccount::read(&self.connection.0).await;
            *lock(&self.account) = read;
        }
        self.account()
    }

    /// Whether it still answers requests.
    pub(crate) fn is_alive(&self) -> bool {
        self.connection.0.is_open()
    }

    /// Makes a request; see [`Connection::call`].
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, CallError> {
        self.connection.0.call(method, params, timeout).await
    }

    /// The connection, for messages without an answer.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection.0
    }

    /// Stores values in the guard, for a process that adopts this app-server. `None` if the
    /// app-server is not adoptable.
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.keeper.as_ref()
    }

    /// The address and the token for further clients. `None` if it has no port.
    pub(super) fn access(&self) -> Option<&RemoteAccess> {
        self.access.as_ref()
    }

    /// The guard above Codex, if it has not ended.
    pub(crate) fn guard(&self) -> Option<Pid> {
        self.guard.filter(|_| self.ended.borrow().is_none())
    }

    /// Waits for its exit, at most [`EXIT_TIMEOUT`].
    pub(crate) async fn exit(&self) -> Exit {
        exit_in_time(&mut self.ended.clone()).await
    }

    /// Closes its input and waits until it and all processes that it started have exited.
    pub(crate) async fn end(&self) -> Exit {
        self.connection.0.close(Closing::Orderly);
        exit_of(&mut self.ended.clone()).await
    }
}

fn introduction() -> InitializeParams {
    InitializeParams {
        client_info: ClientInfo {
            name: "codex-mcp",
            title: "codex-mcp",
            version: env!("CARGO_PKG_VERSION"),
        },
        capabilities: InitializeCapabilities {
            experimental_api: true,
        },
    }
}

pub(super) async fn exit_of(ended: &mut watch::Receiver<Option<Exit>>) -> Exit {
    match ended.wait_for(Option::is_some).await {
        Ok(exit) => (*exit).unwrap_or(Exit::Unknown),
        // The supervising task ends only with the runtime.
        Err(_) => Exit::Unknown,
    }
}

/// The exit, or [`Exit::Unknown`] if it does not come within [`EXIT_TIMEOUT`].
async fn exit_in_time(ended: &mut watch::Receiver<Option<Exit>>) -> Exit {
    let exit = timeout(EXIT_TIMEOUT, exit_of(ended)).await;
    exit.unwrap_or(Exit::Unknown)
}

/// The app-server, or the reason for the failure of its start.
async fn started_or_why(
    introduced: Result<AppServer, CallError>,
    mut ended: watch::Receiver<Option<Exit>>,
    stderr_log: StderrLog,
) -> Result<AppServer, StartError> {
    let error = match introduced {
        Ok(server) => return Ok(server),
        Err(error) => error,
    };
    let exit = match error {
        CallError::Closed(_) => Some(exit_in_time(&mut ended).await),
        _ => None,
    };
    let stderr_tail = stderr_log.stderr_tail().await;
    Err(match exit {
        Some(exit) => StartError::Ended { exit, stderr_tail },
        None => StartError::NotAnAppServer {
            reason: error.to_string(),
            stderr_tail,
        },
    })
}

/// Ends a process whose connection is closed, and reports its exit.
async fn end(
    mut process: CodexProcess,
    closing: Option<Closing>,
    ending: watch::Sender<Option<Exit>>,
    on_exit: impl FnOnce(Exit, ExitCause),
) {
    let cause = match closing {
        Some(_) => ExitCause::Requested,
        None => ExitCause::Unrequested,
    };
    report(process.end(closing), cause, ending, on_exit).await;
}

/// Reports an exit: to `on_exit` within [`EXIT_TIMEOUT`], to `ending` only when it happens.
async fn report(
    exit: impl Future<Output = Exit>,
    cause: ExitCause,
    ending: watch::Sender<Option<Exit>>,
    on_exit: impl FnOnce(Exit, ExitCause),
) {
    let mut exit = pin!(exit);
    let in_time = timeout(EXIT_TIMEOUT, exit.as_mut()).await.ok();
    match in_time {
        Some(exit) => tracing::info!("Codex {exit}"),
        None => tracing::error!(
            "processes of a Codex have not ended within {} s; its sessions no longer wait for them",
            EXIT_TIMEOUT.as_secs()
        ),
    }
    on_exit(in_time.unwrap_or(Exit::Unknown), cause);
    let exit = match in_time {
        Some(exit) => exit,
        None => exit.await,
    };
    ending.send_replace(Some(exit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sessions_do_not_wait_for_a_process_that_does_not_end() {
        let (ending, ended) = watch::channel(None);
        let (ends, end) = oneshot::channel();
        let (sent, gone) = oneshot::channel();
        let exit = async { end.await.unwrap() };
        let reporting = tokio::spawn(report(exit, ExitCause::Unrequested, ending, |exit, _| {
            sent.send(exit).unwrap();
        }));
        assert_eq!(gone.await.unwrap(), Exit::Unknown);
        assert_eq!(exit_in_time(&mut ended.clone()).await, Exit::Unknown);
        // Shutting down is complete only when all processes have ended.
        assert_eq!(*ended.borrow(), None);
        ends.send(Exit::Code(3)).unwrap();
        reporting.await.unwrap();
        assert_eq!(exit_of(&mut ended.clone()).await, Exit::Code(3));
    }
}
