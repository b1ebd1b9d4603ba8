//! Runs for a conductor: a program that starts runs over a WebSocket, and receives their events and
//! results as they arrive.
//!
//! A connection holds no state of a run. A conductor that has lost its connection connects again,
//! and watches the job from the last event that it has received.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use common::text::{escape_json, one_line};
use common::timestamp::timestamp;
use futures::{SinkExt, StreamExt};
use hyper::upgrade::{self, OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use job_queue::logic::JobId;
use job_queue::store::{JobStore, StoredEvent};
use job_queue::{event_line, job_json};
use mcp_server::incoming;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::handshake::server::create_response;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::app::App;
use crate::auth::Caller;
use crate::mcp::LONGEST_MESSAGE;
use crate::refusal::{NO_JOB, Refusal};
use crate::slots::{SlotGuard, SlotPool};

/// The most connections of conductors at a time.
pub(crate) const MOST_CONDUCTORS: u32 = 32;

/// The most jobs that a connection watches.
const MOST_WATCHED: usize = 100;

/// The most requests of a connection that are in progress, including cancellations.
const MOST_REQUESTS: usize = 2 * MOST_WATCHED;

/// The longest ID of a request, in bytes.
const LONGEST_ID: usize = 256;

/// How much of an invalid message is shown, in bytes.
const SHOWN: usize = 300;

/// The most events that are read at once.
const PAGE: u32 = 200;

/// How many messages may wait for the conductor, each as long as an event may be. While they do, no
/// further events are read.
const QUEUE: usize = 4;

/// The interval at which the conductor is pinged.
const PING: Duration = Duration::from_secs(15);

/// How long a conductor may be silent. Its library answers each ping.
const SILENCE: Duration = Duration::from_secs(60);

/// How long a message may take to be sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the closing of a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The conductor's own ID of a request, which each answer repeats: a number, or a short text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
struct RequestId(Value);

impl TryFrom<Value> for RequestId {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match &value {
            Value::Number(_) => Ok(Self(value)),
            Value::String(text) if text.len() <= LONGEST_ID => Ok(Self(value)),
            _ => Err(format!(
                "an id is a number, or a text of at most {LONGEST_ID} bytes"
            )),
        }
    }
}

impl From<RequestId> for Value {
    fn from(RequestId(value): RequestId) -> Self {
        value
    }
}

/// A message of a conductor.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    /// Start a run, with the arguments of the tool `codex_run`, and watch it.
    Run {
        id: RequestId,
        arguments: Map<String, Value>,
    },
    /// Watch a job from the event after this one.
    Watch {
        id: RequestId,
        job_id: String,
        #[serde(default)]
        after: u32,
    },
    /// Cancel a job.
    Cancel { id: RequestId, job_id: String },
}

/// Accepts the connection of a conductor, whose credential must allow decisions.
pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
) -> Result<Response<Body>, Refusal> {
    caller.must_decide()?;
    let place = app.conductors.take(&caller.id);
    let place =
        place.ok_or_else(|| Refusal::Conflict("there are too many conductors".to_owned()))?;
    let upgrade = upgrade::on(&mut request);
    let response = create_response(&request.map(drop));
    let response = response.map_err(|error| Refusal::Wrong(error.to_string()))?;
    tokio::spawn(serve(app, caller, upgrade, place));
    Ok(response.map(|()| Body::empty()))
}

async fn serve(app: Arc<App>, caller: Caller, upgrade: OnUpgrade, _place: SlotGuard) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => return tracing::debug!("a conductor has gone: {error}"),
    };
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    let mut socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await;
    let access = Arc::clone(&app.access);
    let closing = app.closing.clone();
    let frame = tokio::select! {
        () = converse(app, &mut socket) => None,
        () = access.until_revoked(&caller) => {
            Some(close_frame(CloseCode::Policy, "the credential is no longer valid"))
        }
        () = closing.cancelled() => Some(close_frame(CloseCode::Away, "the server ends")),
    };
    close(&mut socket, frame).await;
}

