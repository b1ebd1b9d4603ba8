//! The tools, one module each.

mod codex;
mod codex_reply;

use std::sync::Arc;

use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::code::Code;
use super::error::ToolError;
use super::front::Front;

/// Which set of tools is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// `codex` and `codex-reply`, as `codex mcp-server` had them: a call waits
    /// for Codex's final message.
    Classic,
}

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Codex,
    CodexReply,
}

const CLASSIC: [Name; 2] = [Name::Codex, Name::CodexReply];

fn names(api: Api) -> &'static [Name] {
    match api {
        Api::Classic => &CLASSIC,
    }
}

/// What `tools/list` answers.
pub(super) fn list(api: Api) -> Vec<Tool> {
    names(api).iter().map(|name| name.describe()).collect()
}

/// The tool that a client calls.
///
/// # Errors
///
/// Invalid parameters, as MCP wants it for a tool that isn't there.
pub(super) fn named(api: Api, text: &str) -> Result<Name, ErrorData> {
    let all = names(api);
    all.iter()
        .copied()
        .find(|name| name.as_str() == text)
        .ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|name| name.as_str()).collect();
            let message = format!("there is no tool {text:?}; there are {}", known.join(", "));
            ErrorData::invalid_params(message, None)
        })
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Self::Codex => codex::NAME,
            Self::CodexReply => codex_reply::NAME,
        }
    }

    fn describe(self) -> Tool {
        match self {
            Self::Codex => codex::describe(),
            Self::CodexReply => codex_reply::describe(),
        }
    }

    pub(super) async fn call(
        self,
        front: &Front,
        context: &RequestContext<RoleServer>,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, ToolError> {
        match self {
            Self::Codex => codex::call(front, context, arguments).await,
            Self::CodexReply => codex_reply::call(front, context, arguments).await,
        }
    }
}

/// A tool whose schemas are written as JSON.
fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
    output: Value,
) -> Tool {
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// What both classic tools answer. Clients check errors against it too, and an
/// error may come before there is a thread.
fn classic_output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "threadId": { "type": "string" },
            "content": { "type": "string" },
            "status": { "type": "string" },
            "actions": { "type": "array", "items": { "type": "object" } },
            "warnings": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["content"],
    })
}

/// Reads the arguments of a tool; says which one is wrong and how.
fn arguments<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let place = error.path().to_string();
        let message = match place.as_str() {
            "." => error.inner().to_string(),
            place => format!("{place}: {}", error.inner()),
        };
        ToolError::new(Code::InvalidArgument, message)
    })
}

/// Something to say to Codex: any text that isn't blank.
#[derive(Debug, serde::Deserialize)]
#[serde(try_from = "String")]
struct Prompt(String);

impl TryFrom<String> for Prompt {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.trim().is_empty() {
            return Err("must not be empty");
        }
        Ok(Self(text))
    }
}
