//! Why a run could not be begun.

use std::fmt;
use std::path::{Path, PathBuf};

use codex_config::layers::UserConfig;
use codex_config::profile::{self, ProfileName};
use codex_config::trust::{Trust, TrustError, directory_trust};
use codex_engine::binary::NoCodex;
use codex_engine::confinement::ConfiguredSandbox;
use codex_engine::{EngineError, LaunchError};
use codex_protocol::codex::Release;
use common::text::shell_word;
use serde::{Deserialize, Serialize};

use super::caller::Caller;
use super::look::LookError;
use super::notify::UnusableNotifier;
use super::spec::BadRunSpec;

/// The reason why the sandbox of a run is read-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadOnlyCause {
    /// A bound that the user has set, with its source.
    Bound(String),
    /// An argument or a setting, with its source.
    Setting(String),
    /// The profile of Codex's that the caller has named.
    Profile(ProfileName),
    /// The file of Codex's own configuration.
    Codex(PathBuf),
    /// The directory that the user has not trusted.
    Untrusted(PathBuf),
}

impl ReadOnlyCause {
    /// The cause of a read-only sandbox for which no bound, argument or setting of this program is
    /// responsible. `profile` is the profile that the caller has named, if any.
    #[must_use]
    pub fn of_codex(profile: Option<&ProfileName>, directory: &Path, codex_home: &Path) -> Self {
        let user = UserConfig::read(codex_home);
        let trust = directory_trust(directory, &user).ok();
        let config = user.layers(profile, trust.as_ref());
        let in_file = profile.and_then(|name| profile::overrides(codex_home, name).ok());
        let in_file = in_file.unwrap_or_default();
        let sandbox = ConfiguredSandbox::of(&in_file, &config);
        let sets_it = |name: &&ProfileName| {
            let key = sandbox.as_ref().map(ConfiguredSandbox::key);
            let in_table = |key: &str| config.get(&format!("profiles.{name}.{key}"));
            key.is_some_and(|key| in_file.contains_key(key) || in_table(key).is_some())
        };
        match (profile.filter(sets_it), &sandbox, trust) {
            (Some(name), ..) => Self::Profile(name.clone()),
            (None, None, Some(trust)) if trust.trust == Trust::Untrusted => {
                Self::Untrusted(trust.top)
            }
            _ => Self::Codex(user.file()),
        }
    }

    /// The cause, and what to do about it.
    pub(crate) fn explained(&self, caller: Caller) -> String {
        format!("{self}; {}", self.advice(caller))
    }

    fn advice(&self, caller: Caller) -> String {
        let wider = caller.workspace_write();
        match self {
            Self::Bound(_) => "only the user can allow more, where the bound is set".to_owned(),
            Self::Setting(_) | Self::Profile(_) | Self::Codex(_) => format!("use {wider}"),
            Self::Untrusted(top) => format!(
                "use {wider}, or read what the repository brings and then run \
                 `codex-mcp trust {}`",
                shell_word(top)
            ),
        }
    }
}

impl From<EngineError> for RunError {
    fn from(error: EngineError) -> Self {
        if let EngineError::Launch(launch) = &error
            && let LaunchError::NoCodex(none) = launch.as_ref()
        {
            return Self::NoCodex(none.clone());
        }
        Self::Engine(error)
    }
}

impl fmt::Display for ReadOnlyCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound(bound) => write!(f, "{bound} allows no more"),
            Self::Setting(setting) => write!(f, "{setting} says so"),
            Self::Profile(name) => write!(f, "Codex's profile {name} says so"),
            Self::Codex(file) => write!(f, "Codex's configuration ({}) says so", file.display()),
            Self::Untrusted(top) => write!(f, "you have not trusted {}", top.display()),
        }
    }
}

/// The sandbox of a run is read-only, and its criteria require new work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Codex's sandbox is read-only here, and the criteria require a change: {}",
    cause.explained(*caller)
)]
pub struct NoWriteAccess {
    /// What makes it read-only.
    pub cause: ReadOnlyCause,
    /// The reader of the message.
    pub caller: Caller,
}

impl RunError {
    /// The same error, with the cause if the sandbox is read-only.
    #[must_use]
    pub fn with_cause(self, cause: impl FnOnce() -> ReadOnlyCause) -> Self {
        match self {
            Self::ReadOnly => Self::ReadOnlyBy(NoWriteAccess {
                cause: cause(),
                caller: Caller::default(),
            }),
            other => other,
        }
    }

    /// The same error, with the options as this caller names them.
    #[must_use]
    pub fn for_caller(mut self, to: Caller) -> Self {
        match &mut self {
            Self::ReadOnlyBy(error) => error.caller = to,
            Self::Notifier(error) => error.caller = to,
            _ => {}
        }
        self
    }
}

