//! `codex`: begins a thread and waits for the final message.

use std::path::PathBuf;
use std::sync::Arc;

use codex_config::profile::ProfileName;
use codex_engine::command::{Prompt, Settings, StartThread};
use codex_protocol::codex::{ApprovalPolicy, SandboxMode, ThreadSettings};
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, JsonObject, Tool};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::tool;
use crate::error::ToolError;
use crate::server::Server;
use crate::tools::parameters::{NonBlankText, Policy, Wait, arguments};
use crate::tools::schema::{OneOf, input};
use crate::turn_call::TurnCall;

pub(in crate::tools) const NAME: &str = "codex";

/// The parameters of `codex mcp-server`'s tool, `profile` of its older
/// releases included.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Arguments {
    prompt: NonBlankText,
    model: Option<String>,
    /// Default: the server's repository.
    cwd: Option<PathBuf>,
    approval_policy: Option<Policy>,
    #[schemars(with = "Option<OneOf<SandboxMode>>")]
    sandbox: Option<SandboxMode>,
    config: Option<Map<String, Value>>,
    base_instructions: Option<String>,
    developer_instructions: Option<String>,
    compact_prompt: Option<String>,
    #[schemars(with = "Option<String>")]
    profile: Option<ProfileName>,
    /// Return then; work continues.
    wait_ms: Option<Wait>,
    tag: Option<String>,
}

pub(in crate::tools) fn describe() -> Tool {
    let description = "Use to delegate a task to Codex, a coding agent that reads, writes and runs \
code in cwd, and wait for its final message. Returns it and a threadId for codex-reply. Status \
waiting_approval: decide `actions` with codex_check; running: poll with codex_check. Defaults: \
Codex's config.";
    tool(NAME, "Codex", description, input::<Arguments>())
}

pub(in crate::tools) async fn call(
    server: &Server,
    context: &RequestContext<RoleServer>,
    given: JsonObject,
) -> Result<CallToolResponse, ToolError> {
    let given: Arguments = arguments(given)?;
    let mut warnings = Vec::new();
    let policy = given.approval_policy;
    let policy = policy.map(|policy| policy.today(server, &mut warnings));
    let wait = given.wait_ms;
    let (mut start, prompt) = given.into_start(policy);
    start.settings = server.settings(start.settings).await?;
    let call = TurnCall {
        prompt: Prompt::text(prompt),
        warnings,
        wait: wait.map(|Wait(wait)| wait),
    };
    let engine = Arc::clone(&server.engine);
    let defaults = server.defaults.clone();
    let opening = async move {
        let opened = engine.start(start).await?;
        defaults.forget_previous_thread();
        Ok(opened)
    };
    server.run_turn(context, opening, call).await
}

impl Arguments {
    /// The settings of the thread, and the first prompt.
    fn into_start(self, approval_policy: Option<ApprovalPolicy>) -> (StartThread, String) {
        let mut config = self.config.unwrap_or_default();
        if let Some(prompt) = self.compact_prompt {
            config.insert("compact_prompt".to_owned(), prompt.into());
        }
        let settings = Settings {
            thread: ThreadSettings {
                cwd: self.cwd,
                model: self.model,
                sandbox: self.sandbox,
                approval_policy,
                config,
                base_instructions: self.base_instructions,
                developer_instructions: self.developer_instructions,
            },
            profile: self.profile,
            ..Settings::default()
        };
        let start = StartThread {
            settings,
            timeouts: None,
            tag: self.tag,
            ..StartThread::default()
        };
        (start, self.prompt.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Arguments, String> {
        let Value::Object(object) = value else {
            panic!("an object");
        };
        arguments(object).map_err(|error| error.text())
    }

    #[test]
    fn every_described_parameter_is_accepted() {
        let described = describe();
        let properties = described.input_schema["properties"]
            .as_object()
            .unwrap()
            .clone();
        let given: Map<String, Value> = properties
            .into_iter()
            .map(|(name, schema)| {
                let value = match (schema.get("enum"), schema["type"].as_str()) {
                    (Some(values), _) => values[0].clone(),
                    (None, Some("object")) => json!({ "k": 1 }),
                    (None, Some("integer")) => 1.into(),
                    _ => "text".into(),
                };
                (name, value)
            })
            .collect();
        read(Value::Object(given)).unwrap();
    }

    #[test]
    fn errors_name_the_wrong_parameter() {
        for (given, named) in [
            (json!({}), "missing field `prompt`"),
            (json!({"prompt": "  "}), "prompt: must not be empty"),
            (json!({"prompt": 5}), "prompt: invalid type: integer `5`"),
            (
                json!({"prompt": "x", "sandbox": "none"}),
                "sandbox: it must be one of `read-only`, ",
            ),
            (json!({"prompt": "x", "config": []}), "config: invalid type"),
            (
                json!({"prompt": "x", "profile": "../x"}),
                "profile: a profile's name",
            ),
            (
                json!({"prompt": "x", "promt": "y"}),
                "unknown parameter `promt`; did you mean `prompt`?",
            ),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.contains(named), "{error}");
            assert!(error.starts_with("Error [INVALID_ARGUMENT]"), "{error}");
        }
    }

    #[test]
    fn settings_without_arguments_are_empty() {
        let (start, _) = read(json!({"prompt": "x"})).unwrap().into_start(None);
        assert_eq!(start, StartThread::default());
    }
}
