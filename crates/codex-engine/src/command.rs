//! The engine's requests and responses. They are plain values, so that callers could run in another
//! process than the engine.
//!
//! The guard of an app-server stores some of them for the next host, which may have another
//! version. A `serde(rename)` that differs from the Rust name is the name in that stored format,
//! and must not change.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use codex_config::profile::ProfileName;
use codex_protocol::codex::{
    ApprovalPolicy, Ask, ModelOptions, Persistence, ReviewTarget, SandboxMode, ThreadId,
    ThreadResponse, ThreadSettings, TokenCount, TurnId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::logic::action::ActionId;
use crate::logic::events::PollContent;
use crate::logic::progress::CurrentStep;
use crate::logic::session::{self, Alert, State, Timeouts, TurnOutcome};
use crate::picture::Picture;

/// The ID of a session: `sess_` and 12 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    pub(crate) fn new() -> Self {
        Self(format!("sess_{}", random_digits(12)))
    }

    /// Takes a text from outside as a session ID. The session need not exist.
    #[must_use]
    pub fn named(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A new ID for a question: `req_` and 8 hexadecimal digits.
pub(super) fn new_action_id() -> ActionId {
    ActionId(format!("req_{}", random_digits(8)))
}

fn random_digits(count: usize) -> String {
    let mut digits = uuid::Uuid::new_v4().simple().to_string();
    digits.truncate(count);
    digits
}

/// A request to begin a thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StartThread {
    /// The settings of the thread and its turns.
    pub settings: Settings,
    /// The session's timeouts; `None` for the engine's defaults.
    #[serde(rename = "patience")]
    pub timeouts: Option<Timeouts>,
    /// The caller's name for the thread, for the registry.
    pub tag: Option<String>,
    /// Whether Codex reports denied actions. Codex supports this only for new threads, and stops
    /// when such a thread is resumed.
    #[serde(default, rename = "refusals")]
    pub report_denied: ReportDenied,
    /// The absolute paths of the directories that a resumed thread may write. They replace its
    /// earlier ones, which newer releases of Codex remember.
    #[serde(default)]
    pub directories: Option<Vec<PathBuf>>,
}

/// Whether to report denied actions. Off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportDenied {
    /// Denied actions are not reported.
    #[default]
    // The records of guards have this word and `Told`, also those of earlier builds.
    #[serde(rename = "Untold")]
    Off,
    /// Denied actions are reported.
    #[serde(rename = "Told")]
    On,
}

/// A request to resume a thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResumeThread {
    /// The thread to resume.
    pub thread: ThreadId,
    /// The changes. Other settings stay as they were, if they are known.
    pub start: StartThread,
}

/// The engine's knowledge of a thread's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum KnownSettings {
    /// The thread has, or had, a session of this engine, which remembers its settings.
    Remembered,
    /// The settings recorded before the program started.
    Recorded(Box<Settings>),
    /// Its settings are not known.
    Unknown,
}

/// The settings of a thread and its turns. Unset ones are left to Codex's own
/// configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The settings of the thread. A relative `cwd` is resolved from our own.
    pub thread: ThreadSettings,
    /// Additions around the thread's developer instructions.
    #[serde(default, skip_serializing_if = "AddedInstructions::is_none")]
    pub added: AddedInstructions,
    /// A profile of Codex's; the settings take precedence over it.
    pub profile: Option<ProfileName>,
    /// The model's options.
    #[serde(rename = "manner")]
    pub model_options: ModelOptions,
    /// Whether Codex writes the thread to a rollout.
    #[serde(rename = "keeping")]
    pub persistence: Persistence,
    /// Whether the thread gets the user's MCP servers.
    #[serde(default)]
    pub mcp_servers: McpServers,
}

/// Whether a thread gets the MCP servers of Codex's configuration, and the instructions in
/// the AGENTS.md of its repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServers {
    /// Those that are configured.
    #[default]
    Configured,
    /// Neither: the servers' tools run outside of the sandbox, and the instructions may be
    /// those of somebody whose work is reviewed.
    Off,
}

