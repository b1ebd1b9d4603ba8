//! The source of a setting, and warnings about settings.

use std::fmt;
use std::path::PathBuf;

use agent_team::logic::RoleName;
use serde::{Serialize, Serializer};

/// The source of a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// A flag of the command line.
    Flag(&'static str),
    /// A variable of the environment.
    Variable(&'static str),
    /// The preset of a role in a file.
    Role(RoleName, PathBuf),
    /// A table of a file.
    File(&'static str, PathBuf),
    /// Codex's own configuration.
    Codex,
    /// A setting of the submitter of a job. The text is the source of the submitter's setting, in
    /// words.
    Submitter(String),
    /// The setting is unset.
    #[default]
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Role(role, file) => write!(f, "role {role} in {}", file.display()),
            Self::File(table, file) => write!(f, "[{table}] in {}", file.display()),
            Self::Codex => f.write_str("Codex's configuration"),
            Self::Submitter(source) => write!(f, "{source} of the job's submitter"),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// The source of the value.
    pub source: Source,
}

impl<T> Setting<T> {
    /// A value with its source.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }
}

/// The author of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user. A default counts as set by the user.
    User,
    /// A repository that the user trusts.
    Repository,
}

/// A setting that was ignored, or that the user should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What happened.
    pub message: String,
    /// The remedy.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message, self.hint)
    }
}
