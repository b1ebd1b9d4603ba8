//! Handles the messages of the client.

use std::time::Instant;

use codex_protocol::rpc::{Message, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::CallInfo;
use super::deadlines::Expiry;
use super::{
    Answer, CallOutcome, CancelledParams, Child, ChildQueue, Effect, Failure, Handshake, Note,
    OPEN_LIMIT, OWN_ID, OwnCall, PendingRequest, Router, splice,
};

/// The versions of MCP that begin with `initialize`, oldest first.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The version for a client that asks for none of these.
const LATEST: &str = "2025-11-25";

#[derive(Deserialize)]
struct ToolCall<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CallArguments {
    thread_id: Option<String>,
    conversation_id: Option<String>,
}

#[derive(Deserialize)]
struct PromptArgument {
    prompt: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InitializeParams {
    protocol_version: String,
    capabilities: Value,
}

/// A request of the client, and the bytes that it was parsed from.
struct Request<'a> {
    bytes: &'a [u8],
    id: &'a RequestId,
    method: &'a str,
    params: Option<&'a RawValue>,
    queue: ChildQueue,
}

impl Request<'_> {
    fn answer(&self, answer: Answer) -> Vec<Effect> {
        vec![Effect::Answer {
            id: self.id.clone(),
            answer,
        }]
    }
}

impl Router {
    /// Handles a message of the client. `bytes` is the text that `message` was parsed from.
    pub fn from_client(
        &mut self,
        bytes: &[u8],
        message: &Message<'_>,
        queue: ChildQueue,
        now: Instant,
    ) -> Vec<Effect> {
        self.from_client += 1;
        let mut effects = Vec::new();
        if self.handshake == Handshake::Pending
            && let Message::Request { id, method, .. } = message
        {
            match &**method {
                // MCP allows a ping before `initialize`, when the client is not known yet.
                "initialize" => {}
                "ping" => {
                    let id = id.clone();
                    let answer = Answer::Result(json!({}));
                    return vec![Effect::Answer { id, answer }];
                }
                // The first request of clients that can do without `initialize`. The child cannot
                // do without it.
                "server/discover" => {
                    let method = "server/discover".to_owned();
                    let answer = Answer::UnknownMethod { method };
                    let id = id.clone();
                    return vec![Effect::Answer { id, answer }];
                }
                _ => effects.extend(self.initialize_on_behalf()),
            }
        }
        match message {
            Message::Request { id, method, params } => {
                let request = Request {
                    bytes,
                    id,
                    method,
                    params: *params,
                    queue,
                };
                effects.extend(self.request(&request, now));
            }
            Message::Notification { method, params } => {
                effects.extend(self.notification(bytes, method, *params, queue, now));
            }
            Message::Response { id, outcome } => {
                let result = outcome.as_ref().ok().copied();
                effects.extend(self.response(bytes, id, result, queue));
            }
        }
        effects
    }

    fn request(&mut self, request: &Request<'_>, now: Instant) -> Vec<Effect> {
        let is_own_spent = self.own.get(request.id) == Some(&OwnCall::Cancelled);
        if is_own_spent || self.calls.is_abandoned(request.id) {
            return request.answer(Answer::IdSpent);
        }
        if self.is_in_use(request.id) {
            return request.answer(Answer::IdInUse);
        }
        if self.requests.len() + self.calls.unfinished() + self.own.len() >= OPEN_LIMIT {
            return request.answer(Answer::TooMany);
        }
        match (request.method, &self.child) {
            ("initialize", _) => self.initialize(request),
            ("tools/call", _) => self.tools_call(request, now),
            ("tools/list", Child::Starting | Child::Gone(_)) => {
                let list = self.assumed_tools();
                request.answer(list)
            }
            ("ping", Child::Gone(_)) => request.answer(Answer::Result(json!({}))),
            (method, Child::Gone(how)) => request.answer(Answer::Error {
                method: method.to_owned(),
                why: Failure::Gone(how.clone()),
            }),
            (method, _) if request.queue == ChildQueue::Full => request.answer(Answer::Error {
                method: method.to_owned(),
                why: Failure::NotReading,
            }),
            (_, Child::Starting | Child::Ready { .. }) => self.ask(request, now),
        }
    }

    fn is_in_use(&self, id: &RequestId) -> bool {
        self.calls.is_known(id)
            || self.requests.contains_key(id)
            || self.own.contains_key(id)
            || matches!(id, RequestId::Text(text) if text.starts_with(OWN_ID))
    }

