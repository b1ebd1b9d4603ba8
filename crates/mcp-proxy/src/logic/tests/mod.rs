mod any_order;
mod ends;
mod passing;
mod questions;
mod simulated;
mod summaries;
mod turns;

use std::time::Duration;

use codex_protocol::rpc::{Message, TruncatedMessage};
use serde_json::json;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: RouterTimeouts = RouterTimeouts {
    call: Duration::from_secs(300),
    approval: Duration::from_secs(60),
    request: Duration::from_secs(30),
};

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

/// A router, whether its child reads, and the time.
struct Harness {
    router: Router,
    queue: ChildQueue,
    now: Instant,
}

impl Harness {
    fn new() -> Self {
        let named = |name: &str| raw(&json!({ "name": name }));
        let config = RouterConfig {
            timeouts: LIMITS,
            version: None,
            server_info: json!({ "name": "ours" }),
            known_tools: vec![named("codex"), named("codex-reply")],
            own_tools: vec![("codex_status".to_owned(), named("codex_status"))],
        };
        Self {
            router: Router::new(config),
            queue: ChildQueue::Open,
            now: Instant::now(),
        }
    }

    /// A router whose client has initialized with these capabilities, and whose child has this
    /// version.
    fn initialized(version: &str, capabilities: &Value) -> Self {
        let mut harness = Self::new();
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities });
        harness.client(&request(0, "initialize", &params));
        let result = json!({ "serverInfo": { "version": version } });
        harness.child(&json!({ "jsonrpc": "2.0", "id": "codex-mcp:initialize", "result": result }));
        harness
    }

    fn client(&mut self, message: &Value) -> Vec<Effect> {
        self.client_says(message.to_string().as_bytes())
    }

    fn client_says(&mut self, bytes: &[u8]) -> Vec<Effect> {
        let message = Message::read(bytes).unwrap();
        self.router
            .from_client(bytes, &message, self.queue, self.now)
    }

    fn child(&mut self, message: &Value) -> Vec<Effect> {
        self.child_says(message.to_string().as_bytes())
    }

    fn child_says(&mut self, bytes: &[u8]) -> Vec<Effect> {
        let message = Message::read(bytes).unwrap();
        self.router.from_child(bytes, &message, self.now)
    }

    fn later(&mut self, after: Duration) -> Vec<Effect> {
        self.now += after;
        self.router.tick(self.now)
    }

    fn call(&mut self, id: i64) {
        let effects = self.client(&codex(id));
        assert!(matches!(effects.as_slice(), [Effect::ToChild(_)]));
    }

    fn reply(&mut self, id: i64, thread: &str) -> Vec<Effect> {
        let arguments = json!({ "prompt": "x", "threadId": thread });
        let params = json!({ "name": "codex-reply", "arguments": arguments });
        self.client(&request(id, "tools/call", &params))
    }
}

fn request(id: i64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn codex(id: i64) -> Value {
    let params = json!({ "name": "codex", "arguments": { "prompt": "x" } });
    request(id, "tools/call", &params)
}

fn cancelled(id: i64) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": id },
    })
}

fn answered(id: i64, thread: &str) -> Value {
    let structured = json!({ "threadId": thread, "content": "done" });
    let result = json!({ "content": [], "structuredContent": structured });
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// An event of a child that does not name its turns.
fn event(id: i64, thread: &str, msg: &Value) -> Value {
    event_of("", id, thread, msg)
}

/// An event of the turn that the child calls `turn`.
fn event_of(turn: &str, id: i64, thread: &str, msg: &Value) -> Value {
    let meta = json!({ "requestId": id, "threadId": thread });
    json!({
        "jsonrpc": "2.0",
        "method": "codex/event",
        "params": { "_meta": meta, "id": turn, "msg": msg },
    })
}

fn question(id: i64, call: i64, thread: &str) -> Value {
    let params = json!({
        "message": "Allow?",
        "requestedSchema": { "type": "object", "properties": {} },
        "threadId": thread,
        "codex_mcp_tool_call_id": call.to_string(),
    });
    request(id, "elicitation/create", &params)
}

fn elicits() -> Value {
    json!({ "elicitation": {} })
}

fn no_capabilities() -> Value {
    json!({})
}

fn to_client(message: &Value) -> Effect {
    Effect::ToClient(message.to_string().into_bytes())
}

fn to_child(message: &Value) -> Effect {
    Effect::ToChild(message.to_string().into_bytes())
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The only message to the child among the effects.
fn only_message_to_child(effects: &[Effect]) -> Value {
    let messages: Vec<&[u8]> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::ToChild(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect();
    assert_eq!(messages.len(), 1, "{effects:?}");
    parsed(messages[0])
}
