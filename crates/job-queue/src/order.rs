//! What a client wants done, and what of the client goes with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::logic::{AgentName, TeamName};
use codex_config::profile::{NoProfile, ProfileName, check_exists};
use codex_engine::binary::{self, NoCodex, Source};
use codex_engine::command::LONGEST_WAIT;
use codex_engine::picture::{Picture, PictureError};
use codex_engine::tool_limit::LimitOrigin;
use codex_protocol::codex::{Effort, SandboxMode, ThreadId};
use goal_run::logic::criteria::Criteria;
use goal_run::logic::notifier::Notifier;
use safe_files::directory::resolved;
use safe_files::off_runtime::OffRuntimeError;
use serde::Serialize;
use serde_json::{Map, Value};
use settings::ThreadDefaults;
use settings::bounds::{Bounds, OutOfBounds, sandbox_mode};
use settings::store_location::Location;

use super::call_settings::{Approval, CallSettings, ThreadMail};
use super::store::Request;
use crate::logic::JobId;

/// How long Codex may take, if nobody says otherwise (contract of `call_codex`).
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How long one of its tools may take (contract of `call_codex`).
pub const TOOL_TIMEOUT: Duration = Duration::from_secs(300);

/// The least and the most that a question may stay open.
const QUESTION_LIMITS: (Duration, Duration) = (Duration::from_secs(1), LONGEST_WAIT);

/// The longest name of a task, in characters.
pub const LONGEST_NAME: usize = 200;

/// The most pictures with one prompt.
pub const MOST_IMAGES: usize = 20;

/// How often a job may run again at most.
pub const MOST_RETRIES: u32 = 10;

/// A job that somebody wants done.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// What is to be done.
    pub prompt: String,
    /// In which directory; a relative one is below ours.
    pub cwd: PathBuf,
    /// The program that wants it, if it isn't the submitter's own.
    pub client: Option<String>,
    /// What the caller calls it.
    pub task_name: Option<String>,
    /// What it goes on with.
    pub past: Past,
    /// The model.
    pub model: Option<String>,
    /// How far commands may reach.
    pub sandbox: Option<SandboxMode>,
    /// How hard the model thinks.
    pub effort: Option<Effort>,
    /// Codex's profile.
    pub profile: Option<ProfileName>,
    /// Pictures: paths from `cwd` on, or data URLs.
    pub images: Vec<String>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Map<String, Value>>,
    /// How long Codex may take.
    pub timeout: Duration,
    /// How long a call of an MCP server's tool may take; [`TOOL_TIMEOUT`] if the server's
    /// own entry doesn't say so.
    pub tool_timeout: Option<Duration>,
    /// Overrides of Codex's `config.toml`, by their keys.
    pub config: Map<String, Value>,
    /// Directories that commands may write to in `workspace-write`, from `cwd` on.
    pub add_dirs: Vec<PathBuf>,
    /// Whether commands may use the network in `workspace-write`; as configured if unset.
    pub network: Option<bool>,
    /// Who decides what Codex asks.
    pub approval: Approval,
    /// How long a question stays open; [`QUESTION_LIMIT`](super::call_settings::QUESTION_LIMIT) if unset.
    pub approval_timeout: Option<Duration>,
    /// Who is told when it ends, and of each question.
    pub notify: Vec<Notifier>,
    /// Whether Codex's events are a part of the result.
    pub expose_stream: bool,
    /// Whether nobody will ask for the result.
    pub fire_and_forget: bool,
    /// How often it may run again when its worker is lost.
    pub retry: u32,
}

/// What a job goes on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// With nothing: Codex begins a session.
    None,
    /// With this session.
    Session(ThreadId),
    /// With that of the latest job of the directory.
    Latest,
}

/// A session to go on with, and the machine that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) session: String,
    pub(super) host: String,
}

