//! The settings of the server itself, such as its Codex, its name, its team and its time limit.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use agent_team::logic::{AgentName, TeamName};
use common::duration::SetDuration;

use crate::error::ConfigError;
use crate::file::{File, Scope};
use crate::key::{CODEX_BIN, IDENTITY, TEAM, TIMEOUT};
use crate::listen_address::ListenAddress;
use crate::lookup::{Lookup, in_section, in_section_or_core, of_user, within};
use crate::source::{Setting, Source, Warning};

/// The default of `request_timeout_secs` (FR-14: 300 s).
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The range of `request_timeout_secs`: up to a day.
pub const TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// The default identity of a server (FR-2.5).
pub const DEFAULT_IDENTITY: &str = "codex";

impl Lookup<'_> {
    pub(super) fn codex_bin(
        &self,
        flag: Option<PathBuf>,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<Setting<PathBuf>>, ConfigError> {
        for file in files {
            if file.scope == Scope::Repository && file.section.codex_bin.is_some() {
                warnings.push(Warning {
                    message: format!(
                        "codex_bin in {} is left aside: a repository may not choose the program",
                        file.path.display()
                    ),
                    hint: format!("{} Or use --codex-bin.", self.user_file_hint()),
                });
            }
        }
        if let Some(given) = self.flag_or_variable(CODEX_BIN, flag)? {
            return Ok(Some(given));
        }
        Ok(in_section(files, |file| match file.scope {
            Scope::Repository => None,
            Scope::User => {
                let program = file.section.codex_bin.as_deref()?;
                Some(match program.strip_prefix("~") {
                    Ok(below) => self.home().join(below),
                    Err(_) => file.beside(program),
                })
            }
        }))
    }

    pub(super) fn request_timeout(
        &self,
        flag: Option<Duration>,
        files: &[File],
    ) -> Result<Setting<Duration>, ConfigError> {
        let given = self.flag_or_variable(TIMEOUT, flag.map(SetDuration))?;
        let set = || in_section(files, |file| file.section.request_timeout_secs);
        let Some(Setting { value, source }) = given.or_else(set) else {
            return Ok(Setting::new(DEFAULT_TIMEOUT, Source::Default));
        };
        within(TIMEOUT.name, value, source, &TIMEOUTS)
    }

    pub(super) fn identity(
        &self,
        flag: Option<AgentName>,
        files: &[File],
    ) -> Result<Setting<AgentName>, ConfigError> {
        if let Some(given) = self.flag_or_variable(IDENTITY, flag)? {
            return Ok(given);
        }
        let ours = |file: &File| file.section.identity.clone();
        let of_core = |file: &File| file.core.identity.clone();
        if let Some(set) = in_section_or_core(files, ours, of_core) {
            return Ok(set);
        }
        let default = DEFAULT_IDENTITY.parse().map_err(|error| {
            let from = Source::Default;
            let why = format!("{error}");
            ConfigError::Invalid {
                key: IDENTITY.name,
                from,
                why,
            }
        })?;
        Ok(Setting::new(default, Source::Default))
    }

    /// The identity in the user's own file, else the default.
    pub(super) fn user_identity(files: &[File]) -> Option<AgentName> {
        let ours = |file: &File| file.section.identity.clone();
        let of_core = |file: &File| file.core.identity.clone();
        let set = of_user(files, |file| ours(file).or_else(|| of_core(file)));
        set.map(|set| set.value)
            .or_else(|| DEFAULT_IDENTITY.parse().ok())
    }

    pub(super) fn team(
        &self,
        flag: Option<TeamName>,
        files: &[File],
    ) -> Result<Option<Setting<TeamName>>, ConfigError> {
        if let Some(given) = self.flag_or_variable(TEAM, flag)? {
            return Ok(Some(given));
        }
        let ours = |file: &File| file.section.team.clone();
        let of_core = |file: &File| file.core.default_team.clone();
        Ok(in_section_or_core(files, ours, of_core))
    }

    /// The address at which the host process serves HTTP. It is never taken from a repository,
    /// which must not open this machine to others.
    pub(super) fn http(
        &self,
        files: &[File],
        warnings: &mut Vec<Warning>,
    ) -> Option<Setting<ListenAddress>> {
        let is_set = |file: &&File| file.scope == Scope::Repository && file.section.http.is_some();
        warnings.extend(files.iter().filter(is_set).map(|file| Warning {
            message: format!(
                "http in {} is left out: a repository may not open a door to this machine",
                file.path.display()
            ),
            hint: self.user_file_hint(),
        }));
        of_user(files, |file| file.section.http)
    }
}
