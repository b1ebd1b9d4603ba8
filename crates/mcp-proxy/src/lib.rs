//! A proxy between an MCP client and a `codex mcp-server`, for Codex up to 0.153.
//!
//! ```text
//!   client ──► client reader ─┐           ┌─► queue ─► child writer ──► child
//!              clock ─────────┼─► router ─┤
//!   child ───► child reader ──┘           └─► queue ─► client writer ─► client
//! ```
//!
//! Messages pass as they came. The router ([`logic`]) decides on each, without I/O; the rest
//! brings it the messages and the time, and performs its decisions. Only the child has to
//! wait, for a client that does not read. The client never waits: its cancellations and its
//! end have to be heard, whatever the child does. A child that does not read gets no more
//! work instead.
//!
//! `augment` is the one place that changes calls: it adds settings and tools of ours.
//!
//! ```
//! use mcp_proxy::logic::replace_part;
//!
//! // What is replaced is a part of the message itself; all else keeps its bytes.
//! let message = r#"{"id": 7, "result":1e400}"#;
//! let replaced = replace_part(message.as_bytes(), &message[7..8], r#""a""#);
//! assert_eq!(replaced.as_deref(), Some(r#"{"id": "a", "result":1e400}"#.as_bytes()));
//! ```
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::panic,
        clippy::indexing_slicing,
        reason = "a failed test panics"
    )
)]

mod answers;
mod augment;
mod directories;
mod known_tools;
pub mod logic;
mod members;
mod outbox;
mod own;
mod recorder;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_team::{ShutdownSummary, TeamServices, shutdown_summary};
use codex_engine::{EngineError, InstalledCodex, McpServer, Pipes};
use codex_protocol::lines::{Frame, Framing, LineDecoder};
use codex_protocol::rpc::{Beheaded, Message, RequestId, code};
use job_queue::service::Jobs;
use mcp_server::defaults::Defaults;
use mcp_server::deliveries::Then;
use mcp_server::error::ToolError;
use mcp_server::incoming::{id_of, too_long, unreadable};
use mcp_server::warnings::Warnings;
use mcp_server::{Groups, Timeouts};
use rmcp::model::Tool;
use safe_files::off_runtime;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use settings::bounds::Bounds;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::ChildStdin;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::augment::{Added, Rules};
use crate::directories::Directories;
use crate::logic::{Answer, Child, Effect, Failure, Limits, Note, Room, Router, Setup};
use crate::outbox::{Outbox, Outgoing};
use crate::recorder::Recorder;

/// How many messages of the greatest length may wait for one side.
const LONGEST_WAITING: usize = 2;

/// How much longer the child's messages may be than the client's. `codex mcp-server` writes
/// an answer into one message twice (0.104.0 and 0.153.4: 10 MB of text become 21 MB), and
/// JSON writes a line break or a quotation mark as two bytes: an answer as long as the
/// client's longest message passes, even if it has nothing but those.
const ANSWER_EXPANSION: usize = 4;

/// How much may wait in any case, in bytes: a burst of short messages too.
const LEAST_WAITING: usize = 1024 * 1024;

/// How long any request but a call may take. The child answers those at once.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);

/// How long the last words may take to a client that doesn't read.
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(1);

/// What a proxy is to know.
pub struct Options {
    /// The Codex whose MCP server is run.
    pub codex: InstalledCodex,
    /// What threads are begun with where a call doesn't say.
    pub defaults: Defaults,
    /// Warnings for the caller.
    pub warnings: Warnings,
    /// What the client may ask for at most.
    pub bounds: Bounds,
    /// What the server does as a member of a team.
    pub services: TeamServices,
    /// The store of jobs.
    pub jobs: Arc<Jobs>,
    /// The groups of our own tools that are served. The child's are always there.
    pub groups: Groups,
    /// Whether threads are asked for a summary in the end.
    pub shutdown_summary: ShutdownSummary,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// The longest message that is taken from the client, in bytes. The child's may be four
    /// times as long.
    pub line_limit: usize,
}

/// The router and when it was last promised to be told the time.
struct State {
    router: Router,
    alarm: Option<std::time::Instant>,
}

/// Where a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Child,
}

