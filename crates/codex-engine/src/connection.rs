//! A connection to an app-server.
//!
//! One task reads, one writes. Notifications and requests of Codex go to the [`Listener`]
//! in the order of their arrival, responses to the callers that wait for them. Lines that
//! are not part of the protocol are logged and skipped, so that a stray line does not
//! cost the threads.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use codex_protocol::codex::{Ask, Method, RateLimits, ThreadNotification, ToolAnswer, ToolCall};
use codex_protocol::json_values;
use codex_protocol::lines::{Frame, HEAD, LineDecoder};
use codex_protocol::rpc::{self, ErrorObject, Message, RequestId, TruncatedMessage};
use common::sync::lock;
use futures::StreamExt;
use futures::stream::{SplitSink, SplitStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};

use super::access_token::AccessToken;
use super::web_socket::{self, WebSocket};

/// The most lines that may wait to be written. A Codex that leaves more unread has stopped reading
/// its input.
const OUTBOX: usize = 4096;

/// The most bytes of messages that are held back. Restoring a session takes milliseconds, so the
/// connection to a Codex that sends more in that time is closed.
const HELD: usize = 64 << 20;

/// The most that is logged of a stray line, in bytes.
const LOGGED: usize = 200;

/// Receives the notifications and requests of the app-server. Called from the reading
/// task, in order; must not block.
pub(crate) trait Listener: Send + Sync {
    /// A notification about a thread.
    fn on_notification(&self, notification: ThreadNotification<'_>);

    /// A question about a thread, with its raw parameters. Returns `false` if the thread
    /// is not ours.
    fn on_request(&self, thread: &str, request: RequestId, ask: Ask, params: &RawValue) -> bool;

    /// The model calls a tool of ours.
    ///
    /// # Errors
    ///
    /// Why the call is refused.
    fn on_tool_call(&self, request: RequestId, call: ToolCall) -> Result<(), &'static str>;

    /// A report of the account's usage limits.
    fn on_rate_limits(&self, limits: RateLimits);

    /// The end of a thread's turn was reported in a message that cannot be read.
    fn on_unreadable_end(&self, thread: &str, why: &str);
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Codex refused it.
    #[error("{0}")]
    Refused(ErrorObject),
    /// The response does not have the known shape.
    #[error("Codex answered {method} in a way that is not understood: {error}")]
    Unreadable {
        method: Method,
        error: serde_json::Error,
    },
    /// It is longer than Codex accepts.
    #[error("a request of {length} bytes is longer than Codex accepts ({limit} bytes)")]
    TooLong { length: usize, limit: usize },
    /// No response in time.
    #[error("Codex did not answer {method} within {} s", .after.as_secs())]
    TimedOut { method: Method, after: Duration },
    /// The connection ended first.
    #[error("Codex went away before it answered {0}")]
    Closed(Method),
}

type Answer = Result<Box<RawValue>, ErrorObject>;

/// The requests that wait for a response; `None` once the connection has ended.
type PendingRequests = Mutex<Option<HashMap<i64, oneshot::Sender<Answer>>>>;

/// Called once a message has been written to Codex.
pub type OnDelivered = Box<dyn FnOnce() + Send>;

/// A line for Codex.
struct Outgoing {
    line: Vec<u8>,
    delivered: Option<OnDelivered>,
}

struct Shared {
    pending: PendingRequests,
    outbox: mpsc::Sender<Outgoing>,
    /// Notified when the connection cannot be used any more.
    broken: Notify,
    /// How we closed the connection, if we did.
    closed: OnceLock<Closing>,
    /// The messages that are held back, if they are.
    held: Mutex<Option<HeldMessages>>,
    /// The longest request, in bytes.
    message_limit: usize,
}

/// Messages that are held back, in order.
#[derive(Default)]
struct HeldMessages {
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

/// The ways in which we close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// Codex gets 5 s to write its unwritten data. An adoptable Codex always gets 1 s: it does not
    /// exit with its connection, so its guard sends SIGTERM to the whole process tree at once, and
    /// SIGKILL a second later.
    Orderly,
    /// Codex has no data to write, or no longer responds to requests.
    Abrupt,
}

/// The sending side of a connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    next_id: Arc<AtomicI64>,
}

