//! The operator's bounds on the requests of clients.
//!
//! The bounds come from the user's own configuration, from variables and from flags, never from a
//! repository or a call. Where there is a bound, a call's `config` may hold only keys that are
//! known to be harmless: any other key could name a program or a wider sandbox.
//!
//! - `calls`: the directory, the sandbox and the overrides of a call.
//! - `runs`: the repository, the criteria and the notifiers of a run.
//! - `sandbox`: the sandbox and its network, for both.
//! - `permissions`: the sandbox mode that corresponds to a profile of permissions.
//! - `error`: the refusals.

mod calls;
mod error;
mod permissions;
mod runs;
mod sandbox;

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use codex_protocol::codex::{ApprovalPolicy, SandboxMode};
use safe_files::directory;

use crate::error::ConfigError;
use crate::source::Source;

pub use error::OutOfBounds;
pub use sandbox::{SubmitterBound, sandbox_mode};

/// Whether criteria and notifiers may name programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Commands {
    /// Programs are allowed.
    #[default]
    Allowed,
    /// Programs are refused.
    Refused,
}

/// A setting that acts as a bound, and its source.
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

/// The source of each bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The source of `max_sandbox`.
    pub max_sandbox: Source,
    /// The source of `allow_commands`.
    pub commands: Source,
    /// The source of `allow_dirs`.
    pub directories: Source,
}

/// The limits on the requests of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The directory at which relative working directories start; if it is empty, the working
    /// directory of this process.
    pub base: PathBuf,
    /// The widest sandbox.
    pub max_sandbox: Option<SandboxMode>,
    /// Whether criteria and notifiers may name programs.
    pub commands: Commands,
    /// The directories in which, and below which, work may be done. Their paths are absolute and
    /// resolved, so that a link cannot redirect them later.
    pub directories: Option<Vec<PathBuf>>,
    /// The approval policy of the user's own settings, which takes precedence over Codex's
    /// configuration.
    pub approval_policy: Option<ApprovalPolicy>,
    /// The directory of Codex's own configuration.
    pub codex_home: PathBuf,
    /// The source of each bound.
    pub sources: Sources,
}

impl Bounds {
    /// Resolves the links in a working directory, and checks that work may be done there.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::Directory`] if it may not.
    pub fn directory(&self, directory: &Path) -> Result<PathBuf, OutOfBounds> {
        let resolved = directory::resolved(directory);
        let Some(allowed) = &self.directories else {
            return Ok(resolved);
        };
        // A path that does not exist here is not resolved, and may lead upwards.
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

    /// Checks that work may be done in a thread whose directory is unknown.
    ///
    /// # Errors
    ///
    /// [`OutOfBounds::UnknownDirectory`] if directories are bounded.
    pub fn check_unknown_directory(&self) -> Result<(), OutOfBounds> {
        match self.directories {
            Some(_) => Err(OutOfBounds::UnknownDirectory(self.directories_bound())),
            None => Ok(()),
        }
    }

    /// Whether any bound is set.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.in_force().is_empty()
    }

    /// The bound, if there is one, that keeps commands in the sandbox whatever the client answers
    /// to Codex's questions.
    #[must_use]
    pub fn sandbox_escape_bound(&self) -> Option<Bound> {
        let most = self.max_sandbox?;
        (most != SandboxMode::DangerFullAccess).then(|| self.sandbox_bound())
    }

    /// The bounds that are set.
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

    /// The bound that allows only the sandbox `read-only`, if there is one.
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

/// The bounds of a long-running process, whose configuration may change meanwhile.
#[derive(Clone)]
pub struct CurrentBounds(Arc<dyn Fn() -> Result<Bounds, ConfigError> + Send + Sync>);

impl CurrentBounds {
    /// Bounds that are read again with `read` each time they are needed.
    #[must_use]
    pub fn read_by(read: impl Fn() -> Result<Bounds, ConfigError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The current bounds. Reads a few small files each time.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the configuration cannot be read.
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

#[cfg(test)]
mod tests;