/// Why a run could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The specification of the run is invalid.
    #[error(transparent)]
    Spec(#[from] BadRunSpec),
    /// The repository cannot be inspected.
    #[error(transparent)]
    Look(#[from] LookError),
    /// Codex cannot be used.
    #[error(transparent)]
    Engine(EngineError),
    /// Codex may write nothing, and the criteria need new files or commits.
    #[error("Codex's sandbox is read-only here, and the criteria require a change")]
    ReadOnly,
    /// The same as `ReadOnly`, with its cause.
    #[error(transparent)]
    ReadOnlyBy(#[from] NoWriteAccess),
    /// There is no Codex to run.
    #[error("{}", .0.with_remedy())]
    NoCodex(NoCodex),
    /// This release's sandbox does not protect the repository's hooks and settings.
    #[error(
        "the sandbox of Codex {release} lets commands write a repository's hooks and settings, so no run that is to commit can begin; update Codex: npm install -g @openai/codex (0.130.0 or newer)"
    )]
    UnprotectedGit {
        /// Its release.
        release: Release,
    },
    /// Codex could write to files that this program's own git reads.
    #[error(
        "Codex may write to {}, which contains the state directory {}: it could change what git is \
         given there outside of the sandbox; set XDG_STATE_HOME to a directory elsewhere, or begin \
         the run in a repository that does not contain it",
        writable.display(), state.display()
    )]
    StateInWorkspace {
        /// The writable directory.
        writable: PathBuf,
        /// The state directory.
        state: PathBuf,
    },
    /// A run that another process has begun cannot be continued.
    #[error("its worker was killed, and another one cannot continue the run: {0}")]
    NotContinued(String),
    /// The private git directory for Codex cannot be prepared.
    #[error("cannot prepare a git directory for Codex's commits: {0}")]
    PrivateGit(String),
    /// Whether the user trusts the repository cannot be determined.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A notifier cannot work.
    #[error(transparent)]
    Notifier(#[from] UnusableNotifier),
    /// A prompt of the project cannot be used.
    #[error("the prompt {}: {why}", .path.display())]
    Template {
        /// Its file.
        path: PathBuf,
        /// What is wrong, and what to write.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn read_only_error_names_its_cause_and_advice() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let told = |cause: ReadOnlyCause| RunError::ReadOnly.with_cause(|| cause).to_string();
        let of_codex = || told(ReadOnlyCause::of_codex(None, &root, &root));
        let trust = format!("codex-mcp trust {}", root.display());
        let untrusted = of_codex();
        assert!(untrusted.contains("you have not trusted"), "{untrusted}");
        assert!(untrusted.contains(&trust), "{untrusted}");
        let file = root.join("config.toml");
        fs::write(&file, "sandbox_mode = \"read-only\"\n").unwrap();
        let configured = of_codex();
        assert!(configured.contains(file.to_str().unwrap()), "{configured}");
        assert!(!configured.contains(&trust), "{configured}");
        let with_profile = |name: &str| {
            let name = ProfileName::try_from(name.to_owned()).unwrap();
            told(ReadOnlyCause::of_codex(Some(&name), &root, &root))
        };
        let careful = root.join("careful.config.toml");
        fs::write(careful, "sandbox_mode = \"read-only\"\n").unwrap();
        fs::write(root.join("fast.config.toml"), "model = \"m\"\n").unwrap();
        for (file_of_user, profile, cause) in [
            ("", "careful", "Codex's profile careful says so; use"),
            (
                "[profiles.table]\nsandbox_mode = \"read-only\"\n",
                "table",
                "Codex's profile table says so; use",
            ),
            (
                "sandbox_mode = \"read-only\"\n",
                "fast",
                file.to_str().unwrap(),
            ),
            ("", "fast", "you have not trusted"),
        ] {
            fs::write(&file, file_of_user).unwrap();
            let told = with_profile(profile);
            assert!(told.contains(cause), "{told}");
        }
        let bound = told(ReadOnlyCause::Bound(
            "max_sandbox (--max-sandbox)".to_owned(),
        ));
        assert!(bound.contains("--max-sandbox"), "{bound}");
        assert!(!bound.contains("workspace-write"), "{bound}");
    }

    #[test]
    fn advice_names_the_option_of_each_caller() {
        let error = || {
            let cause = || ReadOnlyCause::Setting("sandbox".to_owned());
            RunError::ReadOnly.with_cause(cause)
        };
        let over_mcp = error().to_string();
        assert!(
            over_mcp.ends_with("; use `sandbox: \"workspace-write\"`"),
            "{over_mcp}"
        );
        let at_a_shell = error().for_caller(Caller::Shell).to_string();
        assert!(
            at_a_shell.ends_with("; use --sandbox workspace-write"),
            "{at_a_shell}"
        );
        let on_the_page = error().for_caller(Caller::Page).to_string();
        assert!(
            on_the_page.ends_with("; use the sandbox \"may write in the directory\""),
            "{on_the_page}"
        );
    }
}
