//! Why a run could not be begun.

use std::path::PathBuf;

use codex_mcp_protocol::codex::Release;

use super::look::LookError;
use super::notify::UnusableNotifier;
use super::order::BadOrder;
use crate::engine::EngineError;
use crate::trust::TrustError;

/// Why a run could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It is not wanted in a way that can be done.
    #[error(transparent)]
    Order(#[from] BadOrder),
    /// The repository can't be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// Codex can't be had.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Codex may write nothing, and the criteria want something written.
    #[error(
        "Codex's sandbox is read-only here, so nothing that was asked for can come to be; allow it to write in the folder with --sandbox workspace-write (sandbox over MCP), or set sandbox_mode in Codex's configuration"
    )]
    ReadOnly,
    /// This Codex cannot be kept from writing the repository's hooks and settings.
    #[error(
        "the sandbox of Codex {release} lets commands write a repository's hooks and settings, so no run that is to commit can begin; update Codex: npm install -g @openai/codex (0.130.0 or newer)"
    )]
    UnprotectedGit {
        /// Its release.
        release: Release,
    },
    /// Codex can't be given a git directory of its own.
    #[error("cannot prepare a git directory for Codex's commits: {0}")]
    PrivateGit(String),
    /// Whether the user trusts the repository cannot be determined.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Somebody could not be told of the end.
    #[error(transparent)]
    Notifier(#[from] UnusableNotifier),
    /// A prompt of the project's can't be used.
    #[error("the prompt {}: {why}", .path.display())]
    Template {
        /// Its file.
        path: PathBuf,
        /// What is wrong, and what to write.
        why: String,
    },
}
