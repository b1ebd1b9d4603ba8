//! The answers of the tools for sessions.

use std::sync::Arc;
use std::time::Duration;

use codex_engine::Engine;
use codex_engine::command::{OpenThread, SessionId};
use codex_engine::logic::session::{IDLE_POLL_INTERVAL, State};
use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};

use crate::code::Code;
use crate::error::ToolError;
use crate::tools::schema::output;

/// The schema of [`opened`].
pub(super) fn opened_schema() -> Arc<JsonObject> {
    output(json!({
        "sessionId": "string",
        "threadId": "string",
        "status": "string",
    }))
}

/// The answer about a session that has got a prompt, or has just begun.
pub(super) fn opened(
    engine: &Engine,
    opened: &OpenThread,
    warnings: Vec<String>,
) -> Result<Value, ToolError> {
    let info = engine.get(&opened.session)?;
    let mut object = json!({
        "sessionId": opened.session,
        "threadId": opened.thread,
        "status": info.view.state,
    });
    if let Some(object) = object.as_object_mut() {
        insert_poll_interval(object, info.poll_interval);
        if !warnings.is_empty() {
            object.insert("warnings".to_owned(), warnings.into());
        }
    }
    Ok(object)
}

/// The answer about a fork. The fork is idle, but the answer still has a poll interval.
pub(super) fn forked(opened: &OpenThread) -> Value {
    let mut object = json!({
        "sessionId": opened.session,
        "threadId": opened.thread,
        "status": State::Idle,
    });
    if let Some(object) = object.as_object_mut() {
        insert_poll_interval(object, Some(IDLE_POLL_INTERVAL));
    }
    object
}

pub(super) fn insert_poll_interval(object: &mut Map<String, Value>, interval: Option<Duration>) {
    if let Some(interval) = interval {
        object.insert("pollInterval".to_owned(), milliseconds(interval).into());
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn missing(what: &str, action: &str) -> ToolError {
    ToolError::new(
        Code::InvalidArgument,
        format!("{what} is missing, which {action} needs"),
    )
}

/// The session that an argument names by its ID or an ID prefix.
pub(super) fn session(engine: &Engine, named: Option<String>) -> Result<SessionId, ToolError> {
    let missing = || ToolError::new(Code::InvalidArgument, "sessionId is missing");
    Ok(engine.session_named(&named.ok_or_else(missing)?)?)
}
