//! The work under way of all clients: `codex-mcp ps` lists it, the overview counts it, and
//! completions offer its IDs.

use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::SystemTime;

use codex_engine::logic::cost::{Cost, Prices};
use codex_engine::logic::progress::timed;
use common::timestamp;
use host_process::connect::{self, ConnectError};
use host_process::logic::handshake::SessionSummary;
use job_queue::logic::{JobId, JobState};
use job_queue::run::spec::TOOL as RUN_TOOL;
use job_queue::store::{JobFilter, JobList, JobStore, JobSummary, StoreError};
use job_queue::{activity, job_json};
use serde::{Serialize, Serializer};
use settings::Config;

use super::serve::{self, HostEndpointError};

/// The most jobs that are listed in each state.
const MOST_JOBS: u32 = 200;

/// How much of an ID is shown at a terminal, in characters: enough to identify the work.
pub(super) const SESSION_ID: usize = 13;
const JOB_ID: usize = 8;

/// The state of work in which Codex asks something.
pub(super) const ASKING: &str = "asking";

/// The kind of some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum Kind {
    Session,
    Job,
    Run,
}

/// A piece of work that has not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Work {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) state: String,
    #[serde(serialize_with = "timestamp::serialize")]
    pub(super) created_at: SystemTime,
    /// The name of a job, or the beginning of the first prompt of a session.
    pub(super) task: Option<String>,
    /// The step that it does, or the event for which it waits.
    pub(super) doing: Option<CurrentActivity>,
    pub(super) tokens: Option<u64>,
    pub(super) cost: Option<Cost>,
    pub(super) directory: Option<String>,
    pub(super) thread_id: Option<String>,
}

/// The step that a piece of work does, or the event for which it waits. In text and JSON, a step
/// has its time so far.
#[derive(Debug, Clone)]
pub(super) struct CurrentActivity {
    pub(super) words: String,
    /// When the step began.
    pub(super) since: Option<SystemTime>,
}

/// The time is not compared: each look would find a change, as hosts compute the beginning of a
/// step again each time.
impl PartialEq for CurrentActivity {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Display for CurrentActivity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(since) => {
                let took = SystemTime::now().duration_since(since);
                f.write_str(&timed(&self.words, took.unwrap_or_default()))
            }
            None => f.write_str(&self.words),
        }
    }
}

impl Serialize for CurrentActivity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Work {
    /// Whether Codex waits for an answer.
    pub(super) fn is_asking(&self) -> bool {
        self.state == ASKING
    }

    /// The beginning of the ID, by which verbs find the work.
    pub(super) fn short_id(&self) -> &str {
        let most = match self.kind {
            Kind::Session => SESSION_ID,
            Kind::Job | Kind::Run => JOB_ID,
        };
        self.id.get(..most).unwrap_or(&self.id)
    }
}

/// The sessions of all hosts, with their costs at these prices. `silent` is told why a host does not
/// answer.
pub(super) async fn sessions(
    prices: &Prices,
    mut silent: impl FnMut(ConnectError),
) -> Result<Vec<Work>, HostEndpointError> {
    let mut work = Vec::new();
    for endpoint in serve::all_endpoints()? {
        match connect::sessions(&endpoint).await {
            Ok(sessions) => {
                work.extend(sessions.into_iter().map(|one| of_session(one, prices)));
            }
            Err(error) => silent(error),
        }
    }
    Ok(work)
}

fn of_session(session: SessionSummary, prices: &Prices) -> Work {
    let usage = session.usage.as_ref();
    let directory = session.directory.as_deref().map(Path::to_string_lossy);
    Work {
        id: session.session,
        kind: Kind::Session,
        state: match session.state.as_str() {
            "waiting_approval" => ASKING.to_owned(),
            _ => session.state,
        },
        created_at: session.created,
        task: session.title,
        doing: session.step.map(|step| CurrentActivity {
            words: step.words,
            since: Some(step.since),
        }),
        tokens: session.tokens,
        cost: usage.and_then(|usage| prices.cost(&usage.model, &usage.tokens)),
        directory: directory.map(Into::into),
        thread_id: Some(session.thread),
    }
}

/// The jobs and runs that wait or run.
#[derive(Debug, Default)]
pub(super) struct UnfinishedJobs {
    pub(super) work: Vec<Work>,
    /// How many more there are, which are older.
    pub(super) more: u64,
}

/// The jobs and runs that wait or run, as `list` lists them.
pub(super) async fn unfinished_jobs(
    store: &JobStore,
    list: impl AsyncFn(&JobFilter, u32) -> Result<JobList, StoreError>,
) -> Result<UnfinishedJobs, StoreError> {
    let (jobs, more) = list_unfinished(list).await?;
    let mut work = Vec::new();
    for job in jobs {
        work.push(of_job(store, job).await?);
    }
    Ok(UnfinishedJobs { work, more })
}

/// The jobs that wait or run, and the number of those that are not listed.
async fn list_unfinished(
    list: impl AsyncFn(&JobFilter, u32) -> Result<JobList, StoreError>,
) -> Result<(Vec<JobSummary>, u64), StoreError> {
    let (mut found, mut more): (Vec<JobSummary>, u64) = (Vec::new(), 0);
    // In this order, a job that a worker takes in between is in both lists, and not in neither.
    for state in [JobState::Queued, JobState::Running] {
        let filter = JobFilter {
            status: Some(state),
            ..JobFilter::default()
        };
        let JobList { jobs, total } = list(&filter, MOST_JOBS).await?;
        more += total.saturating_sub(MOST_JOBS.into());
        found.retain(|earlier| jobs.iter().all(|job| job.id != earlier.id));
        found.extend(jobs);
    }
    Ok((found, more))
}

