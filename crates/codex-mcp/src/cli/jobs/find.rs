//! The job that somebody means by how its id begins.

use std::time::SystemTime;

use codex_mcp_core::job::{JobId, JobPrefix};

use super::failure::Failure;
use crate::cli::table::shortened;
use crate::cli::times::ago;
use crate::jobs::service::Jobs;
use crate::jobs::store::{Job, JobSummary};

/// How many jobs are named that begin alike.
const NAMED: usize = 10;

/// How much is shown of the name of a task, in characters.
const NAME: usize = 40;

/// How much of an id people are shown: enough to find the job again among thousands.
pub(super) const SHORT: usize = 8;

/// The job.
///
/// # Errors
///
/// [`Failure`], if there is none, or more than one.
pub(super) async fn find(jobs: &Jobs, prefix: &JobPrefix) -> Result<JobId, Failure> {
    let most = u32::try_from(NAMED).unwrap_or(u32::MAX).saturating_add(1);
    let found = jobs.store().await?.find_by_prefix(prefix, most).await?;
    match found.as_slice() {
        [] => Err(Failure::NotFound(prefix.clone())),
        [job] => Ok(job.id.clone()),
        several => Err(Failure::Ambiguous {
            prefix: prefix.clone(),
            known: names(several),
        }),
    }
}

/// All of it.
///
/// # Errors
///
/// The same.
pub(super) async fn job(jobs: &Jobs, prefix: &JobPrefix) -> Result<Job, Failure> {
    let id = find(jobs, prefix).await?;
    let job = jobs.store().await?.get(&id).await?;
    job.ok_or_else(|| Failure::NotFound(prefix.clone()))
}

/// Several of them, each once.
///
/// # Errors
///
/// The same.
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

fn names(several: &[JobSummary]) -> String {
    let now = SystemTime::now();
    let name = |job: &JobSummary| {
        let age = ago(now.duration_since(job.created_at).unwrap_or_default());
        let task = shortened(&job.task_name, NAME);
        format!("  {}  {}  {age}  {task}", job.id, job.state)
    };
    let mut lines: Vec<String> = several.iter().take(NAMED).map(name).collect();
    if several.len() > NAMED {
        lines.push("  …".to_owned());
    }
    lines.join("\n")
}

/// How an id begins.
pub(super) fn short(id: &JobId) -> &str {
    id.as_str().get(..SHORT).unwrap_or_default()
}
