//! `codex_reply`: gives a session its next prompt, and returns at once.

use std::path::PathBuf;
use std::sync::Arc;

use codex_engine::command::{OpenThread, Overrides, Prompt};
use codex_protocol::codex::{Effort, ModelOptions, Personality, ReasoningSummary, SandboxMode};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answers::{opened, opened_schema};
use super::elicit::elicit;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::output_schema::OutputSchema;
use crate::tools::parameters::{NonBlankText, Policy, arguments};
use crate::tools::schema::{answer, input, tool};

pub(in crate::tools) const NAME: &str = "codex_reply";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    session_id: String,
    prompt: NonBlankText,
    model: Option<String>,
    #[schemars(with = "Option<String>")]
    approval_policy: Option<Policy>,
    #[schemars(with = "Option<String>")]
    effort: Option<Effort>,
    #[schemars(with = "Option<String>")]
    summary: Option<ReasoningSummary>,
    #[schemars(with = "Option<String>")]
    personality: Option<Personality>,
    #[schemars(with = "Option<String>")]
    sandbox: Option<SandboxMode>,
    cwd: Option<PathBuf>,
    output_schema: Option<OutputSchema>,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to prompt a session that is idle or in error. Returns at once, as codex, \
whose settings it takes; they hold from now on.";
    tool(NAME, "Codex Reply", description, input::<Arguments>())
        .with_raw_output_schema(opened_schema())
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let mut warnings = Vec::new();
    let approval_policy = given
        .approval_policy
        .map(|policy| policy.today(server, &mut warnings));
    let session = server.engine.session_named(&given.session_id)?;
    let opened_before = OpenThread {
        thread: server.engine.get(&session)?.thread,
        session: session.clone(),
        sandbox: None,
        missing_tools: Vec::new(),
    };
    let mut overrides = Overrides {
        cwd: given.cwd,
        model: given.model,
        approval_policy,
        sandbox: given.sandbox,
    };
    server.bounds.bound_overrides(&mut overrides)?;
    let prompt = Prompt {
        text: given.prompt.0,
        pictures: Vec::new(),
        model_options: ModelOptions {
            effort: given.effort,
            summary: given.summary,
            personality: given.personality,
        },
        overrides,
        output_schema: given.output_schema.map(|OutputSchema(schema)| schema),
        ..Prompt::default()
    };
    let engine = Arc::clone(&server.engine);
    let turn = server
        .run_detached(
            context,
            async move { engine.prompt(&session, prompt).await },
        )
        .await?;
    elicit(server, context, &turn, &opened_before.thread);
    Ok(answer(opened(&server.engine, &opened_before, warnings)?).into())
}
