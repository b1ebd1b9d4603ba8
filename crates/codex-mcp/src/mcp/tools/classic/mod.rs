//! `codex` and `codex-reply`, as `codex mcp-server` had them.

pub(super) mod codex;
pub(super) mod codex_reply;

use rmcp::model::Tool;
use serde_json::{Value, json};

use super::object;

/// The parameter that says how long to wait.
pub(super) const WAIT: &str = "wait-ms";

/// A classic tool.
fn tool(name: &'static str, title: &'static str, description: &'static str, input: Value) -> Tool {
    super::tool(name, description, input)
        .with_title(title)
        .with_raw_output_schema(object(output()))
}

/// What both tools answer. Clients check errors against it too, and an error may
/// come before there is a thread.
fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "threadId": { "type": "string" },
            "content": { "type": "string" },
            "status": { "type": "string" },
            "sessionId": { "type": "string" },
            "actions": { "type": "array", "items": { "type": "object" } },
            "warnings": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["content"],
    })
}
