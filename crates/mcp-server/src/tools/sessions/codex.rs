//! `codex`: begins a session, and returns at once.

use std::path::PathBuf;
use std::sync::Arc;

use codex_config::profile::ProfileName;
use codex_engine::command::Prompt;
use codex_protocol::codex::{Effort, SandboxMode};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answers::{opened, opened_schema};
use super::elicit::elicit;
use super::settings::{AdvancedSettings, SessionArguments, SessionStart};
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameters::{NonBlankText, Policy, arguments};
use crate::tools::schema::{OneOf, answer, input, tool};

pub(in crate::tools) const NAME: &str = "codex";

/// The default reasoning effort (that of the npm package).
const EFFORT: Effort = Effort::Low;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    prompt: NonBlankText,
    approval_policy: Policy,
    #[schemars(with = "OneOf<SandboxMode>")]
    sandbox: SandboxMode,
    #[schemars(with = "Option<OneOf<Effort>>", extend("default" = EFFORT))]
    effort: Option<Effort>,
    /// Default: the server's repository.
    cwd: Option<PathBuf>,
    model: Option<String>,
    #[schemars(with = "Option<String>")]
    profile: Option<ProfileName>,
    tag: Option<String>,
    advanced: Option<AdvancedSettings>,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to start Codex, a coding agent that reads, writes and runs code in cwd, \
without waiting. Returns {sessionId, threadId, status, pollInterval} at once. Poll with \
codex_check until status is idle; its result has the final message.";
    tool(NAME, "Codex", description, input::<Arguments>()).with_raw_output_schema(opened_schema())
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let session_arguments = SessionArguments {
        approval_policy: Some(given.approval_policy),
        sandbox: Some(given.sandbox),
        effort: given.effort,
        cwd: given.cwd,
        model: given.model,
        profile: given.profile,
        tag: given.tag,
        advanced: given.advanced,
    };
    let SessionStart {
        mut start,
        first,
        warnings,
    } = session_arguments.into_start(server).await?;
    start.settings = server.settings(start.settings).await?;
    start.settings.model_options.effort.get_or_insert(EFFORT);
    let prompt = Prompt {
        text: given.prompt.0,
        ..first
    };
    let engine = Arc::clone(&server.engine);
    let defaults = server.defaults.clone();
    // Half a start is worse than none, so the start is completed even if the caller leaves.
    let started = server
        .run_detached(context, async move {
            let opened = engine.start(start).await?;
            defaults.forget_previous_thread();
            match engine.prompt(&opened.session, prompt).await {
                Ok(turn) => Ok((opened, turn)),
                Err(error) => {
                    // The caller does not learn of the session, so nobody could use it.
                    engine
                        .cancel(&opened.session, "its first prompt was not taken")
                        .await?;
                    Err(error)
                }
            }
        })
        .await?;
    elicit(server, context, &started.1, &started.0.thread);
    Ok(answer(opened(&server.engine, &started.0, warnings)?).into())
}
