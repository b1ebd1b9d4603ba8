//! A running `codex app-server`.

use std::sync::Arc;
use std::time::Duration;

use codex_protocol::codex::{
    ClientInfo, InitializeCapabilities, InitializeParams, InitializeResponse, Method,
};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use supervise::exit::{Cause, Exit};
use supervise::spawn::{Process, Program, Streams, spawn};
use tokio::sync::watch;

use super::account::Account;
use super::complaints::{Complaints, LastWords};
use super::connection::{CallError, Connection, Listener};

/// How long Codex may take from its start to its first answer. A start takes
/// 0.1 to 0.25 s; a cold disk and a busy machine take longer.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long Codex may take to end once its input is closed.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Why an app-server can't be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system can't start processes.
    #[error("Codex can't be started: {0}")]
    Spawn(#[from] std::io::Error),
    /// It ended before it answered.
    #[error("Codex {exit} before it answered{last_words}")]
    Ended {
        /// How it ended.
        exit: Exit,
        /// The last that it wrote to stderr.
        last_words: LastWords,
    },
    /// It doesn't answer, or not as Codex does.
    #[error("{reason}{last_words}")]
    NotAnAppServer {
        /// What it did instead.
        reason: String,
        /// The last that it wrote to stderr.
        last_words: LastWords,
    },
}

/// A connection that is closed when it is dropped.
struct Held(Connection);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A running `codex app-server`. Dropping it closes its input.
pub(crate) struct AppServer {
    connection: Held,
    ended: watch::Receiver<Option<Exit>>,
    /// The guard above Codex, while there is one.
    guard: Option<Pid>,
    /// What Codex said of itself.
    pub(crate) about: InitializeResponse,
    /// Whether it can use its model provider.
    pub(super) account: Account,
}

impl AppServer {
    /// Starts one and introduces us. `gone` is called once when it has ended, and
    /// `ending` told then, also if nobody waits for the start any more.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left running then.
    pub(crate) async fn start(
        program: &Program,
        line_limit: usize,
        listener: Arc<dyn Listener>,
        gone: impl FnOnce(Exit, Cause) + Send + 'static,
        ending: watch::Sender<Option<Exit>>,
    ) -> Result<Self, StartError> {
        let (process, streams) = spawn(program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let complaints = Complaints::listen(stderr);
        let (connection, run) = Connection::open(stdout, stdin, line_limit, listener);
        let mut ended = ending.subscribe();
        let guard = process.pid();
        let closing = connection.clone();
        let cause = move || match closing.was_closed() {
            true => Cause::Asked,
            false => Cause::Itself,
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
        let last_words = complaints.last_words().await;
        Err(match exit {
            Some(exit) => StartError::Ended { exit, last_words },
            None => StartError::NotAnAppServer {
                reason: error.to_string(),
                last_words,
            },
        })
    }

    /// Introduces us at the other end of a connection; `ended` tells later how
    /// it ended. The connection is closed if that fails or is given up.
    pub(super) async fn introduce(
        connection: Connection,
        ended: watch::Receiver<Option<Exit>>,
    ) -> Result<Self, CallError> {
        let connection = Held(connection);
        let about = connection
            .0
            .call(Method::Initialize, &introduction(), START_PATIENCE)
            .await?;
        connection.0.notify("initialized");
        let account = Account::read(&connection.0).await;
        Ok(Self {
            connection,
            ended,
            guard: None,
            about,
            account,
        })
    }

    /// Whether it can still be asked.
    pub(crate) fn is_alive(&self) -> bool {
        self.connection.0.is_open()
    }

    /// Makes a request; see [`Connection::call`].
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &impl Serialize,
        patience: Duration,
    ) -> Result<T, CallError> {
        self.connection.0.call(method, params, patience).await
    }

    /// The connection, for what needs no answer.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection.0
    }

    /// The guard above Codex, if it has not ended.
    pub(crate) fn guard(&self) -> Option<Pid> {
        self.guard.filter(|_| self.ended.borrow().is_none())
    }

    /// How it ended, as soon as it has.
    pub(crate) async fn exit(&self) -> Exit {
        exit_of(&mut self.ended.clone()).await
    }

    /// Closes its input and waits until it and all that it started is gone.
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
    run: impl Future<Output = Cause>,
    mut process: Process,
    ending: watch::Sender<Option<Exit>>,
    gone: impl FnOnce(Exit, Cause),
) {
    let cause = run.await;
    let exit = process
        .end_after(END_PATIENCE)
        .await
        .unwrap_or_else(|error| {
            tracing::error!("can't tell how Codex ended: {error}");
            Exit::Unknown
        });
    tracing::info!("Codex {exit}");
    gone(exit, cause);
    ending.send_replace(Some(exit));
}
