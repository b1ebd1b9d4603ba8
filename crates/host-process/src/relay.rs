//! The client's side: passes messages on between a client on stdio and its host.
//!
//! ```text
//!             message of the client         the host has ended
//!   Apart ───────────────────────► Linked ────────────────────► Apart
//!                                    │   its open calls get an error
//!                                    └── end of the input, signal ──► the host ends the
//!                                                                     service, we end
//! ```
//!
//! If the next host can adopt the app-servers of one that was killed, it is started at once, as turns
//! may still run. A client with subscriptions is connected to the next host as soon as there is one, or
//! at once if its host was killed.
//!
//! Only whole messages are passed on, so that neither side ever sees a part of one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use codex_protocol::lines::{Frame, Framing, LineDecoder};
use codex_protocol::rpc::RequestId;
use common::sync::lock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connect::ConnectError;
use crate::endpoint::HostRemains;
use crate::logic::conversation::{Conversation, Repeatable, RequestKind};

/// The longest message of a host, in bytes. Hosts bound their messages themselves.
const HOST_LIMIT: usize = 1 << 30;

/// How long the host may take to end the service of a client that has gone: its threads may
/// write summaries.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(90);

/// How long the client or the host may take to accept a message once the relay is told to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// If two hosts in a row are killed within this time after they were connected, the next one is
/// started only for a message of the client, so that a host that always fails is not restarted in a
/// loop.
const SHORT_LINK: Duration = Duration::from_secs(1);

/// How often a client with subscriptions looks for a host.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// The relay's own answers.
pub trait RelayAnswers {
    /// The answer to a call that the host has not answered before it ended.
    fn lost(&self, id: &RequestId, kind: RequestKind) -> Vec<u8>;

    /// The answer to a call for which there is no host.
    fn no_host(&self, id: &RequestId, kind: RequestKind, error: &ConnectError) -> Vec<u8>;

    /// The answer to a message that is too long.
    fn too_long(&self, length: u64, head: &[u8]) -> Vec<u8>;
}

/// The client's side of a relay.
pub struct ClientSide<R, W> {
    /// The client's messages.
    pub reader: R,
    /// Where its answers go.
    pub writer: W,
    /// The longest message that is taken, in bytes.
    pub line_limit: usize,
}

/// The client's messages, framed.
struct Input<R> {
    reader: R,
    decoder: LineDecoder,
    /// A message that was read and has not been passed on.
    held: Option<Vec<u8>>,
    ended: bool,
}

/// How a link to a host has ended.
#[derive(Debug, PartialEq, Eq)]
enum LinkEnd {
    /// The client has gone, and the host has ended the service.
    Served,
    /// The host has ended.
    Lost,
    /// The client does not take messages any more.
    ClientGone,
}

enum Next {
    Message(Vec<u8>),
    TooLong(u64, Vec<u8>),
    End,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Reads the next message. Nothing is lost if this is dropped.
    async fn next(&mut self) -> Next {
        loop {
            match self.decoder.next_frame() {
                Some(Frame::Line([])) => continue,
                Some(Frame::Line(line)) => return Next::Message(line.to_vec()),
                Some(Frame::TooLong { length, head }) => {
                    return Next::TooLong(length, head.to_vec());
                }
                None if self.ended => return Next::End,
                None => {}
            }
            match self.reader.read(self.decoder.space()).await {
                Ok(count) if count > 0 => self.decoder.filled(count),
                Ok(_) | Err(_) => {
                    self.decoder.end_line();
                    self.ended = true;
                }
            }
        }
    }
}

/// The messages for the client, one at a time. None is lost, and none follows a part of another one,
/// if a [`send`](Self::send) is dropped.
struct Output<'a, W> {
    /// `None` once a message was given up, of which the client may have got a part.
    client: tokio::sync::Mutex<Option<OpenOutput<W>>>,
    /// The messages behind those that are being written.
    queued: Mutex<VecDeque<u8>>,
    framing: Mutex<Framing>,
    answers: &'a dyn RelayAnswers,
    closing: &'a CancellationToken,
}

/// The output to a client that takes messages.
struct OpenOutput<W> {
    writer: W,
    /// The rest of what is being written.
    unwritten: VecDeque<u8>,
}

impl<W: AsyncWrite + Unpin> Output<'_, W> {
    async fn send(&self, message: Vec<u8>) -> io::Result<()> {
        let framed = lock(&self.framing).frame(message);
        lock(&self.queued).extend(framed);
        self.flush().await
    }

    /// Writes what is left of earlier messages.
    async fn flush(&self) -> io::Result<()> {
        let mut client = self.client.lock().await;
        let open = client.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        // A buffer keeps the size of the longest message, so emptied ones are dropped.
        open.unwritten
            .append(&mut std::mem::take(&mut *lock(&self.queued)));
        let sent = write(&mut open.writer, &mut open.unwritten, self.closing).await;
        if open.unwritten.is_empty() {
            open.unwritten = VecDeque::new();
        }
        if sent.as_ref().is_err_and(is_overdue) {
            tracing::warn!("the client does not read its last messages");
            *client = None;
        }
        sent
    }
}

