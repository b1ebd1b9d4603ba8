//! A scripted stand-in for the Anthropic Messages API on loopback, on which the real Claude Code
//! works without an account.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a request may be waited for.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The model's answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A text, which ends the turn.
    Say(String),
    /// A call of a tool.
    Call {
        /// The tool's name: for an MCP server's, `mcp__SERVER__TOOL`.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
}

/// A request to the model. It carries the whole conversation.
#[derive(Clone, Debug)]
pub struct MessagesRequest(Value);

impl MessagesRequest {
    /// The texts in the last message of the user, Claude Code's own additions included.
    #[must_use]
    pub fn texts(&self) -> Vec<&str> {
        let blocks = self.last_user_blocks();
        blocks.filter_map(|block| block["text"].as_str()).collect()
    }

    /// The results of tools in the last message of the user, each as JSON.
    #[must_use]
    pub fn tool_results(&self) -> Vec<String> {
        let blocks = self.last_user_blocks();
        let results = blocks.filter(|block| block["type"] == "tool_result");
        results.map(|block| block["content"].to_string()).collect()
    }

    fn last_user_blocks(&self) -> impl Iterator<Item = &Value> {
        let mut messages = self.0["messages"].as_array().into_iter().flatten();
        // Claude Code adds messages of the role `system` after it.
        let last = messages.rfind(|message| message["role"] == "user");
        let content = last.map(|message| &message["content"]);
        content.and_then(Value::as_array).into_iter().flatten()
    }
}

struct Shared {
    script: Box<dyn Fn(&MessagesRequest) -> Answer + Send + Sync>,
    requests: watch::Sender<Vec<MessagesRequest>>,
    others: watch::Sender<Vec<String>>,
}

/// A running model. Dropping it stops it.
pub struct MessagesApi {
    address: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl MessagesApi {
    /// Starts a model on a free port of 127.0.0.1 that answers by this function.
    ///
    /// # Panics
    /// If no port can be opened.
    pub async fn start(
        script: impl Fn(&MessagesRequest) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: watch::Sender::default(),
            others: watch::Sender::default(),
        });
        let router = Router::new()
            .route("/v1/messages", post(answer))
            .fallback(refuse)
            .method_not_allowed_fallback(refuse)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            shared,
            task,
        }
    }

    /// The base URL. Given as a proxy too, it records what a program asks other hosts for.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for a request that satisfies a condition, which may have come already.
    ///
    /// # Panics
    /// If that takes too long.
    pub async fn request_such(
        &self,
        what: &str,
        such: impl Fn(&MessagesRequest) -> bool,
    ) -> MessagesRequest {
        let mut requests = self.shared.requests.subscribe();
        let any = |all: &Vec<MessagesRequest>| all.iter().any(&such);
        if let Ok(all) = timeout(TIME_LIMIT, requests.wait_for(any)).await {
            return all.unwrap().iter().find(|one| such(one)).unwrap().clone();
        }
        let all = self.shared.requests.borrow();
        let seen = all.iter().map(|one| (one.texts(), one.tool_results()));
        panic!("no request {what}: {:#?}", seen.collect::<Vec<_>>());
    }

    /// What was asked for besides answers of the model: `METHOD URL`.
    #[must_use]
    pub fn other_requests(&self) -> Vec<String> {
        self.shared.others.borrow().clone()
    }
}

impl Drop for MessagesApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, body: Bytes) -> impl IntoResponse {
    let request = MessagesRequest(serde_json::from_slice(&body).unwrap());
    let answer = (shared.script)(&request);
    let mut number = 0;
    let model = request.0["model"].clone();
    shared.requests.send_modify(|requests| {
        requests.push(request);
        number = requests.len();
    });
    let content = (header::CONTENT_TYPE, "text/event-stream");
    ([content], stream(&answer, number, &model))
}

/// The events of an answer.
fn stream(answer: &Answer, number: usize, model: &Value) -> String {
    let (block, delta, stop) = match answer {
        Answer::Say(text) => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": text }),
            "end_turn",
        ),
        Answer::Call { tool, arguments } => (
            json!({ "type": "tool_use", "id": format!("toolu_{number}"), "name": tool, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": arguments.to_string() }),
            "tool_use",
        ),
    };
    let message = json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant",
        "model": model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let ended = json!({ "stop_reason": stop, "stop_sequence": null });
    let events = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": ended, "usage": { "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ];
    let lines = |event: &Value| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().map(lines).collect()
}

async fn refuse(State(shared): State<Arc<Shared>>, method: Method, url: Uri) -> StatusCode {
    let request = format!("{method} {url}");
    shared.others.send_modify(|others| others.push(request));
    StatusCode::NOT_FOUND
}
