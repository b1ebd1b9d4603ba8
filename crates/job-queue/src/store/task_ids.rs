//! The IDs of MCP tasks. A task is a job; its ID is the ID of the job with a signature.
//!
//! The IDs are not stored: this machine recognises an ID that it has given by the signature, which
//! is made with its own key. So a task exists as soon as its job does. Other users of the store can
//! read the ID of the job, but cannot make the ID of the task from it.

use super::{JobStore, Origin};
use crate::logic::JobId;

/// The separator of the ID of the job and the signature.
const SEPARATOR: char = '.';

impl JobStore {
    /// The ID of the task that is this job: 80 characters, of which 43 are a signature of 256
    /// bits.
    #[must_use]
    pub fn task_id(&self, job: &JobId) -> String {
        let signature = self.identity.sign_message(&message(job));
        format!("{job}{SEPARATOR}{signature}")
    }

    /// The job of a task; `None` if this machine has given no such ID.
    #[must_use]
    pub fn job_of_task(&self, task: &str) -> Option<JobId> {
        let (job, signature) = task.split_once(SEPARATOR)?;
        let job: JobId = job.parse().ok()?;
        match self.identity.origin_of(&message(&job), signature) {
            Origin::ThisMachine => Some(job),
            Origin::Unproven => None,
        }
    }
}

fn message(job: &JobId) -> Vec<u8> {
    format!("codex-mcp task 1 {job}").into_bytes()
}
