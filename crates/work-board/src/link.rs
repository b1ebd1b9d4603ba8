//! A connection to a host as an MCP client has one: JSON-RPC, a message on each line.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::sync::lock;
use futures::future::BoxFuture;
use host_process::endpoint::{HostEndpoint, HostRemains};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Connects to a host, which is started if needed.
pub type Connect =
    dyn Fn(ConnectOptions) -> BoxFuture<'static, Result<UnixStream, String>> + Send + Sync;

/// Tells what the last host has left.
pub type Remains = dyn Fn() -> HostRemains + Send + Sync;

/// Starts the next host, if the last one was killed and app-servers wait for the next. Returns whether
/// one was started.
pub type StartAwaited = dyn Fn() -> BoxFuture<'static, Result<bool, String>> + Send + Sync;

/// How a client connects to a host.
#[derive(Debug, Default)]
pub struct ConnectOptions {
    /// The host. `None` is the usual one.
    pub host: Option<HostEndpoint>,
    /// An ID that no other client has, by which a host knows a client of an earlier one. `None` is a new one.
    pub client: Option<String>,
    /// The key of the clients with which it shares an identity. `None` has one of its own.
    pub identity_key: Option<String>,
    /// The number of the next call. Connections that share it give no number twice.
    pub next_call: Arc<AtomicU64>,
}

/// The longest message of a host, in bytes (64 MiB, as of Codex).
const LONGEST: usize = 64 << 20;

/// How many messages that a host sends by itself may wait for whoever reads them.
const QUEUE: usize = 1024;

/// The error of JSON-RPC for a call that failed inside of a server.
const INTERNAL_ERROR: i64 = -32603;

/// A message that a host sends by itself: a request, which has an ID, or a notification.
#[derive(Debug)]
pub struct Incoming {
    /// The ID of a request.
    pub id: Option<Value>,
    /// The whole message.
    pub message: Value,
}

/// The error of a call, as JSON-RPC has it.
#[derive(Debug)]
pub struct CallError(pub Value);

impl CallError {
    /// A failure inside of this process.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self(json!({ "code": INTERNAL_ERROR, "message": why.to_string() }))
    }

    /// The host has gone.
    pub fn lost() -> Self {
        Self::internal("the host process ended before it answered")
    }
}

type Pending = Arc<Mutex<Waiting>>;

/// The calls that wait for an answer.
#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<u64, oneshot::Sender<Result<Value, CallError>>>,
    has_ended: bool,
}

/// A connection to a host. It is closed when this is dropped.
#[derive(Debug)]
pub struct HostLink {
    outgoing: mpsc::Sender<Value>,
    pending: Pending,
    next: Arc<AtomicU64>,
    _closing: DropGuard,
}

impl HostLink {
    /// Opens a connection, and returns what the host sends by itself.
    pub async fn open(
        connect: &Connect,
        options: ConnectOptions,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), String> {
        let next = Arc::clone(&options.next_call);
        let (reader, writer) = connect(options).await?.into_split();
        let (outgoing, to_write) = mpsc::channel(64);
        let (told, incoming) = mpsc::channel(QUEUE);
        let (pending, closing) = (Pending::default(), CancellationToken::new());
        let (waiting, ended) = (Arc::clone(&pending), closing.clone());
        let answers = outgoing.clone();
        tokio::spawn(async move {
            let reading = read(reader, &waiting, (&told, &answers));
            let writing = write(writer, to_write);
            let done = tokio::select! {
                done = reading => done,
                done = writing => done,
                () = ended.cancelled() => Ok(()),
            };
            if let Err(error) = done {
                tracing::debug!("the connection to a host process has failed: {error}");
            }
            // Dropping the senders ends all pending calls.
            let mut waiting = lock(&waiting);
            waiting.has_ended = true;
            waiting.calls.clear();
            // Ends the stream of messages.
            drop(told);
        });
        let link = Self {
            outgoing,
            pending,
            next,
            _closing: closing.drop_guard(),
        };
        Ok((link, incoming))
    }

    /// Sends a message. Nothing happens if the connection is lost; calls that wait fail.
    pub async fn send(&self, message: Value) {
        if self.outgoing.send(message).await.is_err() {
            tracing::debug!("a message for a host process is lost with its connection");
        }
    }

    /// An ID for a call.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a call, and returns its ID and the receiver of its result.
    pub async fn begin(&self, method: &str, params: Value) -> Call {
        self.begin_as(self.next_id(), method, params).await
    }

    /// Begins a call with an ID from [`HostLink::next_id`], or one of an earlier connection that is
    /// repeated.
    pub async fn begin_as(&self, id: u64, method: &str, params: Value) -> Call {
        let (sender, result) = oneshot::channel();
        {
            let mut pending = lock(&self.pending);
            if !pending.has_ended {
                pending.calls.insert(id, sender);
            }
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(message).await;
        Call {
            id,
            result,
            pending: Arc::clone(&self.pending),
        }
    }

    /// Whether the host has gone.
    pub fn has_ended(&self) -> bool {
        lock(&self.pending).has_ended
    }

    /// Makes a call, and waits for its result.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, CallError> {
        self.begin(method, params).await.wait().await
    }
}

