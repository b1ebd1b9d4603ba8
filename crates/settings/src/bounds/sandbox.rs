//! The bounds on the sandbox and its network.

use std::path::Path;

use codex_config::layers::{CodexConfig, UserConfig};
use codex_config::profile::ProfileName;
use codex_config::trust::{Trust, directory_trust};
use codex_engine::confinement::ConfiguredSandbox;
use codex_protocol::codex::SandboxMode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::OutOfBounds;
use super::permissions;
use super::{Bound, Bounds, Sources};
use crate::jobs::DEFAULT_SANDBOX;
use crate::source::Source;

/// The keys that a profile may not set if the sandbox is bounded: they would take precedence over
/// the requested sandbox.
const PERMISSIONS: [&str; 2] = [DEFAULT_PERMISSIONS, PROFILES];

/// The key of the effective profile of permissions, and the table of all profiles.
const DEFAULT_PERMISSIONS: &str = "default_permissions";
const PROFILES: &str = "permissions";

/// The table of the writable sandbox, and its key of the network.
pub(super) const WORKSPACE: &str = "sandbox_workspace_write";
pub(super) const NETWORK: &str = "network_access";

/// The bound on the sandbox of a job's submitter. The job carries it, because the worker that runs
/// the job may have no such bound itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitterBound {
    /// The widest sandbox; never `danger-full-access`, which bounds nothing.
    max_sandbox: SandboxMode,
    /// The source of the submitter's bound, in words, as [`Source`] is displayed.
    source: String,
}

impl Bounds {
    /// The bound that a job of this submitter carries.
    #[must_use]
    pub fn of_submitter(&self) -> Option<SubmitterBound> {
        let by = self.sandbox_escape_bound()?;
        Some(SubmitterBound {
            max_sandbox: self.max_sandbox?,
            source: by.source.to_string(),
        })
    }

    /// These bounds, with the sandbox narrowed to the bound of a job's submitter.
    #[must_use]
    pub fn narrowed_to(self, theirs: Option<SubmitterBound>) -> Self {
        match (theirs, self.max_sandbox) {
            (Some(theirs), ours)
                if ours.is_none_or(|ours| width(ours) > width(theirs.max_sandbox)) =>
            {
                Self {
                    max_sandbox: Some(theirs.max_sandbox),
                    sources: Sources {
                        max_sandbox: Source::Submitter(theirs.source),
                        ..self.sources
                    },
                    ..self
                }
            }
            _ => self,
        }
    }

    /// Checks that a running job may be answered and steered: its directory has to be allowed, and
    /// its submitter's sandbox has to be bounded at least as narrowly as ours.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Directory`], [`OutOfBounds::RunningJob`].
    pub fn check_running_job(
        &self,
        cwd: &Path,
        theirs: Option<&SubmitterBound>,
    ) -> Result<(), OutOfBounds> {
        self.directory(cwd)?;
        let Some(by) = self.sandbox_escape_bound() else {
            return Ok(());
        };
        let is_within = theirs.is_some_and(|theirs| self.check_sandbox(theirs.max_sandbox).is_ok());
        match is_within {
            true => Ok(()),
            false => Err(OutOfBounds::RunningJob(by)),
        }
    }

    /// The bounds for a job that somebody else has submitted: its sandbox is at most
    /// `workspace-write`, even if the user's own default is wider.
    #[must_use]
    pub fn for_others(&self) -> Self {
        Self {
            max_sandbox: Some(self.narrowed(SandboxMode::WorkspaceWrite)),
            ..self.clone()
        }
    }

    /// The given mode, or the widest that is allowed if that is narrower.
    #[must_use]
    pub fn narrowed(&self, mode: SandboxMode) -> SandboxMode {
        self.max_sandbox.map_or(mode, |most| narrower(mode, most))
    }

    /// The sandbox to send to Codex: the requested one, or else Codex's own choice, narrowed to the
    /// bound. It is `None` if there is no bound, or if the user's profile of permissions is within
    /// the bound, as a sandbox would replace the profile.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`], [`OutOfBounds::Profile`], [`OutOfBounds::Permissions`].
    pub fn sandbox(
        &self,
        asked: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        self.sandbox_or(asked, profile, cwd, |user| default_in(cwd, user))
    }

    /// Like [`Bounds::sandbox`], for a job, whose sandbox is [`DEFAULT_SANDBOX`] unless configured.
    ///
    /// # Errors
    ///
    /// As [`Bounds::sandbox`].
    pub fn sandbox_of_job(
        &self,
        asked: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        self.sandbox_or(asked, profile, cwd, |user| {
            let trust = directory_trust(cwd, user).ok();
            let config = user.layers(profile, trust.as_ref());
            let configured = ConfiguredSandbox::of(&Map::new(), &config);
            configured.map_or(DEFAULT_SANDBOX, |configured| configured.as_mode())
        })
    }

    fn sandbox_or(
        &self,
        asked: Option<SandboxMode>,
        profile: Option<&ProfileName>,
        cwd: &Path,
        default: impl FnOnce(&UserConfig) -> SandboxMode,
    ) -> Result<Option<SandboxMode>, OutOfBounds> {
        // The widest mode does not count as a bound.
        let bound = self
            .max_sandbox
            .filter(|most| *most != SandboxMode::DangerFullAccess);
        let Some(most) = bound else {
            return Ok(asked);
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
        if let Some(mode) = asked {
            self.check_sandbox(mode)?;
            return Ok(asked);
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

    /// Checks that a sandbox is within the bound.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Sandbox`] if it is wider.
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

    pub(super) fn check_network(
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

pub(super) fn sandbox_in(value: Option<&Value>) -> Option<SandboxMode> {
    serde_json::from_value(value?.clone()).ok()
}

fn sets_permissions(config: &CodexConfig) -> bool {
    PERMISSIONS.iter().any(|key| config.get(key).is_some())
}

/// The narrowest mode that includes both the effective permissions in a directory and the mode that
/// a Codex without profiles of permissions (0.104.0) uses there. `None` if it cannot be determined.
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

/// The mode that Codex uses by default in a directory.
fn default_in(cwd: &Path, user: &UserConfig) -> SandboxMode {
    match directory_trust(cwd, user).map(|trust| trust.trust) {
        Ok(Trust::Trusted) => SandboxMode::WorkspaceWrite,
        Ok(Trust::Untrusted) | Err(_) => SandboxMode::ReadOnly,
    }
}