impl Connection {
    /// Takes over the streams of an app-server. The returned future runs until the end of
    /// the input; afterwards every request fails.
    pub(crate) fn open<R, W>(
        reader: R,
        writer: W,
        line_limit: usize,
        listener: Arc<dyn Listener>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (connection, lines) = Self::new(usize::MAX);
        let shared = Arc::clone(&connection.shared);
        let run = async move {
            tokio::select! {
                () = read(reader, line_limit, &shared, listener.as_ref()) => {}
                () = write(writer, lines) => {}
                () = shared.broken.notified() => {}
            }
            shared.end();
        };
        (connection, run)
    }

    /// Takes over a connection to the port of an app-server, which carries WebSocket messages. The
    /// returned future behaves like that of [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// If the peer does not speak WebSocket, or refuses the token.
    pub(crate) async fn open_web_socket(
        stream: TcpStream,
        token: &AccessToken,
        line_limit: usize,
        listener: Arc<dyn Listener>,
    ) -> io::Result<(Self, impl Future<Output = ()> + Send + 'static)> {
        let (sink, messages) = web_socket::open(stream, token, line_limit).await?.split();
        let (connection, lines) = Self::new(web_socket::LONGEST_MESSAGE);
        let shared = Arc::clone(&connection.shared);
        let run = async move {
            tokio::select! {
                () = read_messages(messages, line_limit, &shared, listener.as_ref()) => {}
                () = write_messages(sink, lines) => {}
                () = shared.broken.notified() => {}
            }
            shared.end();
        };
        Ok((connection, run))
    }

    /// A connection, and the lines to be written.
    fn new(message_limit: usize) -> (Self, mpsc::Receiver<Outgoing>) {
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let shared = Arc::new(Shared {
            pending: Mutex::new(Some(HashMap::new())),
            outbox,
            broken: Notify::new(),
            closed: OnceLock::new(),
            held: Mutex::default(),
            message_limit,
        });
        let next_id = Arc::new(AtomicI64::new(1));
        (Self { shared, next_id }, lines)
    }

    /// Holds back all notifications and requests of Codex until
    /// [`release`](Self::release): they may depend on a response that has to be handled first.
    pub(super) fn hold(&self) {
        lock(&self.shared.held).get_or_insert_default();
    }

    /// Delivers the messages that were held back, in order, and stops holding back.
    pub(super) fn release(&self, listener: &dyn Listener) {
        let held = lock(&self.shared.held).take();
        for line in held.into_iter().flat_map(|held| held.lines) {
            dispatch(&line, &self.shared, listener);
        }
    }

    /// Makes a request and waits at most `timeout` for its response.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<T, CallError> {
        let (id, answer) = self.send(method, params)?;
        let answered = tokio::time::timeout(timeout, answer).await;
        match answered {
            Ok(Ok(Ok(result))) => serde_json::from_str(result.get())
                .map_err(|error| CallError::Unreadable { method, error }),
            Ok(Ok(Err(refusal))) => Err(CallError::Refused(refusal)),
            Ok(Err(_)) => Err(CallError::Closed(method)),
            Err(_) => {
                if let Some(pending) = lock(&self.shared.pending).as_mut() {
                    pending.remove(&id);
                }
                Err(CallError::TimedOut {
                    method,
                    after: timeout,
                })
            }
        }
    }

    fn send(
        &self,
        method: Method,
        params: &impl Serialize,
    ) -> Result<(i64, oneshot::Receiver<Answer>), CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = rpc::request_line(&RequestId::Number(id), method.as_str(), params)
            .map_err(|error| CallError::Unreadable { method, error })?;
        if line.len() > self.shared.message_limit {
            return Err(CallError::TooLong {
                length: line.len(),
                limit: self.shared.message_limit,
            });
        }
        let (sender, receiver) = oneshot::channel();
        match lock(&self.shared.pending).as_mut() {
            Some(pending) => pending.insert(id, sender),
            None => return Err(CallError::Closed(method)),
        };
        self.shared.queue(line, None);
        Ok((id, receiver))
    }

    /// Makes a request without waiting for a response, which may never arrive: 0.104.0
    /// and 0.153.4 do not answer an interrupt of a turn that has ended.
    pub(crate) fn cast(&self, method: Method, params: &impl Serialize) {
        let id = RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.shared
            .queue_if_written(rpc::request_line(&id, method.as_str(), params), None);
    }

    /// Whether requests can still be answered.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared.pending).is_some()
    }

    /// Closes the connection: Codex reads the end of its input. Of several calls, the first counts.
    pub(crate) fn close(&self, how: Closing) {
        let _ = self.shared.closed.set(how);
        self.shared.broken.notify_one();
    }

    /// How the connection was [closed](Self::close); `None` if Codex has closed it.
    pub(crate) fn closing(&self) -> Option<Closing> {
        self.shared.closed.get().copied()
    }

    /// Sends a notification without parameters.
    pub(crate) fn notify(&self, method: &str) {
        let line = rpc::notification_line(method);
        self.shared.queue_if_written(line, None);
    }

    /// Answers a question from Codex.
    pub(crate) fn answer(&self, request: &RequestId, result: &impl Serialize) {
        self.answer_and_then(request, result, None);
    }

    /// Answers a question from Codex. `delivered` is called once the answer has been
    /// written, and never if that fails.
    pub(crate) fn answer_and_then(
        &self,
        request: &RequestId,
        result: &impl Serialize,
        delivered: Option<OnDelivered>,
    ) {
        let line = rpc::response_line(request, Ok(result));
        self.shared.queue_if_written(line, delivered);
    }
}

