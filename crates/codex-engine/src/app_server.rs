//! A running `codex app-server`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use codex_protocol::codex::{
    ClientInfo, InitializeCapabilities, InitializeParams, InitializeResponse, Method,
};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use supervise::exit::{Exit, ExitCause};
use supervise::spawn::{Process, Program, Streams, spawn};
use tokio::sync::watch;

use super::account::{Account, ReadAccount, bad_configuration};
use super::connection::{CallError, Connection, Listener};
use super::stderr_log::{StderrLog, StderrTail};

/// How long Codex may take from its start to its first answer. A start takes
/// 0.1 to 0.25 s; a cold disk and a busy machine take longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long Codex may take to end once its input is closed.
const END_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// It does not answer, or not as Codex does.
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
        self.0.close();
    }
}

/// A running `codex app-server`. Dropping it closes its input.
pub(crate) struct AppServer {
    connection: ConnectionGuard,
    ended: watch::Receiver<Option<Exit>>,
    /// The guard above Codex, while there is one.
    guard: Option<Pid>,
    /// Codex's response to `initialize`.
    pub(crate) about: InitializeResponse,
    /// Whether it can use its model provider.
    account: Mutex<ReadAccount>,
    /// Why Codex cannot load its configuration, if there is no account.
    pub(super) bad_configuration: Option<String>,
}

impl AppServer {
    /// Starts an app-server and initialises the connection. When it has ended, `gone` is
    /// called once and `ending` gets its exit, even if the caller no longer waits for the
    /// start.
    ///
    /// # Errors
    ///
    /// [`StartError`]; no process is left running then.
    pub(crate) async fn start(
        program: &Program,
        line_limit: usize,
        listener: Arc<dyn Listener>,
        gone: impl FnOnce(Exit, ExitCause) + Send + 'static,
        ending: watch::Sender<Option<Exit>>,
    ) -> Result<Self, StartError> {
        let (process, streams) = spawn(program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let stderr_log = StderrLog::listen(stderr);
        let (connection, run) = Connection::open(stdout, stdin, line_limit, listener);
        let mut ended = ending.subscribe();
        let guard = process.pid();
        let closing = connection.clone();
        let cause = move || match closing.was_closed() {
            true => ExitCause::Requested,
            false => ExitCause::Unrequested,
        };
        let run = async move {
            run.await;
            cause()
        };
        tokio::spawn(supervise(run, process, ending, gone));

        let introduced = Self::introduce(connection, ended.clone()).await;
        let error = match introduced {
            Ok(server) => return Ok(Self { guard, ..server }),
            Err(error) => error,
        };
        let exit = match error {
            CallError::Closed(_) => Some(exit_of(&mut ended).await),
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
            about,
            account: Mutex::new(account),
            bad_configuration,
        })
    }

    /// The login, as far as Codex has told it.
    pub(super) fn account(&self) -> Account {
        self.read_account().account
    }

    fn read_account(&self) -> MutexGuard<'_, ReadAccount> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The login. If Codex could not tell it, it is asked again after a pause.
    pub(super) async fn current_account(&self) -> Account {
        let is_worth_another_try = self.read_account().is_worth_another_try();
        if is_worth_another_try {
            let read = ReadAccount::read(&self.connection.0).await;
            *self.read_account() = read;
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

    /// The guard above Codex, if it has not ended.
    pub(crate) fn guard(&self) -> Option<Pid> {
        self.guard.filter(|_| self.ended.borrow().is_none())
    }

    /// Waits for its exit.
    pub(crate) async fn exit(&self) -> Exit {
        exit_of(&mut self.ended.clone()).await
    }

    /// Closes its input and waits until it and all processes that it started have exited.
    pub(crate) async fn end(&self) -> Exit {
        self.connection.0.close();
        self.exit().await
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

async fn supervise(
    run: impl Future<Output = ExitCause>,
    mut process: Process,
    ending: watch::Sender<Option<Exit>>,
    gone: impl FnOnce(Exit, ExitCause),
) {
    let cause = run.await;
    let exit = process
        .end_after(END_TIMEOUT)
        .await
        .unwrap_or_else(|error| {
            tracing::error!("cannot determine how Codex ended: {error}");
            Exit::Unknown
        });
    tracing::info!("Codex {exit}");
    gone(exit, cause);
    ending.send_replace(Some(exit));
}
