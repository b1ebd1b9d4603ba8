//! The operator's bounds: what a client may ask for at most.
//!
//! They come from the user's own configuration, from variables and from flags, never from
//! a repository or a call. Where there is a bound, a call's `config` may only hold keys
//! that are known to be harmless: any other could name a program or a wider sandbox.

mod permissions;

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use codex_config::layers::{CodexConfig, UserConfig};
use codex_config::profile::ProfileName;
use codex_config::trust::{Trust, directory_trust, top_of};
use codex_engine::command::{Overrides, Settings};
use codex_engine::confinement::ConfiguredSandbox;
use codex_protocol::codex::{ApprovalPolicy, SandboxMode};
use goal_run::logic::criteria::{Criteria, Criterion, Grant};
use goal_run::logic::notifier::Notifier;
use safe_files::directory;
use serde_json::{Map, Value};

use crate::error::ConfigError;
use crate::jobs::DEFAULT_SANDBOX;
use crate::source::Source;

/// Keys of Codex's `config.toml` that a call may set where there is a bound: they choose
/// the model, how it works and what it is told.
const HARMLESS: [&str; 20] = [
    "compact_prompt",
    "developer_instructions",
    "hide_agent_reasoning",
    "instructions",
    "model",
    "model_auto_compact_token_limit",
    "model_context_window",
    "model_max_output_tokens",
    "model_provider",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_supports_reasoning_summaries",
    "model_verbosity",
    "personality",
    "plan_mode_reasoning_effort",
    "project_doc_max_bytes",
    "review_model",
    "service_tier",
    "show_raw_agent_reasoning",
    "tool_output_token_limit",
];

/// What a profile may not set where the sandbox is bounded: it would go before the
/// sandbox that is sent.
const PERMISSIONS: [&str; 2] = [DEFAULT_PERMISSIONS, PROFILES];

/// The key of the profile of permissions that is in force, and the table of all of them.
const DEFAULT_PERMISSIONS: &str = "default_permissions";
const PROFILES: &str = "permissions";

/// The table of the writable sandbox, and its keys that a call may set.
const WORKSPACE: &str = "sandbox_workspace_write";
const ROOTS: &str = "writable_roots";
const NETWORK: &str = "network_access";
const EXCLUSIONS: [&str; 2] = ["exclude_slash_tmp", "exclude_tmpdir_env_var"];

/// The key of the approval policy.
const APPROVAL_POLICY: &str = "approval_policy";

/// Whether criteria and notifiers may name programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Commands {
    /// They may.
    #[default]
    Allowed,
    /// They may not.
    Refused,
}

/// A setting that bounds, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its key.
    pub key: &'static str,
    /// The flag, variable or file that set it.
    pub source: Source,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.source)
    }
}

/// The sources of the bounds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Of `max_sandbox`.
    pub max_sandbox: Source,
    /// Of `allow_commands`.
    pub commands: Source,
    /// Of `allow_dirs`.
    pub directories: Source,
}

/// What a client may ask for at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The widest sandbox.
    pub max_sandbox: Option<SandboxMode>,
    /// Whether criteria and notifiers may name programs.
    pub commands: Commands,
    /// The directories that work may be done in, with all below them; absolute and without
    /// links, so that none of them comes to lead anywhere else.
    pub directories: Option<Vec<PathBuf>>,
    /// The approval policy of the user's own settings, which goes before that of Codex's
    /// configuration.
    pub approval_policy: Option<ApprovalPolicy>,
    /// Where Codex's own configuration is.
    pub codex_home: PathBuf,
    /// The source of each bound.
    pub sources: Sources,
}

