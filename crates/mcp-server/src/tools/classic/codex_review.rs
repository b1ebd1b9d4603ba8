//! `codex_review`: has changes reviewed, and waits for the review.

use std::path::PathBuf;
use std::sync::Arc;

use codex_engine::command::{Prompt, Settings, StartThread};
use codex_protocol::codex::ThreadSettings;
use goal_run::reviewer::{ReviewScope, read_only};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;

use super::tool;
use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameters::{NonBlankText, Wait, arguments};
use crate::tools::schema::input;
use crate::turn_call::TurnCall;

pub(in crate::tools) const NAME: &str = "codex_review";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
struct Arguments {
    base: Option<NonBlankText>,
    commit: Option<NonBlankText>,
    instructions: Option<NonBlankText>,
    cwd: Option<PathBuf>,
    model: Option<String>,
    #[serde(rename = "wait-ms")]
    wait: Option<Wait>,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to have a read-only thread review uncommitted changes, those since \
branch `base`, a `commit`, or what `instructions` say. Returns like codex.";
    tool(NAME, "Review", description, input::<Arguments>())
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let wait = given.wait.map(|Wait(wait)| wait);
    let settings = Settings {
        thread: ThreadSettings {
            cwd: given.cwd.clone(),
            model: given.model.clone(),
            ..ThreadSettings::default()
        },
        ..Settings::default()
    };
    let settings = server.settings(read_only(settings)).await?;
    let cwd = settings.thread.cwd.clone().unwrap_or_default();
    let cwd = server.engine.directory()?.join(cwd);
    let target = given.subject()?.target(&cwd).await?;
    let start = StartThread {
        settings,
        ..StartThread::default()
    };
    let call = TurnCall {
        prompt: Prompt::review(target),
        warnings: Vec::new(),
        wait,
    };
    let engine = Arc::clone(&server.engine);
    let opening = async move { engine.start(start).await };
    server.run_turn(context, opening, call).await
}

impl Arguments {
    fn subject(self) -> Result<ReviewScope, ToolError> {
        match (self.base, self.commit, self.instructions) {
            (Some(NonBlankText(branch)), None, None) => Ok(ReviewScope::Since(branch)),
            (None, Some(NonBlankText(commit)), None) => Ok(ReviewScope::Commit(commit)),
            (None, None, Some(NonBlankText(words))) => Ok(ReviewScope::Described(words)),
            (None, None, None) => Ok(ReviewScope::Uncommitted),
            _ => Err(ToolError::new(
                Code::InvalidArgument,
                "base, commit and instructions exclude each other; give one of them",
            )),
        }
    }
}
