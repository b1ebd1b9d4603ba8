//! A raw MCP client over stdio that checks what the server sends.
//!
//! It speaks plain JSON, so that a test sees the bytes on the wire and not a library's view of
//! them. The test fails
//!
//! - at once, when the server sends a line that is not a JSON-RPC message, a
//!   response to a request that was never sent or was answered before;
//! - when a wait takes longer than the time limit, or the server ends meanwhile;
//! - when the client is dropped and a message from the server was left unclaimed
//!   (see [`McpClient::ignore`] for notifications that do not matter);
//! - in [`McpClient::finish`], when a request was left without a response.
//!
//! The failure shows everything that was said, and the server's stderr.
//!
//! A client either shakes hands ([`McpClient::initialize`], MCP 2024-11-05 to
//! 2025-11-25) or describes itself in each request
//! ([`McpClient::describe_each_request`], MCP 2026-07-28).

mod inbox;

use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::inbox::Inbox;
use crate::launch::{Launch, Output, RunningProgram, Signal, Stdin};
use crate::transcript::{Direction, Transcript};

/// How long a wait may take if the test says nothing else. Generous: a slow
/// machine must not fail a test.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two looks at the log.
const LOG_PAUSE: Duration = Duration::from_millis(5);

/// The keys of a request's `_meta` in MCP 2026-07-28. The first two are required:
/// <https://modelcontextprotocol.io/specification/2026-07-28/basic#general-fields>.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_INFO: &str = "io.modelcontextprotocol/clientInfo";

type Handler = Box<dyn FnMut(&Value) -> Value + Send>;

/// A server process and the client's end of its stdin and stdout. Dropping it
/// kills the server's process group.
pub struct McpClient {
    server: RunningProgram,
    stdin: Stdin,
    output: mpsc::UnboundedReceiver<Output>,
    inbox: Inbox,
    handlers: Vec<(String, Handler)>,
    transcript: Transcript,
    /// The received lines, if they are recorded.
    recorded: Option<Vec<Vec<u8>>>,
    limit: Duration,
    next_id: u64,
    meta: Option<Value>,
}

impl McpClient {
    /// Starts the server. Nothing is sent yet.
    ///
    /// # Panics
    /// If the program can't be started, or outside of a tokio runtime.
    #[must_use]
    pub fn start(launch: &Launch) -> Self {
        let (server, stdin, output) = RunningProgram::start(launch);
        Self {
            server,
            stdin,
            output,
            inbox: Inbox::default(),
            handlers: Vec::new(),
            transcript: Transcript::new(),
            recorded: None,
            limit: TIME_LIMIT,
            next_id: 1,
            meta: None,
        }
    }

    /// Starts the server and shakes hands.
    ///
    /// # Panics
    /// As [`McpClient::start`] does, and if the server does not answer.
    pub async fn connect(launch: &Launch, version: &str, capabilities: Value) -> Self {
        let mut client = Self::start(launch);
        client.initialize(version, capabilities).await;
        client
    }

