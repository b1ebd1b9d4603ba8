//! MCP at `/mcp`: the service of rmcp, with a client of the host behind each session or request.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use rmcp::transport::common::http_header::HEADER_SESSION_ID;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;
use work_board::Connections;

use crate::app::{App, Mcp};
use crate::auth::Caller;
use crate::decisions;
use crate::forwarder::{Forwarder, about};
use crate::logic::access::CredentialId;
use crate::mcp_sessions::{McpSessions, caller, noting_full};
use crate::refusal::{NO_MCP_SESSION, Refusal};

/// The longest message of a client, in bytes (4 MiB).
pub(crate) const LONGEST_MESSAGE: usize = 4 << 20;

/// Handles a message of an MCP client. Its token must allow decisions, as a tool may do anything.
pub(crate) async fn respond(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    if let Err(refusal) = caller.must_decide() {
        return refusal.into_response();
    }
    let connections = &app.board.connections;
    let access = Arc::clone(&app.access);
    let is_valid = move |id: &CredentialId| access.is_valid(id);
    let new = || service(connections, &app.closing, is_valid);
    let service = app.mcp.get_or_try_init(new);
    match service.await {
        Ok(mcp) => pass(mcp, caller.id, request).await,
        Err(why) => Refusal::Failed(why).into_response(),
    }
}