/// Why an order can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum BadOrder {
    /// The file system does not answer.
    #[error("cannot look at the directory and the images of the job: {0}")]
    Files(#[from] OffRuntimeError),
    /// It is more than may be asked for.
    #[error(transparent)]
    OutOfBounds(#[from] OutOfBounds),
    /// There is nothing to do.
    #[error("prompt must not be empty")]
    NoPrompt,
    /// There is nothing to do it with.
    #[error(
        "{0}; install Codex with `npm install -g @openai/codex`, or name it with --codex-bin or \
         CODEX_MCP_CODEX_BIN"
    )]
    NoCodex(#[from] NoCodex),
    /// There is no such profile.
    #[error(transparent)]
    Profile(#[from] NoProfile),
    /// There is no directory.
    #[error("cwd must not be empty")]
    NoDirectory,
    /// The directory isn't there.
    #[error("cwd: there is no directory {}", .0.display())]
    DirectoryMissing(PathBuf),
    /// The directory has a name that can't be kept.
    #[error("cwd: {} is not UTF-8", .0.display())]
    DirectoryNotText(PathBuf),
    /// A name is not one.
    #[error("task_name must have 1 to {LONGEST_NAME} characters, none of them a control character")]
    Name,
    /// There are too many pictures.
    #[error("images: there may be {MOST_IMAGES} at most")]
    TooManyImages,
    /// A picture is none.
    #[error("images: {0}")]
    Image(#[from] PictureError),
    /// A directory to write to is none.
    #[error("add_dirs: there is no directory {}", .0.display())]
    AddedMissing(PathBuf),
    /// The settings cannot be kept.
    #[error("add_dirs: the paths must be UTF-8: {0}")]
    Settings(serde_json::Error),
    /// It may not run again so often.
    #[error("retry must be at most {MOST_RETRIES}")]
    Retry,
    /// A time-out of questions, and nobody is asked.
    #[error("approval_timeout_ms goes with approval \"ask\"")]
    TimeoutOfNothing,
    /// Questions stay open for another time.
    #[error(
        "approval_timeout_ms must be from {} to {} milliseconds",
        QUESTION_LIMITS.0.as_millis(), QUESTION_LIMITS.1.as_millis()
    )]
    QuestionTime,
    /// It takes too long.
    #[error("{0} must be at least 1 and at most {max} milliseconds", max = u32::MAX)]
    Time(&'static str),
    /// A run can't be begun.
    #[error(transparent)]
    Run(#[from] goal_run::order::BadOrder),
    /// No job of the directory can be gone on with.
    #[error("continue_latest: there is no job of {} yet; leave continue_latest out", .0.display())]
    NothingToContinue(PathBuf),
    /// The latest job has not begun a session.
    #[error(
        "continue_latest: the latest job of the directory, {0}, had no session; leave \
         continue_latest out, or name a session"
    )]
    NoSession(JobId),
    /// The latest job has not ended.
    #[error(
        "continue_latest: the latest job of the directory, {0}, is still under way; wait for it \
         (call_status with wait_ms), then submit this again"
    )]
    StillUnderWay(JobId),
}