    /// Passes a request on, followed by a ping. The child does not answer some methods at all, but
    /// answers the others in order: once the ping is answered, the request gets no answer any more.
    fn ask(&mut self, request: &Request<'_>, now: Instant) -> Vec<Effect> {
        let mut effects = vec![Effect::ToChild(request.bytes.to_vec())];
        let ping = match request.method {
            "ping" | "tools/list" => None,
            _ => Some(self.own_id("ping")),
        };
        if let Some(ping) = &ping {
            effects.push(own_request(ping, "ping", "{}"));
            self.pings.insert(ping.clone(), request.id.clone());
        }
        let deadline = now + self.config.timeouts.request;
        self.deadlines
            .set(deadline, Expiry::Request(request.id.clone()));
        let asked = PendingRequest {
            method: request.method.to_owned(),
            deadline,
            ping,
        };
        self.requests.insert(request.id.clone(), asked);
        effects
    }

    /// Answers `initialize` at once, as the client must not wait for the child. The child gets the
    /// client's parameters under one of our own IDs.
    fn initialize(&mut self, request: &Request<'_>) -> Vec<Effect> {
        let params = request.params.map_or("{}", RawValue::get);
        let InitializeParams {
            protocol_version: wanted,
            capabilities,
        } = serde_json::from_str(params).unwrap_or_default();
        self.supports_forms = supports_forms(&capabilities);
        let version = VERSIONS.into_iter().find(|version| *version == wanted);
        let result = json!({
            "protocolVersion": version.unwrap_or(LATEST),
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": self.config.server_info,
        });
        let mut effects = request.answer(Answer::Result(result));
        if self.handshake == Handshake::Pending {
            effects.push(self.initialize_child(params));
        }
        effects
    }

    /// Our `initialize` for the child, noted as sent; `params` is JSON.
    fn initialize_child(&mut self, params: &str) -> Effect {
        self.handshake = Handshake::Sent;
        own_request(&super::initialize_id(), "initialize", params)
    }

    /// Initializes the child for a client that sends no `initialize`, which the child requires.
    fn initialize_on_behalf(&mut self) -> [Effect; 2] {
        let params = json!({
            "protocolVersion": LATEST,
            "capabilities": {},
            "clientInfo": { "name": "codex-mcp", "version": env!("CARGO_PKG_VERSION") },
        });
        let initialized = super::notification("notifications/initialized", &json!({}));
        let initialize = self.initialize_child(&params.to_string());
        [initialize, Effect::ToChild(initialized)]
    }

