//! The specification of a job.

use std::path::PathBuf;
use std::time::Duration;

use codex_config::profile::{NoProfile, ProfileName};
use codex_engine::binary::NoCodex;
use codex_engine::command::LONGEST_WAIT;
use codex_engine::picture::PictureError;
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use goal_run::NoWriteAccess;
use goal_run::logic::notifier::Notifier;
use goal_run::notify::UnusableNotifier;
use safe_files::off_runtime::OffRuntimeError;
use serde_json::{Map, Value};
use settings::ConfigError;
use settings::bounds::OutOfBounds;

use super::call_settings::Approval;
use crate::logic::JobId;

/// The default time limit of a turn (contract of `call_codex`).
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The default time limit of a tool call (contract of `call_codex`).
pub const TOOL_TIMEOUT: Duration = Duration::from_secs(300);

/// The shortest and the longest time that a question may stay open.
const QUESTION_LIMITS: (Duration, Duration) = (Duration::from_secs(1), LONGEST_WAIT);

/// The longest name of a task, in characters.
pub const LONGEST_NAME: usize = 200;

/// The most pictures in one prompt.
pub const MOST_IMAGES: usize = 20;

/// The most retries of a job.
pub const MOST_RETRIES: u32 = 10;

/// The specification of a job of `call_codex`.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// The prompt.
    pub prompt: String,
    /// The working directory; a relative one starts at the submitter's.
    pub cwd: PathBuf,
    /// The program that requests the job, if it is not the submitter's own.
    pub client: Option<String>,
    /// The caller's name of the job.
    pub task_name: Option<String>,
    /// The thread to continue.
    pub continuation: Continuation,
    /// The model.
    pub model: Option<String>,
    /// The sandbox of commands.
    pub sandbox: Option<SandboxMode>,
    /// The reasoning effort of the model.
    pub effort: Option<Effort>,
    /// Codex's profile.
    pub profile: Option<ProfileName>,
    /// Pictures: paths relative to `cwd`, or data URLs.
    pub images: Vec<String>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// The time limit of the turn.
    pub timeout: Duration,
    /// The time limit of a call of an MCP server's tool; [`TOOL_TIMEOUT`] if the server's
    /// own entry sets none.
    pub tool_timeout: Option<Duration>,
    /// Overrides of Codex's `config.toml`, by their keys.
    pub config: Map<String, Value>,
    /// Directories that commands may write to in `workspace-write`, relative to `cwd`.
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands may use the network in `workspace-write`; as configured if unset.
    pub network: Option<bool>,
    /// Who answers Codex's questions.
    pub approval: Approval,
    /// How long a question stays open;
    /// [`QUESTION_LIMIT`](super::call_settings::QUESTION_LIMIT) if unset.
    pub approval_timeout: Option<Duration>,
    /// Who is notified of the end of the job, and of each question.
    pub notify: Vec<Notifier>,
    /// Whether Codex's events are a part of the result.
    pub expose_stream: bool,
    /// Whether the caller does not intend to fetch the result.
    pub fire_and_forget: bool,
    /// How often the job may run again when its worker is lost.
    pub retry: u32,
}

/// The thread that a job continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Continuation {
    /// None: Codex starts a new thread.
    None,
    /// This thread.
    Session(ThreadId),
    /// The thread of the latest job in the directory.
    Latest,
}

/// A thread to continue, and the machine that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SessionLocation {
    pub(super) session: String,
    pub(super) host: String,
}

