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
//! may still run.
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
pub struct Hosts<C, A> {
    /// Connects to a host, which is started if there is none.
    pub connect: C,
    /// Whether the host that has ended was killed, and the next one can adopt its app-servers.
    pub is_adopted: A,
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
    hosts: Hosts<impl Fn() -> C, impl Fn() -> bool>,
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
    hosts: &Hosts<impl Fn() -> C, impl Fn() -> bool>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite,
    C: Future<Output = Result<S, ConnectError>>,
{
    let (connect, closing) = (&hosts.connect, output.closing);
    let mut next = Some(first);
    let mut was_short = false;
    loop {
        let stream = match next.take() {
            Some(stream) => stream,
            None => match reconnect(input, output, conversation, connect, closing).await? {
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
        let is_adopted = is_lost && (hosts.is_adopted)();
        if is_lost && !is_adopted {
            lock(conversation).forget_all_cancelled();
        }
        if is_adopted && !(is_short && was_short) {
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
                tracing::warn!("the host process has ended; the next message starts another one");
            }
            LinkEnd::Lost | LinkEnd::Served | LinkEnd::ClientGone => return Ok(()),
        }
    }
}

/// Waits for the next message of the client, and connects to a host then, or at once if a
/// message waits. `None` if the client has gone, or `closing` is cancelled.
async fn reconnect<R, W, S, C>(
    input: &mut Input<R>,
    output: &Output<'_, W>,
    conversation: &Mutex<Conversation>,
    connect: &impl Fn() -> C,
    closing: &CancellationToken,
) -> io::Result<Option<S>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Future<Output = Result<S, ConnectError>>,
{
    loop {
        if input.held.is_none() && !lock(conversation).waits() {
            let next = tokio::select! {
                next = input.next() => next,
                () = closing.cancelled() => Next::End,
            };
            match next {
                Next::Message(message) => input.held = Some(message),
                Next::TooLong(length, head) => {
                    output.send(output.answers.too_long(length, &head)).await?;
                    continue;
                }
                Next::End => return Ok(None),
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
mod tests {
    use std::future::{pending, ready};

    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// How long the end of a relay may take, in simulated time.
    const END_LIMIT: Duration = Duration::from_secs(10);

    /// Room for all messages, and for less than one.
    const ROOMY: usize = 4096;
    const NARROW: usize = 16;

    const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";
    const NOTIFICATION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n";

    /// A call of a tool that is repeated, see [`REPEATABLE`].
    const CALL: &[u8] =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"wait\"}}\n";

    /// Cancels [`CALL`].
    const CANCELLATION: &[u8] =
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";

    const REPEATABLE: Repeatable = Repeatable {
        tools: &["wait"],
        mark: "again",
    };

    const LOST: &str = "the host has ended";
    const NO_HOST: &str = "there is no host";
    const TOO_LONG: &str = "the message is too long";

    /// How long a relay of the tests looks for a host, in simulated time.
    const CONNECT_TIME: Duration = Duration::from_secs(1);

    struct Answers;

    impl RelayAnswers for Answers {
        fn lost(&self, _: &RequestId, _: RequestKind) -> Vec<u8> {
            LOST.into()
        }

        fn no_host(&self, _: &RequestId, _: RequestKind, _: &ConnectError) -> Vec<u8> {
            NO_HOST.into()
        }

        fn too_long(&self, _: u64, _: &[u8]) -> Vec<u8> {
            TOO_LONG.into()
        }
    }

    /// Tells a relay to end that passes on a request and a notification of the host, which nobody
    /// reads but for the first byte of the request. Returns the output for the client.
    async fn end_unread(client_room: usize, host_room: usize) -> String {
        let (reader, mut client_input) = duplex(ROOMY);
        let (writer, mut client_output) = duplex(client_room);
        let (link, mut host) = duplex(host_room);
        let client = ClientSide {
            reader,
            writer,
            line_limit: ROOMY,
        };
        let hosts = Hosts {
            connect: || pending::<Result<DuplexStream, ConnectError>>(),
            is_adopted: || false,
        };
        let closing = CancellationToken::new();
        let repeatable = Repeatable::default();
        let relaying = run(client, link, hosts, repeatable, &Answers, closing.clone());
        let ending = async {
            client_input.write_all(REQUEST).await.unwrap();
            // The relay has begun to pass the request on.
            host.read_u8().await.unwrap();
            host.write_all(NOTIFICATION).await.unwrap();
            closing.cancel();
        };
        let both = timeout(END_LIMIT, async { tokio::join!(relaying, ending).0 });
        both.await.unwrap().unwrap();
        let mut read = String::new();
        client_output.read_to_string(&mut read).await.unwrap();
        read
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_does_not_hold_up_the_end() {
        let read = end_unread(NARROW, ROOMY).await;
        // No other message follows a part of one.
        let notification = str::from_utf8(NOTIFICATION).unwrap();
        assert_eq!(read, notification[..NARROW]);
    }

    #[tokio::test(start_paused = true)]
    async fn host_that_does_not_read_does_not_hold_up_the_end() {
        let read = end_unread(ROOMY, NARROW).await;
        assert!(read.ends_with(&format!("{LOST}\n")), "{read}");
    }

    /// The client reads so slowly that the host ends in the middle of an answer of the relay.
    #[tokio::test(start_paused = true)]
    async fn no_message_follows_a_part_of_an_answer_of_the_relay() {
        let (reader, mut client_input) = duplex(ROOMY);
        let (writer, mut client_output) = duplex(NARROW);
        let (link, host) = duplex(ROOMY);
        let client = ClientSide {
            reader,
            writer,
            line_limit: ROOMY / 2,
        };
        let hosts = Hosts {
            connect: || pending::<Result<DuplexStream, ConnectError>>(),
            is_adopted: || false,
        };
        let closing = CancellationToken::new();
        let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing);
        let reading = async {
            client_input.write_all(REQUEST).await.unwrap();
            let too_long = "x".repeat(ROOMY / 2 + 1) + "\n";
            client_input.write_all(too_long.as_bytes()).await.unwrap();
            let first = client_output.read_u8().await.unwrap();
            drop(host);
            sleep(CONNECT_TIME).await;
            drop(client_input);
            let mut read = String::from(char::from(first));
            client_output.read_to_string(&mut read).await.unwrap();
            read
        };
        let both = timeout(END_LIMIT, async { tokio::join!(relaying, reading) });
        let (relayed, read) = both.await.unwrap();
        relayed.unwrap();
        assert_eq!(read, format!("{TOO_LONG}\n{LOST}\n"));
    }

    /// The client reads so slowly that the host ends in the middle of an answer of the relay, and the
    /// next host takes long to start.
    #[tokio::test(start_paused = true)]
    async fn rest_of_an_answer_does_not_wait_for_the_next_host() {
        let (reader, mut client_input) = duplex(ROOMY);
        let (writer, mut client_output) = duplex(NARROW);
        let (link, host) = duplex(ROOMY);
        let client = ClientSide {
            reader,
            writer,
            line_limit: ROOMY / 2,
        };
        let hosts = Hosts {
            connect: || pending::<Result<DuplexStream, ConnectError>>(),
            is_adopted: || true,
        };
        let closing = CancellationToken::new();
        let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing.clone());
        let reading = async {
            let too_long = "x".repeat(ROOMY / 2 + 1) + "\n";
            client_input.write_all(too_long.as_bytes()).await.unwrap();
            let mut read = vec![0; TOO_LONG.len() + 1];
            let (first, rest) = read.split_at_mut(1);
            client_output.read_exact(first).await.unwrap();
            drop(host);
            let reading = timeout(CONNECT_TIME, client_output.read_exact(rest));
            reading.await.unwrap().unwrap();
            closing.cancel();
            String::from_utf8(read).unwrap()
        };
        let both = timeout(END_LIMIT, async { tokio::join!(relaying, reading) });
        let (relayed, read) = both.await.unwrap();
        relayed.unwrap();
        assert_eq!(read, format!("{TOO_LONG}\n"));
    }

    /// The output of a relay whose host has ended, for a client that makes a call and goes.
    async fn call_without_a_host<C>(connect: impl Fn() -> C, closing: CancellationToken) -> String
    where
        C: Future<Output = Result<DuplexStream, ConnectError>>,
    {
        let (reader, mut client_input) = duplex(ROOMY);
        let (writer, mut client_output) = duplex(ROOMY);
        let (link, host) = duplex(ROOMY);
        drop(host);
        client_input.write_all(CALL).await.unwrap();
        drop(client_input);
        let client = ClientSide {
            reader,
            writer,
            line_limit: ROOMY,
        };
        let hosts = Hosts {
            connect,
            is_adopted: || false,
        };
        let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing);
        timeout(END_LIMIT, relaying).await.unwrap().unwrap();
        let mut read = String::new();
        client_output.read_to_string(&mut read).await.unwrap();
        read
    }

    #[tokio::test(start_paused = true)]
    async fn repeatable_call_is_answered_when_there_is_no_host() {
        let connect = || async {
            sleep(CONNECT_TIME).await;
            Err::<DuplexStream, _>(ConnectError::Closing)
        };
        let read = call_without_a_host(connect, CancellationToken::new()).await;
        assert_eq!(read, format!("{NO_HOST}\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn relay_that_looks_for_a_host_can_be_told_to_end() {
        let closing = CancellationToken::new();
        let calling = call_without_a_host(pending, closing.clone());
        let ending = async {
            sleep(CONNECT_TIME).await;
            closing.cancel();
        };
        let (read, ()) = tokio::join!(calling, ending);
        assert_eq!(read, format!("{NO_HOST}\n"));
    }

    /// The messages for the next host of a client that has cancelled a call before.
    async fn told_after_a_cancellation(is_adopted: bool) -> String {
        let (reader, mut client_input) = duplex(ROOMY);
        let (writer, _client_output) = duplex(ROOMY);
        let (link, first) = duplex(ROOMY);
        let (next_link, mut next) = duplex(ROOMY);
        let next_link = Mutex::new(Some(next_link));
        let client = ClientSide {
            reader,
            writer,
            line_limit: ROOMY,
        };
        let hosts = Hosts {
            connect: || ready(lock(&next_link).take().ok_or(ConnectError::Closing)),
            is_adopted: || is_adopted,
        };
        let closing = CancellationToken::new();
        let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing);
        let talking = async {
            client_input.write_all(CALL).await.unwrap();
            client_input.write_all(CANCELLATION).await.unwrap();
            // Until then, the relay has passed both on.
            sleep(CONNECT_TIME).await;
            drop(first);
            client_input.write_all(NOTIFICATION).await.unwrap();
            drop(client_input);
            let mut told = String::new();
            next.read_to_string(&mut told).await.unwrap();
            drop(next);
            told
        };
        let both = timeout(END_LIMIT, async { tokio::join!(relaying, talking) });
        let (relayed, told) = both.await.unwrap();
        relayed.unwrap();
        told
    }

    #[tokio::test(start_paused = true)]
    async fn cancellation_is_repeated_only_to_a_host_that_continues_the_turn() {
        for is_adopted in [true, false] {
            let told = told_after_a_cancellation(is_adopted).await;
            assert!(told.contains("notifications/message"), "{told}");
            let is_told = told.contains("notifications/cancelled");
            assert_eq!(is_told, is_adopted, "{told}");
        }
    }
}