    /// Sets how long each later wait may take.
    pub fn set_time_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// The server's process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// What the server has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.server.stderr()
    }

    /// Waits until the server has logged this.
    ///
    /// # Panics
    ///
    /// When the server does not log it within the time limit.
    pub async fn logged(&self, words: &str) {
        let logged = async {
            while !self.stderr().contains(words) {
                tokio::time::sleep(LOG_PAUSE).await;
            }
        };
        if timeout(self.limit, logged).await.is_err() {
            self.fail(&format!("{words:?} was not logged"));
        }
    }

    /// Shakes hands and returns the server's result: its protocol version,
    /// capabilities and so on.
    pub async fn initialize(&mut self, version: &str, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": client_info(),
        });
        let result = self.call("initialize", params).await;
        self.notify("notifications/initialized", json!({}));
        result
    }

    /// From here on every request carries the protocol version and the client's
    /// capabilities in its `_meta`, as from MCP 2026-07-28 on, where there is no
    /// handshake.
    pub fn describe_each_request(&mut self, version: &str, capabilities: Value) {
        self.meta = Some(json!({
            META_VERSION: version,
            META_CAPABILITIES: capabilities,
            META_INFO: client_info(),
        }));
    }

    /// Sends a request and returns its id. [`McpClient::response`] and its kin
    /// wait for the answer, in any order. Null stands for no `params`.
    pub fn request(&mut self, method: &str, mut params: Value) -> Value {
        if let Some(meta) = &self.meta {
            for (key, value) in meta.as_object().unwrap() {
                let own = &mut params["_meta"][key];
                if own.is_null() {
                    *own = value.clone();
                }
            }
        }
        let id = json!(self.next_id);
        self.next_id += 1;
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        add_params(&mut message, params);
        self.send(&message);
        id
    }

    /// Sends a `tools/call` request and returns its id.
    pub fn request_tool(&mut self, name: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": name, "arguments": arguments}))
    }

    /// Sends a request again with the answers to the questions of its first result (`resultType:
    /// "input_required"`, MCP 2026-07-28), by the names of the questions. Returns the id of the
    /// new request.
    pub fn request_again(
        &mut self,
        method: &str,
        mut params: Value,
        input_required: &Value,
        responses: Value,
    ) -> Value {
        params["inputResponses"] = responses;
        if let Some(state) = input_required.get("requestState") {
            params["requestState"] = state.clone();
        }
        self.request(method, params)
    }

    /// Sends a notification. Null stands for no `params`.
    pub fn notify(&mut self, method: &str, params: Value) {
        let mut message = json!({"jsonrpc": "2.0", "method": method});
        add_params(&mut message, params);
        self.send(&message);
    }

    /// Cancels a request. From here on it may stay without a response, and a late one need not be
    /// claimed.
    pub fn cancel(&mut self, id: &Value, reason: &str) {
        self.abandon(id);
        let params = json!({"requestId": id, "reason": reason});
        self.notify("notifications/cancelled", params);
    }

    /// Gives up on a request: the server may leave it without a response, and a late one need not
    /// be claimed.
    pub fn abandon(&mut self, id: &Value) {
        self.inbox.abandon(id);
    }

    /// Sends a message as it is.
    pub fn send(&mut self, message: &Value) {
        self.send_raw(format!("{message}\n"));
    }

    /// Sends bytes as they are. Requests in them, one a line, are awaited like any
    /// other.
    pub fn send_raw(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.transcript.add(Direction::Sent, line);
            self.inbox.sent(line);
        }
        self.stdin.send(bytes);
    }

    /// Closes the server's stdin, after all that was sent.
    pub fn close_stdin(&mut self) {
        self.stdin.close();
    }

    /// Stops reading the server's stdout but keeps it open, like a client that hangs. Waits for
    /// messages fail from here on.
    pub async fn stop_reading(&mut self) {
        self.server.stop_reading().await;
    }

    /// Closes the client's end of the server's stdout, like a client that is gone.
    /// Waits for messages fail from here on.
    pub async fn close_stdout(&mut self) {
        self.server.close_stdout().await;
    }

    /// Sends the server a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Answers a request of the server.
    pub fn respond(&mut self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Answers a request of the server with an error.
    pub fn respond_error(&mut self, id: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    /// Answers the server's later requests of this method with the handler's result for the whole
    /// request, as they arrive during a wait.
    pub fn on_request(
        &mut self,
        method: &str,
        handler: impl FnMut(&Value) -> Value + Send + 'static,
    ) {
        self.handlers.push((method.to_owned(), Box::new(handler)));
    }

    /// Keeps what is received from here on, for [`McpClient::recorded`].
    pub fn record(&mut self) {
        self.recorded = Some(Vec::new());
    }

    /// The lines received since [`McpClient::record`], as they came, without their
    /// newlines.
    #[must_use]
    pub fn recorded(&self) -> &[Vec<u8>] {
        self.recorded.as_deref().unwrap_or_default()
    }

    /// Takes no notice of notifications of this method.
    pub fn ignore(&mut self, method: &str) {
        self.inbox.ignore(method);
    }

    /// Waits for the response to a request: the whole message.
    pub async fn response(&mut self, id: &Value) -> Value {
        let what = format!("the response to {id}");
        self.wait_for(&what, |message| {
            message.get("method").is_none() && message["id"] == *id
        })
        .await
    }

    /// The response to a request, if it has come during an earlier wait and was not
    /// claimed.
    pub fn response_so_far(&mut self, id: &Value) -> Option<Value> {
        self.inbox.claim_response(id)
    }

    /// Waits for the result of a request.
    ///
    /// # Panics
    /// If it is answered with an error.
    pub async fn result(&mut self, id: &Value) -> Value {
        let mut response = self.response(id).await;
        match response.get_mut("result") {
            Some(result) => result.take(),
            None => self.fail(&format!("expected a result for {id}, not {response}")),
        }
    }

    /// Waits for the error that a request is answered with.
    ///
    /// # Panics
    /// If it is answered with a result.
    pub async fn error(&mut self, id: &Value) -> Value {
        let mut response = self.response(id).await;
        match response.get_mut("error") {
            Some(error) => error.take(),
            None => self.fail(&format!("expected an error for {id}, not {response}")),
        }
    }

    /// Sends a request and waits for its result.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.result(&id).await
    }

    /// Calls a tool and waits for its result, which may have `isError`.
    pub async fn call_tool(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.request_tool(name, arguments);
        self.result(&id).await
    }

    /// Waits for a notification of this method.
    pub async fn notification(&mut self, method: &str) -> Value {
        let what = format!("the notification {method}");
        self.wait_for(&what, |message| {
            message["method"] == method && message.get("id").is_none()
        })
        .await
    }

    /// Claims all notifications of this method that have come and were not claimed.
    pub fn notifications_so_far(&mut self, method: &str) -> Vec<Value> {
        let claim = || {
            self.inbox
                .claim(&mut |message: &Value| message["method"] == method)
        };
        std::iter::from_fn(claim).collect()
    }

    /// Waits for a request of this method from the server. It is to be answered
    /// with [`McpClient::respond`].
    pub async fn server_request(&mut self, method: &str) -> Value {
        let what = format!("the server's request {method}");
        self.wait_for(&what, |message| {
            message["method"] == method && message.get("id").is_some()
        })
        .await
    }

    /// Waits for the next unclaimed message of any kind.
    pub async fn next_message(&mut self) -> Value {
        self.wait_for("any message", |_| true).await
    }

    /// Waits for the first unclaimed message that fits, and claims it. `what` names
    /// it in the failure.
    pub async fn wait_for(&mut self, what: &str, mut fits: impl FnMut(&Value) -> bool) -> Value {
        let limit = self.limit;
        let found = timeout(limit, async {
            loop {
                if let Some(message) = self.inbox.claim(&mut fits) {
                    return Some(message);
                }
                let output = self.output.recv().await?;
                self.take_in(output);
            }
        })
        .await;
        match found {
            Ok(Some(message)) => message,
            Ok(None) => self.fail(&format!("the server closed stdout instead of {what}")),
            Err(_) => self.fail(&format!("waited {limit:?} for {what}")),
        }
    }

    /// Waits until the server exits by itself, and takes in all its output.
    pub async fn exited(&mut self) -> ExitStatus {
        let limit = self.limit;
        let status = timeout(limit, async {
            while let Some(output) = self.output.recv().await {
                self.take_in(output);
            }
            self.server.wait().await.unwrap()
        })
        .await;
        match status {
            Ok(status) => status,
            Err(_) => self.fail(&format!("waited {limit:?} for the server to exit")),
        }
    }

    /// Closes stdin and waits until the server exits.
    ///
    /// # Panics
    /// If a message was left unclaimed or a request without its response.
    pub async fn finish(mut self) -> ExitStatus {
        self.close_stdin();
        let status = self.exited().await;
        let open = self.inbox.unanswered();
        if !open.is_empty() {
            self.fail(&format!("requests left without a response: {open:?}"));
        }
        status
    }

    fn take_in(&mut self, output: Output) {
        let taken = match output {
            Output::Line(line) => {
                self.transcript.add(Direction::Received, &line);
                if let Some(recorded) = &mut self.recorded {
                    recorded.push(line.clone());
                }
                self.inbox.take_in(&line)
            }
            Output::Rest(rest) => {
                self.transcript.add(Direction::Received, &rest);
                Err("stdout ended in the middle of a line".to_owned())
            }
        };
        if let Err(violation) = taken {
            self.fail(&violation);
        }
        self.run_handlers();
    }

    fn run_handlers(&mut self) {
        for (method, handler) in &mut self.handlers {
            let asked = |message: &Value| {
                message["method"] == method.as_str() && message.get("id").is_some()
            };
            let Some(request) = self.inbox.claim(asked) else {
                continue;
            };
            let result = handler(&request);
            return self.respond(&request["id"], result);
        }
    }

    fn fail(&self, problem: &str) -> ! {
        panic!(
            "{problem}\n--- messages\n{}--- stderr\n{}---",
            self.transcript,
            self.server.stderr()
        )
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        while let Ok(output) = self.output.try_recv() {
            self.take_in(output);
        }
        let left = self.inbox.unclaimed();
        if !left.is_empty() {
            self.fail(&format!("messages left unclaimed: {left:#?}"));
        }
    }
}

fn add_params(message: &mut Value, params: Value) {
    if !params.is_null() {
        message["params"] = params;
    }
}

fn client_info() -> Value {
    json!({"name": "testkit", "version": env!("CARGO_PKG_VERSION")})
}