/// A call that waits for its result.
#[derive(Debug)]
pub struct Call {
    /// The ID of the request.
    pub id: u64,
    result: oneshot::Receiver<Result<Value, CallError>>,
    pending: Pending,
}

impl Drop for Call {
    fn drop(&mut self) {
        lock(&self.pending).calls.remove(&self.id);
    }
}

impl Call {
    /// Waits for the result.
    ///
    /// # Errors
    ///
    /// [`CallError`] of the host, or that it has gone.
    pub async fn wait(&mut self) -> Result<Value, CallError> {
        self.answer()
            .await
            .unwrap_or_else(|| Err(CallError::lost()))
    }

    /// Waits for the answer; `None` if the host has gone.
    pub async fn answer(&mut self) -> Option<Result<Value, CallError>> {
        (&mut self.result).await.ok()
    }
}

async fn write(mut writer: OwnedWriteHalf, mut to_write: mpsc::Receiver<Value>) -> io::Result<()> {
    while let Some(message) = to_write.recv().await {
        let mut line = message.to_string();
        line.push('\n');
        writer.write_all(line.as_bytes()).await?;
    }
    Ok(())
}

async fn read(
    reader: OwnedReadHalf,
    pending: &Pending,
    (told, answers): (&mpsc::Sender<Incoming>, &mpsc::Sender<Value>),
) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while read_line(&mut reader, &mut line).await? {
        let Ok(mut message) = serde_json::from_slice::<Value>(&line) else {
            continue;
        };
        line.clear();
        if message.get("method").is_some() {
            let id = message.get("id").cloned();
            // Whoever does not read for long has gone, or will miss what it does not read.
            if let Err(dropped) = told.try_send(Incoming { id, message }) {
                tracing::warn!("a message of a host process is dropped: nobody reads it");
                refuse(dropped.into_inner(), answers).await;
            }
            continue;
        }
        let waiting = message.get("id").and_then(Value::as_u64);
        let waiting = waiting.and_then(|id| lock(pending).calls.remove(&id));
        if let Some(waiting) = waiting {
            let result = match message.get_mut("error") {
                Some(error) => Err(CallError(error.take())),
                None => Ok(taken(&mut message, "result")),
            };
            // The caller may have gone.
            let _ = waiting.send(result);
        }
    }
    Ok(())
}

/// Answers a dropped request, so that the host does not wait for an answer for ever.
async fn refuse(dropped: Incoming, answers: &mpsc::Sender<Value>) {
    let Some(id) = dropped.id else {
        return;
    };
    let CallError(error) = CallError::internal(format!(
        "the client does not read: {QUEUE} messages wait for it"
    ));
    let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    // Fails only with the connection.
    let _ = answers.send(answer).await;
}

/// Takes a member of an object.
pub fn taken(object: &mut Value, member: &str) -> Value {
    object.get_mut(member).map(Value::take).unwrap_or_default()
}

/// Reads a line; `false` at the end.
async fn read_line(reader: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    loop {
        let buffer = reader.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(false);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        line.extend(buffer.iter().take(taken));
        reader.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
        if line.len() > LONGEST {
            return Err(io::Error::other(
                "a message of the host process is too long",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn request_that_nobody_reads_is_answered_with_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let near = Mutex::new(Some(near));
        let connect = move |_: ConnectOptions| {
            let near = lock(&near).take();
            async move { near.ok_or_else(|| "there is no other host".to_owned()) }.boxed()
        };
        let opened = HostLink::open(&connect, ConnectOptions::default()).await;
        let (_link, mut incoming) = opened.unwrap();
        let (reader, mut writer) = far.into_split();
        let question = |id: usize| {
            let question = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create" });
            format!("{question}\n")
        };
        let surplus = 200;
        for id in 0..QUEUE + surplus {
            writer.write_all(question(id).as_bytes()).await.unwrap();
        }
        let mut answers = BufReader::new(reader).lines();
        for id in QUEUE..QUEUE + surplus {
            let answer = timeout(Duration::from_secs(60), answers.next_line()).await;
            let answer: Value = serde_json::from_str(&answer.unwrap().unwrap().unwrap()).unwrap();
            assert_eq!(answer.get("id"), Some(&json!(id)));
            assert_eq!(answer.pointer("/error/code"), Some(&json!(INTERNAL_ERROR)));
        }
        for id in 0..QUEUE {
            assert_eq!(incoming.recv().await.unwrap().id, Some(json!(id)));
        }
        assert!(incoming.recv().now_or_never().is_none());
    }

    #[tokio::test]
    async fn connections_that_share_their_numbers_give_none_twice() {
        let connect = |_: ConnectOptions| {
            let near = UnixStream::pair().map(|(near, _far)| near);
            async move { near.map_err(|error| error.to_string()) }.boxed()
        };
        let next_call = Arc::<AtomicU64>::default();
        let options = || ConnectOptions {
            next_call: Arc::clone(&next_call),
            ..ConnectOptions::default()
        };
        let (earlier, _) = HostLink::open(&connect, options()).await.unwrap();
        let (later, _) = HostLink::open(&connect, options()).await.unwrap();
        let numbers = [&earlier, &later, &earlier, &later].map(HostLink::next_id);
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
}
