//! What can be asked of the engine and what it answers: plain values, so that
//! the engine could as well live in another process than the one that asks.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use codex_config::profile::ProfileName;
use codex_protocol::codex::{
    ApprovalPolicy, Ask, Keeping, ModelOptions, ReviewTarget, SandboxMode, ThreadId,
    ThreadResponse, ThreadSettings, TokenCount, TurnId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::logic::action::ActionId;
use crate::logic::events::Shown;
use crate::logic::progress::CurrentStep;
use crate::logic::session::{self, Alert, Outcome, Patience, State};
use crate::picture::Picture;

/// Our name for a session: `sess_` and 12 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    pub(crate) fn new() -> Self {
        Self(format!("sess_{}", random_digits(12)))
    }

    /// The id in a text that came from outside. It need not exist.
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

/// A new name for a question: `req_` and 8 hexadecimal digits.
pub(super) fn new_action_id() -> ActionId {
    ActionId(format!("req_{}", random_digits(8)))
}

fn random_digits(count: usize) -> String {
    let mut digits = uuid::Uuid::new_v4().simple().to_string();
    digits.truncate(count);
    digits
}

/// Begin a thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// How the thread and its turns are to be.
    pub settings: Settings,
    /// How long questions stay open and turns may be silent, if not as usual.
    pub patience: Option<Patience>,
    /// What the caller calls the thread, for the record.
    pub tag: Option<String>,
    /// Whether it is wanted to know what Codex tried and was not allowed. Codex tells
    /// of new threads only, until they are resumed.
    #[serde(default)]
    pub refusals: Refusals,
    /// Of a thread that is taken up: the directories that it may write, absolute, in place
    /// of those that it could before, which newer releases remember.
    #[serde(default)]
    pub directories: Option<Vec<PathBuf>>,
}

/// Whether it is wanted to know what Codex tried and was not allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusals {
    /// It is not.
    #[default]
    Untold,
    /// It is.
    Told,
}

/// Take up a thread from before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resume {
    /// Which.
    pub thread: ThreadId,
    /// What to change. Anything else is as it was, where that is known.
    pub start: Start,
}

/// What is known of how a thread was set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Known {
    /// It has, or had, a session of this engine, which remembers its settings.
    Here,
    /// It was set so before the program started.
    Before(Box<Settings>),
    /// Nothing.
    Unknown,
}

/// How a thread and its turns are to be. What isn't set is left to Codex's own
/// configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Those of the thread. A relative `cwd` is relative to our own.
    pub thread: ThreadSettings,
    /// What stands around the thread's developer instructions.
    #[serde(default, skip_serializing_if = "AddedInstructions::is_none")]
    pub added: AddedInstructions,
    /// A profile of Codex's, below the settings.
    pub profile: Option<ProfileName>,
    /// How the model is to work.
    pub manner: ModelOptions,
    /// Whether Codex writes the thread down.
    pub keeping: Keeping,
    /// Whether the thread gets the user's MCP servers.
    #[serde(default)]
    pub mcp_servers: McpServers,
}

/// Whether a thread gets the MCP servers of Codex's configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServers {
    /// Those that are configured.
    #[default]
    Configured,
    /// None: their tools run outside of the sandbox.
    Off,
}

/// Developer instructions that take the place of none: not of a call's, and not of those
/// in Codex's configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddedInstructions {
    /// These come first.
    pub before: Option<String>,
    /// These come last.
    pub behind: Option<String>,
}

impl AddedInstructions {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// All instructions. `configured` are those in Codex's configuration, which those of a
    /// call replace. Without any to add, Codex itself finds what is configured.
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

/// Both instructions, one after the other.
pub fn joined(before: Option<String>, after: Option<String>) -> Option<String> {
    match (before, after) {
        (Some(before), Some(after)) => Some(format!("{before}\n\n{after}")),
        (before, after) => before.or(after),
    }
}

impl Settings {
    /// Lays what is set here over what is set below.
    #[must_use]
    pub(super) fn over(self, below: Self) -> Self {
        let Self {
            thread: above,
            added,
            profile,
            manner,
            keeping,
            mcp_servers,
        } = self;
        let mut config = below.thread.config;
        codex_config::profile::lay_over(&mut config, above.config);
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
            manner: manner_over(manner, below.manner),
            keeping,
            mcp_servers,
        }
    }