impl Shared {
    /// Wakes all callers: no response arrives any more.
    fn end(&self) {
        // Dropping the senders wakes them.
        lock(&self.pending).take();
    }

    /// Keeps a message for later; returns `false` if messages are not being held back.
    fn hold(&self, line: &[u8]) -> bool {
        let mut held = lock(&self.held);
        let Some(held) = held.as_mut() else {
            return false;
        };
        held.bytes = held.bytes.saturating_add(line.len());
        if held.bytes > HELD {
            tracing::error!(
                "Codex sends too much while a session is restored; closing the connection"
            );
            self.broken.notify_one();
        } else {
            held.lines.push(line.to_vec());
        }
        true
    }

    /// Queues a line without waiting: the reading task must not depend on whether Codex reads.
    fn queue(&self, line: Vec<u8>, delivered: Option<OnDelivered>) {
        let outgoing = Outgoing { line, delivered };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.outbox.try_send(outgoing) {
            tracing::error!("Codex no longer reads its input; closing the connection");
            self.broken.notify_one();
        }
    }

    /// Passes a response to its caller, which may have stopped waiting.
    fn answered(&self, id: &RequestId, answer: Answer) {
        let sender = match id {
            RequestId::Number(id) => lock(&self.pending).as_mut().and_then(|all| all.remove(id)),
            // Our own ids are numbers.
            RequestId::Text(_) => None,
        };
        match sender {
            Some(sender) => drop(sender.send(answer)),
            None => tracing::debug!("ignored a response that no request waits for"),
        }
    }

    fn queue_if_written(
        &self,
        line: Result<Vec<u8>, serde_json::Error>,
        delivered: Option<OnDelivered>,
    ) {
        match line {
            Ok(line) => self.queue(line, delivered),
            Err(error) => tracing::error!("cannot serialize a message to Codex: {error}"),
        }
    }

    fn refuse(&self, request: &RequestId, method: &str, why: &str) {
        tracing::warn!("refused the request {method} of Codex: {why}");
        let error = ErrorObject {
            code: rpc::code::METHOD_NOT_FOUND,
            message: format!("codex-mcp cannot answer {method}: {why}"),
            data: None,
        };
        self.queue_if_written(rpc::response_line(request, Err::<&(), _>(&error)), None);
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { line, delivered }) = lines.recv().await {
        if let Err(error) = writer.write_all(&line).await {
            tracing::debug!("cannot write to Codex: {error}");
            // The reading task will notice the end too, after it has read the remaining
            // input.
            std::future::pending::<()>().await;
        }
        if let Some(delivered) = delivered {
            delivered();
        }
    }
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    line_limit: usize,
    shared: &Shared,
    listener: &dyn Listener,
) {
    let mut decoder = LineDecoder::new(line_limit);
    loop {
        match reader.read(decoder.space()).await {
            Ok(0) => return,
            Ok(count) => decoder.filled(count),
            Err(error) => {
                tracing::warn!("cannot read from Codex: {error}");
                return;
            }
        }
        while let Some(frame) = decoder.next_frame() {
            match frame {
                Frame::Line([]) => {}
                Frame::Line(line) => dispatch(line, shared, listener),
                Frame::TooLong { length, head } => {
                    skip(length, head, line_limit, shared, listener);
                }
            }
        }
    }
}

async fn read_messages(
    mut messages: SplitStream<WebSocket>,
    line_limit: usize,
    shared: &Shared,
    listener: &dyn Listener,
) {
    while let Some(message) = messages.next().await {
        let line = match &message {
            Ok(message) => web_socket::text(message),
            Err(error) => {
                tracing::warn!("cannot read from Codex: {error}");
                return;
            }
        };
        match line {
            Some(line) if line.len() > line_limit => {
                let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
                let head = line.get(..HEAD).unwrap_or(line);
                skip(length, head, line_limit, shared, listener);
            }
            Some(line) => dispatch(line, shared, listener),
            None => {}
        }
    }
}