/// Serves one client.
struct Proxy {
    state: Mutex<State>,
    limits: Limits,
    rules: Arc<Rules>,
    warnings: Warnings,
    recorder: Recorder,
    directories: Mutex<Directories>,
    jobs: Arc<Jobs>,
    /// The longest messages that are taken, in bytes.
    client_limit: usize,
    child_limit: usize,
    /// How the client frames its messages, and so do we.
    framing: Mutex<Framing>,
    to_client: Outbox,
    to_child: Outbox,
    /// Cancelled when the client has gone, or is to be given up.
    closing: CancellationToken,
    /// Cancelled then, and when the client has hung up: nobody waits any more.
    leaving: CancellationToken,
    /// Woken when the router wants to be told the time earlier than promised.
    earlier: Notify,
    /// Woken when a tool of our own has answered, or a thread has given its summary.
    done: Notify,
    started: Instant,
}

/// The longest message that is taken from the child, in bytes, by the client's.
fn child_limit(client: usize) -> usize {
    client.saturating_mul(ANSWER_EXPANSION)
}

/// The answer to a call that is refused here.
fn refusal(message: &Message<'_>, error: impl Into<ToolError>) -> Vec<Effect> {
    let Message::Request { id, .. } = message else {
        return Vec::new();
    };
    let result = error.into().into_result();
    vec![Effect::ToClient(answers::tool_result(id, &result))]
}

/// Serves one client until it has gone, or `closing` is cancelled.
///
/// A second cancellation, that of `hurry`, lets it end without waiting for anything.
pub async fn serve<R, W>(
    options: Options,
    (reader, writer): (R, W),
    closing: CancellationToken,
    hurry: CancellationToken,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let room = |longest: usize| LEAST_WAITING.max(longest.saturating_mul(LONGEST_WAITING));
    let (to_client, for_client) = Outbox::new(room(child_limit(options.line_limit)));
    let (to_child, for_child) = Outbox::new(room(options.line_limit));
    let proxy = Proxy::new(&options, to_client, to_child, closing.clone());
    let proxy = Arc::new(proxy);
    let written = CancellationToken::new();
    let writing = tokio::spawn({
        let (closing, written) = (closing.clone(), written.clone());
        async move {
            if let Err(error) = for_client.write(writer, written).await {
                tracing::debug!("the client no longer listens: {error}");
                closing.cancel();
            }
        }
    });
    let hang_up = CancellationToken::new();
    let child = Arc::clone(&proxy).run_child(options.codex, for_child, hang_up.clone());
    let child = tokio::spawn(child);
    let clock = tokio::spawn(Arc::clone(&proxy).keep_time());
    tokio::select! {
        () = proxy.read(Side::Client, reader) => {}
        () = closing.cancelled() => {}
    }
    proxy.leaving.cancel();

    let effects = proxy.tell(|router, _| router.shut_down());
    proxy.perform(effects);
    if options.shutdown_summary == ShutdownSummary::Ask {
        tokio::select! {
            () = proxy.summarise() => {}
            () = hurry.cancelled() => {}
        }
    }
    hang_up.cancel();
    // It can't fail: nothing panics in it, and nobody aborts it.
    let _ = child.await;
    let own = proxy.until(|router| router.own_open() == 0);
    if timeout(LAST_WORDS_PATIENCE, own).await.is_err() {
        tracing::warn!("a tool takes long to answer; it is not waited for");
    }
    written.cancel();
    if timeout(LAST_WORDS_PATIENCE, writing).await.is_err() {
        tracing::warn!("the client does not read its last answers");
    }
    clock.abort();
}