    /// What is set, if all of it can be changed while a thread is in use.
    pub(super) fn changeable(&self) -> Option<Overrides> {
        let Self {
            thread,
            added,
            profile,
            keeping,
            mcp_servers,
            ..
        } = self;
        let nothing_else = thread.config.is_empty()
            && thread.base_instructions.is_none()
            && thread.developer_instructions.is_none()
            && added.is_none()
            && profile.is_none()
            && *keeping == Keeping::Kept
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

    /// Takes over what a prompt has changed.
    pub(super) fn apply(&mut self, prompt: &Prompt) {
        *self = self.with(&prompt.overrides);
        self.manner = manner_over(prompt.manner, self.manner);
    }
}

pub(super) fn manner_over(above: ModelOptions, below: ModelOptions) -> ModelOptions {
    ModelOptions {
        effort: above.effort.or(below.effort),
        summary: above.summary.or(below.summary),
        personality: above.personality.or(below.personality),
    }
}

/// The longest prompt that Codex takes, in characters.
pub(super) const LONGEST_PROMPT: usize = 1_048_576;

/// Something to say to Codex.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// The words.
    pub text: String,
    /// What to look at.
    pub pictures: Vec<Picture>,
    /// How the model is to work, from now on.
    pub manner: ModelOptions,
    /// What is to be different from now on.
    pub overrides: Overrides,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// On whose behalf.
    pub purpose: Purpose,
    /// The changes to review in place of doing what the words say. They are for the record
    /// then, and pictures, overrides and the form of the message have no effect.
    pub review: Option<ReviewTarget>,
}

/// On whose behalf Codex is prompted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The caller's.
    #[default]
    Work,
    /// Our own: what the thread was about, before the program ends.
    Farewell,
}

impl Prompt {
    /// Words alone.
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
    /// Working directory; a relative one is relative to our own.
    pub cwd: Option<PathBuf>,
    /// Model name.
    pub model: Option<String>,
    /// When to ask.
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
pub struct Opened {
    /// Our session with it.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
    /// How far its commands may reach; `None` if Codex hasn't told.
    pub sandbox: Option<SandboxMode>,
}

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TurnRef {
    /// The session.
    pub session: SessionId,
    /// Which of its turns, counted from 1.
    pub number: u64,
}

/// How a session stands, for somebody who waits for one of its turns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct View {
    /// Counts the changes; see `Engine::changed`.
    pub revision: u64,
    /// In short.
    pub state: State,
    /// The number of the current or last turn.
    pub turn: u64,
    /// Codex's name for the running turn, once it is known.
    pub turn_id: Option<TurnId>,
    /// The step that the turn is at.
    pub progress: CurrentStep,
    /// How many tokens the running turn has used.
    pub spent: TokenCount,
    /// What Codex waits for.
    pub actions: Vec<Open>,
    /// What came of the last turn that ended, and which one that was.
    pub outcome: Option<(u64, Arc<Outcome>)>,
}

/// A question of Codex's that is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// Its name.
    pub id: ActionId,
    /// The question.
    pub ask: Ask,
    /// All about it, for a client that is to decide it.
    pub shown: Value,
    /// When it is declined if nobody has answered.
    pub expires: SystemTime,
}

/// The settings in effect of a thread, as Codex tells them when it begins, takes up or
/// forks the thread, with the changes of later prompts. `None` is what nobody has told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Effective {
    /// The model.
    pub model: Option<String>,
    /// When Codex asks: a word, or an object of a newer Codex.
    pub approval_policy: Option<Value>,
    /// The sandbox of commands.
    pub sandbox: Option<SandboxMode>,
}

impl Effective {
    /// As Codex tells it. What it does not tell is as it was set.
    pub(super) fn told(response: &ThreadResponse, set: &ThreadSettings) -> Self {
        let told = Self {
            model: response.model.clone(),
            approval_policy: response.approval_policy.clone(),
            sandbox: response.sandbox.mode(),
        };
        told.or(set.model.as_ref(), set.approval_policy, set.sandbox)
    }

    /// With what a prompt changes, or will change.
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

/// A session, for somebody who looks at all of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Info {
    /// Its name.
    pub session: SessionId,
    /// Its thread.
    pub thread: ThreadId,
    /// What the caller has set.
    pub settings: Settings,
    /// The settings in effect from the next turn on.
    pub effective: Effective,
    /// How it stands.
    pub view: session::View,
    /// How long a client may well wait before it looks again; `None` if nothing will
    /// change by itself.
    pub poll_interval: Option<Duration>,
}

/// What a look into a session shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Polled {
    /// How it stands.
    pub state: State,
    /// How long a client may well wait before it looks again; `None` if nothing will
    /// change by itself.
    pub poll_interval: Option<Duration>,
    /// The rest.
    pub shown: Shown,
}

/// Something of a session that a person may have to see to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alerted {
    /// Which session.
    pub session: SessionId,
    /// Its thread.
    pub thread: ThreadId,
    /// What.
    pub alert: Alert,
}

/// The first of several sessions that somebody has to see to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// Which.
    pub session: SessionId,
    /// How it stands.
    pub state: State,
}

/// Who is to decide what Codex asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deciding {
    /// Whoever looks into the session.
    Reader,
    /// Somebody else, who has been asked.
    Other,
}

/// How long somebody waits at most (1 day), and so the largest time that is
/// taken for a wait.
pub const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
