//! The errors of loading the configuration.

use std::path::PathBuf;

use agent_team::logic::RoleName;
use codex_config::trust::TrustError;
use common::toml_error::TomlError;
use safe_files::untrusted_file::ReadError;

use crate::source::Source;

/// An error of loading the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// Whether the user trusts the repository cannot be determined.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A file is malformed.
    #[error("{}: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The position and the reason.
        error: TomlError,
    },
    /// A value is invalid.
    #[error("{key} ({from}): {why}")]
    Invalid {
        /// Its key.
        key: &'static str,
        /// Its source.
        from: Source,
        /// The reason.
        why: String,
    },
    /// No file defines the role.
    #[error("there is no role {role} ({from}); {known}")]
    NoRole {
        /// The requested role.
        role: RoleName,
        /// The source of the request.
        from: Source,
        /// The defined roles, in words.
        known: String,
    },
}