/// An error of a job specification.
#[derive(Debug, thiserror::Error)]
pub enum BadJobSpec {
    /// The file system has not answered in time.
    #[error("cannot read the files of the job: {0}")]
    Files(#[from] OffRuntimeError),
    /// A prompt file of the configuration cannot be read.
    #[error(transparent)]
    Config(#[from] Box<ConfigError>),
    /// The request is out of bounds.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// The prompt is empty.
    #[error("prompt must not be empty")]
    NoPrompt,
    /// There is no Codex.
    #[error("{}", .0.with_remedy())]
    NoCodex(#[from] NoCodex),
    /// There is no such profile.
    #[error(transparent)]
    Profile(#[from] NoProfile),
    /// The directory is empty.
    #[error("cwd must not be empty")]
    NoDirectory,
    /// The directory does not exist.
    #[error("cwd: there is no directory {}", .0.display())]
    DirectoryMissing(PathBuf),
    /// The directory's path is not UTF-8 and cannot be stored.
    #[error("cwd: {} is not UTF-8", .0.display())]
    DirectoryNotText(PathBuf),
    /// The name of the task is malformed.
    #[error("task_name must have 1 to {LONGEST_NAME} characters, none of them a control character")]
    Name,
    /// There are too many pictures.
    #[error("images: there may be {MOST_IMAGES} at most")]
    TooManyImages,
    /// A picture cannot be used.
    #[error("images: {0}")]
    Image(#[from] PictureError),
    /// A writable directory does not exist.
    #[error("add_dirs: there is no directory {}", .0.display())]
    AddDirMissing(PathBuf),
    /// The settings cannot be stored.
    #[error("add_dirs: the paths must be UTF-8: {0}")]
    Settings(serde_json::Error),
    /// The configuration of a run is nested so deeply that a worker could not read it.
    #[error("config is nested too deeply; write its keys with dots, as in \"features.apps\"")]
    Nesting,
    /// A notifier cannot work.
    #[error(transparent)]
    Notifier(#[from] UnusableNotifier),
    /// There are too many retries.
    #[error("retry must be at most {MOST_RETRIES}")]
    Retry,
    /// A time limit of questions is set, but Codex does not ask.
    #[error("approval_timeout_ms goes with approval \"ask\"")]
    TimeoutWithoutQuestions,
    /// The time limit of questions is out of range.
    #[error(
        "approval_timeout_ms must be from {} to {} milliseconds",
        QUESTION_LIMITS.0.as_millis(), QUESTION_LIMITS.1.as_millis()
    )]
    QuestionTime,
    /// A time limit is out of range.
    #[error("{0} must be at least 1 and at most {max} milliseconds", max = u32::MAX)]
    Time(&'static str),
    /// The specification of a run is invalid.
    #[error(transparent)]
    Run(#[from] goal_run::spec::BadRunSpec),
    /// The criteria of a run require new work, and its settings make the sandbox read-only.
    #[error(transparent)]
    NoWriteAccess(#[from] NoWriteAccess),
    /// The directory has no job to continue.
    #[error("continue_latest: there is no job of {} yet; leave continue_latest out", .0.display())]
    NothingToContinue(PathBuf),
    /// The latest job of the directory has started no thread.
    #[error(
        "continue_latest: the latest job of the directory, {0}, had no session; leave \
         continue_latest out, or name a session"
    )]
    NoSession(JobId),
    /// The thread of the latest job of the directory is not signed by this machine.
    #[error(
        "continue_latest: the session of the latest job of the directory, {0}, is not signed with \
         the key of this machine: another machine or an older codex-mcp has run the job, or \
         somebody else has changed its row; leave continue_latest out, or name a session"
    )]
    UnprovenSession(JobId),
    /// The latest job of the directory has not ended.
    #[error(
        "continue_latest: the latest job of the directory, {0}, is still under way; wait for it \
         (call_status with wait_ms), then submit this again"
    )]
    StillUnderWay(JobId),
}

impl JobSpec {
    /// A specification with the defaults of the contract.
    #[must_use]
    pub fn new(prompt: impl Into<String>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            prompt: prompt.into(),
            cwd: cwd.into(),
            client: None,
            task_name: None,
            continuation: Continuation::None,
            model: None,
            sandbox: None,
            effort: None,
            profile: None,
            images: Vec::new(),
            output_schema: None,
            timeout: TIMEOUT,
            tool_timeout: None,
            config: Map::new(),
            add_dirs: Vec::new(),
            network: None,
            approval: Approval::Never,
            approval_timeout: None,
            notify: Vec::new(),
            expose_stream: false,
            fire_and_forget: false,
            retry: 0,
        }
    }
}

impl JobSpec {
    pub(super) fn check(&self) -> Result<(), BadJobSpec> {
        if self.prompt.trim().is_empty() {
            return Err(BadJobSpec::NoPrompt);
        }
        if self.images.len() > MOST_IMAGES {
            return Err(BadJobSpec::TooManyImages);
        }
        if self.retry > MOST_RETRIES {
            return Err(BadJobSpec::Retry);
        }
        match &self.task_name {
            Some(name) if !is_name(name) => Err(BadJobSpec::Name),
            _ => Ok(()),
        }
    }
}

pub(super) fn question_limit(spec: &JobSpec) -> Result<Option<u32>, BadJobSpec> {
    let Some(limit) = spec.approval_timeout else {
        return Ok(None);
    };
    let (least, most) = QUESTION_LIMITS;
    match spec.approval {
        Approval::Never => Err(BadJobSpec::TimeoutWithoutQuestions),
        Approval::Ask if (least..=most).contains(&limit) => {
            millis("approval_timeout_ms", limit).map(Some)
        }
        Approval::Ask => Err(BadJobSpec::QuestionTime),
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let is_short = name.chars().count() <= LONGEST_NAME;
    !name.trim().is_empty() && is_short && !name.contains(char::is_control)
}

pub(super) fn millis(which: &'static str, time: Duration) -> Result<u32, BadJobSpec> {
    u32::try_from(time.as_millis())
        .ok()
        .filter(|millis| *millis > 0)
        .ok_or(BadJobSpec::Time(which))
}