/// What a client has asked for that it may not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    /// A wider sandbox.
    #[error("the sandbox {} is wider than {}, the widest by {by}", word(*.asked), word(*.most))]
    Sandbox {
        /// What was asked for.
        asked: SandboxMode,
        /// The widest.
        most: SandboxMode,
        /// The bound.
        by: Bound,
    },
    /// Commands that leave the sandbox without anybody being asked.
    #[error("approve = \"always\" lets commands leave the sandbox, which {0} forbids")]
    ApproveAll(Bound),
    /// A profile of permissions that may allow more.
    #[error(
        "default_permissions in Codex's configuration, or sandbox_mode beside it, may allow more \
         than {}, the widest by {by}; let the profile write in :workspace_roots at most and \
         set sandbox_mode no wider, or name a sandbox in the call", word(*.most)
    )]
    Permissions {
        /// The widest sandbox.
        most: SandboxMode,
        /// The bound.
        by: Bound,
    },
    /// A thread from before, of which nobody knows the sandbox.
    #[error(
        "the thread's sandbox is not known, and {0} bounds it; name a sandbox, or begin a new thread"
    )]
    UnknownSandbox(Bound),
    /// Another directory.
    #[error("{} is in none of the directories of {by}: {}", .directory.display(), list(.allowed))]
    Directory {
        /// What was asked for, without links.
        directory: PathBuf,
        /// Those that there are.
        allowed: Vec<PathBuf>,
        /// The bound.
        by: Bound,
    },
    /// A thread from before, of which nobody knows where it works.
    #[error("the thread's working directory is not known, and {0} bounds it")]
    UnknownDirectory(Bound),
    /// The network, which the user's own configuration does not give.
    #[error(
        "{what} would give commands the network, which {} forbids: the user can set \
         sandbox_workspace_write.network_access in Codex's configuration",
        settings(.by)
    )]
    Network {
        /// The argument, key or criterion.
        what: &'static str,
        /// The bounds, any of which forbids it.
        by: Vec<Bound>,
    },
    /// An approval policy that may be wider than the user's.
    #[error(
        "config may set approval_policy only to {} under {}", list_words(.allowed), settings(.by)
    )]
    ApprovalPolicy {
        /// Those that are not wider.
        allowed: Vec<ApprovalPolicy>,
        /// The bounds, any of which forbids others.
        by: Vec<Bound>,
    },
    /// A program.
    #[error("{what} would run a program, which {by} forbids")]
    Command {
        /// The criterion or notifier.
        what: &'static str,
        /// The bound.
        by: Bound,
    },
    /// A key that could lead around a bound.
    #[error("config may not set {key} under {}", settings(.by))]
    Config {
        /// The key of Codex's configuration.
        key: String,
        /// The bounds, any of which forbids it.
        by: Vec<Bound>,
    },
    /// A profile with permissions of its own.
    #[error("the profile {name} sets permissions, which {by} forbids")]
    Profile {
        /// Its name.
        name: ProfileName,
        /// The bound.
        by: Bound,
    },
}

fn word(mode: SandboxMode) -> &'static str {
    match mode {
        SandboxMode::ReadOnly => "read-only",
        SandboxMode::WorkspaceWrite => "workspace-write",
        SandboxMode::DangerFullAccess => "danger-full-access",
    }
}

fn list_words(policies: &[ApprovalPolicy]) -> String {
    let word = |policy: &ApprovalPolicy| match policy {
        ApprovalPolicy::Untrusted => "untrusted",
        ApprovalPolicy::OnRequest => "on-request",
        ApprovalPolicy::Never => "never",
    };
    policies.iter().map(word).collect::<Vec<_>>().join(" or ")
}

fn settings(bounds: &[Bound]) -> String {
    let bounds = bounds.iter().map(Bound::to_string);
    bounds.collect::<Vec<_>>().join(", ")
}