async fn write_messages(
    mut sink: SplitSink<WebSocket, web_socket::Message>,
    mut lines: mpsc::Receiver<Outgoing>,
) {
    while let Some(Outgoing { line, delivered }) = lines.recv().await {
        if let Err(error) = web_socket::send(&mut sink, line).await {
            tracing::debug!("cannot write to Codex: {error}");
            // As in `write`.
            std::future::pending::<()>().await;
        }
        if let Some(delivered) = delivered {
            delivered();
        }
    }
}

/// Dispatches one line.
fn dispatch(line: &[u8], shared: &Shared, listener: &dyn Listener) {
    let message = Message::read(line);
    if !matches!(message, Ok(Message::Response { .. })) && shared.hold(line) {
        return;
    }
    match message {
        Ok(Message::Notification { method, params }) if method == RateLimits::METHOD => {
            match RateLimits::read(params.unwrap_or(RawValue::NULL)) {
                Ok(limits) => listener.on_rate_limits(limits),
                Err(error) => log_stray(line, &error),
            }
        }
        Ok(Message::Notification { method, params }) => {
            let params = params.unwrap_or(RawValue::NULL);
            let params = json_values::reduced(params, ThreadNotification::MAX_VALUES);
            match ThreadNotification::read(&method, &params) {
                Ok(Some(notification)) => listener.on_notification(notification),
                Ok(None) => tracing::trace!("{method}"),
                Err(error) => log_stray(line, &error),
            }
        }
        Ok(Message::Response { id, outcome }) => {
            shared.answered(&id, outcome.map(RawValue::to_owned));
        }
        Ok(Message::Request { id, method, params }) if method == ToolCall::METHOD => {
            called(id, params.unwrap_or(RawValue::NULL), shared, listener);
        }
        Ok(Message::Request { id, method, params }) => {
            let params = params.unwrap_or(RawValue::NULL);
            match Ask::read(&method, params) {
                Ok(Some((thread, ask))) => {
                    if !listener.on_request(&thread, id.clone(), ask, params) {
                        shared.refuse(&id, &method, "the thread is not one of ours");
                    }
                }
                Ok(None) => shared.refuse(&id, &method, "the method is not known"),
                Err(error) => shared.refuse(&id, &method, &error.to_string()),
            }
        }
        Err(error) => log_stray(line, &error),
    }
}

/// Passes on a call of a tool. A refusal is a result, since the model would not see the
/// reason in a protocol error.
fn called(id: RequestId, params: &RawValue, shared: &Shared, listener: &dyn Listener) {
    let accepted = match ToolCall::read(params) {
        Ok(call) => listener
            .on_tool_call(id.clone(), call)
            .map_err(str::to_owned),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = accepted {
        tracing::warn!("refused a tool call of Codex: {why}");
        let answer = ToolAnswer::refusal(format!("the call is not answered: {why}"));
        shared.queue_if_written(rpc::response_line(&id, Ok(&answer)), None);
    }
}

/// Handles a line over the limit: the caller that waits for it gets an error.
fn skip(length: u64, head: &[u8], line_limit: usize, shared: &Shared, listener: &dyn Listener) {
    let message = format!(
        "Codex sent {length} bytes at once, over the limit of {line_limit}; \
         `--max-line` sets another one"
    );
    tracing::warn!("{message}");
    match TruncatedMessage::guess(head) {
        Some(TruncatedMessage::Response(id)) => {
            let error = ErrorObject {
                code: rpc::code::INVALID_REQUEST,
                message,
                data: None,
            };
            shared.answered(&id, Err(error));
        }
        Some(TruncatedMessage::Request { id, method }) => {
            shared.refuse(&id, method, "it is too long");
        }
        Some(TruncatedMessage::Notification {
            method: "turn/completed",
            thread: Some(thread),
        }) => listener.on_unreadable_end(thread, &message),
        Some(TruncatedMessage::Notification { .. }) | None => {}
    }
}

fn log_stray(line: &[u8], error: &dyn std::fmt::Display) {
    let shown = line.get(..line.len().min(LOGGED)).unwrap_or_default();
    tracing::warn!("skipped a line of Codex: {error}: {}", shown.escape_ascii());
}
