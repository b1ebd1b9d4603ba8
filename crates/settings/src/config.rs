//! The whole configuration, gathered from flags, variables and files.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_team::logic::{AgentName, RoleName, TeamName};
use agent_team::registry::Mode;
use codex_engine::binary;
use safe_files::directory::resolved;

use crate::alerts::AlertSettings;
use crate::bound_settings::BoundSettings;
use crate::bounds::{Bounds, Commands, Sources};
use crate::error::ConfigError;
use crate::eyes::EyesSettings;
use crate::file::{File, LeftOut};
use crate::flags::Flags;
use crate::jobs::JobSettings;
use crate::key::{HOST, ROLE, SUMMARIES, TEAM_TOOLS};
use crate::listen_address::ListenAddress;
use crate::lookup::{Lookup, in_section, origin};
use crate::presets::Presets;
use crate::prices::{PriceSettings, prices};
use crate::repository::{Narrowing, RepositoryFile};
use crate::retention::{RetentionSettings, retention};
use crate::sandbox_warnings::warn_about_repository_without_sandbox;
use crate::source::{Origin, Setting, Source, Warning};
use crate::threads::ThreadDefaults;
use crate::variables;

/// The settings, each from the source that takes precedence.
#[derive(Debug)]
pub struct Config {
    /// The Codex program; if unset, the first on PATH.
    pub codex_bin: Option<Setting<PathBuf>>,
    /// The longest time for a call.
    pub request_timeout: Setting<Duration>,
    /// The name of the server among the agents of its team.
    pub identity: Setting<AgentName>,
    /// The identity in the user's own file, else the default: that of the page, and of jobs that are
    /// submitted at a shell, unless a variable or a repository names another.
    pub user_identity: Option<AgentName>,
    /// Its team.
    pub team: Option<Setting<TeamName>>,
    /// The role whose preset is used.
    pub role: Option<Setting<RoleName>>,
    /// The settings of new threads, unless a call sets others.
    pub threads: ThreadDefaults,
    /// Whether Codex's threads get the mail tools.
    pub team_tools: Setting<bool>,
    /// Whether threads are asked for a summary when the server ends.
    pub summaries: Setting<bool>,
    /// Whether clients are served by the host process that they share.
    pub host: Setting<bool>,
    /// The address at which the host process serves HTTP; `None` if it serves none.
    pub http: Option<Setting<ListenAddress>>,
    /// How the registry of threads is written (`registry_journal`).
    pub registry_mode: Setting<Mode>,
    /// The settings of pictures that Codex requests.
    pub eyes: EyesSettings,
    /// The limits on the calls of clients.
    pub bounds: BoundSettings,
    /// The store of jobs, and the worker.
    pub jobs: JobSettings,
    /// The notifiers, the events of which they are told, and the time after which a turn or job
    /// counts as stalled.
    pub alerts: AlertSettings,
    /// The bounds on what is kept on the disk.
    pub retention: RetentionSettings,
    /// The prices of models.
    pub prices: PriceSettings,
    /// Codex's home directory: `CODEX_HOME`, else `~/.codex`.
    pub codex_home: PathBuf,
    /// The directory with the teams and the user's file: `ATM_HOME`, else HOME.
    pub atm_home: PathBuf,
    /// The directory to which the settings apply: relative paths start there, and the file of its
    /// repository was read.
    pub directory: PathBuf,
    /// The author of the setting of the identity.
    pub identity_origin: Origin,
    /// Settings that were ignored, with their remedies, for the user.
    pub warnings: Vec<Warning>,
}

/// Loads the settings for the working directory. `flags` are those of the command line; the other
/// settings are looked up in variables and files.
///
/// # Errors
///
/// See [`load_in`].
pub fn load(flags: Flags) -> Result<Config, ConfigError> {
    load_in(&env::current_dir().unwrap_or_default(), flags)
}

/// Loads the settings for a directory, see [`load`].
///
/// # Errors
///
/// [`ConfigError`] when a file is unreadable, or a value is invalid.
pub fn load_in(directory: &Path, flags: Flags) -> Result<Config, ConfigError> {
    load_without(directory, flags, &[])
}

/// Loads the settings for a directory as if the keys `left_out` were not in their files.
pub(super) fn load_without(
    directory: &Path,
    flags: Flags,
    left_out: &[LeftOut],
) -> Result<Config, ConfigError> {
    let lookup = Lookup {
        here: directory,
        variables: &|name| env::var_os(name),
    };
    let mut config = lookup.load(flags, left_out)?;
    let names = env::vars_os().map(|(name, _)| name);
    config.warnings.extend(variables::unknown(names));
    Ok(config)
}

