//! The specification of a job, and how its submitter completes and checks it.

use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use agent_team::logic::{AgentName, TeamName};
use codex_config::layers::UserConfig;
use codex_config::profile::{NoProfile, ProfileName, check_exists};
use codex_config::trust::directory_trust;
use codex_engine::binary::{self, NoCodex, Source};
use codex_engine::command::LONGEST_WAIT;
use codex_engine::confinement::ConfiguredSandbox;
use codex_engine::picture::{Picture, PictureError};
use codex_engine::tool_timeout::LimitOrigin;
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use common::json::as_word;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::notifier::Notifier;
use goal_run::notify::{NotifierCheck, UnusableNotifier};
use safe_files::directory::resolved;
use safe_files::off_runtime::OffRuntimeError;
use serde_json::{Map, Value};
use settings::bounds::{Bounds, OutOfBounds, sandbox_mode};
use settings::store_location::Location;
use settings::{ExplicitSettings, ThreadDefaults};

use super::call_settings::{Approval, CallSettings, ThreadMail};
use super::store::Request;
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
    #[error("cannot read the directory and the images of the job: {0}")]
    Files(#[from] OffRuntimeError),
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

/// The submitter of jobs, with the settings that complete its specifications.
#[derive(Debug, Clone)]
pub struct Submitter {
    /// The submitter's program.
    pub program: String,
    /// The submitter's identity.
    pub identity: Option<AgentName>,
    /// The submitter's team.
    pub team: Option<TeamName>,
    /// The home directory of teams.
    pub atm_home: PathBuf,
    /// Whether Codex may use the submitter's mail, on this machine.
    pub mail: ThreadMail,
    /// The submitter's machine.
    pub host: String,
    /// The chosen Codex; else the first on PATH.
    pub codex: Option<(PathBuf, Source)>,
    /// The home directory of Codex.
    pub codex_home: PathBuf,
    /// The settings of threads where a specification sets none.
    pub defaults: ThreadDefaults,
    /// The bounds on specifications.
    pub bounds: Bounds,
    /// The submitter's working directory, where relative ones start.
    pub directory: PathBuf,
    /// Where the jobs may run.
    pub scope: StoreScope,
}

/// Where the jobs of a store may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreScope {
    /// On this machine, which has all files that a specification names.
    Here,
    /// On any machine that uses the store.
    Anywhere,
}

impl StoreScope {
    /// The scope of the jobs in a store.
    #[must_use]
    pub fn of(store: &Location) -> Self {
        match store {
            Location::Sqlite(_) => Self::Here,
            Location::Postgres(_) => Self::Anywhere,
        }
    }
}

impl Submitter {
    /// Checks a specification as far as this machine can, and completes it to the stored request.
    pub(super) fn request(
        &self,
        spec: JobSpec,
        continuation: Option<SessionLocation>,
    ) -> Result<Request, BadJobSpec> {
        let cwd = self.bounds.directory(&self.working_directory(&spec)?)?;
        spec.check()?;
        // On another machine, the profiles of the worker's Codex are used.
        if let (StoreScope::Here, Some(profile)) = (self.scope, &spec.profile) {
            check_exists(&self.codex_home, profile)?;
        }
        let pictures = pictures(&spec, &cwd)?;
        let codex = self.codex()?;
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let settings = self.settings(&spec, &cwd)?;
        let explicit = ExplicitSettings {
            has_profile: spec.profile.is_some(),
            config: &spec.config,
        };
        let asked = spec.sandbox.or_else(|| sandbox_mode(&spec.config));
        let sandbox = self.asked_or_configured(asked, explicit)?;
        let sandbox = sandbox.or_else(|| self.read_only_beside_profile(&spec, &cwd));
        let sandbox = self
            .bounds
            .sandbox_of_job(sandbox, spec.profile.as_ref(), &cwd)?;
        let (model, effort) = self.model_and_effort(spec.model, spec.effort, explicit);
        let run_on = match (self.scope, &continuation) {
            // The machine is not stored for a local store, as it may be renamed.
            (StoreScope::Here, _) => None,
            (StoreScope::Anywhere, Some(continuation)) => Some(continuation.host.clone()),
            (StoreScope::Anywhere, None) => has_files(&pictures).then(|| self.host.clone()),
        };
        let of_file = |picture: Picture| match picture {
            Picture::File(path) => text(&path),
            Picture::Inline(url) => Some(url),
        };
        let name = spec.task_name.unwrap_or_else(|| "call_codex".to_owned());
        let cwd = text(&cwd).ok_or(BadJobSpec::DirectoryNotText(cwd))?;
        Ok(Request {
            task_name: name,
            agent_source: Some(spec.client.unwrap_or_else(|| self.program.clone())),
            model_override: model,
            timeout_ms: millis("timeout_ms", spec.timeout)?,
            tool_timeout_ms: millis("tool_timeout_ms", spec.tool_timeout.unwrap_or(TOOL_TIMEOUT))?,
            settings: settings.to_json().map_err(BadJobSpec::Settings)?,
            expose_stream: spec.expose_stream,
            fire_and_forget: spec.fire_and_forget,
            continue_latest: spec.continuation == Continuation::Latest,
            resume_session_id: continuation.map(|continuation| continuation.session),
            sandbox: sandbox.and_then(as_word),
            effort: effort.and_then(as_word),
            profile: spec.profile.map(|profile| profile.to_string()),
            images: pictures.into_iter().filter_map(of_file).collect(),
            output_schema: spec.output_schema.map(Value::Object),
            codex_home: text(&self.codex_home),
            codex_bin: codex.as_deref().and_then(text),
            host: Some(self.host.clone()),
            submitted_by: self.identity.as_ref().map(ToString::to_string),
            run_on,
            retry: spec.retry,
            ..Request::new(spec.prompt, cwd)
        })
    }

