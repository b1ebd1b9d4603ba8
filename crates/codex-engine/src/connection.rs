//! A connection to an app-server: requests out, answers and news in.
//!
//! One task reads, one writes. News and questions go to the [`Listener`] in
//! the order in which they came, answers to whoever waits for them. Lines that
//! are not the protocol's are logged and skipped: a Codex that prints something
//! stray is no reason to lose its threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use codex_protocol::codex::{Ask, Heard, Method, RateLimits, ToolAnswer, ToolCall};
use codex_protocol::lines::{Frame, LineDecoder};
use codex_protocol::rpc::{self, Beheaded, ErrorObject, Message, RequestId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc, oneshot};

use super::pacing::Pacing;

/// Lines waiting to be written. A Codex that has let this many pile up no
/// longer reads its input.
const OUTBOX: usize = 4096;

/// How much of a stray line is logged, in bytes.
const LOGGED: usize = 200;

/// Hears what the app-server says by itself. Called from the reading task, in
/// order; must not block.
pub(crate) trait Listener: Send + Sync {
    /// Something happened in a thread.
    fn heard(&self, heard: Heard<'_>);

    /// Codex asks something about a thread; `params` is how. `false` if the thread
    /// is not ours.
    fn asked(&self, thread: &str, request: RequestId, ask: Ask, params: &RawValue) -> bool;

    /// The model calls a tool of ours.
    ///
    /// # Errors
    ///
    /// Why nobody else answers the call.
    fn called(&self, request: RequestId, call: ToolCall) -> Result<(), &'static str>;

    /// Codex tells how much of the account's limits is used.
    fn rate_limits(&self, limits: RateLimits);

    /// The end of a thread's turn came and could not be read.
    fn cut_off(&self, thread: &str, why: &str);
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// Codex refused it.
    #[error("{0}")]
    Refused(ErrorObject),
    /// The answer doesn't have the shape that we know.
    #[error("Codex answered {method} in a way that is not understood: {error}")]
    Unreadable {
        method: Method,
        error: serde_json::Error,
    },
    /// No answer in time.
    #[error("Codex did not answer {method} within {} s", .after.as_secs())]
    TimedOut { method: Method, after: Duration },
    /// The connection ended first.
    #[error("Codex went away before it answered {0}")]
    Closed(Method),
}

type Answer = Result<Box<RawValue>, ErrorObject>;

/// Requests that wait for an answer; `None` once the connection has ended.
type Waiting = Mutex<Option<HashMap<i64, oneshot::Sender<Answer>>>>;

/// What is to be done once Codex has been given something.
pub type Delivered = Box<dyn FnOnce() + Send>;

/// A line for Codex.
struct Outgoing {
    line: Vec<u8>,
    delivered: Option<Delivered>,
}

struct Shared {
    waiting: Waiting,
    outbox: mpsc::Sender<Outgoing>,
    /// Woken when nothing more can come of this connection.
    broken: Notify,
    /// Whether we have ended it.
    closed: AtomicBool,
}

/// The sending side of a connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    next_id: Arc<AtomicI64>,
}

impl Connection {
    /// Takes over the streams of an app-server. The future returned runs until
    /// there is nothing more to read; afterwards every request fails.
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
        let (outbox, lines) = mpsc::channel(OUTBOX);
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Some(HashMap::new())),
            outbox,
            broken: Notify::new(),
            closed: AtomicBool::new(false),
        });
        let connection = Self {
            shared: Arc::clone(&shared),
            next_id: Arc::new(AtomicI64::new(1)),
        };
        let run = async move {
            tokio::select! {
                () = read(reader, line_limit, &shared, listener.as_ref()) => {}
                () = write(writer, lines) => {}
                () = shared.broken.notified() => {}
            }
            // Dropping the senders tells everyone who waits.
            lock(&shared.waiting).take();
        };
        (connection, run)
    }

    /// Makes a request and waits for its answer, at most for `patience`.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        params: &impl Serialize,
        patience: Duration,
    ) -> Result<T, CallError> {
        let (id, answer) = self.send(method, params)?;
        let answered = tokio::time::timeout(patience, answer).await;
        match answered {
            Ok(Ok(Ok(result))) => serde_json::from_str(result.get())
                .map_err(|error| CallError::Unreadable { method, error }),
            Ok(Ok(Err(refusal))) => Err(CallError::Refused(refusal)),
            Ok(Err(_)) => Err(CallError::Closed(method)),
            Err(_) => {
                if let Some(waiting) = lock(&self.shared.waiting).as_mut() {
                    waiting.remove(&id);
                }
                Err(CallError::TimedOut {
                    method,
                    after: patience,
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
        let (sender, receiver) = oneshot::channel();
        match lock(&self.shared.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, sender),
            None => return Err(CallError::Closed(method)),
        };
        self.shared.queue(line, None);
        Ok((id, receiver))
    }

    /// Makes a request whose answer is of no interest, and may never come:
    /// 0.104.0 and 0.153.4 don't answer an interrupt of a turn that has ended.
    pub(crate) fn cast(&self, method: Method, params: &impl Serialize) {
        let id = RequestId::Number(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.shared
            .queue_if_written(rpc::request_line(&id, method.as_str(), params), None);
    }

    /// Whether requests still have a chance of being answered.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.shared.waiting).is_some()
    }

    /// Ends the connection: Codex sees the end of its input.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.broken.notify_one();
    }

    /// Whether it was ended by [`close`](Self::close), or is about to be.
    pub(crate) fn was_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Relaxed)
    }

    /// Sends a notification without parameters.
    pub(crate) fn notify(&self, method: &str) {
        let line = rpc::notification_line(method);
        self.shared.queue_if_written(line, None);
    }

    /// Answers a question of Codex's.
    pub(crate) fn answer(&self, request: &RequestId, result: &impl Serialize) {
        self.answer_and_then(request, result, None);
    }

    /// Answers a question of Codex's. What is to be done once it has been written is not
    /// done if it never is.
    pub(crate) fn answer_and_then(
        &self,
        request: &RequestId,
        result: &impl Serialize,
        delivered: Option<Delivered>,
    ) {
        let line = rpc::response_line(request, Ok(result));
        self.shared.queue_if_written(line, delivered);
    }
}

