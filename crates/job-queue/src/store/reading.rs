//! Reads jobs.

use std::time::Duration;

use settings::store_access::OthersJobs;

use super::cells::readable;
use super::columns::bounded;
use super::sql::{Connection, Row, Value};
use super::{Job, JobFilter, JobList, JobStore, JobSummary, StoreError, queue};
use crate::logic::{JobId, JobPrefix};

/// The limit of a prompt in a list of threads, in characters.
const PROMPT_BEGINNING: usize = 2000;

/// A job that has a thread.
#[derive(Debug)]
pub struct JobThread {
    /// The job.
    pub summary: JobSummary,
    /// The beginning of its prompt.
    pub prompt: String,
    /// The identity that has submitted it.
    pub submitted_by: Option<String>,
}

impl JobStore {
    /// Reads a job; `None` if there is none with this ID.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn get(&self, job: &JobId) -> Result<Option<Job>, StoreError> {
        let sql = "SELECT {job} FROM codex_jobs WHERE id = $1";
        self.job(sql, vec![job.as_str().into()]).await
    }

    /// Reads the summary of a job, without its long fields.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn summary(&self, job: &JobId) -> Result<Option<JobSummary>, StoreError> {
        let sql = "SELECT {summary} FROM codex_jobs WHERE id = $1";
        let look = async |connection: &mut Connection| {
            let row = connection.row(sql, vec![job.as_str().into()]).await?;
            let read = |row: Row| JobSummary::read(&row, &self.identity);
            row.map(read).transpose()
        };
        reading!(self, look)
    }

    /// The jobs with an ID prefix, at most `most`, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn find_by_prefix(
        &self,
        prefix: &JobPrefix,
        most: u32,
    ) -> Result<Vec<JobSummary>, StoreError> {
        if let Some(job) = prefix.whole() {
            return Ok(self.summary(&job).await?.into_iter().collect());
        }
        // After the prefix comes a digit or a dash, or nothing: all of them before a g.
        let sql = "SELECT {summary} FROM codex_jobs \
                   WHERE id COLLATE {bytes} >= $1 AND id COLLATE {bytes} < $2 \
                   ORDER BY seq DESC LIMIT $3";
        let end = format!("{prefix}g");
        let values = vec![prefix.as_str().into(), end.as_str().into(), most.into()];
        self.summaries(sql, values).await
    }

    /// The newest `most` jobs that [`JobStore::prune`] would remove, and the number of all.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn prunable(&self, older_than: Duration, most: u32) -> Result<JobList, StoreError> {
        let old = self.prunable_condition();
        let sql =
            format!("SELECT {{summary}} FROM codex_jobs WHERE {old} ORDER BY seq DESC LIMIT $2");
        let values = vec![queue::millis(older_than), most.into()];
        let jobs = self.summaries(&sql, values).await?;
        let sql = format!("SELECT COUNT(*) AS total FROM codex_jobs WHERE {old}");
        let count = async |connection: &mut Connection| {
            let row = connection
                .row(&sql, vec![queue::millis(older_than)])
                .await?;
            row.map(|row| row.number("total")).transpose()
        };
        let total = reading!(self, count)?.flatten();
        Ok(JobList {
            jobs,
            total: total.and_then(|total| total.try_into().ok()).unwrap_or(0),
        })
    }

    async fn summaries(
        &self,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<JobSummary>, StoreError> {
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(sql, values.clone()).await?;
            readable(&rows, |row| JobSummary::read(row, &self.identity))
        };
        reading!(self, look)
    }

    /// The latest job of a directory, in any state: it may still wait, and a job that failed
    /// early or was cancelled has no thread, which the caller has to check. Jobs of others are
    /// found only if this machine runs them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn latest_of(&self, cwd: &str) -> Result<Option<Job>, StoreError> {
        let filter = JobFilter {
            cwd: Some(cwd.to_owned()),
            ..JobFilter::default()
        };
        let may = self.identity.may(OthersJobs::Run);
        let (sql, values) = filter.newest("{job}", &may, 1);
        self.job(&sql, values).await
    }

    /// The machine that has a thread: that of the last job that used it. Jobs of others count only
    /// if this machine runs them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn host_of_session(&self, session: &str) -> Result<Option<String>, StoreError> {
        let may = self.identity.may(OthersJobs::Run);
        let worker_host = bounded("worker_host");
        let sql = format!(
            "SELECT {worker_host} FROM codex_jobs WHERE session_id = $1 \
             AND worker_host IS NOT NULL AND {may} ORDER BY seq DESC LIMIT 1"
        );
        let look = async |connection: &mut Connection| {
            let row = connection.row(&sql, vec![session.into()]).await?;
            row.map(|row| row.text("worker_host"))
                .transpose()
                .map(Option::flatten)
        };
        reading!(self, look)
    }

    /// The newest `most` jobs that have a thread, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn with_threads(&self, most: u32) -> Result<Vec<JobThread>, StoreError> {
        let sql = format!(
            "SELECT {{summary}}, {}, SUBSTR(prompt, 1, {PROMPT_BEGINNING}) AS prompt \
             FROM codex_jobs WHERE session_id IS NOT NULL ORDER BY seq DESC LIMIT $1",
            bounded("submitted_by")
        );
        let look = async |connection: &mut Connection| {
            let rows = connection.rows(&sql, vec![most.into()]).await?;
            let job = |row: &Row| {
                Ok(JobThread {
                    summary: JobSummary::read(row, &self.identity)?,
                    prompt: row.text("prompt")?.unwrap_or_default(),
                    submitted_by: row.text("submitted_by")?,
                })
            };
            readable(&rows, job)
        };
        reading!(self, look)
    }

    async fn job(&self, sql: &str, values: Vec<Value>) -> Result<Option<Job>, StoreError> {
        let look = async |connection: &mut Connection| {
            let row = connection.row(sql, values.clone()).await?;
            row.map(|row| Job::read(&row, &self.identity)).transpose()
        };
        reading!(self, look)
    }
}