/// Waits until the connections of all conductors are closed.
pub(crate) async fn until_closed(conductors: &SlotPool) {
    // Connections that are not read are not waited for.
    let _ = timeout(CLOSE_TIMEOUT, conductors.all_free()).await;
}

fn close_frame(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame {
        code,
        reason: reason.into(),
    }
}

/// Closes a connection with the reason in the frame, or acknowledges that the conductor closes it.
async fn close<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    frame: Option<CloseFrame>,
) {
    let closing = async {
        match frame {
            Some(frame) => socket.close(Some(frame)).await?,
            None => SinkExt::close(socket).await?,
        }
        // Reads the rest: if a connection ends with unread input, the system discards the last
        // output.
        while socket.next().await.transpose()?.is_some() {}
        Ok::<_, tungstenite::Error>(())
    };
    if let Ok(Err(error)) = timeout(CLOSE_TIMEOUT, closing).await {
        tracing::debug!("a conductor has gone: {error}");
    }
}

async fn converse(app: Arc<App>, socket: &mut WebSocketStream<TokioIo<Upgraded>>) {
    let (sender, mut queue) = mpsc::channel::<Value>(QUEUE);
    let answers = Answers {
        sender,
        reading: Arc::default(),
    };
    let mut watching = JoinSet::new();
    let mut ping = interval(PING);
    let mut heard = Instant::now();
    loop {
        let message = tokio::select! {
            received = socket.next() => match received {
                Some(Ok(Message::Text(text))) => {
                    heard = Instant::now();
                    while watching.try_join_next().is_some() {}
                    match command(&text, watching.len()) {
                        Ok(command) => {
                            begin(&mut watching, &app, command, &answers);
                            continue;
                        }
                        Err((id, error)) => error_of(&id, &error),
                    }
                }
                // Pings are answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                    heard = Instant::now();
                    continue;
                }
                Some(Ok(Message::Binary(_))) => error_of(&RequestId::default(), "messages are text"),
                Some(Ok(Message::Close(_) | Message::Frame(_)) | Err(_)) | None => return,
            },
            // The sender is here.
            Some(answer) = queue.recv() => message_of(&answer),
            _ = ping.tick() => match heard.elapsed() > SILENCE {
                true => return tracing::debug!("a conductor has answered no ping for a minute"),
                false => Message::Ping(Vec::new().into()),
            },
        };
        match timeout(SEND_TIMEOUT, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Where the requests of a connection send their answers.
#[derive(Clone)]
struct Answers {
    sender: mpsc::Sender<Value>,
    /// Held while some events or a result are read and sent. A conductor may watch many jobs and read
    /// slowly, and each watch would keep some MiB until it could send them.
    reading: Arc<Mutex<()>>,
}

/// Starts a request. Requests end with the connection, except for cancellations, as one may be the
/// last message.
fn begin(requests: &mut JoinSet<()>, app: &Arc<App>, command: Command, answers: &Answers) {
    let is_cancellation = matches!(command, Command::Cancel { .. });
    let following = follow(Arc::clone(app), command, answers.clone());
    match is_cancellation {
        true => {
            let cancelling = tokio::spawn(following);
            // It counts among the requests until it is done.
            requests.spawn(async move {
                let _ = cancelling.await;
            });
        }
        false => {
            requests.spawn(following);
        }
    }
}

/// Parses a command. On failure, returns the ID of the request, if it has one, and the problem.
fn command(text: &str, requests: usize) -> Result<Command, (RequestId, String)> {
    let wrong = |error: serde_json::Error| {
        let words = format!("not a message of a conductor: {error}");
        one_line(&words, SHOWN)
    };
    incoming::check_values(text.as_bytes()).map_err(|why| (RequestId::default(), why))?;
    let message: Value =
        serde_json::from_str(text).map_err(|error| (RequestId::default(), wrong(error)))?;
    let id = message.get("id").cloned().unwrap_or_default();
    let id = RequestId::try_from(id).unwrap_or_default();
    let command = serde_json::from_value(message).map_err(|error| (id.clone(), wrong(error)))?;
    let most = match command {
        Command::Cancel { .. } => MOST_REQUESTS,
        Command::Run { .. } | Command::Watch { .. } => MOST_WATCHED,
    };
    match requests < most {
        true => Ok(command),
        false => Err((
            id,
            format!("{requests} requests are under way, which is the most"),
        )),
    }
}

fn error_of(id: &RequestId, error: &str) -> Message {
    message_of(&failed(id, error))
}

/// A message as text, with hidden characters escaped: a conductor may print it to a terminal.
fn message_of(answer: &Value) -> Message {
    Message::text(escape_json(&answer.to_string()).into_owned())
}

fn failed(id: &RequestId, error: &str) -> Value {
    json!({ "type": "error", "id": id, "error": error })
}

/// Executes a conductor's command, and reports the result.
async fn follow(app: Arc<App>, command: Command, answers: Answers) {
    let (Command::Run { id, .. } | Command::Watch { id, .. } | Command::Cancel { id, .. }) =
        &command;
    let id = id.clone();
    let Err(error) = obey(&app, command, &answers).await else {
        return;
    };
    // The conductor may have gone.
    let _ = answers.sender.send(failed(&id, &error.to_string())).await;
}

async fn obey(app: &App, command: Command, answers: &Answers) -> Result<(), Refusal> {
    let jobs = &app.board.jobs;
    let (id, job, after) = match command {
        Command::Cancel { id, job_id } => {
            let job = jobs.find(&job_id).await?.ok_or(NO_JOB)?;
            let outcome = jobs.service().cancel(&job).await?;
            let status = outcome.new_status().as_str();
            let told = json!({ "type": "cancelled", "id": id, "job_id": job, "status": status });
            let _ = answers.sender.send(told).await;
            return Ok(());
        }
        Command::Run { id, arguments } => {
            let job = app.board.submit_run(arguments.into()).await?;
            let told = json!({ "type": "started", "id": id, "job_id": job });
            // The run continues without its conductor, which can watch it later.
            let _ = answers.sender.send(told).await;
            (id, job, 0)
        }
        Command::Watch { id, job_id, after } => (id, job_id, after),
    };
    let job = jobs.find(&job).await?.ok_or(NO_JOB)?;
    watch(app, (&id, &job, after), answers).await
}

/// Sends the events of a job after number `after`, and its result when it has ended.
async fn watch(
    app: &App,
    (id, job, after): (&RequestId, &JobId, u32),
    answers: &Answers,
) -> Result<(), Refusal> {
    let jobs = app.board.jobs.service();
    let store = jobs.store().await?;
    let mut changes = store.watch();
    let mut read = after;
    loop {
        // The state is read first: if it says that the job has ended, all its events are stored.
        let summary = store.summary(job).await?.ok_or(NO_JOB)?;
        read = tell_events(store, (id, job, read), answers).await?;
        if answers.sender.is_closed() {
            return Ok(());
        }
        if summary.state.has_ended() {
            let _reading = answers.reading.lock().await;
            let view = jobs.view(job, None).await?;
            let record = job_json::record(&view.job, &view.questions);
            let told = json!({ "type": "result", "id": id, "job_id": job, "job": record });
            let _ = answers.sender.send(told).await;
            return Ok(());
        }
        if let Some(error) = jobs.ensure_worker().await {
            tracing::warn!("{error}");
        }
        changes.changed().await;
    }
}

/// Sends all stored events after number `read`, and returns the number of the last one.
async fn tell_events(
    store: &JobStore,
    (id, job, mut read): (&RequestId, &JobId, u32),
    answers: &Answers,
) -> Result<u32, Refusal> {
    loop {
        let _reading = answers.reading.lock().await;
        let events = store.events(job, read, PAGE).await?;
        let Some(last) = events.last() else {
            return Ok(read);
        };
        read = last.sequence;
        for one in &events {
            if answers.sender.send(event(id, job, one)).await.is_err() {
                return Ok(read);
            }
        }
    }
}

fn event(id: &RequestId, job: &JobId, event: &StoredEvent) -> Value {
    // Codex's events are JSON. An event that is not JSON is sent as a text.
    let data = serde_json::from_str(&event.data);
    let data: Value = data.unwrap_or_else(|_| event.data.as_str().into());
    json!({
        "type": "event",
        "id": id,
        "job_id": job,
        "sequence": event.sequence,
        "at": timestamp(event.at),
        "kind": event.kind,
        "words": event_line::line(event),
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use common::text::is_hidden;
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    type Socket = WebSocketStream<DuplexStream>;

    async fn sockets() -> (Socket, Socket) {
        let (near, far) = duplex(4096);
        let server = WebSocketStream::from_raw_socket(near, Role::Server, None).await;
        let client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        (server, client)
    }

    #[tokio::test]
    async fn close_of_a_conductor_is_answered() {
        let (mut server, mut client) = sockets().await;
        let frame = close_frame(CloseCode::Normal, "done");
        client.close(Some(frame.clone())).await.unwrap();
        let received = server.next().await.unwrap().unwrap();
        assert_eq!(received, Message::Close(Some(frame.clone())));
        close(&mut server, None).await;
        drop(server);
        let answer = client.next().await.unwrap().unwrap();
        assert_eq!(answer, Message::Close(Some(frame)));
        assert!(client.next().await.is_none());
    }

    #[tokio::test]
    async fn conductor_learns_why_its_connection_is_closed() {
        let (mut server, mut client) = sockets().await;
        // It is read before the connection ends.
        client.send(Message::text("late")).await.unwrap();
        let frame = close_frame(CloseCode::Away, "the server ends");
        let closing = async {
            close(&mut server, Some(frame.clone())).await;
            drop(server);
        };
        let reading = async {
            let told = client.next().await.unwrap().unwrap();
            assert!(client.next().await.is_none());
            told
        };
        let ((), told) = tokio::join!(closing, reading);
        assert_eq!(told, Message::Close(Some(frame)));
    }

    #[tokio::test(start_paused = true)]
    async fn conductor_that_does_not_read_is_not_waited_for() {
        let (mut server, _client) = sockets().await;
        let begun = Instant::now();
        close(&mut server, None).await;
        assert!(begun.elapsed() >= CLOSE_TIMEOUT);
    }

    #[test]
    fn hidden_characters_are_escaped() {
        let answer = json!({ "words": "\u{9b}31m \u{202e} é" });
        let message = message_of(&answer);
        let text = message.to_text().unwrap();
        assert!(!text.contains(is_hidden), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), answer);
    }

    #[test]
    fn command_is_checked() {
        let run = r#"{ "type": "run", "id": 1, "arguments": { "task": "t" } }"#;
        assert!(matches!(command(run, 0), Ok(Command::Run { .. })));
        let watch = r#"{ "type": "watch", "id": "w", "job_id": "j" }"#;
        assert!(matches!(
            command(watch, 0),
            Ok(Command::Watch { after: 0, .. })
        ));
        for wrong in ["", "{}", "[]", r#"{ "type": "stop", "id": [] }"#] {
            let (id, error) = command(wrong, 0).unwrap_err();
            assert_eq!(id, RequestId::default());
            assert!(error.starts_with("not a message"), "{error}");
        }
        let (id, _) = command(r#"{ "type": "stop", "id": 7 }"#, 0).unwrap_err();
        assert_eq!(id, RequestId(7.into()));
        assert!(command(run, MOST_WATCHED).is_err());
        // Those who watch as many as they can still cancel.
        let cancel = r#"{ "type": "cancel", "id": 1, "job_id": "j" }"#;
        assert!(command(cancel, MOST_WATCHED).is_ok());
        assert!(command(cancel, MOST_REQUESTS).is_err());
        let long = format!(
            r#"{{ "type": "run", "id": "{}", "arguments": {{}} }}"#,
            "x".repeat(257)
        );
        assert!(command(&long, 0).is_err());
        let values = vec!["{}"; 60_000].join(",");
        let large = format!(r#"{{ "type": "run", "id": 1, "arguments": {{ "a": [{values}] }} }}"#);
        let (_, error) = command(&large, 0).unwrap_err();
        assert!(error.contains("JSON values"), "{error}");
    }
}
