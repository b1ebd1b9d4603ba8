//! Initialising the connection; beginning, resuming and forking threads.

use std::path::PathBuf;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{ApprovalPolicy, DynamicTool, SandboxMode, ThreadId};

/// Parameters of `initialize`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The client.
    pub client_info: ClientInfo,
    /// The client's capabilities.
    pub capabilities: InitializeCapabilities,
}

/// The client's name for Codex's logs.
#[derive(Debug, Clone, Serialize)]
pub struct ClientInfo {
    /// A short name; Codex puts it before its version in the user agent.
    pub name: &'static str,
    /// The name for people.
    pub title: &'static str,
    /// The client's version.
    pub version: &'static str,
}

/// The client's capabilities.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeCapabilities {
    /// Whether methods and fields that Codex calls experimental may be used.
    pub experimental_api: bool,
}

/// The answer to `initialize`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResponse {
    /// `NAME/VERSION (…)`: the client's name and Codex's version.
    pub user_agent: String,
}

impl InitializeResponse {
    /// Codex's version, if the user agent has the usual form.
    #[must_use]
    pub fn codex_version(&self) -> Option<&str> {
        let (_, rest) = self.user_agent.split_once('/')?;
        rest.split_whitespace().next()
    }
}

/// The settings of a thread. Fields that are `None` are left to Codex's own
/// configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSettings {
    /// Working directory, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Model name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Sandbox for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
    /// When Codex asks for approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<ApprovalPolicy>,
    /// Overrides of `config.toml`, by its own keys.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub config: Map<String, Value>,
    /// Instructions that replace Codex's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_instructions: Option<String>,
    /// Instructions that are added as a developer message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub developer_instructions: Option<String>,
}

/// Whether Codex writes a thread to its rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Persistence {
    /// It does: the thread can be resumed later.
    #[default]
    #[serde(rename = "kept")]
    Persistent,
    /// It does not: the thread ends with its app-server.
    Ephemeral,
}

/// Parameters of `thread/start`.
#[derive(Debug, Clone, Serialize)]
pub struct ThreadStartParams<'a> {
    /// The caller's settings.
    #[serde(flatten)]
    pub settings: &'a ThreadSettings,
    /// Whether Codex writes the thread to a rollout.
    #[serde(
        rename = "ephemeral",
        serialize_with = "is_ephemeral",
        skip_serializing_if = "is_kept"
    )]
    pub persistence: Persistence,
    /// Whether Codex sends the items exchanged with the model, see
    /// [`raw_item`](super::raw_item).
    #[serde(
        rename = "experimentalRawEvents",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub raw_events: bool,
    /// Our tools, which the thread keeps.
    #[serde(rename = "dynamicTools", skip_serializing_if = "<[_]>::is_empty")]
    pub dynamic_tools: &'a [DynamicTool],
}

fn is_kept(persistence: &Persistence) -> bool {
    *persistence == Persistence::Persistent
}

fn is_ephemeral<S: Serializer>(
    persistence: &Persistence,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*persistence == Persistence::Ephemeral)
}

/// Parameters of `thread/resume`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadResumeParams<'a> {
    /// The thread to resume.
    pub thread_id: &'a ThreadId,
    /// Asks for the thread without its history, which can be large. Releases
    /// that don't know the field send the history.
    pub exclude_turns: bool,
    /// The thread's settings: without them, a resumed thread gets those of `config.toml`
    /// (0.104.0 all, 0.153.4 the sandbox).
    #[serde(flatten)]
    pub settings: &'a ThreadSettings,
    /// The directories in which the thread works, in place of its earlier ones, which
    /// newer releases remember (0.169.0); older releases do not know the field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_workspace_roots: Option<&'a [PathBuf]>,
}

/// Parameters of `thread/fork`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadForkParams<'a> {
    /// The thread to continue from.
    pub thread_id: &'a ThreadId,
    /// As in [`ThreadResumeParams`].
    pub exclude_turns: bool,
    /// The settings of the new thread.
    #[serde(flatten)]
    pub settings: &'a ThreadSettings,
}