impl Shared {
    /// Never waits: what is sent from the reading task must not depend on the
    /// other side's reading.
    fn queue(&self, line: Vec<u8>, delivered: Option<Delivered>) {
        let outgoing = Outgoing { line, delivered };
        if let Err(mpsc::error::TrySendError::Full(_)) = self.outbox.try_send(outgoing) {
            tracing::error!("Codex no longer reads its input; giving it up");
            self.broken.notify_one();
        }
    }

    /// Brings an answer to whoever asked, who may have stopped waiting.
    fn answered(&self, id: &RequestId, answer: Answer) {
        let sender = match id {
            RequestId::Number(id) => lock(&self.waiting).as_mut().and_then(|all| all.remove(id)),
            // Our own ids are numbers.
            RequestId::Text(_) => None,
        };
        match sender {
            Some(sender) => drop(sender.send(answer)),
            None => tracing::debug!("an answer that nobody waits for"),
        }
    }

    fn queue_if_written(
        &self,
        line: Result<Vec<u8>, serde_json::Error>,
        delivered: Option<Delivered>,
    ) {
        match line {
            Ok(line) => self.queue(line, delivered),
            Err(error) => tracing::error!("a message to Codex can't be written: {error}"),
        }
    }

    fn refuse(&self, request: &RequestId, method: &str, why: &str) {
        tracing::warn!("Codex asked {method}, refused: {why}");
        let error = ErrorObject {
            code: rpc::code::METHOD_NOT_FOUND,
            message: format!("codex-mcp can't answer {method}: {why}"),
            data: None,
        };
        self.queue_if_written(rpc::response_line(request, Err::<&(), _>(&error)), None);
    }
}

async fn write(mut writer: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Outgoing>) {
    while let Some(Outgoing { line, delivered }) = lines.recv().await {
        if let Err(error) = writer.write_all(&line).await {
            tracing::debug!("writing to Codex failed: {error}");
            // The reading side sees the end too, after what is still to be read.
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
    let mut pacing = Pacing::new();
    loop {
        let count = match reader.read(decoder.space()).await {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) => {
                tracing::warn!("reading from Codex failed: {error}");
                return;
            }
        };
        decoder.filled(count);
        while let Some(frame) = decoder.next_frame() {
            match frame {
                Frame::Line([]) => {}
                Frame::Line(line) => dispatch(line, shared, listener),
                Frame::TooLong { length, head } => {
                    skip(length, head, line_limit, shared, listener);
                }
            }
        }
        pacing.pause_after(count).await;
    }
}

/// Brings one line to where it belongs.
fn dispatch(line: &[u8], shared: &Shared, listener: &dyn Listener) {
    match Message::read(line) {
        Ok(Message::Notification { method, params }) if method == RateLimits::METHOD => {
            match RateLimits::read(params.unwrap_or(RawValue::NULL)) {
                Ok(limits) => listener.rate_limits(limits),
                Err(error) => log_stray(line, &error),
            }
        }
        Ok(Message::Notification { method, params }) => {
            match Heard::read(&method, params.unwrap_or(RawValue::NULL)) {
                Ok(Some(heard)) => listener.heard(heard),
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
                    if !listener.asked(&thread, id.clone(), ask, params) {
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

/// Brings a call to whoever answers it. Of an error of the protocol the model would not
/// learn why.
fn called(id: RequestId, params: &RawValue, shared: &Shared, listener: &dyn Listener) {
    let taken = match ToolCall::read(params) {
        Ok(call) => listener.called(id.clone(), call).map_err(str::to_owned),
        Err(error) => Err(error.to_string()),
    };
    if let Err(why) = taken {
        tracing::warn!("Codex called a tool, refused: {why}");
        let answer = ToolAnswer::refusal(format!("the call is not answered: {why}"));
        shared.queue_if_written(rpc::response_line(&id, Ok(&answer)), None);
    }
}

/// Tells whoever waits for a line that it was too long.
fn skip(length: u64, head: &[u8], line_limit: usize, shared: &Shared, listener: &dyn Listener) {
    let message = format!(
        "Codex sent {length} bytes at once, over the limit of {line_limit}; \
         `--max-line` sets another one"
    );
    tracing::warn!("{message}");
    match Beheaded::guess(head) {
        Some(Beheaded::Response(id)) => {
            let error = ErrorObject {
                code: rpc::code::INVALID_REQUEST,
                message,
                data: None,
            };
            shared.answered(&id, Err(error));
        }
        Some(Beheaded::Request { id, method }) => {
            shared.refuse(&id, method, "it is too long");
        }
        Some(Beheaded::Notification {
            method: "turn/completed",
            thread: Some(thread),
        }) => listener.cut_off(thread, &message),
        Some(Beheaded::Notification { .. }) | None => {}
    }
}

fn log_stray(line: &[u8], error: &dyn std::fmt::Display) {
    let shown = line.get(..line.len().min(LOGGED)).unwrap_or_default();
    tracing::warn!(
        "Codex sent a line that is skipped: {error}: {}",
        shown.escape_ascii()
    );
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics while holding it, and a map is valid at every point.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
