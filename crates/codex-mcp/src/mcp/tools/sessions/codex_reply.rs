//! `codex_reply`: give a session its next prompt, and return at once.

use std::path::PathBuf;
use std::sync::Arc;

use codex_mcp_protocol::codex::{Effort, Personality, ReasoningSummary, SandboxMode, TurnManner};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::json;

use super::super::output_schema::OutputSchema;
use super::super::parameters::{Policy, Words, arguments};
use super::codex::{approval_policy, effort, sandbox};
use super::{answer, elicit, opened, tool};
use crate::engine::command::{Opened, Overrides, Prompt, SessionId};
use crate::mcp::error::ToolError;
use crate::mcp::front::Front;

pub(in crate::mcp::tools) const NAME: &str = "codex_reply";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    session_id: String,
    prompt: Words,
    model: Option<String>,
    approval_policy: Option<Policy>,
    effort: Option<Effort>,
    summary: Option<ReasoningSummary>,
    personality: Option<Personality>,
    sandbox: Option<SandboxMode>,
    cwd: Option<PathBuf>,
    output_schema: Option<OutputSchema>,
}

pub(in crate::mcp::tools) fn describe() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "sessionId": { "type": "string" },
            "prompt": { "type": "string" },
            "model": { "type": "string" },
            "approvalPolicy": approval_policy(),
            "sandbox": sandbox(),
            "effort": effort(),
            "summary": { "enum": ["auto", "concise", "detailed", "none"] },
            "personality": { "enum": ["none", "friendly", "pragmatic"] },
            "cwd": { "type": "string" },
            "outputSchema": { "type": "object", "description": "For this turn's answer." },
        },
        "required": ["sessionId", "prompt"],
    });
    let description = "Gives a session that is idle or in error its next prompt, and returns at \
once like codex. What is set here holds from now on.";
    tool(NAME, description, input)
}

pub(in crate::mcp::tools) async fn call(
    front: &Front,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let mut warnings = Vec::new();
    let approval_policy = given
        .approval_policy
        .map(|policy| policy.today(front, &mut warnings));
    let session = SessionId::named(&given.session_id);
    let opened_before = Opened {
        thread: front.engine.get(&session)?.thread,
        session: session.clone(),
        sandbox: None,
    };
    let mut overrides = Overrides {
        cwd: given.cwd,
        model: given.model,
        approval_policy,
        sandbox: given.sandbox,
    };
    front.bounds.bound_overrides(&mut overrides)?;
    let prompt = Prompt {
        text: given.prompt.0,
        pictures: Vec::new(),
        manner: TurnManner {
            effort: given.effort,
            summary: given.summary,
            personality: given.personality,
        },
        overrides,
        output_schema: given.output_schema.map(|OutputSchema(schema)| schema),
        ..Prompt::default()
    };
    let engine = Arc::clone(&front.engine);
    let turn = front
        .to_the_end(
            context,
            async move { engine.prompt(&session, prompt).await },
        )
        .await?;
    elicit(front, context, &turn, &opened_before.thread);
    Ok(answer(opened(&front.engine, &opened_before, warnings)?).into())
}