    /// Whether the job's threads get the mail. The files of a team are on one machine.
    pub(super) fn mail(&self) -> ThreadMail {
        match (self.scope, &self.team) {
            (StoreScope::Here, Some(_)) => self.mail,
            _ => ThreadMail::Withheld,
        }
    }

    /// The settings of a specification that are not fields of the contract, within the bounds.
    fn settings(&self, spec: &JobSpec, cwd: &Path) -> Result<CallSettings, BadJobSpec> {
        let directory = |path: &PathBuf| {
            let path = resolved(&cwd.join(path));
            match self.scope == StoreScope::Anywhere || path.is_dir() {
                true => Ok(path),
                false => Err(BadJobSpec::AddDirMissing(path)),
            }
        };
        let add_dirs = spec.add_dirs.iter().map(directory);
        let mail = self.mail();
        let names_team = !spec.notify.is_empty() || mail == ThreadMail::Given;
        let mut settings = CallSettings {
            config: spec.config.clone(),
            add_dirs: add_dirs.collect::<Result<_, _>>()?,
            network: spec.network,
            approval: spec.approval,
            approval_timeout_ms: question_limit(spec)?,
            tool_timeout: match spec.tool_timeout {
                Some(_) => LimitOrigin::Requested,
                None => LimitOrigin::Default,
            },
            mail,
            team: self.team.clone().filter(|_| names_team),
            atm_home: names_team.then(|| self.atm_home.clone()),
            notify: spec.notify.clone(),
            bound: self.bounds.of_submitter(),
        };
        settings.resolve_directories(cwd);
        self.bounds.check_config(&settings.overrides(|_| None))?;
        if settings.notify.len() > goal_run::spec::MOST_NOTIFIERS {
            return Err(goal_run::spec::BadRunSpec::Notifiers(settings.notify.len()).into());
        }
        let criteria = Criteria::default();
        self.bounds.check_run(&criteria, &settings.notify, false)?;
        self.check_notifiers(&settings.notify, cwd)?;
        Ok(settings)
    }

    /// Checks that the notifiers can work, as far as this machine knows before.
    fn check_notifiers(&self, notify: &[Notifier], cwd: &Path) -> Result<(), UnusableNotifier> {
        let check = NotifierCheck {
            team: self.team.clone(),
            atm_home: self.atm_home.clone(),
            directory: cwd.to_owned(),
        };
        match self.scope {
            StoreScope::Here => check.check(notify),
            StoreScope::Anywhere => Ok(()),
        }
    }

