//! The user's trust in a directory: `trust` determines it, `layers` uses it.

use std::fmt;
use std::path::PathBuf;

use common::text::shell_word;

/// The most changes of files that a message names.
const NAMED: usize = 5;

/// Whether the user trusts a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The directory's settings and programs may be used.
    Trusted,
    /// The directory's settings and programs may not be used.
    Untrusted,
}

/// The user's trust in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryTrust {
    /// Whether the user trusts the directory.
    pub trust: Trust,
    /// The top of the git repository around the directory, or the directory itself;
    /// without links.
    pub top: PathBuf,
    /// The directory itself, without links.
    pub directory: PathBuf,
    /// The paths whose trust level the `projects` table of a thread states to Codex. For
    /// an untrusted directory these are the directory, each directory above it up to the
    /// top, and the main working tree. For a trusted one it is the entry of the user's
    /// own list; Codex knows its own list.
    pub codex_paths: Vec<PathBuf>,
    /// The files that changed since the user trusted the directory, if its entry no
    /// longer counts.
    pub changes: Option<TrustChanges>,
}

/// The changes because of which the trust in a directory does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustChanges {
    /// The top of the repository.
    pub(crate) top: PathBuf,
    /// The directory whose trust was determined.
    pub(crate) directory: PathBuf,
    /// The files, each with what happened to it. At least one.
    pub(crate) files: Vec<String>,
}

impl TrustChanges {
    /// What happened, as a sentence without its full stop.
    #[must_use]
    pub fn message(&self) -> String {
        let mut named: Vec<String> = self.files.iter().take(NAMED).cloned().collect();
        if self.files.len() > NAMED {
            named.push(format!("{} more", self.files.len() - NAMED));
        }
        format!(
            "{} is not used as trusted, since it differs from what you have trusted: {}",
            self.top.display(),
            named.join(", ")
        )
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        let directory = shell_word(&self.directory);
        format!(
            "Look at these files (`codex-mcp trust --show {directory}` lists what they set), then \
             run `codex-mcp trust {directory}` to accept them."
        )
    }
}

impl fmt::Display for TrustChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message(), self.hint())
    }
}