fn list(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

impl Bounds {
    /// The settings of a thread that a call wants begun in a directory: `cwd`, or else
    /// ours. Afterwards they name the directory without links, and a sandbox where that
    /// is bounded.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn bound(&self, settings: &mut Settings) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let thread = &mut settings.thread;
        self.check_config(&thread.config)?;
        let cwd = absolute(thread.cwd.as_deref());
        if self.directories.is_some() {
            thread.cwd = Some(self.directory(&cwd)?);
        }
        let said = thread.sandbox.or_else(|| sandbox_mode(&thread.config));
        thread.sandbox = self.sandbox(said, settings.profile.as_ref(), &cwd)?;
        Ok(())
    }

    /// The settings of a call with what `under` lays below them. What the call itself asks
    /// for is refused if it is out of bounds; what lies below is narrowed.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn bound_over(
        &self,
        given: Settings,
        under: impl FnOnce(Settings) -> Settings,
    ) -> Result<Settings, OutOfBounds> {
        self.check_asked(&given)?;
        self.bound_laid(under(given))
    }

    /// Refuses a sandbox that a call itself asks for and that is out of bounds.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`].
    pub fn check_asked(&self, given: &Settings) -> Result<(), OutOfBounds> {
        match given.thread.sandbox {
            Some(asked) => self.check_sandbox(asked),
            None => Ok(()),
        }
    }

    /// Settings with the defaults below them, narrowed.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn bound_laid(&self, mut settings: Settings) -> Result<Settings, OutOfBounds> {
        let sandbox = &mut settings.thread.sandbox;
        *sandbox = sandbox.map(|mode| self.narrowed(mode));
        self.bound(&mut settings)?;
        Ok(settings)
    }

    /// The same for the sandbox of a job that somebody else has submitted: at most
    /// `workspace-write`, also where the user's own default is wider.
    #[must_use]
    pub fn for_others(&self) -> Self {
        Self {
            max_sandbox: Some(self.narrowed(SandboxMode::WorkspaceWrite)),
            ..self.clone()
        }
    }

    /// A sandbox, or the widest that is allowed.
    #[must_use]
    pub fn narrowed(&self, mode: SandboxMode) -> SandboxMode {
        self.max_sandbox.map_or(mode, |most| narrower(mode, most))
    }

    /// The same for a thread from before, of which `known` says how it was set.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn bound_resumed(
        &self,
        settings: &mut Settings,
        known: Option<&Settings>,
    ) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let known = known.map(|known| &known.thread);
        let cwd = settings.thread.cwd.clone();
        let cwd = cwd.or_else(|| known?.cwd.clone());
        if cwd.is_none() && self.directories.is_some() {
            return Err(OutOfBounds::UnknownDirectory(self.directories_bound()));
        }
        let before = known.and_then(|known| known.sandbox);
        let before = before.map(|mode| self.narrowed(mode));
        let named = settings.thread.cwd.clone();
        settings.thread.cwd = cwd;
        settings.thread.sandbox = settings.thread.sandbox.or(before);
        self.bound(settings)?;
        // Permissions that are in force are those of new threads; Codex gives this one its own.
        if let (None, None, Some(by)) = (known, settings.thread.sandbox, self.of_the_sandbox()) {
            return Err(OutOfBounds::UnknownSandbox(by));
        }
        if self.directories.is_none() {
            settings.thread.cwd = named;
        }
        Ok(())
    }

    /// What a prompt changes in a session from then on.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn bound_overrides(&self, overrides: &mut Overrides) -> Result<(), OutOfBounds> {
        if let (Some(cwd), true) = (&overrides.cwd, self.directories.is_some()) {
            overrides.cwd = Some(self.directory(&absolute(Some(cwd)))?);
        }
        match overrides.sandbox {
            Some(asked) => self.check_sandbox(asked),
            None => Ok(()),
        }
    }

    /// The sandbox to send: what was said, or else what Codex would choose by itself, if
    /// that may be wider than the bound. `None` where there is no bound, and where the user's
    /// profile of permissions is within it: a sandbox would take its place.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`], [`OutOfBounds::Profile`], [`OutOfBounds::Permissions`].
    pub fn sandbox(
        &self,
        said: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        self.sandbox_or(said, profile, cwd, |user| default_in(cwd, user))
    }

    /// The same for a job, which is [`DEFAULT_SANDBOX`] where nothing is configured.
    ///
    /// # Errors
    ///
    /// As [`Bounds::sandbox`].
    pub fn sandbox_of_job(
        &self,
        said: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        self.sandbox_or(said, profile, cwd, |user| {
            let trust = directory_trust(cwd, user).ok();
            let config = user.layers(profile, trust.as_ref());
            let configured = ConfiguredSandbox::of(&Map::new(), &config);
            configured.map_or(DEFAULT_SANDBOX, |configured| configured.as_mode())
        })
    }

    fn sandbox_or(
        &self,
        said: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
        default: impl FnOnce(&UserConfig) -> SandboxMode,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        // The widest of all bounds nothing.
        let bound = self
            .max_sandbox
            .filter(|most| *most != SandboxMode::DangerFullAccess);
        let Some(most) = bound else {
            return Ok(said);
        };
        let user = UserConfig::read(&self.codex_home);
        let config = user.layers(profile, None);
        if let Some(profile) = profile
            && sets_permissions(&config)
        {
            return Err(OutOfBounds::Profile {
                name: profile.clone(),
                by: self.sandbox_bound(),
            });
        }
        if let Some(asked) = said {
            self.check_sandbox(asked)?;
            return Ok(said);
        }
        if config.get(DEFAULT_PERMISSIONS).is_some() {
            return match permitted_in(cwd, &user) {
                Some(widest) if width(widest) <= width(most) => Ok(None),
                _ => Err(OutOfBounds::Permissions {
                    most,
                    by: self.sandbox_bound(),
                }),
            };
        }
        let inherited = config.value_of("sandbox_mode");
        let inherited = inherited.unwrap_or_else(|| default(&user));
        Ok(Some(narrower(inherited, most)))
    }

    /// Whether a sandbox is within the bound.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`].
    pub fn check_sandbox(&self, asked: SandboxMode) -> Result<(), OutOfBounds> {
        match self.max_sandbox {
            Some(most) if width(asked) > width(most) => Err(OutOfBounds::Sandbox {
                asked,
                most,
                by: self.sandbox_bound(),
            }),
            _ => Ok(()),
        }
    }

    /// A working directory without links, if work may be done there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Directory`].
    pub fn directory(&self, directory: &Path) -> Result<PathBuf, OutOfBounds> {
        let resolved = directory::resolved(directory);
        let Some(allowed) = &self.directories else {
            return Ok(resolved);
        };
        // What does not exist here is not resolved, and may lead upwards.
        let leads_up = resolved
            .components()
            .any(|part| part == Component::ParentDir);
        match !leads_up && allowed.iter().any(|above| resolved.starts_with(above)) {
            true => Ok(resolved),
            false => Err(OutOfBounds::Directory {
                directory: resolved,
                allowed: allowed.clone(),
                by: self.directories_bound(),
            }),
        }
    }

    /// The directory that a run names, without links, if the run may work in its repository:
    /// Codex works at the top. A worktree of the run's own lies in the state directory under
    /// a name that no client chooses, and is allowed where the repository is.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Directory`].
    pub fn repository(&self, directory: &Path) -> Result<PathBuf, OutOfBounds> {
        let directory = self.directory(directory)?;
        if self.directories.is_some() {
            self.directory(&top_of(&directory))?;
        }
        Ok(directory)
    }

    /// What a run may ask for beside its thread: commands, and approvals that nobody
    /// looks at.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds`].
    pub fn check_run(
        &self,
        criteria: &Criteria,
        notify: &[Notifier],
        approves_all: bool,
    ) -> Result<(), OutOfBounds> {
        if self.commands == Commands::Refused {
            let refused = |what| OutOfBounds::Command {
                what,
                by: self.commands_bound(),
            };
            let is_command = |one: &Criterion| matches!(one, Criterion::Command(_));
            if criteria.iter().any(is_command) {
                return Err(refused("the criterion command"));
            }
            if notify.iter().any(|to| matches!(to, Notifier::Command(_))) {
                return Err(refused("the notifier command:"));
            }
        }
        let most = self
            .max_sandbox
            .filter(|most| *most != SandboxMode::DangerFullAccess);
        match most {
            Some(_) if approves_all => Err(OutOfBounds::ApproveAll(self.sandbox_bound())),
            Some(_) => self.check_network_of(criteria),
            None => Ok(()),
        }
    }

    fn check_network_of(&self, criteria: &Criteria) -> Result<(), OutOfBounds> {
        let needs = |one: &&Criterion| one.grants().contains(&Grant::Network);
        let what = match criteria.iter().find(needs) {
            None => return Ok(()),
            Some(Criterion::Pushed) => "the criterion pushed",
            Some(Criterion::PullRequest) => "the criterion pr",
            Some(_) => "the criterion issue_comment",
        };
        self.check_network(what, || vec![self.sandbox_bound()])
    }

    fn check_network(
        &self,
        what: &'static str,
        by: impl Fn() -> Vec<Bound>,
    ) -> Result<(), OutOfBounds> {
        let key = format!("{WORKSPACE}.{NETWORK}");
        let config = UserConfig::read(&self.codex_home).layers(None, None);
        match config.value_of::<bool>(&key) {
            Some(true) => Ok(()),
            _ => Err(OutOfBounds::Network { what, by: by() }),
        }
    }

    /// A policy other than the user's own lets Codex's commands do more without a
    /// question, or leave the sandbox after one. `untrusted` does neither, unless the
    /// user's policy is `never`.
    fn check_approval_policy(&self, value: &Value) -> Result<(), OutOfBounds> {
        let config = UserConfig::read(&self.codex_home).layers(None, None);
        let own = self
            .approval_policy
            .or_else(|| config.value_of(APPROVAL_POLICY));
        let mut allowed: Vec<_> = own.into_iter().collect();
        if !matches!(own, Some(ApprovalPolicy::Never | ApprovalPolicy::Untrusted)) {
            allowed.push(ApprovalPolicy::Untrusted);
        }
        let asked: Option<ApprovalPolicy> = serde_json::from_value(value.clone()).ok();
        match asked.is_some_and(|asked| allowed.contains(&asked)) {
            true => Ok(()),
            false => Err(OutOfBounds::ApprovalPolicy {
                allowed,
                by: self.in_force(),
            }),
        }
    }

    /// Overrides of Codex's configuration, with plain keys or dotted ones.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Config`], [`OutOfBounds::Sandbox`], [`OutOfBounds::Directory`],
    /// [`OutOfBounds::Network`], [`OutOfBounds::ApprovalPolicy`].
    pub fn check_config(&self, config: &Map<String, Value>) -> Result<(), OutOfBounds> {
        if !self.is_any() {
            return Ok(());
        }
        let refused = |key: &str| self.refused_key(key);
        for (key, value) in config {
            match key.as_str() {
                "sandbox_mode" => {
                    let asked = sandbox_in(Some(value)).ok_or_else(|| refused(key))?;
                    self.check_sandbox(asked)?;
                }
                APPROVAL_POLICY => self.check_approval_policy(value)?,
                WORKSPACE => {
                    let table = value.as_object().ok_or_else(|| refused(key))?;
                    for (key, value) in table {
                        self.check_workspace(key, value)?;
                    }
                }
                plain if HARMLESS.contains(&plain) => {}
                dotted => match dotted.strip_prefix(WORKSPACE) {
                    Some(rest) if rest.starts_with('.') => {
                        let rest = rest.trim_start_matches('.');
                        self.check_workspace(rest, value)?;
                    }
                    _ => return Err(refused(key)),
                },
            }
        }
        Ok(())
    }

    /// The refusal of a key of Codex's configuration.
    pub fn refused_key(&self, key: &str) -> OutOfBounds {
        OutOfBounds::Config {
            key: key.to_owned(),
            by: self.in_force(),
        }
    }

    fn check_workspace(&self, key: &str, value: &Value) -> Result<(), OutOfBounds> {
        let refused = || self.refused_key(&format!("{WORKSPACE}.{key}"));
        // Narrowing is anybody's.
        match (key, value) {
            (NETWORK, Value::Bool(false)) => return Ok(()),
            (NETWORK, Value::Bool(true)) => {
                return self.check_network("network_access or network", || self.in_force());
            }
            (key, Value::Bool(true)) if EXCLUSIONS.contains(&key) => return Ok(()),
            _ => {}
        }
        let roots = value.as_array().filter(|_| key == ROOTS);
        for root in roots.ok_or_else(refused)? {
            let path = root.as_str().map(Path::new);
            let path = path.filter(|path| path.is_absolute());
            let path = path.ok_or_else(refused)?;
            match &self.directories {
                Some(_) => drop(self.directory(path)?),
                None => return Err(refused()),
            }
        }
        Ok(())
    }

    /// Whether there is a bound.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.in_force().is_empty()
    }

    /// The bound that keeps commands in the sandbox whatever the client answers, if there is
    /// one.
    #[must_use]
    pub fn of_the_sandbox(&self) -> Option<Bound> {
        let most = self.max_sandbox?;
        (most != SandboxMode::DangerFullAccess).then(|| self.sandbox_bound())
    }

    /// The bounds that there are.
    fn in_force(&self) -> Vec<Bound> {
        let most = self.max_sandbox;
        let sandbox = most.filter(|most| *most != SandboxMode::DangerFullAccess);
        let commands = self.commands == Commands::Refused;
        [
            sandbox.map(|_| self.sandbox_bound()),
            commands.then(|| self.commands_bound()),
            self.directories.as_ref().map(|_| self.directories_bound()),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The bound that allows nothing but `read-only`, if there is one.
    #[must_use]
    pub fn read_only_bound(&self) -> Option<Bound> {
        let is_narrowest = self.max_sandbox == Some(SandboxMode::ReadOnly);
        is_narrowest.then(|| self.sandbox_bound())
    }

    fn sandbox_bound(&self) -> Bound {
        Bound {
            key: "max_sandbox",
            source: self.sources.max_sandbox.clone(),
        }
    }

    fn commands_bound(&self) -> Bound {
        Bound {
            key: "allow_commands",
            source: self.sources.commands.clone(),
        }
    }

    fn directories_bound(&self) -> Bound {
        Bound {
            key: "allow_dirs",
            source: self.sources.directories.clone(),
        }
    }
}

/// The bounds of a process that outlives changes of its configuration.
#[derive(Clone)]
pub struct CurrentBounds(Arc<dyn Fn() -> Result<Bounds, ConfigError> + Send + Sync>);

impl CurrentBounds {
    /// Bounds that are read anew each time they are asked for.
    #[must_use]
    pub fn read_by(read: impl Fn() -> Result<Bounds, ConfigError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The bounds as they are now. Costs some reads of small files.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be read.
    pub fn now(&self) -> Result<Bounds, ConfigError> {
        (self.0)()
    }
}

impl From<Bounds> for CurrentBounds {
    fn from(bounds: Bounds) -> Self {
        Self::read_by(move || Ok(bounds.clone()))
    }
}

impl fmt::Debug for CurrentBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentBounds")
    }
}