/// The jobs and runs that wait or run, without any effect: no worker is started, and no file is
/// written. A missing store has no jobs.
pub(super) async fn inspect_jobs(config: &Config) -> Result<UnfinishedJobs, StoreError> {
    if !JobStore::exists(&config.jobs.store)? {
        return Ok(UnfinishedJobs::default());
    }
    let store = inspect_store(config).await?;
    unfinished_jobs(&store, async |filter, most| store.list(filter, most).await).await
}

/// The store of jobs, for reading only.
pub(super) async fn inspect_store(config: &Config) -> Result<JobStore, StoreError> {
    JobStore::inspect(&config.jobs.store.value, &config.jobs.access()).await
}

async fn of_job(store: &JobStore, job: JobSummary) -> Result<Work, StoreError> {
    let is_asking = job.state == JobState::Running && !store.questions(&job.id).await?.is_empty();
    Ok(Work {
        doing: match job.state {
            JobState::Running => step(store, &job.id).await?,
            _ => job_json::waiting(&job).map(|wait| CurrentActivity {
                words: wait.to_string(),
                since: None,
            }),
        },
        id: job.id.as_str().to_owned(),
        kind: match job.tool_name == RUN_TOOL {
            true => Kind::Run,
            false => Kind::Job,
        },
        state: match is_asking {
            true => ASKING.to_owned(),
            false => job.state.as_str().to_owned(),
        },
        created_at: job.created_at,
        task: Some(job.task_name),
        tokens: None,
        cost: None,
        directory: Some(job.cwd),
        thread_id: job.session_id,
    })
}

async fn step(store: &JobStore, job: &JobId) -> Result<Option<CurrentActivity>, StoreError> {
    let now = SystemTime::now();
    let step = activity::current_step(store, job, now).await?;
    Ok(step.map(|step| CurrentActivity {
        words: step.words,
        since: now.checked_sub(step.took),
    }))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use host_process::logic::handshake::StepSummary;
    use job_queue::logic::Cancellation;
    use job_queue::store::{Owner, Ownership};
    use serde_json::json;

    use super::*;

    /// A session whose step has been running for so long.
    fn running(words: &str, seconds: u64) -> Work {
        let since = SystemTime::now() - Duration::from_secs(seconds);
        let session = SessionSummary {
            session: "sess_0123456789ab".to_owned(),
            thread: "t".to_owned(),
            title: None,
            state: "running".to_owned(),
            created: SystemTime::UNIX_EPOCH,
            step: Some(StepSummary {
                words: words.to_owned(),
                since,
            }),
            tokens: None,
            usage: None,
            questions: Vec::new(),
            expiries: Vec::new(),
            directory: None,
            bounds: String::new(),
        };
        of_session(session, &Prices::default())
    }

    #[test]
    fn time_of_a_step_is_shown_and_is_no_change() {
        let earlier = running("running cargo test", 3600);
        let later = running("running cargo test", 7200);
        let doing = |work: &Work| json!(work).get("doing").cloned();
        let shown = json!("running cargo test, 1 h 00 min");
        assert_eq!(doing(&earlier), Some(shown));
        assert_ne!(doing(&earlier), doing(&later));
        assert_eq!(earlier, later);
        assert_ne!(later, running("running cargo build", 7200));
    }

    fn job(number: u128, state: JobState) -> JobSummary {
        JobSummary {
            id: JobId::from_random(number),
            state,
            tool_name: RUN_TOOL.to_owned(),
            task_name: "a run".to_owned(),
            cwd: "/repo".to_owned(),
            created_at: SystemTime::UNIX_EPOCH,
            started_at: None,
            completed_at: None,
            session_id: None,
            error: None,
            cancellation: Cancellation::NotRequested,
            wait: None,
            owner: Owner {
                name: None,
                role: None,
                ownership: Ownership::Ours,
            },
        }
    }

    /// The jobs in the state of a filter.
    fn list_of(jobs: &[JobSummary], filter: &JobFilter, most: u32) -> JobList {
        let matching = jobs.iter().filter(|job| Some(job.state) == filter.status);
        JobList {
            jobs: matching.clone().take(most as usize).cloned().collect(),
            total: matching.count() as u64,
        }
    }

    /// A worker takes it after the first list.
    #[tokio::test]
    async fn job_that_is_taken_between_two_lists_is_listed_once() {
        let state = Cell::new(JobState::Queued);
        let list = async |filter: &JobFilter, most: u32| {
            Ok::<_, StoreError>(list_of(
                &[job(7, state.replace(JobState::Running))],
                filter,
                most,
            ))
        };
        let (jobs, more) = list_unfinished(list).await.unwrap();
        assert_eq!((jobs, more), (vec![job(7, JobState::Running)], 0));
    }

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_counted() {
        let most = u128::from(MOST_JOBS);
        let queued = (0..=most).map(|number| job(number, JobState::Queued));
        let all: Vec<_> = queued.chain([job(most + 1, JobState::Running)]).collect();
        let list =
            async |filter: &JobFilter, most: u32| Ok::<_, StoreError>(list_of(&all, filter, most));
        let (jobs, more) = list_unfinished(list).await.unwrap();
        assert_eq!((jobs.len(), more), (MOST_JOBS as usize + 1, 1));
    }
}
