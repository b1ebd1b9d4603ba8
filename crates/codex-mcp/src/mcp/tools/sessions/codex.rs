//! `codex`: begin a session, and return at once.

use std::path::PathBuf;
use std::sync::Arc;

use codex_mcp_protocol::codex::{Effort, SandboxMode};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::parameters::{Policy, Words, arguments};
use super::settings::{Advanced, Beginning, Wanted};
use super::{answer, elicit, opened, tool};
use crate::engine::command::Prompt;
use crate::engine::profile::ProfileName;
use crate::mcp::error::ToolError;
use crate::mcp::front::Front;

pub(in crate::mcp::tools) const NAME: &str = "codex";

const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// How hard the model thinks unless it is told (the npm package's default).
const EFFORT: Effort = Effort::Low;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    prompt: Words,
    approval_policy: Policy,
    sandbox: SandboxMode,
    effort: Option<Effort>,
    cwd: Option<PathBuf>,
    model: Option<String>,
    profile: Option<ProfileName>,
    tag: Option<String>,
    advanced: Option<Advanced>,
}

pub(in crate::mcp::tools) fn describe() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "prompt": { "type": "string", "description": "The task, with all the context it needs." },
            "approvalPolicy": approval_policy(),
            "sandbox": sandbox(),
            "effort": { "enum": EFFORTS, "description": "Default: low." },
            "cwd": { "type": "string", "description": "Folder to work in. Default: the server's." },
            "model": { "type": "string" },
            "profile": { "type": "string", "description": "Profile of Codex's config." },
            "tag": { "type": "string" },
            "advanced": {
                "type": "object",
                "properties": {
                    "baseInstructions": { "type": "string" },
                    "developerInstructions": { "type": "string" },
                    "personality": { "enum": ["none", "friendly", "pragmatic"] },
                    "summary": { "enum": ["auto", "concise", "detailed", "none"] },
                    "config": { "type": "object", "description": "Overrides of config.toml." },
                    "ephemeral": { "type": "boolean" },
                    "outputSchema": { "type": "object" },
                    "images": { "type": "array", "items": { "type": "string" }, "description": "Paths or data URLs." },
                    "approvalTimeoutMs": { "type": "integer" },
                    "stallTimeoutMs": { "type": "integer" },
                },
            },
        },
        "required": ["prompt", "approvalPolicy", "sandbox"],
    });
    let description = "Starts a Codex agent, which reads, writes and runs code in a folder, and \
returns at once: {sessionId, threadId, status, pollInterval}. Look in with codex_check until \
status is idle; its result has the final message.";
    tool(NAME, description, input)
}

pub(super) fn approval_policy() -> Value {
    json!({ "enum": ["untrusted", "on-failure", "on-request", "never"] })
}

pub(super) fn sandbox() -> Value {
    json!({ "enum": ["read-only", "workspace-write", "danger-full-access"] })
}

pub(super) fn effort() -> Value {
    json!({ "enum": EFFORTS })
}

pub(in crate::mcp::tools) async fn call(
    front: &Front,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let wanted = Wanted {
        approval_policy: Some(given.approval_policy),
        sandbox: Some(given.sandbox),
        effort: given.effort,
        cwd: given.cwd,
        model: given.model,
        profile: given.profile,
        tag: given.tag,
        advanced: given.advanced,
    };
    let Beginning {
        mut start,
        first,
        warnings,
    } = wanted.into_beginning(front).await?;
    start.settings = front.settings(start.settings).await?;
    start.settings.manner.effort.get_or_insert(EFFORT);
    let prompt = Prompt {
        text: given.prompt.0,
        ..first
    };
    let engine = Arc::clone(&front.engine);
    let defaults = front.defaults.clone();
    // Half a start is worse than none, so it goes on should the caller leave.
    let started = front
        .to_the_end(context, async move {
            let opened = engine.start(start).await?;
            defaults.recalled();
            match engine.prompt(&opened.session, prompt).await {
                Ok(turn) => Ok((opened, turn)),
                Err(error) => {
                    // The caller does not learn of it, so nobody could use it.
                    engine.cancel(&opened.session, "its first prompt was not taken")?;
                    Err(error)
                }
            }
        })
        .await?;
    elicit(front, context, &started.1, &started.0.thread);
    Ok(answer(opened(&front.engine, &started.0, warnings)?).into())
}