/// Developer instructions in addition to those of a call or of Codex's configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddedInstructions {
    /// The instructions placed first.
    pub before: Option<String>,
    /// The instructions placed last.
    pub behind: Option<String>,
}

impl AddedInstructions {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// All instructions. `configured` returns those of Codex's configuration, which those
    /// of a call replace. Without additions it is not needed: Codex reads its own
    /// configuration.
    pub fn around(
        &self,
        called: Option<String>,
        configured: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        if self.is_none() {
            return called;
        }
        let inner = called.or_else(configured);
        joined(joined(self.before.clone(), inner), self.behind.clone())
    }
}

/// Joins two instructions, one after the other.
pub fn joined(before: Option<String>, after: Option<String>) -> Option<String> {
    match (before, after) {
        (Some(before), Some(after)) => Some(format!("{before}\n\n{after}")),
        (before, after) => before.or(after),
    }
}

impl Settings {
    /// Merges these settings over `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let Self {
            thread: above,
            added,
            profile,
            model_options,
            persistence,
            mcp_servers,
        } = self;
        let mut config = below.thread.config;
        codex_config::profile::overlay(&mut config, above.config);
        Self {
            thread: ThreadSettings {
                cwd: above.cwd.or(below.thread.cwd),
                model: above.model.or(below.thread.model),
                sandbox: above.sandbox.or(below.thread.sandbox),
                approval_policy: above.approval_policy.or(below.thread.approval_policy),
                config,
                base_instructions: above.base_instructions.or(below.thread.base_instructions),
                developer_instructions: above
                    .developer_instructions
                    .or(below.thread.developer_instructions),
            },
            added: match added.is_none() {
                true => below.added,
                false => added,
            },
            profile: profile.or(below.profile),
            model_options: overlay_model_options(model_options, below.model_options),
            persistence,
            // A thread that was begun without the servers stays without them.
            mcp_servers: match mcp_servers {
                McpServers::Configured => below.mcp_servers,
                McpServers::Off => McpServers::Off,
            },
        }
    }

    /// The changes that these settings make, if all of them are possible while a thread
    /// is in use.
    pub(super) fn changeable(&self) -> Option<Overrides> {
        let Self {
            thread,
            added,
            profile,
            persistence,
            mcp_servers,
            ..
        } = self;
        let nothing_else = thread.config.is_empty()
            && thread.base_instructions.is_none()
            && thread.developer_instructions.is_none()
            && added.is_none()
            && profile.is_none()
            && *persistence == Persistence::Persistent
            && *mcp_servers == McpServers::Configured;
        nothing_else.then(|| Overrides {
            cwd: thread.cwd.clone(),
            model: thread.model.clone(),
            approval_policy: thread.approval_policy,
            sandbox: thread.sandbox,
        })
    }

    /// The settings with these changes.
    pub(super) fn with(&self, overrides: &Overrides) -> Self {
        let Overrides {
            cwd,
            model,
            approval_policy,
            sandbox,
        } = overrides.clone();
        let mut changed = self.clone();
        let thread = &mut changed.thread;
        thread.cwd = cwd.or(thread.cwd.take());
        thread.model = model.or(thread.model.take());
        thread.approval_policy = approval_policy.or(thread.approval_policy);
        thread.sandbox = sandbox.or(thread.sandbox);
        changed
    }

    /// Applies the changes of a prompt.
    pub(super) fn apply(&mut self, prompt: &Prompt) {
        *self = self.with(&prompt.overrides);
        self.model_options = overlay_model_options(prompt.model_options, self.model_options);
    }
}

pub(super) fn overlay_model_options(above: ModelOptions, below: ModelOptions) -> ModelOptions {
    ModelOptions {
        effort: above.effort.or(below.effort),
        summary: above.summary.or(below.summary),
        personality: above.personality.or(below.personality),
    }
}

