use std::future::{Pending, pending, ready};

use tokio::io::{DuplexStream, duplex};

use super::*;

/// How long the end of a relay may take, in simulated time.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Room for all messages, and for less than one.
const ROOMY: usize = 4096;
const NARROW: usize = 16;

/// The longest message of a client, in bytes.
const LONGEST: usize = ROOMY / 2;

const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";
const NOTIFICATION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n";

/// A call of a tool that is repeated, see [`REPEATABLE`].
const CALL: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"wait\"}}\n";

/// Cancels [`CALL`].
const CANCELLATION: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n";

const SUBSCRIPTION: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/subscribe\",\"params\":{\"uri\":\"a\"}}\n";

/// The answer to [`SUBSCRIPTION`].
const CONFIRMATION: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";

const REPEATABLE: Repeatable = Repeatable {
    tools: &["wait"],
    lasting: &[],
    mark: "again",
};

const LOST: &str = "the host has ended";
const NO_HOST: &str = "there is no host";
const TOO_LONG: &str = "the message is too long";

/// How long a relay of the tests looks for a host, in simulated time.
const CONNECT_TIME: Duration = Duration::from_secs(1);

type Connected = Result<DuplexStream, ConnectError>;

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

/// A client with this room for messages that it has not read, its input, and its output.
fn client(
    room: usize,
) -> (
    ClientSide<DuplexStream, DuplexStream>,
    DuplexStream,
    DuplexStream,
) {
    let (reader, input) = duplex(ROOMY);
    let (writer, output) = duplex(room);
    let client = ClientSide {
        reader,
        writer,
        line_limit: LONGEST,
    };
    (client, input, output)
}

/// Hosts of which none gets ready.
fn pending_hosts(
    remains: HostRemains,
) -> Hosts<impl Fn() -> Pending<Connected>, impl Fn() -> HostRemains> {
    Hosts {
        connect: pending::<Connected>,
        remains: move || remains,
    }
}

/// A message that is longer than the relay accepts.
fn too_long() -> Vec<u8> {
    ("x".repeat(LONGEST + 1) + "\n").into_bytes()
}

/// Does `work` beside a relay, which has to end in time.
async fn beside<T>(
    relaying: impl Future<Output = io::Result<()>>,
    work: impl Future<Output = T>,
) -> T {
    let both = timeout(END_LIMIT, async { tokio::join!(relaying, work) });
    let (relayed, done) = both.await.unwrap();
    relayed.unwrap();
    done
}

/// Tells a relay to end that passes on a request and a notification of the host, which nobody
/// reads but for the first byte of the request. Returns the output for the client.
async fn end_unread(client_room: usize, host_room: usize) -> String {
    let (client, mut client_input, mut client_output) = client(client_room);
    let (link, mut host) = duplex(host_room);
    let hosts = pending_hosts(HostRemains::Nothing);
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
    beside(relaying, ending).await;
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
    let (client, mut client_input, mut client_output) = client(NARROW);
    let (link, host) = duplex(ROOMY);
    let hosts = pending_hosts(HostRemains::Nothing);
    let closing = CancellationToken::new();
    let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing);
    let reading = async {
        client_input.write_all(REQUEST).await.unwrap();
        client_input.write_all(&too_long()).await.unwrap();
        let first = client_output.read_u8().await.unwrap();
        drop(host);
        sleep(CONNECT_TIME).await;
        drop(client_input);
        let mut read = String::from(char::from(first));
        client_output.read_to_string(&mut read).await.unwrap();
        read
    };
    let read = beside(relaying, reading).await;
    assert_eq!(read, format!("{TOO_LONG}\n{LOST}\n"));
}

/// The client reads so slowly that the host ends in the middle of an answer of the relay, and the
/// next host takes long to start.
#[tokio::test(start_paused = true)]
async fn rest_of_an_answer_does_not_wait_for_the_next_host() {
    let (client, mut client_input, mut client_output) = client(NARROW);
    let (link, host) = duplex(ROOMY);
    let hosts = pending_hosts(HostRemains::AppServers);
    let closing = CancellationToken::new();
    let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing.clone());
    let reading = async {
        client_input.write_all(&too_long()).await.unwrap();
        let mut read = vec![0; TOO_LONG.len() + 1];
        let (first, rest) = read.split_at_mut(1);
        client_output.read_exact(first).await.unwrap();
        drop(host);
        let reading = timeout(CONNECT_TIME, client_output.read_exact(rest));
        reading.await.unwrap().unwrap();
        closing.cancel();
        String::from_utf8(read).unwrap()
    };
    let read = beside(relaying, reading).await;
    assert_eq!(read, format!("{TOO_LONG}\n"));
}

/// The output of a relay whose host has ended, for a client that makes a call and goes.
async fn call_without_a_host<C>(connect: impl Fn() -> C, closing: CancellationToken) -> String
where
    C: Future<Output = Connected>,
{
    let (client, mut client_input, mut client_output) = client(ROOMY);
    let (link, host) = duplex(ROOMY);
    drop(host);
    client_input.write_all(CALL).await.unwrap();
    drop(client_input);
    let hosts = Hosts {
        connect,
        remains: || HostRemains::Nothing,
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
async fn told_after_a_cancellation(remains: HostRemains) -> String {
    let (client, mut client_input, _client_output) = client(ROOMY);
    let (link, first) = duplex(ROOMY);
    let (next_link, mut next) = duplex(ROOMY);
    let next_link = Mutex::new(Some(next_link));
    let hosts = Hosts {
        connect: || ready(lock(&next_link).take().ok_or(ConnectError::Closing)),
        remains: || remains,
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
    beside(relaying, talking).await
}

#[tokio::test(start_paused = true)]
async fn cancellation_is_repeated_only_to_a_host_that_continues_the_turn() {
    for remains in [HostRemains::AppServers, HostRemains::Socket] {
        let told = told_after_a_cancellation(remains).await;
        assert!(told.contains("notifications/message"), "{told}");
        let is_told = told.contains("notifications/cancelled");
        assert_eq!(is_told, remains == HostRemains::AppServers, "{told}");
    }
}

/// Reads until this text has come.
async fn until(reader: &mut DuplexStream, text: &str) {
    let mut read = String::new();
    while !read.contains(text) {
        read.push(char::from(reader.read_u8().await.unwrap()));
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_is_repeated_when_there_is_a_host_again() {
    let (client, mut client_input, mut client_output) = client(ROOMY);
    let (link, mut first) = duplex(ROOMY);
    let (next_link, mut next) = duplex(ROOMY);
    let next_link = Mutex::new(Some(next_link));
    let remains = Mutex::new(HostRemains::Nothing);
    let hosts = Hosts {
        connect: || ready(lock(&next_link).take().ok_or(ConnectError::Closing)),
        remains: || *lock(&remains),
    };
    let closing = CancellationToken::new();
    let relaying = run(client, link, hosts, REPEATABLE, &Answers, closing);
    let talking = async {
        client_input.write_all(SUBSCRIPTION).await.unwrap();
        until(&mut first, "resources/subscribe").await;
        first.write_all(CONFIRMATION).await.unwrap();
        until(&mut client_output, "result").await;
        // A host that ends by itself is not followed by another one for the subscription.
        drop(first);
        sleep(2 * LOOK_AFTER).await;
        assert!(lock(&next_link).is_some());
        *lock(&remains) = HostRemains::Socket;
        until(&mut next, "resources/subscribe").await;
        next.write_all(CONFIRMATION).await.unwrap();
        until(&mut client_output, "resources/updated").await;
        drop((client_input, next));
    };
    beside(relaying, talking).await;
}
