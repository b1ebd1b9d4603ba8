//! The settings that the command line gives.

use std::path::PathBuf;
use std::time::Duration;

use agent_team::logic::{AgentName, RoleName, TeamName};
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use image_request::logic::picture::SizeLimit;

use crate::store_location::Location;

/// The settings of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--codex-bin`.
    pub codex_bin: Option<PathBuf>,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--identity`.
    pub identity: Option<AgentName>,
    /// `--team`.
    pub team: Option<TeamName>,
    /// `--role`.
    pub role: Option<RoleName>,
    /// `false` for `--no-team-tools`.
    pub team_tools: Option<bool>,
    /// `false` for `--no-summaries`.
    pub summaries: Option<bool>,
    /// `true` for `--host`, and `false` for `--no-host`.
    pub host: Option<bool>,
    /// `false` for `--no-request-image`.
    pub request_image: Option<bool>,
    /// `--max-image-bytes`.
    pub max_image_bytes: Option<SizeLimit>,
    /// `--store`.
    pub store: Option<Location>,
    /// `--max-sandbox`.
    pub max_sandbox: Option<SandboxMode>,
    /// `false` for `--no-commands`.
    pub allow_commands: Option<bool>,
    /// Each `--allow-dir`.
    pub allow_dirs: Vec<PathBuf>,
    /// `--model`.
    pub model: Option<String>,
    /// `--effort`.
    pub effort: Option<Effort>,
    /// `--sandbox`.
    pub sandbox: Option<SandboxMode>,
    /// `--approval-policy`.
    pub approval_policy: Option<ApprovalPolicy>,
}
