//! The access to a job store: the key's directory, and the rights over the jobs of others.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What this machine does with the jobs of others in a shared store. Each allows what the
/// one before allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OthersJobs {
    /// It only shows them.
    #[default]
    Leave,
    /// It cancels and prunes them when asked to.
    Manage,
    /// It runs them with its own settings, and submits them again when asked to.
    Run,
}

/// The access with which a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The state directory of this machine, which has its key.
    pub state: PathBuf,
    /// What this machine does with the jobs of others.
    pub others: OthersJobs,
}

impl Access {
    /// The access of a host with this state directory, which does not touch the jobs of others.
    #[must_use]
    pub fn of(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            others: OthersJobs::default(),
        }
    }
}