/// The table `sandbox_workspace_write` of `config.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct WorkspaceWrite {
    /// Directories that may be written besides the working directory.
    pub writable_roots: Vec<PathBuf>,
    /// Whether commands may use the network.
    pub network_access: bool,
    /// Whether the directory that TMPDIR names is not writable.
    pub exclude_tmpdir_env_var: bool,
    /// Whether `/tmp` is not writable.
    pub exclude_slash_tmp: bool,
}

/// The answer to `thread/start`, `thread/resume` and `thread/fork`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThreadResponse {
    /// The thread.
    pub thread: Thread,
    /// The model in effect.
    #[serde(default)]
    pub model: Option<String>,
    /// The approval policy in effect: a word, or an object of a newer Codex.
    #[serde(default)]
    pub approval_policy: Option<Value>,
    /// The sandbox of its commands.
    #[serde(default)]
    pub sandbox: ReportedSandbox,
    /// The name of its model provider in Codex's configuration; that of OpenAI is
    /// `openai`.
    #[serde(default)]
    pub model_provider: Option<String>,
    /// The directory that it works in.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
}

/// A sandbox as Codex reports it (0.104.0 to 0.169.0).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ReportedSandbox {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may write in the working directory.
    WorkspaceWrite,
    /// No sandbox at all.
    DangerFullAccess,
    /// None is reported, or a sandbox of a newer Codex.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ReportedSandbox {
    /// The mode that selects this sandbox, if it is known.
    #[must_use]
    pub fn mode(self) -> Option<SandboxMode> {
        match self {
            Self::ReadOnly => Some(SandboxMode::ReadOnly),
            Self::WorkspaceWrite => Some(SandboxMode::WorkspaceWrite),
            Self::DangerFullAccess => Some(SandboxMode::DangerFullAccess),
            Self::Unknown => None,
        }
    }
}

/// A Codex conversation.
#[derive(Debug, Clone, Deserialize)]
pub struct Thread {
    /// Its name.
    pub id: ThreadId,
    /// The path of its rollout, if Codex reports it.
    #[serde(default)]
    pub path: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_user_agent() {
        let response = InitializeResponse {
            user_agent: "codex-mcp/0.169.0 (Debian 12.0.0; x86_64) unknown".into(),
        };
        assert_eq!(response.codex_version(), Some("0.169.0"));
    }

    #[test]
    fn sandbox_with_unknown_fields_is_read() {
        let sandbox = |told: &str| {
            let text =
                format!(r#"{{"thread":{{"id":"0199a213-81c0-7800-8aa1-bbab2a035a53"}}{told}}}"#);
            serde_json::from_str::<ThreadResponse>(&text)
                .unwrap()
                .sandbox
        };
        let read_only = r#","sandbox":{"type":"readOnly","access":{"type":"fullAccess"}}"#;
        assert_eq!(sandbox(read_only), ReportedSandbox::ReadOnly);
        let newer = r#","sandbox":{"type":"somewhere","roots":[]}"#;
        assert_eq!(sandbox(newer), ReportedSandbox::Unknown);
        assert_eq!(sandbox(""), ReportedSandbox::Unknown);
    }

    #[test]
    fn unset_settings_are_not_sent() {
        let settings = ThreadSettings::default();
        let params = ThreadStartParams {
            settings: &settings,
            persistence: Persistence::Persistent,
            raw_events: false,
            dynamic_tools: &[],
        };
        assert_eq!(serde_json::to_string(&params).unwrap(), "{}");
    }

    #[test]
    fn settings_have_the_names_of_the_protocol() {
        let settings = ThreadSettings {
            cwd: Some("/w".into()),
            sandbox: Some(SandboxMode::WorkspaceWrite),
            approval_policy: Some(ApprovalPolicy::OnRequest),
            developer_instructions: Some("d".into()),
            ..ThreadSettings::default()
        };
        let params = ThreadStartParams {
            settings: &settings,
            persistence: Persistence::Ephemeral,
            raw_events: false,
            dynamic_tools: &[],
        };
        assert_eq!(
            serde_json::to_value(&params).unwrap(),
            serde_json::json!({"cwd": "/w", "sandbox": "workspace-write",
                "approvalPolicy": "on-request", "developerInstructions": "d", "ephemeral": true})
        );
    }
}