    fn tools_call(&mut self, request: &Request<'_>, now: Instant) -> Vec<Effect> {
        let params = request.params.map_or("null", RawValue::get);
        let call: Option<ToolCall<'_>> = serde_json::from_str(params).ok();
        let name = call.as_ref().map_or("", |call| call.name.as_str());
        let arguments = call.as_ref().and_then(|call| call.arguments);
        if self.config.own_tools.iter().any(|(own, _)| own == name) {
            self.own.insert(request.id.clone(), OwnCall::Wanted);
            let arguments = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok());
            return vec![Effect::CallOwnTool {
                id: request.id.clone(),
                name: name.to_owned(),
                arguments: arguments.unwrap_or_default(),
            }];
        }
        // The child refuses a malformed call.
        self.forward(request, name, arguments, now)
    }

    /// Passes the call of one of Codex's tools on.
    fn forward(
        &mut self,
        request: &Request<'_>,
        tool: &str,
        arguments: Option<&RawValue>,
        now: Instant,
    ) -> Vec<Effect> {
        let thread = match tool {
            "codex-reply" => thread_of(arguments),
            _ => None,
        };
        let busy = thread.as_deref().is_some_and(|it| self.calls.is_busy(it));
        let out_of_step = thread
            .as_ref()
            .is_some_and(|it| self.out_of_step.contains(it));
        let why = match &self.child {
            Child::Gone(how) => Some(Failure::Gone(how.clone())),
            _ if request.queue == ChildQueue::Full => Some(Failure::NotReading),
            _ if out_of_step => Some(Failure::OutOfStep),
            _ => busy.then_some(Failure::Busy),
        };
        if let Some(why) = why {
            let call = CallInfo {
                thread,
                partial: String::new(),
            };
            return request.answer(Answer::Failed { call, why });
        }
        let id = request.id.clone();
        let deadline = now + self.config.timeouts.call;
        self.deadlines.set(deadline, Expiry::Call(id.clone()));
        self.notes.push(Note::CallForwarded {
            call: id.clone(),
            tool: tool.to_owned(),
            thread: thread.clone(),
            prompt: prompt_of(arguments),
        });
        self.calls.begin(id, thread, deadline);
        vec![Effect::ToChild(request.bytes.to_vec())]
    }

    fn notification(
        &mut self,
        bytes: &[u8],
        method: &str,
        params: Option<&RawValue>,
        queue: ChildQueue,
        now: Instant,
    ) -> Vec<Effect> {
        let cancelled = match method {
            "notifications/cancelled" => {
                params.and_then(|params| serde_json::from_str::<CancelledParams>(params.get()).ok())
            }
            _ => None,
        };
        // Our own tools work without the child, too.
        if let Some(CancelledParams { request_id }) = &cancelled
            && let Some(own) = self.own.get_mut(request_id)
        {
            *own = OwnCall::Cancelled;
            self.notes.push(Note::OwnCallCancelled);
            return Vec::new();
        }
        if matches!(self.child, Child::Gone(_)) {
            return Vec::new();
        }
        if let Some(CancelledParams { request_id }) = cancelled {
            return self.cancelled(bytes, &request_id, queue, now);
        }
        match queue {
            ChildQueue::Open => vec![Effect::ToChild(bytes.to_vec())],
            ChildQueue::Full => Vec::new(),
        }
    }

    /// Handles a cancellation. The client must not get an answer after it; later messages of the
    /// child under this ID belong to another call.
    fn cancelled(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        queue: ChildQueue,
        now: Instant,
    ) -> Vec<Effect> {
        let is_call = self.calls.deadline(id).is_some();
        self.lift_deadline(id);
        if let Some(call) = self.calls.abandon(id) {
            self.note_over(id, call.thread, CallOutcome::Abandoned);
        }
        self.await_turn(id, now);
        let asked = self.take_request(id);
        let mut effects = Vec::new();
        // The child has to get exactly one cancellation of each request that it may know.
        if queue == ChildQueue::Open || is_call || asked.is_some() {
            effects.push(Effect::ToChild(bytes.to_vec()));
        }
        effects.extend(self.drop_questions(id));
        effects
    }

    fn response(
        &mut self,
        bytes: &[u8],
        id: &RequestId,
        result: Option<&RawValue>,
        queue: ChildQueue,
    ) -> Vec<Effect> {
        if matches!(self.child, Child::Gone(_)) {
            return Vec::new();
        }
        let unchanged = || vec![Effect::ToChild(bytes.to_vec())];
        let Some(question) = self.take_question(id) else {
            // The response belongs to a request that we passed through, or to a question that was
            // declined meanwhile; the child skips the latter.
            return match queue {
                ChildQueue::Open => unchanged(),
                ChildQueue::Full => Vec::new(),
            };
        };
        let Some(result) = result else {
            // The client can't ask its user after all. Without an answer, the child would wait for
            // ever.
            return self.decline_unasked(id, question.call, question.params);
        };
        if splice::is_dismissal(result) {
            return self.decline_unasked(id, question.call, question.params);
        }
        match splice::with_decision(bytes, result, self.refusal()) {
            Some(bytes) => vec![Effect::ToChild(bytes)],
            None => unchanged(),
        }
    }
}

/// Whether the client can show a form to its user. A client that names no kind of elicitation
/// supports forms (MCP 2025-11-25).
fn supports_forms(capabilities: &Value) -> bool {
    match capabilities.get("elicitation") {
        Some(Value::Null) | None => false,
        Some(kinds) => kinds.get("form").is_some() || kinds.get("url").is_none(),
    }
}

fn thread_of(arguments: Option<&RawValue>) -> Option<String> {
    let given: CallArguments = serde_json::from_str(arguments?.get()).ok()?;
    given.thread_id.or(given.conversation_id)
}

fn prompt_of(arguments: Option<&RawValue>) -> String {
    let given = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok());
    given.map_or_else(String::new, |PromptArgument { prompt }| prompt)
}

/// A request of our own to the child; `params` is JSON, and is sent unchanged.
fn own_request(id: &RequestId, method: &str, params: &str) -> Effect {
    let id = splice::to_json(id);
    let request =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}");
    Effect::ToChild(request.into_bytes())
}