impl Order {
    /// An order with the defaults of the contract.
    #[must_use]
    pub fn new(prompt: impl Into<String>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            prompt: prompt.into(),
            cwd: cwd.into(),
            client: None,
            task_name: None,
            past: Past::None,
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

/// Who hands jobs over, and what of theirs goes with each.
#[derive(Debug, Clone)]
pub struct Submitter {
    /// Their program.
    pub program: String,
    /// Their identity.
    pub identity: Option<AgentName>,
    /// Their team.
    pub team: Option<TeamName>,
    /// The home directory of teams.
    pub atm_home: PathBuf,
    /// Whether Codex may use their mail, on this machine.
    pub mail: ThreadMail,
    /// Their machine.
    pub host: String,
    /// Their Codex, if they have chosen one; else the first on PATH.
    pub codex: Option<(PathBuf, Source)>,
    /// Its home.
    pub codex_home: PathBuf,
    /// What holds where an order says nothing.
    pub defaults: ThreadDefaults,
    /// What may be asked for at most.
    pub bounds: Bounds,
    /// Whether jobs stay on the machine.
    pub reach: Reach,
}

/// Where the jobs of a store may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// On this machine: what an order names is here.
    Here,
    /// Anywhere.
    Anywhere,
}

impl Reach {
    /// That of a store.
    #[must_use]
    pub fn of(store: &Location) -> Self {
        match store {
            Location::Sqlite(_) => Self::Here,
            Location::Postgres(_) => Self::Anywhere,
        }
    }
}

impl Submitter {
    /// An order as it is kept, checked as far as it can be here.
    pub(super) fn request(&self, order: Order, past: Option<Thread>) -> Result<Request, BadOrder> {
        let cwd = self.bounds.directory(&self.working_directory(&order)?)?;
        order.check()?;
        // Elsewhere, the profiles of the worker's Codex count.
        if let (Reach::Here, Some(profile)) = (self.reach, &order.profile) {
            check_exists(&self.codex_home, profile)?;
        }
        let pictures = pictures(&order, &cwd)?;
        let codex = self.codex()?;
        let set = &self.defaults;
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let settings = self.settings(&order, &cwd)?;
        let asked = order.sandbox.or_else(|| sandbox_mode(&order.config));
        let sandbox = self.asked_or_configured(asked)?;
        let sandbox = self
            .bounds
            .sandbox_of_job(sandbox, order.profile.as_ref(), &cwd)?;
        let effort = order
            .effort
            .or(set.reasoning_effort.as_ref().map(|set| set.value));
        let model = order
            .model
            .or_else(|| set.model.as_ref().map(|set| set.value.clone()));
        let run_on = match (self.reach, &past) {
            // A machine may get another name.
            (Reach::Here, _) => None,
            (Reach::Anywhere, Some(past)) => Some(past.host.clone()),
            (Reach::Anywhere, None) => has_files(&pictures).then(|| self.host.clone()),
        };
        let of_file = |picture: Picture| match picture {
            Picture::File(path) => text(&path),
            Picture::Inline(url) => Some(url),
        };
        let name = order.task_name.unwrap_or_else(|| "call_codex".to_owned());
        let cwd = text(&cwd).ok_or(BadOrder::DirectoryNotText(cwd))?;
        Ok(Request {
            task_name: name,
            agent_source: Some(order.client.unwrap_or_else(|| self.program.clone())),
            model_override: model,
            timeout_ms: millis("timeout_ms", order.timeout)?,
            tool_timeout_ms: millis(
                "tool_timeout_ms",
                order.tool_timeout.unwrap_or(TOOL_TIMEOUT),
            )?,
            settings: settings.kept().map_err(BadOrder::Settings)?,
            expose_stream: order.expose_stream,
            fire_and_forget: order.fire_and_forget,
            continue_latest: order.past == Past::Latest,
            resume_session_id: past.map(|past| past.session),
            sandbox: sandbox.and_then(in_a_word),
            effort: effort.and_then(in_a_word),
            profile: order.profile.map(|profile| profile.to_string()),
            images: pictures.into_iter().filter_map(of_file).collect(),
            output_schema: order.output_schema.map(Value::Object),
            codex_home: text(&self.codex_home),
            codex_bin: codex.as_deref().and_then(text),
            host: Some(self.host.clone()),
            submitted_by: self.identity.as_ref().map(ToString::to_string),
            run_on,
            retry: order.retry,
            ..Request::new(order.prompt, cwd)
        })
    }

    /// Whether the job's threads get the mail. The files of a team are on one machine.
    pub(super) fn mail(&self) -> ThreadMail {
        match (self.reach, &self.team) {
            (Reach::Here, Some(_)) => self.mail,
            _ => ThreadMail::Withheld,
        }
    }

    /// What an order says beside the fields of the contract, within the bounds.
    fn settings(&self, order: &Order, cwd: &Path) -> Result<CallSettings, BadOrder> {
        let directory = |path: &PathBuf| {
            let path = resolved(&cwd.join(path));
            match self.reach == Reach::Anywhere || path.is_dir() {
                true => Ok(path),
                false => Err(BadOrder::AddedMissing(path)),
            }
        };
        let add_dirs = order.add_dirs.iter().map(directory);
        let mail = self.mail();
        let names_team = !order.notify.is_empty() || mail == ThreadMail::Given;
        let mut settings = CallSettings {
            config: order.config.clone(),
            add_dirs: add_dirs.collect::<Result<_, _>>()?,
            network: order.network,
            approval: order.approval,
            approval_timeout_ms: question_limit(order)?,
            tool_timeout: match order.tool_timeout {
                Some(_) => LimitOrigin::Asked,
                None => LimitOrigin::Default,
            },
            mail,
            team: self.team.clone().filter(|_| names_team),
            atm_home: names_team.then(|| self.atm_home.clone()),
            notify: order.notify.clone(),
        };
        settings.resolve_directories(cwd);
        self.bounds.check_config(&settings.overrides(|_| None))?;
        if settings.notify.len() > goal_run::order::MOST_NOTIFIERS {
            return Err(goal_run::order::BadOrder::Notifiers(settings.notify.len()).into());
        }
        let criteria = Criteria::default();
        self.bounds.check_run(&criteria, &settings.notify, false)?;
        Ok(settings)
    }

