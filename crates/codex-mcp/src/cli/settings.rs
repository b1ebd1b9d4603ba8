//! Flags that override the configuration.

use std::path::PathBuf;
use std::time::Duration;

use agent_team::logic::{AgentName, RoleName, TeamName};
use codex_protocol::codex::{ApprovalPolicy, Effort, SandboxMode};
use image_request::logic::picture::SizeLimit;
use settings::store_location::Location;
use settings::{Flags, TIMEOUTS};

use super::times::duration_within;
use super::values::{one_of, size_limit};

#[derive(Debug, clap::Args)]
pub(super) struct Settings {
    /// The Codex to run: a path, or a name on PATH. Default: the variable
    /// CODEX_MCP_CODEX_BIN, `codex_bin` in the configuration, else `codex` on PATH.
    #[arg(long, value_name = "PATH")]
    codex_bin: Option<PathBuf>,

    /// How long a call may take before its turn is interrupted, from 1s to 24h.
    /// Default: `request_timeout_secs` in the configuration, else 5m.
    #[arg(long, value_name = "TIME", value_parser = duration_within(TIMEOUTS))]
    timeout: Option<Duration>,

    /// The server's name among the agents of its team. Default: the variable ATM_IDENTITY,
    /// `identity` in the configuration, else `codex`.
    #[arg(long, value_name = "NAME")]
    identity: Option<AgentName>,

    /// The server's team. Default: the variable ATM_TEAM, `team` in the configuration, or
    /// `default_team` in `[core]`.
    #[arg(long, value_name = "NAME")]
    team: Option<TeamName>,

    /// A preset of the configuration, `[plugins.codex-mcp.roles.NAME]`: the defaults of
    /// new threads. Default: the variable CODEX_MCP_ROLE, or `role` in the configuration.
    #[arg(long, value_name = "NAME")]
    role: Option<RoleName>,

    /// The model of new threads, as Codex names it. Default: the variable CODEX_MCP_MODEL,
    /// `model` in the configuration, else what Codex's own configuration says.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// The sandbox of commands in new threads. Default: as for --model, with CODEX_MCP_SANDBOX
    /// and `sandbox`.
    #[arg(long, value_parser = one_of::<SandboxMode>())]
    sandbox: Option<SandboxMode>,

    /// When Codex asks in new threads. Default: as for --model, with
    /// CODEX_MCP_APPROVAL_POLICY and `approval_policy`.
    #[arg(long, value_parser = one_of::<ApprovalPolicy>())]
    approval_policy: Option<ApprovalPolicy>,

    /// How hard the model thinks in new threads. Default: as for --model, with
    /// CODEX_MCP_REASONING_EFFORT and `reasoning_effort`.
    #[arg(long, value_parser = one_of::<Effort>())]
    effort: Option<Effort>,

    /// Don't give Codex's threads the mail of the team (`team_tools = false`).
    #[arg(long)]
    no_team_tools: bool,

    /// Don't give Codex's threads the tool `request_image`, with which they look at
    /// pictures (`request_image = false`).
    #[arg(long)]
    no_request_image: bool,

    /// The largest picture to show to threads, in bytes. A picture of more than 12500000 bytes
    /// (150000 before Codex 0.105) is scaled down. Default: `max_image_bytes` in the
    /// configuration, else 20000000.
    #[arg(long, value_name = "BYTES", value_parser = size_limit)]
    max_image_bytes: Option<SizeLimit>,

    /// Where jobs are kept: a file, or postgres://USER@HOST/DATABASE for several
    /// machines. Default: the variable CODEX_MCP_STORE, `store` in the configuration,
    /// else ~/.local/state/codex-mcp/jobs.db.
    #[arg(long, value_name = "LOCATION")]
    store: Option<Location>,

    /// The widest sandbox that clients may ask for. Default: the variable
    /// CODEX_MCP_MAX_SANDBOX, `max_sandbox` in the configuration, else any.
    #[arg(long, value_parser = one_of::<SandboxMode>())]
    max_sandbox: Option<SandboxMode>,

    /// Refuse criteria and notifiers that name programs or servers (`allow_commands = false`).
    #[arg(long)]
    no_commands: bool,

    /// Work may be done in this directory and below; can be given several times. A run
    /// may also use its own worktree if the top of its repository is in such a directory.
    /// Default: the variable CODEX_MCP_ALLOW_DIRS, `allow_dirs` in the configuration,
    /// else anywhere.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,

    /// Don't ask threads for a summary when the server ends (`summaries = false`).
    #[arg(long)]
    no_summaries: bool,

    /// Serve from the background process that all clients share, see `codex-mcp host`
    /// (`host = true`, the default).
    #[arg(long, overrides_with = "no_host")]
    host: bool,

    /// Serve from this process alone: its sessions end with the client (`host = false`).
    #[arg(long, overrides_with = "host")]
    no_host: bool,
}

impl Settings {
    pub(super) fn flags(&self) -> Flags {
        Flags {
            codex_bin: self.codex_bin.clone(),
            timeout: self.timeout,
            identity: self.identity.clone(),
            team: self.team.clone(),
            role: self.role.clone(),
            team_tools: self.no_team_tools.then_some(false),
            summaries: self.no_summaries.then_some(false),
            host: match (self.host, self.no_host) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            request_image: self.no_request_image.then_some(false),
            max_image_bytes: self.max_image_bytes,
            store: self.store.clone(),
            max_sandbox: self.max_sandbox,
            allow_commands: self.no_commands.then_some(false),
            allow_dirs: self.allow_dir.clone(),
            model: self.model.clone(),
            effort: self.effort,
            sandbox: self.sandbox,
            approval_policy: self.approval_policy,
        }
    }
}
