//! The tools, one module each, by the program whose tools they are.

mod classic;
mod output_schema;
mod parameters;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolResponse, CallToolResult, JsonObject, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::error::ToolError;
use super::front::Front;

/// Which set of tools is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// `codex` and `codex-reply`, as `codex mcp-server` had them: a call waits
    /// for Codex's final message.
    Classic,
    /// `codex` and `codex_reply`, as the npm package codex-mcp has them: a call
    /// returns at once, and the work is looked into.
    Sessions,
}

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Codex,
    CodexReply,
    StartSession,
    ReplyToSession,
    Session,
    Check,
}

const CLASSIC: [Name; 4] = [Name::Codex, Name::CodexReply, Name::Session, Name::Check];
const SESSIONS: [Name; 4] = [
    Name::StartSession,
    Name::ReplyToSession,
    Name::Session,
    Name::Check,
];

fn names(api: Api) -> &'static [Name] {
    match api {
        Api::Classic => &CLASSIC,
        Api::Sessions => &SESSIONS,
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
            Self::Codex => classic::codex::NAME,
            Self::CodexReply => classic::codex_reply::NAME,
            Self::StartSession => sessions::codex::NAME,
            Self::ReplyToSession => sessions::codex_reply::NAME,
            Self::Session => sessions::codex_session::NAME,
            Self::Check => sessions::codex_check::NAME,
        }
    }

    fn describe(self) -> Tool {
        match self {
            Self::Codex => classic::codex::describe(),
            Self::CodexReply => classic::codex_reply::describe(),
            Self::StartSession => sessions::codex::describe(),
            Self::ReplyToSession => sessions::codex_reply::describe(),
            Self::Session => sessions::codex_session::describe(),
            Self::Check => sessions::codex_check::describe(),
        }
    }

    pub(super) async fn call(
        self,
        front: &Front,
        context: &RequestContext<RoleServer>,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, ToolError> {
        match self {
            Self::Codex => classic::codex::call(front, context, arguments).await,
            Self::CodexReply => classic::codex_reply::call(front, context, arguments).await,
            Self::StartSession => sessions::codex::call(front, context, arguments).await,
            Self::ReplyToSession => sessions::codex_reply::call(front, context, arguments).await,
            Self::Session => sessions::codex_session::call(front, context, arguments).await,
            Self::Check => sessions::codex_check::call(front, context, arguments).await,
        }
    }

    /// Whether it waits for a turn, and so may come back with a question.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Codex | Self::CodexReply)
    }

    /// An error in words, as its clients read it.
    pub(super) fn refusal_text(self, error: &ToolError) -> String {
        match self.waits() {
            true => error.text(),
            false => error.text_for_sessions(),
        }
    }

    /// An error in the form that the tool's clients know.
    pub(super) fn refusal(self, error: ToolError) -> CallToolResult {
        match self.waits() {
            true => error.into_result(),
            false => sessions::refusal(&error),
        }
    }
}

/// How long a call that comes again, with the answers to its questions, is to
/// wait.
pub(super) fn wait_of(arguments: &JsonObject) -> Option<Duration> {
    let wait = arguments.get(classic::WAIT)?;
    let parameters::Wait(wait) = serde_json::from_value(wait.clone()).ok()?;
    Some(wait)
}

/// A tool whose schema is written as JSON.
fn tool(name: &'static str, description: &'static str, input: Value) -> Tool {
    Tool::new(name, description, object(input))
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Context is what users run out of.
    const GROUP_LIMIT: usize = 5000;

    #[test]
    fn a_group_of_tools_takes_little_room() {
        let classic = [Name::Codex, Name::CodexReply];
        for group in [classic.as_slice(), &SESSIONS] {
            let tools: Vec<Tool> = group.iter().map(|name| name.describe()).collect();
            let length = serde_json::to_string(&tools).unwrap().len();
            assert!(length <= GROUP_LIMIT, "{group:?}: {length} bytes");
        }
    }
}
