//! The access to a job store: the directory of the machine's key, and the rights over the jobs that
//! others have submitted.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The rights of this machine over the jobs that others have submitted to a shared store. Each
/// variant includes the rights of the ones before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OthersJobs {
    /// It only shows their jobs.
    #[default]
    Leave,
    /// It cancels and prunes their jobs on request.
    Manage,
    /// It runs their jobs with its own settings, and submits them again on request.
    Run,
}

/// The access with which a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The state directory of this machine, which contains its key.
    pub state: PathBuf,
    /// The rights of this machine over the jobs that others have submitted.
    pub others: OthersJobs,
}

impl Access {
    /// The access with this state directory and no rights over the jobs that others have submitted.
    #[must_use]
    pub fn of(state: impl Into<PathBuf>) -> Self {
        Self {
            state: state.into(),
            others: OthersJobs::default(),
        }
    }
}