fn width(mode: SandboxMode) -> u8 {
    match mode {
        SandboxMode::ReadOnly => 0,
        SandboxMode::WorkspaceWrite => 1,
        SandboxMode::DangerFullAccess => 2,
    }
}

fn narrower(one: SandboxMode, other: SandboxMode) -> SandboxMode {
    match width(one) < width(other) {
        true => one,
        false => other,
    }
}

/// The sandbox that overrides of Codex's configuration name.
pub fn sandbox_mode(config: &Map<String, Value>) -> Option<SandboxMode> {
    sandbox_in(config.get("sandbox_mode"))
}

fn sandbox_in(value: Option<&Value>) -> Option<SandboxMode> {
    serde_json::from_value(value?.clone()).ok()
}

fn sets_permissions(config: &CodexConfig) -> bool {
    PERMISSIONS.iter().any(|key| config.get(key).is_some())
}

/// The narrowest mode around the permissions that are in force in a directory, and around
/// the mode that a Codex without profiles of permissions (0.104.0) goes by there. `None` if
/// that cannot be told.
fn permitted_in(cwd: &Path, user: &UserConfig) -> Option<SandboxMode> {
    let trust = directory_trust(cwd, user).ok()?;
    let config = user.layers(None, Some(&trust));
    let name: String = config.value_of(DEFAULT_PERMISSIONS)?;
    let permitted = permissions::mode_around(&name, &config.table(PROFILES))?;
    let mode = match config.get("sandbox_mode") {
        Some(_) => config.value_of("sandbox_mode")?,
        None => default_in(cwd, user),
    };
    Some(match width(mode) > width(permitted) {
        true => mode,
        false => permitted,
    })
}

/// Codex's own default.
fn default_in(cwd: &Path, user: &UserConfig) -> SandboxMode {
    match directory_trust(cwd, user).map(|trust| trust.trust) {
        Ok(Trust::Trusted) => SandboxMode::WorkspaceWrite,
        Ok(Trust::Untrusted) | Err(_) => SandboxMode::ReadOnly,
    }
}

fn absolute(directory: Option<&Path>) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    directory.map_or_else(|| here.clone(), |directory| here.join(directory))
}

#[cfg(test)]
mod tests;