impl Lookup<'_> {
    pub(super) fn load(&self, flags: Flags, left_out: &[LeftOut]) -> Result<Config, ConfigError> {
        let codex_home = self.codex_home();
        let atm_home = self.atm_home();
        let mut warnings = Vec::new();
        let given_role = self.flag_or_variable(ROLE, flags.role.clone())?;
        let (files, narrowing) = self.files(&codex_home, left_out, &mut warnings)?;
        let eyes = self.eyes(&flags, &files)?;
        let bounds = self.bounds(&flags, &files, &mut warnings)?;
        let set_role = || in_section(&files, |file| file.section.role.clone());
        let role = given_role.clone().or_else(set_role);
        let presets = Presets::of(&files, role.as_ref())?;
        let mut threads = self.threads(&presets, &flags, &mut warnings)?;
        if let Some(narrowing) = narrowing {
            let role = given_role.as_ref();
            warnings.extend(narrowing.narrow(
                &mut threads,
                &files,
                role,
                &codex_home,
                &self.user_file(),
            )?);
        }
        if bounds.allow_full_access() {
            warn_about_repository_without_sandbox(&threads, &files, &mut warnings);
            warnings.extend(self.warn_about_codex_without_sandbox(&threads, &codex_home));
        }
        let identity = self.identity(flags.identity, &files)?;
        Ok(Config {
            codex_bin: self.codex_bin(flags.codex_bin, &files, &mut warnings)?,
            request_timeout: self.request_timeout(flags.timeout, &files)?,
            identity_origin: origin(&identity, &files),
            identity,
            user_identity: Self::user_identity(&files),
            team: self.team(flags.team, &files)?,
            threads,
            team_tools: self.switch(TEAM_TOOLS, flags.team_tools, true, &files, |file| {
                file.section.team_tools
            })?,
            summaries: self.switch(SUMMARIES, flags.summaries, true, &files, |file| {
                file.section.summaries
            })?,
            host: self.switch(HOST, flags.host, true, &files, |file| file.section.host)?,
            http: self.http(&files, &mut warnings),
            role,
            eyes,
            alerts: self.alerts(&bounds.allow_commands, &files, &mut warnings)?,
            bounds,
            registry_mode: registry_mode(&files),
            jobs: self.jobs(flags.store, &files, &mut warnings)?,
            retention: retention(&files, &self.user_file_hint(), &mut warnings)?,
            prices: prices(&files, &self.user_file_hint(), &mut warnings)?,
            codex_home,
            atm_home,
            directory: self.here.to_owned(),
            warnings,
        })
    }

    /// The files that exist, in their order of precedence, and the narrowing settings of an
    /// untrusted repository's file.
    fn files(
        &self,
        codex_home: &Path,
        left_out: &[LeftOut],
        warnings: &mut Vec<Warning>,
    ) -> Result<(Vec<File>, Option<Narrowing>), ConfigError> {
        let user = File::of_user(&self.user_file(), left_out, warnings)?;
        let found = self.repository_file(codex_home, user.as_ref(), left_out, warnings)?;
        let (repository, narrowing) = match found {
            None => (None, None),
            Some(RepositoryFile::Trusted(file)) => (Some(file), None),
            Some(RepositoryFile::Narrowed(file, narrowing)) => (Some(file), Some(narrowing)),
        };
        Ok((repository.into_iter().chain(user).collect(), narrowing))
    }
}

impl Config {
    /// The limits on the calls of clients.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let BoundSettings {
            max_sandbox,
            allow_commands,
            allow_dirs,
        } = &self.bounds;
        Bounds {
            base: self.directory.clone(),
            max_sandbox: max_sandbox.as_ref().map(|set| set.value),
            commands: match allow_commands.value {
                true => Commands::Allowed,
                false => Commands::Refused,
            },
            directories: allow_dirs
                .as_ref()
                .map(|set| set.value.iter().map(|path| resolved(path)).collect()),
            approval_policy: self.threads.approval_policy.as_ref().map(|set| set.value),
            codex_home: self.codex_home.clone(),
            sources: Sources {
                max_sandbox: source_of(max_sandbox.as_ref()),
                commands: allow_commands.source.clone(),
                directories: source_of(allow_dirs.as_ref()),
            },
        }
    }

    /// The chosen Codex, for [`binary::find`].
    #[must_use]
    pub fn chosen_codex(&self) -> Option<(PathBuf, binary::Source)> {
        let Setting { value, source } = self.codex_bin.clone()?;
        let from = match source {
            Source::File(_, path) => binary::Source::File(path),
            _ => binary::Source::FlagOrVariable,
        };
        // A bare name is looked up on PATH.
        let is_bare = value.components().count() == 1;
        let path = match is_bare {
            true => value,
            false => self.directory.join(value),
        };
        Some((path, from))
    }
}

fn source_of<T>(set: Option<&Setting<T>>) -> Source {
    set.map_or(Source::Default, |set| set.source.clone())
}

fn registry_mode(files: &[File]) -> Setting<Mode> {
    let mode = |journal| match journal {
        true => Mode::Journal,
        false => Mode::Document,
    };
    let set = in_section(files, |file| file.section.registry_journal.map(mode));
    set.unwrap_or_else(|| Setting::new(Mode::Document, Source::Default))
}
