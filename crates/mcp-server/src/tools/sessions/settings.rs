//! The settings of a session, as `codex` and the action `resume` take them.

use std::path::PathBuf;
use std::time::Duration;

use codex_config::profile::ProfileName;
use codex_engine::command::{AddedInstructions, McpServers, Prompt, Settings, StartThread};
use codex_engine::logic::session::Timeouts;
use codex_engine::picture::Picture;
use codex_protocol::codex::{
    Effort, ModelOptions, Persistence, Personality, ReasoningSummary, SandboxMode, ThreadSettings,
};
use safe_files::off_runtime;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::code::Code;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::output_schema::OutputSchema;
use crate::tools::parameters::{Policy, TimeLimit};

// Settings that are rarely used. This is not documentation, which would be in the schema.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AdvancedSettings {
    base_instructions: Option<String>,
    developer_instructions: Option<String>,
    #[schemars(with = "Option<String>")]
    personality: Option<Personality>,
    #[schemars(with = "Option<String>")]
    summary: Option<ReasoningSummary>,
    config: Option<Map<String, Value>>,
    ephemeral: Option<bool>,
    output_schema: Option<OutputSchema>,
    images: Option<Vec<String>>,
    approval_timeout_ms: Option<TimeLimit>,
    stall_timeout_ms: Option<TimeLimit>,
}

/// The arguments for a session, except its prompt.
#[derive(Debug, Default)]
pub(super) struct SessionArguments {
    pub approval_policy: Option<Policy>,
    pub sandbox: Option<SandboxMode>,
    pub(super) effort: Option<Effort>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) model: Option<String>,
    pub(super) profile: Option<ProfileName>,
    pub(super) tag: Option<String>,
    pub(super) advanced: Option<AdvancedSettings>,
}

/// The start of a session, and the settings of its first prompt.
pub(super) struct SessionStart {
    pub(super) start: StartThread,
    pub(super) first: Prompt,
    pub(super) warnings: Vec<String>,
}

impl SessionArguments {
    pub(super) async fn into_start(self, server: &Server) -> Result<SessionStart, ToolError> {
        let mut warnings = Vec::new();
        let advanced = self.advanced.unwrap_or_default();
        let here = server.engine.directory()?;
        let here = self.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
        let pictures = pictures(advanced.images.unwrap_or_default(), here).await?;
        let approval_policy = self
            .approval_policy
            .map(|policy| policy.today(server, &mut warnings));
        let timeouts = session_timeouts(
            server.timeouts.session(),
            advanced.approval_timeout_ms,
            advanced.stall_timeout_ms,
        );
        let settings = Settings {
            thread: ThreadSettings {
                cwd: self.cwd,
                model: self.model,
                sandbox: self.sandbox,
                approval_policy,
                config: advanced.config.unwrap_or_default(),
                base_instructions: advanced.base_instructions,
                developer_instructions: advanced.developer_instructions,
            },
            profile: self.profile,
            model_options: ModelOptions {
                effort: self.effort,
                summary: advanced.summary,
                personality: advanced.personality,
            },
            added: AddedInstructions::default(),
            persistence: match advanced.ephemeral {
                Some(true) => Persistence::Ephemeral,
                Some(false) | None => Persistence::Persistent,
            },
            mcp_servers: McpServers::Configured,
        };
        let first = Prompt {
            pictures,
            output_schema: advanced.output_schema.map(|OutputSchema(schema)| schema),
            ..Prompt::default()
        };
        Ok(SessionStart {
            start: StartThread {
                settings,
                timeouts,
                tag: self.tag,
                ..StartThread::default()
            },
            first,
            warnings,
        })
    }
}

/// The time-outs of a session; `None` if they are the usual ones.
fn session_timeouts(
    usual: Timeouts,
    approval: Option<TimeLimit>,
    stall: Option<TimeLimit>,
) -> Option<Timeouts> {
    let or =
        |limit: Option<TimeLimit>, usual: Duration| limit.map_or(usual, |TimeLimit(limit)| limit);
    let timeouts = Timeouts {
        approval: or(approval, usual.approval),
        stall: or(stall, usual.stall),
    };
    (approval.is_some() || stall.is_some()).then_some(timeouts)
}

async fn pictures(images: Vec<String>, here: PathBuf) -> Result<Vec<Picture>, ToolError> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let named = off_runtime::run(move || {
        let images = images.iter().enumerate();
        let named = images
            .map(|(number, image)| Picture::named(image, &here).map_err(|error| (number, error)));
        named.collect::<Result<_, _>>()
    });
    let named = named
        .await
        .map_err(|error| ToolError::new(Code::Internal, format!("advanced.images: {error}")))?;
    named.map_err(|(number, error)| {
        let message = format!("advanced.images[{number}]: {error}");
        ToolError::new(Code::InvalidArgument, message)
    })
}
