//! Lists of jobs.
//!
//! A list of 100,000 jobs is as fast as one of a hundred: triggers keep the counts
//! (`codex_counts`), and an index has the newest jobs for each filter. In the indexes the state
//! comes before the order. A list of all states therefore looks up the newest jobs of each
//! state, and takes the newest of these.

use super::access::Identity;
use super::cells::readable;
use super::error::Fault;
use super::sql::{Connection, Value};
use super::{JobFilter, JobList, JobStore, JobSummary, StoreError};
use crate::logic::JobState;

/// The state of queued and running jobs in the counts, see the schema.
const OPEN: &str = "open";

/// The condition that holds for every job.
const EVERY: &str = "TRUE";

impl JobStore {
    /// The newest `limit` jobs that match a filter, and the number of all that match.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list(&self, filter: &JobFilter, limit: u32) -> Result<JobList, StoreError> {
        let list = async |connection: &mut Connection| {
            list(connection, &self.identity, filter, limit).await
        };
        reading!(self, list)
    }
}

async fn list(
    connection: &mut Connection,
    identity: &Identity,
    filter: &JobFilter,
    limit: u32,
) -> Result<JobList, Fault> {
    let (sql, values) = filter.total();
    let row = connection.row(&sql, values).await?;
    let total = row.map(|row| row.number("total")).transpose()?.flatten();
    let (sql, values) = filter.newest("{summary}", EVERY, limit);
    let rows = connection.rows(&sql, values).await?;
    Ok(JobList {
        jobs: readable(&rows, |row| JobSummary::read(row, identity))?,
        total: total.and_then(|total| total.try_into().ok()).unwrap_or(0),
    })
}

impl JobFilter {
    /// The statement that counts the matching jobs. It is a single statement, as a job might change
    /// its state between two.
    fn total(&self) -> (String, Vec<Value>) {
        let (conditions, values) = self.conditions();
        let state = |state: &str| all_of(&conditions, Some(state));
        let running = || {
            let running = state(JobState::Running.as_str());
            format!("SELECT COUNT(*) AS total FROM codex_jobs {running}")
        };
        let sql = match self.status {
            None => self.counted(&all_of(&conditions, None)),
            Some(JobState::Running) => running(),
            Some(JobState::Queued) => {
                let open = self.counted(&state(OPEN));
                let running = running();
                format!("SELECT ({open}) - ({running}) AS total")
            }
            Some(ended) => self.counted(&state(ended.as_str())),
        };
        (sql, values)
    }

    fn counted(&self, condition: &str) -> String {
        let counts = match self.cwd {
            Some(_) => "codex_folder_counts",
            None => "codex_counts",
        };
        format!(
            "SELECT CAST(COALESCE(SUM(jobs), 0) AS BIGINT) AS total FROM \
             (SELECT jobs FROM {counts} {condition} \
             UNION ALL SELECT jobs FROM codex_changes {condition}) AS counted"
        )
    }

    /// The statement that selects columns of the newest `limit` jobs that match the filter and
    /// the condition `also`, newest first.
    pub(super) fn newest(&self, columns: &str, also: &str, limit: u32) -> (String, Vec<Value>) {
        let (mut conditions, mut values) = self.conditions();
        values.push(limit.into());
        let limit = format!("ORDER BY seq DESC LIMIT ${}", values.len());
        if also != EVERY {
            conditions.push(also.to_owned());
        }
        if *self == Self::default() {
            return (format!("SELECT {columns} FROM codex_jobs {limit}"), values);
        }
        let states = self.status.map_or(JobState::ALL.to_vec(), |one| vec![one]);
        let of_state = states.into_iter().map(|state| {
            let condition = all_of(&conditions, Some(state.as_str()));
            format!("SELECT seq FROM (SELECT seq FROM codex_jobs {condition} {limit}) AS {state}")
        });
        let found = of_state.collect::<Vec<_>>().join(" UNION ALL ");
        let sql = format!("SELECT {columns} FROM codex_jobs WHERE seq IN ({found}) {limit}");
        (sql, values)
    }

    /// The conditions apart from the state, and their values. The index by directory is preferred:
    /// there are more directories than tools.
    fn conditions(&self) -> (Vec<String>, Vec<Value>) {
        match (self.cwd.as_ref(), self.tool_name.as_ref()) {
            (None, None) => (Vec::new(), Vec::new()),
            (Some(cwd), None) => (vec!["cwd = $1".to_owned()], vec![cwd.into()]),
            (None, Some(tool)) => (vec!["tool_name = $1".to_owned()], vec![tool.into()]),
            (Some(cwd), Some(tool)) => (
                vec!["cwd = $1".to_owned(), "{no index}tool_name = $2".to_owned()],
                vec![cwd.into(), tool.into()],
            ),
        }
    }
}

/// The conditions as a WHERE clause. The state is a literal, so that SQLite can choose the
/// partial index for it.
fn all_of(conditions: &[String], state: Option<&str>) -> String {
    let state = state.map(|state| format!("state = '{state}'"));
    let terms: Vec<String> = conditions.iter().cloned().chain(state).collect();
    match terms.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", terms.join(" AND ")),
    }
}
