//! A running `codex app-server`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anstream::adapter::strip_str;
use codex_mcp_protocol::codex::{
    ClientInfo, InitializeCapabilities, InitializeParams, InitializeResponse, Method,
};
use codex_mcp_protocol::lines::{Frame, LineDecoder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::{CallError, Connection, Listener};
use super::exit::Exit;
use super::spawn::{Process, Program, Streams, spawn};

/// How long Codex may take from its start to its first answer. A start takes
/// 0.1 to 0.25 s; a cold disk and a busy machine take longer.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long Codex may take to end once its input is closed.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait for the rest of what Codex complained about, once it has
/// failed.
const LAST_WORDS_PATIENCE: Duration = Duration::from_millis(200);

/// How much of what Codex complained about last is kept for error messages, in
/// bytes.
const COMPLAINTS: usize = 2048;

/// The longest line of stderr that is looked at, in bytes.
const STDERR_LINE: usize = 64 * 1024;

/// Why an app-server can't be had.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system can't start processes.
    #[error("Codex can't be started: {0}")]
    Spawn(#[from] std::io::Error),
    /// It ended before it answered.
    #[error("Codex {exit} before it answered{}", said(.complaints))]
    Ended {
        /// How it ended.
        exit: Exit,
        /// The last that it wrote to stderr.
        complaints: String,
    },
    /// It doesn't answer, or not as Codex does.
    #[error("{reason}{}", said(.complaints))]
    NotAnAppServer {
        /// What it did instead.
        reason: String,
        /// The last that it wrote to stderr.
        complaints: String,
    },
}

fn said(complaints: &str) -> String {
    if complaints.is_empty() {
        String::new()
    } else {
        format!("; it said: {complaints}")
    }
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
    /// What Codex said of itself.
    pub(crate) about: InitializeResponse,
}

impl AppServer {
    /// Starts one and introduces us. `gone` is called once when it has ended.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left running then.
    pub(crate) async fn start(
        program: &Program,
        line_limit: usize,
        listener: Arc<dyn Listener>,
        gone: impl FnOnce(Exit) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (process, streams) = spawn(program)?;
        let Streams {
            stdin,
            stdout,
            stderr,
        } = streams;
        let complaints = Arc::new(Mutex::new(String::new()));
        let listening = tokio::spawn(listen_to_complaints(stderr, Arc::clone(&complaints)));
        let (connection, run) = Connection::open(stdout, stdin, line_limit, listener);
        let (ending, mut ended) = watch::channel(None);
        tokio::spawn(supervise(run, process, ending, gone));

        let introduced = Self::introduce(connection, ended.clone()).await;
        let error = match introduced {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        let exit = match error {
            CallError::Closed(_) => Some(exit_of(&mut ended).await),
            _ => None,
        };
        // What it wrote last may still be under way; a command that it has left
        // running may hold its stderr open.
        let _ = timeout(LAST_WORDS_PATIENCE, listening).await;
        let complaints = complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let complaints = complaints.trim().to_owned();
        Err(match exit {
            Some(exit) => StartError::Ended { exit, complaints },
            None => StartError::NotAnAppServer {
                reason: error.to_string(),
                complaints,
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
        Ok(Self {
            connection,
            ended,
            about,
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

async fn exit_of(ended: &mut watch::Receiver<Option<Exit>>) -> Exit {
    match ended.wait_for(Option::is_some).await {
        Ok(exit) => (*exit).unwrap_or(Exit::Unknown),
        // The supervising task ends only with the runtime.
        Err(_) => Exit::Unknown,
    }
}

async fn supervise(
    run: impl Future<Output = ()>,
    mut process: Process,
    ending: watch::Sender<Option<Exit>>,
    gone: impl FnOnce(Exit),
) {
    run.await;
    let exit = process
        .end_after(END_PATIENCE)
        .await
        .unwrap_or_else(|error| {
            tracing::error!("can't tell how Codex ended: {error}");
            Exit::Unknown
        });
    tracing::info!("Codex {exit}");
    gone(exit);
    ending.send_replace(Some(exit));
}

/// Passes Codex's stderr to the log and keeps the end of it.
async fn listen_to_complaints(mut stderr: ChildStderr, complaints: Arc<Mutex<String>>) {
    let mut decoder = LineDecoder::new(STDERR_LINE);
    loop {
        match stderr.read(decoder.space()).await {
            Ok(0) | Err(_) => return,
            Ok(count) => decoder.filled(count),
        }
        while let Some(frame) = decoder.next_frame() {
            let Frame::Line(line) = frame else { continue };
            let line = String::from_utf8_lossy(line);
            let line = strip_str(&line).to_string();
            tracing::debug!(target: "codex", "{line}");
            let mut kept = complaints.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_str(&line);
            kept.push('\n');
            let surplus = kept.len().saturating_sub(COMPLAINTS);
            let surplus = kept.ceil_char_boundary(surplus);
            kept.drain(..surplus);
        }
    }
}