/// Passes a message to rmcp, which answers all failures itself, except for a message that cannot be read
/// or holds too many values, and for too many sessions.
async fn pass(mcp: &Mcp, caller: CredentialId, request: Request) -> Response {
    let named = request.headers().get_all(HEADER_SESSION_ID).iter();
    let named: Vec<_> = named.filter_map(|id| id.to_str().ok()).collect();
    let is_theirs = match named[..] {
        [] => !request.headers().contains_key(HEADER_SESSION_ID),
        [id] => mcp.sessions.has(id, &caller),
        [..] => false,
    };
    if !is_theirs {
        return NO_MCP_SESSION.into_response();
    }
    let request = match decisions::keep(request, LONGEST_MESSAGE).await {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let mut service = mcp.service.clone();
    let (response, room) = noting_full(caller, service.call(request)).await;
    match (room, response) {
        (Ok(()), Ok(response)) => response.into_response(),
        (Err(full), _) => Refusal::Conflict(full.to_string()).into_response(),
    }
}

/// The service, whose clients are connected to hosts. It ends with `closing`. `is_valid` says whether a
/// credential is still valid.
async fn service(
    connections: &Connections,
    closing: &CancellationToken,
    is_valid: impl Fn(&CredentialId) -> bool + Send + 'static,
) -> Result<Mcp, String> {
    let about = about(&*connections.probe).await?;
    let connect = Arc::clone(&connections.classic);
    let remains = Arc::clone(&connections.remains);
    let new = move || {
        Ok(Forwarder::new(
            Arc::clone(&connect),
            Arc::clone(&remains),
            about.clone(),
            caller(),
        ))
    };
    // Host and Origin were checked before, also for names that only we know.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(LONGEST_MESSAGE)
        .with_cancellation_token(closing.child_token());
    let sessions = Arc::new(McpSessions::new());
    let ending = Arc::clone(&sessions).end_abandoned(is_valid);
    tokio::spawn(closing.clone().run_until_cancelled_owned(ending));
    let service = StreamableHttpService::new(new, Arc::clone(&sessions), config);
    Ok(Mcp { service, sessions })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use axum::body::{self, Body, BodyDataStream};
    use axum::http::StatusCode;
    use common::sync::lock;
    use futures::{FutureExt, StreamExt};
    use host_process::endpoint::HostRemains;
    use mcp_server::repeated_call;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::UnixStream;
    use tokio::sync::{mpsc, watch};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;
    use work_board::{Connect, ConnectOptions};

    use super::*;

    fn caller() -> CredentialId {
        CredentialId::of_test("a test")
    }

    /// The limit for what should happen soon.
    const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Hosts that confirm each request but a call, in which they ask something and withdraw it. They tell
    /// the test what they have got.
    #[derive(Clone, Default)]
    struct FakeHosts {
        running: Arc<Mutex<Vec<JoinHandle<()>>>>,
        /// Whether none can be reached.
        are_unreachable: Arc<AtomicBool>,
        /// Whether they end by themselves. Otherwise they are killed.
        are_stopped: Arc<AtomicBool>,
        /// How often somebody has looked which of the two it was.
        looks: Arc<watch::Sender<u32>>,
    }

    impl FakeHosts {
        /// Ends all hosts.
        fn end(&self) {
            lock(&self.running).drain(..).for_each(|host| host.abort());
        }

        fn connect(&self) -> (Connections, mpsc::UnboundedReceiver<Value>) {
            let (sender, received) = mpsc::unbounded_channel();
            let running = Arc::clone(&self.running);
            let are_unreachable = Arc::clone(&self.are_unreachable);
            let connect = move |_: ConnectOptions| {
                let connected = match are_unreachable.load(Ordering::Relaxed) {
                    true => Err(io::ErrorKind::NotFound.into()),
                    false => UnixStream::pair(),
                };
                let connected = connected.map(|(near, far)| {
                    lock(&running).push(tokio::spawn(serve(far, sender.clone())));
                    near
                });
                async move { connected.map_err(|error| error.to_string()) }.boxed()
            };
            let connect: Arc<Connect> = Arc::new(connect);
            let (are_stopped, looks) = (Arc::clone(&self.are_stopped), Arc::clone(&self.looks));
            let remains = move || {
                looks.send_modify(|looks| *looks += 1);
                match are_stopped.load(Ordering::Relaxed) {
                    true => HostRemains::Nothing,
                    false => HostRemains::AppServers,
                }
            };
            let connections = Connections {
                classic: Arc::clone(&connect),
                sessions: Arc::clone(&connect),
                probe: connect,
                remains: Arc::new(remains),
                start_awaited: Arc::new(|| async { Ok(false) }.boxed()),
            };
            (connections, received)
        }
    }

    async fn serve(stream: UnixStream, received: mpsc::UnboundedSender<Value>) {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            received.send(message.clone()).unwrap();
            if message["id"].is_null() {
                continue;
            }
            if message["method"] == "tools/call" {
                let question = json!({ "jsonrpc": "2.0", "id": 0, "method": "elicitation/create",
                    "params": { "message": "May I?", "requestedSchema": { "type": "object" } } });
                let withdrawn = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": { "requestId": 0 } });
                let lines = format!("{question}\n{withdrawn}\n");
                writer.write_all(lines.as_bytes()).await.unwrap();
                continue;
            }
            let result = match message["method"] == "initialize" {
                true => json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "resources": { "subscribe": true } },
                    "serverInfo": { "name": "a host", "version": "1" },
                }),
                false => json!({}),
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            let line = format!("{answer}\n");
            writer.write_all(line.as_bytes()).await.unwrap();
        }
    }

    async fn send(service: &Mcp, session: Option<&str>, message: Value) -> Response {
        let request = Request::builder()
            .method("POST")
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        let request = match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        };
        let request = request.body(Body::from(message.to_string())).unwrap();
        timeout(TIME_LIMIT, pass(service, caller(), request))
            .await
            .unwrap()
    }

    async fn initialize(service: &Mcp) -> Response {
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "a test", "version": "1" } } });
        send(service, None, message).await
    }

    fn session_of(response: &Response) -> String {
        let session = response.headers().get("mcp-session-id").unwrap();
        session.to_str().unwrap().to_owned()
    }

    async fn begin_session(service: &Mcp) -> String {
        let session = session_of(&initialize(service).await);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        send(service, Some(&session), initialized).await;
        session
    }

    /// The methods that hosts get, up to this one.
    async fn until(received: &mut mpsc::UnboundedReceiver<Value>, method: &str) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let message = timeout(TIME_LIMIT, received.recv()).await.unwrap().unwrap();
            let is_it = message["method"] == method;
            all.push(message);
            if is_it {
                return all;
            }
        }
    }

    #[tokio::test]
    async fn subscriptions_are_repeated_to_the_next_host_without_a_message_of_the_client() {
        let hosts = FakeHosts::default();
        let (connections, mut received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let begun = initialize(&service).await;
        let session = session_of(&begun);
        let session = Some(&*session);
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        send(&service, session, initialized).await;
        for (id, method, uri) in [
            (1, "resources/subscribe", "a:kept"),
            (2, "resources/subscribe", "a:ended"),
            (3, "resources/unsubscribe", "a:ended"),
        ] {
            let params = json!({ "uri": uri });
            let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            let answer = send(&service, session, message).await;
            assert_eq!(answer.status(), StatusCode::OK);
            let answer = body::to_bytes(answer.into_body(), usize::MAX);
            let answer = timeout(TIME_LIMIT, answer).await.unwrap().unwrap();
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains("\"result\""), "{answer}");
        }
        until(&mut received, "resources/unsubscribe").await;
        hosts.end();
        let told = until(&mut received, "resources/subscribe").await;
        let methods: Vec<_> = told.iter().map(|one| one["method"].clone()).collect();
        let expected = [
            "initialize",
            "notifications/initialized",
            "resources/subscribe",
        ];
        assert_eq!(methods, expected);
        assert_eq!(told[0]["params"]["clientInfo"]["name"], "a test");
        assert_eq!(told[2]["params"]["uri"], "a:kept");
        closing.cancel();
    }

    #[tokio::test]
    async fn host_that_ends_by_itself_is_not_followed_by_another_one() {
        let hosts = FakeHosts::default();
        let (connections, mut received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let session = begin_session(&service).await;
        let params = json!({ "uri": "a:kept" });
        let subscribe = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe",
            "params": params });
        let subscribed = send(&service, Some(&session), subscribe).await;
        let subscribed = body::to_bytes(subscribed.into_body(), usize::MAX);
        timeout(TIME_LIMIT, subscribed).await.unwrap().unwrap();
        let params = json!({ "name": "codex", "arguments": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let answer = send(&service, Some(&session), call).await;
        until(&mut received, "tools/call").await;
        hosts.are_stopped.store(true, Ordering::Relaxed);
        hosts.end();
        let answer = body::to_bytes(answer.into_body(), usize::MAX);
        let answer = timeout(TIME_LIMIT, answer).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("HOST_LOST"), "{answer}");
        // One look is for the call, the others are for the subscription.
        let mut looks = hosts.looks.subscribe();
        let looked = looks.wait_for(|looks| *looks >= 3);
        timeout(TIME_LIMIT, looked).await.unwrap().unwrap();
        let mut told = std::iter::from_fn(|| received.try_recv().ok());
        assert!(told.all(|message| message["method"] != "initialize"));
        // Another client has started a host.
        hosts.are_stopped.store(false, Ordering::Relaxed);
        until(&mut received, "resources/subscribe").await;
        closing.cancel();
    }

    /// The next message of this method on a stream.
    async fn next(stream: &mut BodyDataStream, method: &str) -> Value {
        let mut text = String::new();
        loop {
            let part = timeout(TIME_LIMIT, stream.next()).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&part.unwrap().unwrap()));
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let found = lines.find_map(|line| {
                let message: Value = serde_json::from_str(line).ok()?;
                (message["method"] == method).then_some(message)
            });
            if let Some(message) = found {
                return message;
            }
        }
    }

    #[tokio::test]
    async fn withdrawn_question_of_a_later_host_has_the_id_that_the_client_knows() {
        let hosts = FakeHosts::default();
        let (connections, _received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let session = begin_session(&service).await;
        let news = Request::builder()
            .method("GET")
            .uri("/mcp")
            .header("host", "localhost")
            .header("accept", "text/event-stream")
            .header("mcp-session-id", &session);
        let news = pass(&service, caller(), news.body(Body::empty()).unwrap()).await;
        let mut news = news.into_body().into_data_stream();
        for id in ["first", "second"] {
            let params = json!({ "name": "a_tool", "arguments": {} });
            let call =
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            let answer = send(&service, Some(&session), call).await;
            let mut answer = answer.into_body().into_data_stream();
            let asked = next(&mut answer, "elicitation/create").await;
            let withdrawn = next(&mut news, "notifications/cancelled").await;
            assert_eq!(withdrawn["params"]["requestId"], asked["id"], "{id}");
            hosts.end();
            // The call ends with its host.
            let rest = answer.for_each(|_| async {});
            timeout(TIME_LIMIT, rest).await.unwrap();
        }
        closing.cancel();
    }

    #[tokio::test]
    async fn request_with_the_id_of_an_open_one_is_refused() {
        let hosts = FakeHosts::default();
        let (connections, mut received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let session = begin_session(&service).await;
        let params = json!({ "name": "a_tool", "arguments": {} });
        let call = json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params });
        let answer = send(&service, Some(&session), call.clone()).await;
        let mut answer = answer.into_body().into_data_stream();
        next(&mut answer, "elicitation/create").await;
        let refused = send(&service, Some(&session), call.clone()).await;
        let refused = body::to_bytes(refused.into_body(), usize::MAX);
        let refused = timeout(TIME_LIMIT, refused).await.unwrap().unwrap();
        let refused = String::from_utf8_lossy(&refused);
        assert!(refused.contains("-32600"), "{refused}");
        hosts.end();
        let rest = answer.fold(String::new(), |text, part| async move {
            format!("{text}{}", String::from_utf8_lossy(&part.unwrap()))
        });
        let rest = timeout(TIME_LIMIT, rest).await.unwrap();
        assert!(rest.contains("HOST_LOST"), "{rest}");
        let told = std::iter::from_fn(|| received.try_recv().ok());
        let calls = told.filter(|message| message["method"] == "tools/call");
        assert_eq!(calls.count(), 1);
        // The ID of an answered request is free.
        send(&service, Some(&session), call).await;
        until(&mut received, "tools/call").await;
        closing.cancel();
    }

    #[tokio::test]
    async fn call_without_a_host_is_answered_with_a_result() {
        let hosts = FakeHosts::default();
        let (connections, _received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let session = begin_session(&service).await;
        hosts.are_unreachable.store(true, Ordering::Relaxed);
        hosts.end();
        // The first call may still be sent to the host that ends.
        for id in 1..=2 {
            let params = json!({ "name": "a_tool", "arguments": {} });
            let call =
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            let answer = send(&service, Some(&session), call).await;
            let answer = body::to_bytes(answer.into_body(), usize::MAX);
            let answer = timeout(TIME_LIMIT, answer).await.unwrap().unwrap();
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains("HOST_LOST"), "{answer}");
            assert!(answer.contains("\"isError\":true"), "{answer}");
        }
        closing.cancel();
    }

    #[tokio::test]
    async fn call_of_a_turn_is_repeated_to_each_next_host() {
        let hosts = FakeHosts::default();
        let (connections, mut received) = hosts.connect();
        let closing = CancellationToken::new();
        let service = service(&connections, &closing, |_| true).await.unwrap();
        let session = begin_session(&service).await;
        let params = json!({ "name": "codex", "arguments": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = send(&service, Some(&session), call).await;
        for is_repeated in [false, true, true] {
            let told = until(&mut received, "tools/call").await;
            let mark = &told.last().unwrap()["params"]["_meta"][repeated_call::MARK];
            assert_eq!(*mark == true, is_repeated, "{told:?}");
            hosts.end();
        }
        drop(answer);
        closing.cancel();
    }

    #[tokio::test]
    async fn surplus_session_is_refused_with_a_hint() {
        let (connections, _received) = FakeHosts::default().connect();
        let service = service(&connections, &CancellationToken::new(), |_| true)
            .await
            .unwrap();
        let mut all = Vec::new();
        let refused = loop {
            let response = initialize(&service).await;
            if response.status() != StatusCode::OK {
                break response;
            }
            all.push(session_of(&response));
            assert!(all.len() < 1000);
        };
        assert_eq!(refused.status(), StatusCode::CONFLICT);
        let body = body::to_bytes(refused.into_body(), usize::MAX)
            .await
            .unwrap();
        let error: Value = serde_json::from_slice(&body).unwrap();
        assert!(
            error["error"].as_str().unwrap().contains("DELETE"),
            "{error}"
        );
        let end = Request::builder()
            .method("DELETE")
            .uri("/mcp")
            .header("host", "localhost")
            .header("mcp-session-id", &all[0]);
        pass(&service, caller(), end.body(Body::empty()).unwrap()).await;
        assert_eq!(initialize(&service).await.status(), StatusCode::OK);
    }
}
