//! The record of an attempt, which is stored with the guard of its app-server.

use goal_run::RunRecord;
use serde::{Deserialize, Serialize};

use crate::call::CallRecord;
use crate::logic::WorkerId;
use crate::store::Claim;

/// What a worker stores with the guard of an app-server about an attempt at a job.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AttemptRecord {
    pub(super) claim: Claim,
    /// The workers that were about to take the job over, and may have been killed then.
    #[serde(default)]
    pub(super) takers: Vec<WorkerId>,
    /// Present for a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<CallRecord>,
    /// Present for a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<Box<RunRecord>>,
}
