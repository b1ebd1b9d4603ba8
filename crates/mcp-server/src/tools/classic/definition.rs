//! The common definition of the classic tools.

use rmcp::model::Tool;
use serde_json::{Value, json};

use crate::tools::definition;
use crate::tools::schema::output;

/// The parameter that says how long to wait.
pub(in crate::tools) const WAIT: &str = "wait-ms";

/// A classic tool.
pub(super) fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
) -> Tool {
    let answer = output(json!({
        "threadId": "string",
        "content": "string",
        "status": "string",
        "sessionId": "string",
    }));
    definition::tool(name, title, description, input).with_raw_output_schema(answer)
}
