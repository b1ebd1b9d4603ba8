//! The common parts of the definitions and answers of all tools.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::Value;

/// A tool whose schema is written as JSON.
pub fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
) -> Tool {
    Tool::new(name, description, object(input)).with_title(title)
}

/// An answer with an object, also as text for clients that read only text.
pub(crate) fn answer(object: Value) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(object.to_string())]);
    result.structured_content = Some(object);
    result
}

/// The members of an object; none for any other value.
pub fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}