    /// The notifiers that can work in `cwd`, and why the others cannot.
    pub(super) fn usable_notifiers(
        &self,
        mut notify: Vec<Notifier>,
        cwd: &Path,
    ) -> (Vec<Notifier>, Vec<UnusableNotifier>) {
        let cwd = resolved(&self.directory.join(cwd));
        let mut unusable = Vec::new();
        notify.retain(|notifier| {
            let error = self.check_notifiers(slice::from_ref(notifier), &cwd).err();
            let is_usable = error.is_none();
            unusable.extend(error);
            is_usable
        });
        (notify, unusable)
    }

    /// The requested sandbox, or else that of our own configuration, unless a profile decides.
    pub(super) fn asked_or_configured(
        &self,
        asked: Option<SandboxMode>,
        explicit: ExplicitSettings<'_>,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        if let Some(asked) = asked {
            self.bounds.check_sandbox(asked)?;
        }
        let set = explicit.default_unless_set("sandbox_mode", &self.defaults.sandbox);
        let set = set.map(|set| self.bounds.narrowed(set.value));
        Ok(asked.or(set))
    }

    /// The requested model and effort, or else those of our own configuration, unless a profile
    /// decides.
    pub(super) fn model_and_effort(
        &self,
        model: Option<String>,
        effort: Option<Effort>,
        explicit: ExplicitSettings<'_>,
    ) -> (Option<String>, Option<Effort>) {
        let set = &self.defaults;
        let set_model = explicit.default_unless_set("model", &set.model);
        let set_effort =
            explicit.default_unless_set("model_reasoning_effort", &set.reasoning_effort);
        (
            model.or(set_model.map(|set| set.value)),
            effort.or(set_effort.map(|set| set.value)),
        )
    }

    /// Our own `read-only` sandbox, for a job whose profile and Codex configuration both name no
    /// sandbox. Without it, the default sandbox of jobs would let the job write.
    fn read_only_beside_profile(&self, spec: &JobSpec, cwd: &Path) -> Option<SandboxMode> {
        let set = self.defaults.sandbox.as_ref()?.value;
        let profile = spec.profile.as_ref()?;
        let user = UserConfig::read(&self.codex_home);
        let trust = directory_trust(cwd, &user).ok();
        let configured = user.layers(Some(profile), trust.as_ref());
        let is_named = ConfiguredSandbox::of(&spec.config, &configured).is_some();
        (set == SandboxMode::ReadOnly && !is_named).then_some(set)
    }

    /// The Codex of a job; `None` if only other machines may have one.
    pub(super) fn codex(&self) -> Result<Option<PathBuf>, BadJobSpec> {
        match (
            binary::find_for(self.codex.clone(), Some(&self.directory)),
            self.scope,
        ) {
            (Ok(codex), _) => Ok(Some(codex.chosen)),
            (Err(_), StoreScope::Anywhere) if self.codex.is_none() => Ok(None),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn working_directory(&self, spec: &JobSpec) -> Result<PathBuf, BadJobSpec> {
        if spec.cwd.as_os_str().to_string_lossy().trim().is_empty() {
            return Err(BadJobSpec::NoDirectory);
        }
        let cwd = resolved(&self.directory.join(&spec.cwd));
        match self.scope {
            // A relative path has no base if our own directory is gone.
            _ if !cwd.is_absolute() => Err(BadJobSpec::DirectoryMissing(cwd)),
            StoreScope::Here if !cwd.is_dir() => Err(BadJobSpec::DirectoryMissing(cwd)),
            _ => Ok(cwd),
        }
    }
}

impl JobSpec {
    fn check(&self) -> Result<(), BadJobSpec> {
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

fn question_limit(spec: &JobSpec) -> Result<Option<u32>, BadJobSpec> {
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

fn pictures(spec: &JobSpec, cwd: &Path) -> Result<Vec<Picture>, BadJobSpec> {
    let images = spec.images.iter();
    let named = images.map(|image| Picture::named(image, cwd));
    Ok(named.collect::<Result<_, _>>()?)
}

fn has_files(pictures: &[Picture]) -> bool {
    pictures
        .iter()
        .any(|picture| matches!(picture, Picture::File(_)))
}

pub(super) fn millis(which: &'static str, time: Duration) -> Result<u32, BadJobSpec> {
    u32::try_from(time.as_millis())
        .ok()
        .filter(|millis| *millis > 0)
        .ok_or(BadJobSpec::Time(which))
}

#[cfg(test)]
pub(crate) mod tests;
