//! Who opens the job store, and what may be done there with the jobs of others.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What this host does with the jobs of others in a shared store. Each allows what the
/// one before allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OthersJobs {
    /// It shows them.
    #[default]
    Leave,
    /// It cancels and prunes them when asked to.
    Manage,
    /// It runs them with its own settings, and submits them again when asked to.
    Run,
}

/// As whom a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The directory of this host's state, where its key is.
    pub state: PathBuf,
    /// What it does with the jobs of others.
    pub others: OthersJobs,
}

impl Access {
    /// That of a host with its state in this directory, which leaves the jobs of others
    /// alone.
    #[must_use]
    pub fn of(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            others: OthersJobs::default(),
        }
    }
}