impl Proxy {
    fn new(
        options: &Options,
        to_client: Outbox,
        to_child: Outbox,
        closing: CancellationToken,
    ) -> Self {
        let limits = Limits {
            call: options.timeouts.call,
            approval: options.timeouts.approval,
            request: REQUEST_PATIENCE,
        };
        let own_tools = own::all(&options.services, &options.groups);
        let setup = Setup {
            limits,
            version: options.codex.release.map(|release| release.to_string()),
            server_info: json!({
                "name": "codex-mcp",
                "title": "codex-mcp",
                "version": env!("CARGO_PKG_VERSION"),
            }),
            known_tools: known_tools::known_tools(options.codex.release)
                .iter()
                .filter_map(raw)
                .collect(),
            own_tools: own_tools
                .iter()
                .filter_map(|tool| Some((tool.name.to_string(), raw(tool)?)))
                .collect(),
        };
        Self {
            state: Mutex::new(State {
                router: Router::new(setup),
                alarm: None,
            }),
            limits,
            rules: Arc::new(Rules {
                defaults: options.defaults.clone(),
                bounds: options.bounds.clone(),
                codex_home: options.codex.home.clone(),
            }),
            warnings: options.warnings.clone(),
            recorder: Recorder::new(options.services.clone()),
            directories: Mutex::default(),
            jobs: Arc::clone(&options.jobs),
            client_limit: options.line_limit,
            child_limit: child_limit(options.line_limit),
            framing: Mutex::default(),
            to_client,
            to_child,
            leaving: closing.child_token(),
            closing,
            earlier: Notify::new(),
            done: Notify::new(),
            started: Instant::now(),
        }
    }

    /// Runs the child from its start to its end, which comes when it wants or when
    /// nobody wants it any more, and tells the router of it.
    async fn run_child(
        self: Arc<Self>,
        codex: InstalledCodex,
        for_child: Outgoing,
        hang_up: CancellationToken,
    ) {
        let how = match self.start_child(codex, &hang_up).await {
            Ok((server, Pipes { stdin, stdout })) => {
                tokio::spawn(feed(stdin, for_child, hang_up.clone()));
                let silent = CancellationToken::new();
                let told = silent.clone().drop_guard();
                let reader = Arc::clone(&self);
                tokio::spawn(async move {
                    reader.read(Side::Child, stdout).await;
                    drop(told);
                });
                tokio::select! {
                    () = silent.cancelled() => {}
                    () = hang_up.cancelled() => {}
                }
                let how = server.end().await;
                // What it has said last is for the client too.
                let _ = timeout(LAST_WORDS_PATIENCE, silent.cancelled()).await;
                how
            }
            Err(why) => why,
        };
        tracing::info!("codex mcp-server {how}");
        let effects = self.tell(|router, _| router.child_gone(&how));
        self.perform(effects);
    }

    /// Starts the child, once it is known which Codex it is.
    ///
    /// # Errors
    ///
    /// Why there is none.
    async fn start_child(
        &self,
        codex: InstalledCodex,
        hang_up: &CancellationToken,
    ) -> Result<(McpServer, Pipes), String> {
        let codex = tokio::select! {
            codex = codex.identified() => codex,
            () = hang_up.cancelled() => return Err("was not started".to_owned()),
        };
        let codex = codex.map_err(|error| {
            tracing::error!("{error}");
            format!("can't be started: {error}")
        })?;
        tracing::info!("starting {} mcp-server", codex.binary.native.display());
        McpServer::start(&codex).map_err(|error| format!("can't be started: {error}"))
    }

    /// Has each thread asked for a summary, and waits for them, though not for long.
    async fn summarise(self: &Arc<Self>) {
        let effects =
            self.tell(|router, now| router.ask_for_summaries(shutdown_summary::REQUEST, now));
        self.perform(effects);
        let all = self.until(|router| router.summaries_missing() == 0);
        if timeout(shutdown_summary::PATIENCE, all).await.is_err() {
            tracing::warn!("not all threads gave a summary in time");
        }
    }

    /// Waits until something is so about the router.
    async fn until(&self, so: impl Fn(&Router) -> bool) {
        loop {
            let done = self.done.notified();
            if so(&lock(&self.state).router) {
                return;
            }
            done.await;
        }
    }

