//! `codex` and `codex-reply`, as `codex mcp-server` had them, and `codex_review`, which
//! answers as they do.

pub(super) mod codex;
pub(super) mod codex_reply;
pub(super) mod codex_review;

use rmcp::model::Tool;
use serde_json::{Value, json};

use crate::tools::schema::{self, output};

/// The parameter that says how long to wait.
pub(super) const WAIT: &str = "wait-ms";

/// A classic tool.
fn tool(name: &'static str, title: &'static str, description: &'static str, input: Value) -> Tool {
    let answer = output(json!({
        "threadId": "string",
        "content": "string",
        "status": "string",
        "sessionId": "string",
    }));
    schema::tool(name, title, description, input).with_raw_output_schema(answer)
}
