//! `codex mcp-server`: the shapes are those of 0.153.4, the last release with it,
//! as recorded from it.

use serde_json::{Value, json};

use super::dialect::{Call, Dialect, Kind, Notification, Refusal, Threads, fill};
use super::plan::{Action, TurnEnd};

const METHOD_NOT_FOUND: i64 = -32601;

pub(super) struct McpServerDialect {
    version: String,
}

impl McpServerDialect {
    pub(super) fn new(version: &str) -> Self {
        Self {
            version: version.to_owned(),
        }
    }

    fn initialize_answer(&self, call: &Call) -> Value {
        json!({
            "protocolVersion": call.params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {
                "name": "codex-mcp-server",
                "title": "Codex",
                "version": self.version,
                "user_agent": format!("codex_cli_rs/{} (Linux; x86_64) unknown", self.version),
            },
        })
    }
}

impl Dialect for McpServerDialect {
    fn understand(&self, mut call: Call, threads: &mut dyn Threads) -> Call {
        if call.method == "notifications/cancelled" {
            return cancellation(call, threads);
        }
        if call.method != "tools/call" {
            return call;
        }
        let arguments = &call.params["arguments"];
        let named = arguments["threadId"]
            .as_str()
            .or(arguments["conversationId"].as_str());
        call.kind = Kind::Turn;
        call.thread = match named {
            Some(thread) => thread.to_owned(),
            None => threads.new_id(),
        };
        call.turn = threads.new_id();
        call
    }

    fn answer(&self, call: &Call, _threads: &dyn Threads, said: &str) -> Result<Value, Refusal> {
        Ok(match call.method.as_str() {
            "initialize" => self.initialize_answer(call),
            "ping" => json!({}),
            "tools/list" => json!({"tools": tools()}),
            "tools/call" => json!({
                "content": [{"type": "text", "text": said}],
                "structuredContent": {"threadId": call.thread, "content": said},
            }),
            method => {
                let message = format!("method not found: {method}");
                return Err((METHOD_NOT_FOUND, message));
            }
        })
    }

    fn proceed(&self, call: &Call) -> Vec<Action> {
        match call.method.as_str() {
            "tools/call" => vec![
                Action::StartTurn,
                Action::say(super::HELLO),
                Action::EndTurn(TurnEnd::Completed),
                Action::Answer,
            ],
            // The call gets no answer.
            "notifications/cancelled" => vec![Action::EndTurn(TurnEnd::Interrupted)],
            // The real one never answers these.
            "resources/list" | "prompts/list" => vec![Action::Hang],
            _ => vec![Action::Answer],
        }
    }

    fn turn_started(&self, call: &Call) -> Vec<Notification> {
        let mut configured = event(
            call,
            json!({
                "type": "session_configured",
                "session_id": call.thread,
                "thread_id": call.thread,
                "model": "fake-model",
                "model_provider_id": "fake",
                "approval_policy": "on-request",
            }),
        );
        configured.1["id"] = "".into();
        let started = json!({"type": "task_started", "turn_id": call.turn});
        vec![configured, event(call, started)]
    }

    fn said(&self, call: &Call, text: &str) -> Vec<Notification> {
        let message = json!({"type": "agent_message", "message": text, "phase": null});
        vec![self.delta(call, text), event(call, message)]
    }

    fn delta(&self, call: &Call, text: &str) -> Notification {
        let message = json!({
            "type": "agent_message_content_delta",
            "thread_id": call.thread,
            "turn_id": call.turn,
            "item_id": format!("{}-message", call.turn),
            "delta": text,
        });
        event(call, message)
    }

    fn turn_ended(&self, call: &Call, end: &TurnEnd, said: &str) -> Vec<Notification> {
        let message = match end {
            TurnEnd::Completed => json!({
                "type": "task_complete",
                "turn_id": call.turn,
                "last_agent_message": said,
            }),
            TurnEnd::Interrupted => json!({"type": "turn_aborted", "reason": "interrupted"}),
            TurnEnd::Failed(message) | TurnEnd::FailedFor(message, _) => {
                json!({"type": "error", "message": message})
            }
        };
        vec![event(call, message)]
    }

    fn place(&self, call: &Call, params: &mut Value) {
        if !call.thread.is_empty() {
            fill(params, [("threadId", &call.thread)]);
        }
        if params.get("codex_elicitation").is_some() {
            // A text, whatever the id is.
            let id = call.id.as_str();
            let id = id.map_or_else(|| call.id.to_string(), str::to_owned);
            fill(
                params,
                [
                    ("codex_mcp_tool_call_id", &id),
                    ("codex_event_id", &call.turn),
                ],
            );
        }
    }

    fn envelop(&self, message: &mut Value) {
        message["jsonrpc"] = "2.0".into();
    }
}

/// A cancellation of a call whose turn still runs interrupts that turn.
fn cancellation(mut call: Call, threads: &dyn Threads) -> Call {
    let request = call.params["requestId"].clone();
    if let Some((thread, turn)) = threads.turn_of_request(&request) {
        call.id = request;
        call.thread = thread;
        call.turn = turn;
        call.kind = Kind::Interrupt;
    }
    call
}

fn event(call: &Call, message: Value) -> Notification {
    let params = json!({
        "_meta": {"requestId": call.id, "threadId": call.thread},
        "id": call.turn,
        "msg": message,
    });
    ("codex/event", params)
}

fn tools() -> Value {
    let output = json!({
        "type": "object",
        "properties": {"threadId": {"type": "string"}, "content": {"type": "string"}},
        "required": ["threadId", "content"],
    });
    json!([
        {
            "name": "codex",
            "title": "Codex",
            "description": "Run a Codex session. Accepts configuration parameters matching the Codex Config struct.",
            "inputSchema": {
                "type": "object",
                "additionalProperties": false,
                "properties": {
                    "approval-policy": {"type": "string", "enum": ["on-request", "never"]},
                    "base-instructions": {"type": "string"},
                    "compact-prompt": {"type": "string"},
                    "config": {"type": "object", "additionalProperties": true},
                    "cwd": {"type": "string"},
                    "developer-instructions": {"type": "string"},
                    "model": {"type": "string"},
                    "prompt": {"type": "string"},
                    "sandbox": {
                        "type": "string",
                        "enum": ["read-only", "workspace-write", "danger-full-access"],
                    },
                },
                "required": ["prompt"],
            },
            "outputSchema": output,
        },
        {
            "name": "codex-reply",
            "title": "Codex Reply",
            "description": "Continue a Codex conversation by providing the thread id and prompt.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "conversationId": {"type": "string"},
                    "prompt": {"type": "string"},
                    "threadId": {"type": "string"},
                },
                "required": ["prompt"],
            },
            "outputSchema": output,
        },
    ])
}
