//! The client's tools for a thread, and calls of them.
//!
//! Codex stores the tools with the thread: a resumed or forked thread has them again, and
//! they cannot be changed (0.104.0 to 0.169.0).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json_values;

/// A tool, as `thread/start` takes it. Releases before 0.130 ignore the type.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "function", rename_all = "camelCase")]
pub struct DynamicTool {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// Its description for the model.
    pub description: String,
    /// The JSON schema of its arguments. The model sees less of it (no `default`, no
    /// limits), and Codex checks no arguments.
    pub input_schema: Value,
}

/// A call of such a tool: `item/tool/call`. Codex waits for the answer without a limit.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The thread in which the model calls it, possibly that of a sub-agent.
    pub thread_id: String,
    /// The ID of the call, and of its step if Codex reports one (from 0.106 on).
    #[serde(default)]
    pub call_id: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as the model has written them.
    #[serde(default)]
    pub arguments: Value,
}

/// Why a call cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadToolCall {
    /// Its arguments would take too much memory.
    #[error("its arguments hold more than {} JSON values", ToolCall::MAX_VALUES)]
    TooManyValues,
    /// It does not have the shape that we know.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl ToolCall {
    /// Codex's method for it.
    pub const METHOD: &'static str = "item/tool/call";

    /// The most JSON values of the parameters. No tool takes so many, and 7 MB of
    /// `{"":0},` would take more than 1 GB once parsed.
    const MAX_VALUES: usize = 10_000;

    /// Reads the parameters.
    ///
    /// # Errors
    ///
    /// [`BadToolCall`].
    pub fn read(params: &RawValue) -> Result<Self, BadToolCall> {
        if json_values::exceed(params.get().as_bytes(), Self::MAX_VALUES) {
            return Err(BadToolCall::TooManyValues);
        }
        Ok(serde_json::from_str(params.get())?)
    }
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnswer {
    /// Whether the call has succeeded.
    pub success: bool,
    /// The content for the model.
    pub content_items: Vec<ToolContent>,
}

/// A part of the answer to a call.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum ToolContent {
    /// Text. Codex passes on about 12,000 characters of an answer.
    InputText {
        /// The text.
        text: String,
    },
    /// A picture.
    InputImage {
        /// The picture as a data URL.
        image_url: String,
    },
}

impl fmt::Debug for ToolContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InputText { text } => f.debug_tuple("InputText").field(text).finish(),
            Self::InputImage { image_url } => {
                f.debug_tuple("InputImage").field(&image_url.len()).finish()
            }
        }
    }
}

impl ToolAnswer {
    /// The answer to a call that failed, with the reason for the model.
    #[must_use]
    pub fn refusal(why: impl Into<String>) -> Self {
        Self {
            success: false,
            content_items: vec![ToolContent::InputText { text: why.into() }],
        }
    }

    /// A picture, as a data URL.
    #[must_use]
    pub fn picture(image_url: String) -> Self {
        Self {
            success: true,
            content_items: vec![ToolContent::InputImage { image_url }],
        }
    }

    /// The first text of the answer.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.content_items.iter().find_map(|content| match content {
            ToolContent::InputText { text } => Some(text.as_str()),
            ToolContent::InputImage { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tool_and_answer_have_the_form_of_the_protocol() {
        let tool = DynamicTool {
            name: "n".to_owned(),
            description: "d".to_owned(),
            input_schema: json!({ "type": "object" }),
        };
        assert_eq!(
            json!(tool),
            json!({ "type": "function", "name": "n", "description": "d",
                "inputSchema": { "type": "object" } })
        );
        assert_eq!(
            json!(ToolAnswer::picture("data:,".to_owned())),
            json!({ "success": true,
                "contentItems": [{ "type": "inputImage", "imageUrl": "data:," }] })
        );
        assert_eq!(
            json!(ToolAnswer::refusal("no")),
            json!({ "success": false, "contentItems": [{ "type": "inputText", "text": "no" }] })
        );
    }

    #[test]
    fn tool_call_with_unknown_fields_is_read() {
        let params = r#"{"threadId":"t","turnId":"u","callId":"c","namespace":null,"tool":"x",
            "arguments":{"a":1},"more":[]}"#;
        let call = ToolCall::read(&RawValue::from_string(params.to_owned()).unwrap()).unwrap();
        assert_eq!((call.thread_id.as_str(), call.tool.as_str()), ("t", "x"));
        assert_eq!(call.arguments, json!({ "a": 1 }));
    }

    #[test]
    fn call_with_too_many_values_is_refused() {
        let read = |values: usize| {
            let arguments = vec![0; values];
            let params = json!({ "threadId": "t", "tool": "x", "arguments": arguments });
            ToolCall::read(&RawValue::from_string(params.to_string()).unwrap())
        };
        assert!(read(5_000).is_ok());
        assert!(matches!(read(20_000), Err(BadToolCall::TooManyValues)));
    }
}