/// Writes messages. What is written is removed from `framed`, also if this is dropped. Once
/// `closing` is cancelled, the other side has [`CLOSE_TIMEOUT`] to accept them, as one that does not
/// read would hold up the end for ever.
async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    framed: &mut VecDeque<u8>,
    closing: &CancellationToken,
) -> io::Result<()> {
    let writing = async {
        writer.write_all_buf(framed).await?;
        writer.flush().await
    };
    tokio::select! {
        biased;
        written = writing => written,
        () = overdue(closing) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Completes [`CLOSE_TIMEOUT`] after this call, or after `closing` is cancelled if that is later.
async fn overdue(closing: &CancellationToken) {
    closing.cancelled().await;
    sleep(CLOSE_TIMEOUT).await;
}

fn is_overdue(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

/// The functions by which a relay finds hosts.
pub struct Hosts<C, L> {
    /// Connects to a host, which is started if there is none.
    pub connect: C,
    /// Returns the remains of the last host.
    pub remains: L,
}

/// Relays until the client has gone or `closing` is cancelled, which counts as the end of the
/// client's input. The connection to the first host is given.
///
/// # Errors
///
/// When the client cannot be written to, unless `closing` is cancelled.
pub async fn run<R, W, S, C>(
    client: ClientSide<R, W>,
    first: S,
    hosts: Hosts<impl Fn() -> C, impl Fn() -> HostRemains>,
    repeatable: Repeatable,
    answers: &dyn RelayAnswers,
    closing: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
    C: Future<Output = Result<S, ConnectError>>,
{
    let conversation = Mutex::new(Conversation::new(repeatable));
    let mut input = Input {
        reader: client.reader,
        decoder: LineDecoder::with_headers(client.line_limit),
        held: None,
        ended: false,
    };
    let output = Output {
        client: tokio::sync::Mutex::new(Some(OpenOutput {
            writer: client.writer,
            unwritten: VecDeque::new(),
        })),
        queued: Mutex::default(),
        framing: Mutex::default(),
        answers,
        closing: &closing,
    };
    match relay(&mut input, &output, &conversation, first, &hosts).await {
        // A client that does not read cannot make an end that was asked for a failure.
        Err(error) if closing.is_cancelled() => {
            tracing::debug!("some messages have not reached the client: {error}");
            Ok(())
        }
        relayed => relayed,
    }
}

/// Relays from one host to the next.
async fn relay<R, W, S, C>(
    input: &mut Input<R>,
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    first: S,
    hosts: &Hosts<impl Fn() -> C, impl Fn() -> HostRemains>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
    C: Future<Output = Result<S, ConnectError>>,
{
    let (connect, closing) = (&hosts.connect, output.closing);
    let mut next = Some(first);
    let (mut was_short, mut are_failing) = (false, false);
    loop {
        let stream = match next.take() {
            Some(stream) => stream,
            None => match reconnect(input, output, conversation, hosts, are_failing).await? {
                Some(stream) => stream,
                None => return Ok(()),
            },
        };
        let since = Instant::now();
        let end = link(input, output, conversation, stream, closing).await;
        if end == LinkEnd::Lost {
            // The link may have ended in the middle of a message for the client.
            output.flush().await?;
        }
        // Nothing is locked while a message is written.
        let taken_back = lock(conversation).host_ended();
        for message in taken_back {
            output.send(message).await?;
        }
        let is_lost = end == LinkEnd::Lost && !closing.is_cancelled();
        let is_short = since.elapsed() < SHORT_LINK;
        let is_adopted = is_lost && (hosts.remains)() == HostRemains::AppServers;
        are_failing = is_short && was_short;
        if is_lost && !is_adopted {
            lock(conversation).forget_all_cancelled();
        }
        if is_adopted && !are_failing {
            // Without one, the next message of the client looks again.
            let connected = closing.run_until_cancelled(connect()).await;
            next = connected.and_then(Result::ok);
        }
        was_short = is_short;
        if next.is_none() {
            lock(conversation).forget_repeatable();
        }
        let lost = lock(conversation).lost();
        for (id, kind) in lost {
            output.send(output.answers.lost(&id, kind)).await?;
        }
        match end {
            LinkEnd::Lost if is_lost => {
                tracing::warn!("the host process has ended");
            }
            LinkEnd::Lost | LinkEnd::Served | LinkEnd::ClientGone => return Ok(()),
        }
    }
}

/// Waits for the next message of the client, and connects to a host then, or at once if a
/// message waits. For a client with subscriptions, unless hosts are failing, it also waits for the next
/// host. `None` if the client has gone, or `closing` is cancelled.
async fn reconnect<R, W, S, C>(
    input: &mut Input<R>,
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    hosts: &Hosts<impl Fn() -> C, impl Fn() -> HostRemains>,
    are_failing: bool,
) -> io::Result<Option<S>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Future<Output = Result<S, ConnectError>>,
{
    let (connect, closing) = (&hosts.connect, output.closing);
    let mut is_awaited = !are_failing && lock(conversation).is_subscribed();
    loop {
        if input.held.is_none() && !lock(conversation).waits() {
            let next = tokio::select! {
                next = input.next() => Some(next),
                () = closing.cancelled() => Some(Next::End),
                () = until_host(&hosts.remains), if is_awaited => None,
            };
            match next {
                Some(Next::Message(message)) => input.held = Some(message),
                Some(Next::TooLong(length, head)) => {
                    output.send(output.answers.too_long(length, &head)).await?;
                    continue;
                }
                Some(Next::End) => return Ok(None),
                // If it cannot be reached, the next message of the client looks again.
                None => is_awaited = false,
            }
        }
        let connected = closing.run_until_cancelled(connect()).await;
        let error = match connected.unwrap_or(Err(ConnectError::Closing)) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) => error,
        };
        tracing::error!("{error}");
        if let Some(message) = input.held.take() {
            // It is not passed on: if it is a request, it is answered below.
            let _ = lock(conversation).from_client(&message);
        }
        lock(conversation).forget_repeatable();
        let mut unanswered = lock(conversation).lost();
        unanswered.extend(lock(conversation).lost_introduction());
        for (id, kind) in unanswered {
            output
                .send(output.answers.no_host(&id, kind, &error))
                .await?;
        }
        if closing.is_cancelled() {
            return Ok(None);
        }
    }
}

/// Waits until a host runs, or was killed.
async fn until_host(remains: &impl Fn() -> HostRemains) {
    while remains() == HostRemains::Nothing {
        sleep(LOOK_AFTER).await;
    }
}

/// Passes messages on until one side has ended.
async fn link<R, W, S>(
    input: &mut Input<R>,
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    stream: S,
    closing: &CancellationToken,
) -> LinkEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
{
    let (reader, writer) = tokio::io::split(stream);
    let up = up(input, output, conversation, writer, closing);
    let down = down(output, conversation, reader);
    let (mut up, mut down) = (pin!(up), pin!(down));
    let sent = tokio::select! {
        biased;
        received = &mut down => return received,
        sent = &mut up => sent,
    };
    match sent {
        // The client has gone; the host says its last.
        Ok(()) => match timeout(SHUTDOWN_TIMEOUT, down).await {
            Ok(LinkEnd::Lost) => LinkEnd::Served,
            Ok(other) => other,
            Err(_) => {
                tracing::warn!("the host process does not end the service of its client");
                LinkEnd::Served
            }
        },
        // The host does not read any more, and has perhaps answered before.
        Err(_) => tokio::select! {
            received = down => received,
            () = overdue(closing) => LinkEnd::Lost,
        },
    }
}

/// Passes the client's messages on until it has gone.
///
/// # Errors
///
/// When the host does not take them any more.
async fn up<R, W, H>(
    input: &mut Input<R>,
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    mut host: H,
    closing: &CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    H: AsyncWrite + Unpin,
{
    let introduction = lock(conversation).introduction();
    let calls = lock(conversation).take_repeatable();
    for message in introduction.into_iter().chain(calls) {
        let mut framed = VecDeque::from(Framing::Headers.frame(message));
        write(&mut host, &mut framed, closing).await?;
    }
    loop {
        let next = match input.held.take() {
            Some(message) => Next::Message(message),
            None => tokio::select! {
                next = input.next() => next,
                () = closing.cancelled() => Next::End,
            },
        };
        *lock(&output.framing) = input.decoder.framing();
        match next {
            Next::Message(message) => {
                let passed = lock(conversation)
                    .from_client(&message)
                    .map(Cow::into_owned);
                if let Some(passed) = passed {
                    // A message with a newline inside, or that looks like a header, is no line.
                    let mut framed = VecDeque::from(Framing::Headers.frame(passed));
                    write(&mut host, &mut framed, closing).await?;
                }
            }
            Next::TooLong(length, head) => {
                output.send(output.answers.too_long(length, &head)).await?;
            }
            Next::End => return host.shutdown().await,
        }
    }
}

/// Passes the host's messages on until it has ended.
async fn down<W, H>(
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    mut host: H,
) -> LinkEnd
where
    W: AsyncWrite + Unpin,
    H: AsyncRead + Unpin,
{
    let mut decoder = LineDecoder::with_headers(HOST_LIMIT);
    loop {
        match host.read(decoder.space()).await {
            Ok(count) if count > 0 => decoder.filled(count),
            Ok(_) | Err(_) => return LinkEnd::Lost,
        }
        while let Some(frame) = decoder.next_frame() {
            let Frame::Line(message) = frame else {
                continue;
            };
            if message.is_empty() {
                continue;
            }
            let passed = lock(conversation).from_host(message).map(Cow::into_owned);
            if let Some(passed) = passed
                && output.send(passed).await.is_err()
            {
                return LinkEnd::ClientGone;
            }
        }
    }
}

#[cfg(test)]
mod tests;
