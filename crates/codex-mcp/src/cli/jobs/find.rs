//! Resolves a job by ID prefix.

use job_queue::logic::{JobId, JobPrefix};
use job_queue::service::{Jobs, JobsError};
use job_queue::store::Job;

use super::failure::Failure;

/// The number of characters of an ID that are shown: enough to identify a job among thousands.
pub(super) const SHORT: usize = 8;

/// Resolves the ID of a job.
///
/// # Errors
///
/// [`Failure`] if no job matches, or more than one.
pub(super) async fn find(jobs: &Jobs, prefix: &JobPrefix) -> Result<JobId, Failure> {
    jobs.find(prefix).await.map_err(|error| match error {
        JobsError::NotFound(_) => Failure::NotFound(prefix.clone()),
        other => other.into(),
    })
}

/// Loads the whole job.
///
/// # Errors
///
/// As [`find`].
pub(super) async fn job(jobs: &Jobs, prefix: &JobPrefix) -> Result<Job, Failure> {
    let id = find(jobs, prefix).await?;
    let job = jobs.store().await?.get(&id).await?;
    job.ok_or_else(|| Failure::NotFound(prefix.clone()))
}

/// Resolves several IDs and drops duplicates.
///
/// # Errors
///
/// As [`find`].
pub(super) async fn find_all(jobs: &Jobs, prefixes: &[JobPrefix]) -> Result<Vec<JobId>, Failure> {
    let mut found = Vec::new();
    for prefix in prefixes {
        let id = find(jobs, prefix).await?;
        if !found.contains(&id) {
            found.push(id);
        }
    }
    Ok(found)
}

/// The shown prefix of an ID.
pub(super) fn short(id: &JobId) -> &str {
    id.as_str().get(..SHORT).unwrap_or_default()
}
