//! The submitter of jobs, which checks specifications and completes them with the settings of this
//! machine.

use std::path::{Path, PathBuf};
use std::slice;

use agent_team::logic::{AgentName, TeamName};
use codex_config::layers::UserConfig;
use codex_config::profile::check_exists;
use codex_config::trust::directory_trust;
use codex_engine::binary::{self, Source};
use codex_engine::confinement::ConfiguredSandbox;
use codex_engine::picture::Picture;
use codex_engine::tool_timeout::LimitOrigin;
use codex_protocol::codex::{Effort, SandboxMode};
use common::json::as_word;
use goal_run::logic::criteria::Criteria;
use goal_run::logic::notifier::Notifier;
use goal_run::notify::{NotifierCheck, UnusableNotifier};
use safe_files::directory::resolved;
use serde_json::Value;
use settings::bounds::{Bounds, OutOfBounds, sandbox_mode};
use settings::store_location::Location;
use settings::{ExplicitSettings, ThreadDefaults};

use super::call_settings::{CallSettings, ThreadMail};
use super::spec::{
    BadJobSpec, Continuation, JobSpec, SessionLocation, TOOL_TIMEOUT, millis, question_limit,
};
use super::store::Request;

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

#[cfg(test)]
pub(crate) mod tests;