    /// Brings the messages of one side to the router, until there are no more.
    async fn read(self: &Arc<Self>, side: Side, mut reader: impl AsyncRead + Unpin) {
        let mut decoder = match side {
            Side::Client => LineDecoder::with_headers(self.client_limit),
            Side::Child => LineDecoder::new(self.child_limit),
        };
        loop {
            let more = wire::read(&mut reader, &mut decoder).await;
            let ended = matches!(more, Ok(wire::Input::Ended));
            while let Some(frame) = decoder.next_frame() {
                let effects = match (side, frame) {
                    // What the child's end has cut off is told of with its end.
                    (Side::Child, Frame::Line(line)) if ended && Message::read(line).is_err() => {
                        Vec::new()
                    }
                    (Side::Client, Frame::Line(line)) => self.take_from_client(line).await,
                    (Side::Child, Frame::Line(line)) => self.take_from_child(line),
                    (Side::Client, Frame::TooLong { length, head }) => {
                        self.refuse_long(length, head)
                    }
                    (Side::Child, Frame::TooLong { length, head }) => self.skip_long(length, head),
                };
                if side == Side::Client {
                    *lock(&self.framing) = decoder.framing();
                }
                self.perform(effects);
                if side == Side::Child {
                    self.to_client.settle().await;
                }
            }
            match more {
                Ok(wire::Input::Open) => {}
                Ok(wire::Input::Ended) => return,
                Err(error) => return tracing::warn!("reading from the {side:?} failed: {error}"),
            }
        }
    }