/// The longest prompt that Codex accepts, in characters.
pub const LONGEST_PROMPT: usize = 1_048_576;

/// A prompt for Codex.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The prompt's text.
    pub text: String,
    /// The pictures to look at.
    pub pictures: Vec<Picture>,
    /// The model's options, from this turn on.
    #[serde(rename = "manner")]
    pub model_options: ModelOptions,
    /// Changes of the thread's settings, from this turn on.
    pub overrides: Overrides,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// The purpose of the prompt.
    pub purpose: Purpose,
    /// The changes to review, if the prompt requests a review. The text is only for the
    /// record then, and pictures, overrides and the output schema have no effect.
    pub review: Option<ReviewTarget>,
    /// The call or task that begins the turn. It lets the next host find the turn.
    #[serde(default)]
    pub origin: Option<TurnOrigin>,
    /// How long a question of the turn stays open, if not as long as the session says.
    #[serde(default)]
    pub approval_timeout: Option<Duration>,
    /// The user's task, if the text is built around one. Lists of threads show only the task.
    #[serde(default)]
    pub task: Option<String>,
}

/// The origin of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOrigin {
    /// A call that waits for the turn, by the ID that the client of the engine gave it.
    Call(String),
    /// A task, by its ID.
    Task(String),
}

/// The purpose of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The caller's work.
    #[default]
    Work,
    /// Our own question about the subject of the thread, before the program ends.
    #[serde(rename = "Farewell")]
    ShutdownSummary,
}

impl Prompt {
    /// A prompt of text only.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// A review of code.
    #[must_use]
    pub fn review(target: ReviewTarget) -> Self {
        let text = match &target {
            ReviewTarget::UncommittedChanges => "Review the uncommitted changes".to_owned(),
            ReviewTarget::Commit { sha } => format!("Review the commit {sha}"),
            ReviewTarget::Custom { instructions } => instructions.clone(),
        };
        Self {
            review: Some(target),
            ..Self::text(text)
        }
    }
}

/// Changes of a thread's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overrides {
    /// Working directory; a relative path is resolved from our own.
    pub cwd: Option<PathBuf>,
    /// Model name.
    pub model: Option<String>,
    /// When Codex asks for approval.
    pub approval_policy: Option<ApprovalPolicy>,
    /// Sandbox for commands.
    pub sandbox: Option<SandboxMode>,
}

impl Overrides {
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            cwd: self.cwd.or(below.cwd),
            model: self.model.or(below.model),
            approval_policy: self.approval_policy.or(below.approval_policy),
            sandbox: self.sandbox.or(below.sandbox),
        }
    }
}

/// A thread that can be prompted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenThread {
    /// The ID of its session.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// The sandbox of its commands; `None` if Codex has not reported it.
    pub sandbox: Option<SandboxMode>,
    /// Our tools that a resumed thread lacks, because it was begun without them.
    pub missing_tools: Vec<String>,
}

impl OpenThread {
    /// A warning about the tools that the thread lacks, if it lacks any.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let missing = self.missing_tools.join(", ");
        (!missing.is_empty()).then(|| {
            format!(
                "the thread {} continues without {missing}: it was begun without, and Codex \
                 accepts tools for new threads only. Begin a new thread to have them.",
                self.thread
            )
        })
    }
}

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TurnRef {
    /// The session.
    pub session: SessionId,
    /// The number of the turn, counted from 1.
    pub number: u64,
}

/// The state of a session, for callers that wait for one of its turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TurnView {
    /// The number of changes so far; see `Engine::changed`.
    pub revision: u64,
    /// The session's state.
    pub state: State,
    /// The number of the current or last turn.
    pub turn: u64,
    /// Codex's ID of the running turn, once it is known.
    pub turn_id: Option<TurnId>,
    /// The current step of the turn.
    pub progress: CurrentStep,
    /// The tokens that the running turn has used.
    pub spent: TokenCount,
    /// The open questions.
    pub actions: Vec<OpenQuestion>,
    /// The number and the outcome of the last turn that ended.
    pub outcome: Option<(u64, Arc<TurnOutcome>)>,
}