    /// The sandbox that is asked for, or else that of our own configuration.
    pub(super) fn asked_or_configured(
        &self,
        asked: Option<SandboxMode>,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        if let Some(asked) = asked {
            self.bounds.check_sandbox(asked)?;
        }
        let set = self.defaults.sandbox.as_ref();
        let set = set.map(|set| self.bounds.narrowed(set.value));
        Ok(asked.or(set))
    }

    /// The Codex that goes with a job. Other machines may have one.
    fn codex(&self) -> Result<Option<PathBuf>, BadOrder> {
        match (binary::find(self.codex.clone()), self.reach) {
            (Ok(codex), _) => Ok(Some(codex.chosen)),
            (Err(_), Reach::Anywhere) if self.codex.is_none() => Ok(None),
            (Err(error), _) => Err(error.into()),
        }
    }

    fn working_directory(&self, order: &Order) -> Result<PathBuf, BadOrder> {
        if order.cwd.as_os_str().to_string_lossy().trim().is_empty() {
            return Err(BadOrder::NoDirectory);
        }
        let cwd = resolved(&order.cwd);
        match self.reach {
            // There is none whose own directory is gone.
            _ if !cwd.is_absolute() => Err(BadOrder::DirectoryMissing(cwd)),
            Reach::Here if !cwd.is_dir() => Err(BadOrder::DirectoryMissing(cwd)),
            _ => Ok(cwd),
        }
    }
}

impl Order {
    fn check(&self) -> Result<(), BadOrder> {
        if self.prompt.trim().is_empty() {
            return Err(BadOrder::NoPrompt);
        }
        if self.images.len() > MOST_IMAGES {
            return Err(BadOrder::TooManyImages);
        }
        if self.retry > MOST_RETRIES {
            return Err(BadOrder::Retry);
        }
        match &self.task_name {
            Some(name) if !is_name(name) => Err(BadOrder::Name),
            _ => Ok(()),
        }
    }
}

fn question_limit(order: &Order) -> Result<Option<u32>, BadOrder> {
    let Some(limit) = order.approval_timeout else {
        return Ok(None);
    };
    let (least, most) = QUESTION_LIMITS;
    match order.approval {
        Approval::Never => Err(BadOrder::TimeoutOfNothing),
        Approval::Ask if (least..=most).contains(&limit) => {
            millis("approval_timeout_ms", limit).map(Some)
        }
        Approval::Ask => Err(BadOrder::QuestionTime),
    }
}

/// Codex's word for something that has one.
pub(super) fn in_a_word(value: impl Serialize) -> Option<String> {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => Some(word),
        _ => None,
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let is_short = name.chars().count() <= LONGEST_NAME;
    !name.trim().is_empty() && is_short && !name.contains(char::is_control)
}

fn pictures(order: &Order, cwd: &Path) -> Result<Vec<Picture>, BadOrder> {
    let images = order.images.iter();
    let named = images.map(|image| Picture::named(image, cwd));
    Ok(named.collect::<Result<_, _>>()?)
}

fn has_files(pictures: &[Picture]) -> bool {
    pictures
        .iter()
        .any(|picture| matches!(picture, Picture::File(_)))
}

pub(super) fn millis(which: &'static str, time: Duration) -> Result<u32, BadOrder> {
    u32::try_from(time.as_millis())
        .ok()
        .filter(|millis| *millis > 0)
        .ok_or(BadOrder::Time(which))
}

#[cfg(test)]
mod tests;