    /// Takes one message of the client.
    async fn take_from_client(&self, line: &[u8]) -> Vec<Effect> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        let message = match Message::read(line) {
            Ok(message) => message,
            Err(error) => {
                let (code, text) = unreadable(line, &error);
                return vec![Effect::ToClient(answers::refusal(None, code, &text, None))];
            }
        };
        if let Err(error) = wire::check_members(&message) {
            let Message::Request { id, .. } = &message else {
                tracing::warn!("a notification is dropped: {error}");
                return Vec::new();
            };
            let text = format!("the parameters are not passed on: {error}");
            let refusal = answers::refusal(Some(id), code::INVALID_REQUEST, &text, None);
            return vec![Effect::ToClient(refusal)];
        }
        let added = match self.augmented(line, &message).await {
            Ok(added) => added,
            Err(error) => return refusal(&message, error),
        };
        if let Err(replaced) = lock(&self.directories).check(&message) {
            return refusal(&message, replaced);
        }
        let (mut longer, mut beginning) = (None, None);
        if let Some(added) = added {
            if let Some(warning) = added.warning {
                tracing::warn!("{warning}");
                self.warnings.push(warning);
            }
            let cwd = added.beginning.cwd.as_deref();
            lock(&self.directories).begins(&message, cwd);
            (longer, beginning) = (added.bytes, Some(added.beginning));
        }
        let line = longer.as_deref().unwrap_or(line);
        self.recorder.expect(beginning);
        let room = match self.to_child.is_full() {
            true => Room::None,
            false => Room::Some,
        };
        self.tell(|router, now| router.from_client(line, &message, room, now))
    }

    /// What is added to a message that begins a thread. Files of its directory are read on
    /// another thread.
    async fn augmented(
        &self,
        line: &[u8],
        message: &Message<'_>,
    ) -> Result<Option<Added>, ToolError> {
        if !augment::begins_thread(message) {
            return Ok(None);
        }
        let (rules, line) = (Arc::clone(&self.rules), line.to_vec());
        let augmented = off_runtime::run(move || match Message::read(&line) {
            Ok(message) => rules.augmented(&line, &message),
            Err(_) => Ok(None),
        });
        augmented.await.map_err(EngineError::from)?
    }

    /// Takes one message of the child.
    fn take_from_child(&self, line: &[u8]) -> Vec<Effect> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        match Message::read(line) {
            Ok(message) => self.tell(|router, now| {
                let before = router.child().clone();
                let effects = router.from_child(line, &message, now);
                if before == Child::Starting && before != *router.child() {
                    tracing::info!("codex mcp-server is ready");
                }
                effects
            }),
            Err(error) => {
                wire::log_stray(line, &error);
                let why =
                    format!("codex mcp-server answered in a way that is not understood: {error}");
                self.cut_off(line, Failure::Unreadable(why))
            }
        }
    }

    /// Tells the router something, and sees to it that it is told the time.
    fn tell(
        &self,
        news: impl FnOnce(&mut Router, std::time::Instant) -> Vec<Effect>,
    ) -> Vec<Effect> {
        let mut state = lock(&self.state);
        let effects = news(&mut state.router, Instant::now().into_std());
        let notes = state.router.take_notes();
        let next = state.router.next_deadline();
        if next.is_some_and(|next| state.alarm.is_none_or(|alarm| next < alarm)) {
            self.earlier.notify_one();
        }
        drop(state);
        for note in notes {
            match note {
                Note::Summary { .. } => self.done.notify_waiters(),
                Note::Began { .. } => self.rules.defaults.recalled(),
                _ => {}
            }
            lock(&self.directories).hear(&note);
            self.recorder.record(note);
        }
        effects
    }

    fn refuse_long(&self, length: u64, head: &[u8]) -> Vec<Effect> {
        let text = too_long(length, self.client_limit);
        let id = id_of(head);
        let refusal = answers::refusal(id.as_ref(), code::INVALID_REQUEST, &text, None);
        vec![Effect::ToClient(refusal)]
    }

    fn skip_long(&self, length: u64, head: &[u8]) -> Vec<Effect> {
        let why = format!(
            "codex mcp-server sent {length} bytes at once, over the limit of {}, which is \
             {ANSWER_EXPANSION} times `--max-line`",
            self.child_limit
        );
        tracing::warn!("{why}; it is dropped");
        self.cut_off(head, Failure::TooLong(why))
    }

    /// Tells whoever waits for a message of the child's that it can't be taken.
    fn cut_off(&self, line: &[u8], why: Failure) -> Vec<Effect> {
        match Beheaded::guess(line) {
            Some(head) => self.tell(|router, _| router.cut_off(&head, why)),
            None => Vec::new(),
        }
    }

    /// Tells the router the time whenever it wants to know.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let alarm = {
                let mut state = lock(&self.state);
                state.alarm = state.router.next_deadline();
                state.alarm
            };
            let rings = async {
                match alarm {
                    Some(alarm) => sleep_until(Instant::from_std(alarm)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.earlier.notified() => {}
                () = rings => {
                    let effects = self.tell(Router::tick);
                    self.perform(effects);
                }
            }
        }
    }

    /// Does what the router decided. Never waits.
    fn perform(self: &Arc<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ToClient(message) => self.send_to_client(message),
                Effect::ToChild(message) => self.to_child.put(wire::one_line(message)),
                Effect::Answer { id, answer } => {
                    log(&id, &answer);
                    self.send_to_client(answers::message(&id, answer, &self.limits));
                }
                Effect::Own {
                    id,
                    name,
                    arguments,
                } => {
                    let proxy = Arc::clone(self);
                    tokio::spawn(async move { proxy.run_own(&id, &name, arguments).await });
                }
            }
        }
    }

    fn send_to_client(&self, message: Vec<u8>) {
        self.send_to_client_and(message, None);
    }

    /// The same, with what is to be done once it has been written.
    fn send_to_client_and(&self, message: Vec<u8>, then: Option<Then>) {
        if self.to_client.is_full() && !self.closing.is_cancelled() {
            tracing::warn!("the client does not read its answers; giving it up");
            self.closing.cancel();
        }
        let framed = lock(&self.framing).frame(message);
        self.to_client.put_and(framed, then);
    }
}

/// Writes to the child what is for it. Should it no longer read, its end shows
/// where it is read from.
async fn feed(stdin: ChildStdin, for_child: Outgoing, hang_up: CancellationToken) {
    if let Err(error) = for_child.write(stdin, hang_up).await {
        tracing::debug!("writing to codex mcp-server failed: {error}");
    }
}

/// What a user may want to know of later.
fn log(id: &RequestId, answer: &Answer) {
    match answer {
        Answer::Failed { why, .. } => tracing::info!("call {id} came to nothing: {why:?}"),
        Answer::Declined { .. } => {
            tracing::info!("call {id}: Codex asked what nobody could be asked; declined");
        }
        Answer::Error { method, why } => tracing::info!("{method} came to nothing: {why:?}"),
        Answer::Result(_)
        | Answer::UnknownMethod { .. }
        | Answer::IdInUse
        | Answer::IdSpent
        | Answer::TooMany => {}
    }
}

fn raw(tool: &Tool) -> Option<Box<RawValue>> {
    to_raw_value(tool).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding it, and what is in it is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