/// An open question of Codex's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Its ID.
    pub id: ActionId,
    /// The question.
    pub ask: Ask,
    /// The question with its details, for the client that decides it.
    pub shown: Value,
    /// The time at which it is declined if nobody has answered.
    pub expires: SystemTime,
}

/// The effective settings of a thread, as Codex reports them when it begins, resumes or
/// forks the thread, with the changes of later prompts. `None` means not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EffectiveSettings {
    /// The model.
    pub model: Option<String>,
    /// When Codex asks: a word, or an object of a newer Codex.
    pub approval_policy: Option<Value>,
    /// The sandbox of commands.
    pub sandbox: Option<SandboxMode>,
}

impl EffectiveSettings {
    /// The settings in Codex's response, completed from the requested settings `set`.
    pub(super) fn from_response(response: &ThreadResponse, set: &ThreadSettings) -> Self {
        let reported = Self {
            model: response.model.clone(),
            approval_policy: response.approval_policy.clone(),
            sandbox: response.sandbox.mode(),
        };
        reported.or(set.model.as_ref(), set.approval_policy, set.sandbox)
    }

    /// The settings with the changes of a prompt.
    pub(super) fn with(&self, overrides: &Overrides) -> Self {
        let Overrides {
            model,
            approval_policy,
            sandbox,
            ..
        } = overrides;
        let changed = Self::default().or(model.as_ref(), *approval_policy, *sandbox);
        Self {
            model: changed.model.or_else(|| self.model.clone()),
            approval_policy: changed
                .approval_policy
                .or_else(|| self.approval_policy.clone()),
            sandbox: changed.sandbox.or(self.sandbox),
        }
    }

    fn or(
        self,
        model: Option<&String>,
        approval_policy: Option<ApprovalPolicy>,
        sandbox: Option<SandboxMode>,
    ) -> Self {
        let set = |policy| serde_json::to_value(policy).ok();
        Self {
            model: self.model.or_else(|| model.cloned()),
            approval_policy: self
                .approval_policy
                .or_else(|| approval_policy.and_then(set)),
            sandbox: self.sandbox.or(sandbox),
        }
    }
}

/// A session with its settings and state, for lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its ID.
    pub session: SessionId,
    /// Its thread.
    pub thread: ThreadId,
    /// The settings that the caller requested.
    pub settings: Settings,
    /// The effective settings from the next turn on.
    pub effective: EffectiveSettings,
    /// The session's state.
    pub view: session::SessionView,
    /// The beginning of its first prompt, in one line without hidden characters.
    pub title: Option<String>,
    /// The IDs of its open questions.
    pub questions: Vec<ActionId>,
    /// The IDs of the open questions of an earlier host that Codex has yet to repeat. `questions` does not
    /// have them, and `view` does not count them.
    #[serde(default)]
    pub awaited: Vec<ActionId>,
    /// The deadlines of the open questions: each is declined unless somebody answers by then.
    pub expiries: Vec<SystemTime>,
    /// The recommended time until the next poll; `None` if nothing will change by itself.
    pub poll_interval: Option<Duration>,
}

/// The response to a poll of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PollResponse {
    /// The session's state.
    pub state: State,
    /// The recommended time until the next poll; `None` if nothing will change by itself.
    pub poll_interval: Option<Duration>,
    /// The events, questions and result.
    pub shown: PollContent,
}

/// An alert of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAlert {
    /// Which session.
    pub session: SessionId,
    /// Its thread.
    pub thread: ThreadId,
    /// The alert.
    pub alert: Alert,
}

/// The first of several sessions that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// The session.
    pub session: SessionId,
    /// The session's state.
    pub state: State,
}

/// Who decides Codex's questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decider {
    /// The readers of the session.
    Reader,
    /// Another party, which has been asked.
    Other,
}

/// The longest wait that a caller can request (1 day).
pub const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
