//! Jobs and runs, as the page shows them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::SystemTime;

use common::sync::lock;
use host_process::logic::handshake::StepSummary;
use job_queue::activity::{self, JobActivity};
use job_queue::event_line;
use job_queue::job_json;
use job_queue::logic::{JobId, JobPrefix, JobState};
use job_queue::question::{NamedQuestion, StoredQuestion};
use job_queue::service::{JobView, Jobs, JobsError};
use job_queue::store::{JobFilter, JobSummary, Origin, Question, StoreError, StoredEvent, Watch};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::work::Work;

/// The most jobs that are listed in each state that has not ended.
const MOST_UNFINISHED: u32 = 200;

/// The most jobs that are listed of all, the newest first.
const MOST: u32 = 50;

/// How many of the last events are shown.
const LOG_WITHIN: u32 = 300;

/// Within how many of the last events of a run its latest verdict is looked for.
const VERDICT_WITHIN: u32 = 2000;

/// How many jobs are loaded at a time: each can have texts of many MiB.
const MOST_LOADING: usize = 2;

/// A job with what the page shows of it.
pub struct ShownJob {
    /// The job with its open questions.
    pub view: JobView,
    /// The same, as it is listed.
    pub work: Work,
    /// The latest verdict on the criteria of a run.
    pub criteria: Value,
    /// The latest events, each in a line, oldest first.
    pub log: Vec<LogLine>,
}

/// What is shown of the events of a job, which are taken one after the other.
#[derive(Default)]
struct ShownEvents {
    activity: JobActivity,
    criteria: Value,
    log: VecDeque<LogLine>,
}

impl ShownEvents {
    fn take(&mut self, event: &StoredEvent) {
        self.activity.take(event);
        if let Some(criteria) = criteria(event) {
            self.criteria = criteria;
        }
        let Some(words) = event_line::line(event) else {
            return;
        };
        if self.log.len() == LOG_WITHIN as usize {
            self.log.pop_front();
        }
        self.log.push_back(LogLine {
            sequence: event.sequence,
            at: event.at,
            words,
        });
    }
}

/// Fingerprint of a job, which changes whenever the page of the job does.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRevision {
    summary: JobSummary,
    questions: Vec<Question>,
    /// The number of the latest event.
    latest: u32,
}

impl JobRevision {
    /// Whether the job has ended, after which nothing of it changes.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.summary.state.has_ended()
    }
}

/// An event of a job, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// Its number in the log of the job.
    pub sequence: u32,
    /// When it happened.
    pub at: SystemTime,
    /// What has happened, without hidden characters.
    pub words: String,
}

/// The jobs of the configured store.
pub struct JobBoard {
    jobs: Jobs,
    loading: Semaphore,
    /// Whether the completed jobs that were listed last have problems.
    problems: Mutex<BTreeMap<JobId, bool>>,
}

impl JobBoard {
    /// The jobs of a service. A store that does not exist is not created to find no jobs in it.
    #[must_use]
    pub fn new(jobs: Jobs) -> Self {
        Self {
            jobs,
            loading: Semaphore::new(MOST_LOADING),
            problems: Mutex::default(),
        }
    }

    /// The jobs and runs that wait or run, and the latest others.
    pub(crate) async fn list(&self) -> Result<Vec<Work>, StoreError> {
        if !self.jobs.has_store()? {
            return Ok(Vec::new());
        }
        let mut work = Vec::new();
        for state in [JobState::Running, JobState::Queued] {
            let filter = JobFilter {
                status: Some(state),
                ..JobFilter::default()
            };
            for job in self.jobs.list(&filter, MOST_UNFINISHED).await?.jobs {
                work.push(self.unfinished(&job).await?);
            }
        }
        let all = self.jobs.list(&JobFilter::default(), MOST).await?.jobs;
        let ended: Vec<&JobSummary> = all.iter().filter(|job| job.state.has_ended()).collect();
        let problems = self.problems_of(&ended).await?;
        work.extend(ended.into_iter().map(|job| Work {
            has_problems: problems.get(&job.id).copied().unwrap_or_default(),
            ..Work::of_job(job, Vec::new(), None)
        }));
        Ok(work)
    }

    /// Whether each of the completed jobs has problems. A job that has ended does not change, so that
    /// each is loaded once, and forgotten when it is no longer listed.
    async fn problems_of(
        &self,
        ended: &[&JobSummary],
    ) -> Result<BTreeMap<JobId, bool>, StoreError> {
        let known = lock(&self.problems).clone();
        let mut problems = BTreeMap::new();
        for job in ended.iter().filter(|job| job.state == JobState::Completed) {
            let has_problems = match known.get(&job.id) {
                Some(known) => *known,
                None => self.has_problems(&job.id).await?,
            };
            problems.insert(job.id.clone(), has_problems);
        }
        lock(&self.problems).clone_from(&problems);
        Ok(problems)
    }

    async fn has_problems(&self, id: &JobId) -> Result<bool, StoreError> {
        // The semaphore is never closed.
        let _permit = self.loading.acquire().await;
        job_json::has_problems_in(self.jobs.store().await?, id).await
    }

    async fn unfinished(&self, job: &JobSummary) -> Result<Work, StoreError> {
        if job.state != JobState::Running {
            return Ok(Work::of_job(job, Vec::new(), None));
        }
        let questions = answerable(&self.jobs.questions(&job.id).await?);
        Ok(Work::of_job(job, questions, self.step(&job.id).await?))
    }

    async fn step(&self, job: &JobId) -> Result<Option<StepSummary>, StoreError> {
        let mut steps = JobActivity::default();
        let store = self.jobs.store().await?;
        let each = store.each_of_tail(job, activity::TAIL, |event| steps.take(&event));
        each.await?;
        Ok(step_of(&steps))
    }

    /// A job, and what the page shows of it; `None` if there is none. The caller must drop it before its
    /// next await: only so many are loaded at a time.
    pub async fn job(&self, id: &str) -> Result<Option<ShownJob>, JobsError> {
        let Some(id) = self.find(id).await? else {
            return Ok(None);
        };
        // The semaphore is never closed.
        let _permit = self.loading.acquire().await;
        let view = self.jobs.view(&id, None).await?;
        let most = match view.job.request.run {
            Some(_) => VERDICT_WITHIN,
            None => LOG_WITHIN.max(activity::TAIL),
        };
        let mut events = ShownEvents::default();
        let store = self.jobs.store().await?;
        let each = store.each_of_tail(&id, most, |event| events.take(&event));
        each.await?;
        let is_running = view.job.summary.state == JobState::Running;
        let step = step_of(&events.activity).filter(|_| is_running);
        let work = Work {
            has_problems: job_json::has_problems(&view.job),
            ..Work::of_job(&view.job.summary, answerable(&view.questions), step)
        };
        Ok(Some(ShownJob {
            criteria: events.criteria,
            log: events.log.into(),
            view,
            work,
        }))
    }

    /// The revision of a job, which costs less to read than the job; `None` if there is none.
    pub async fn revision(&self, id: &JobId) -> Result<Option<JobRevision>, StoreError> {
        // The state is read first: if it says that the job has ended, all its events are stored.
        let Some(summary) = self.jobs.store().await?.summary(id).await? else {
            return Ok(None);
        };
        let latest = self.jobs.tail(id, 1).await?;
        Ok(Some(JobRevision {
            summary,
            questions: self.jobs.questions(id).await?,
            latest: latest.last().map_or(0, |event| event.sequence),
        }))
    }

    /// The job with this ID.
    pub async fn find(&self, id: &str) -> Result<Option<JobId>, JobsError> {
        let Ok(prefix) = id.parse::<JobPrefix>() else {
            return Ok(None);
        };
        if !self.jobs.has_store()? {
            return Ok(None);
        }
        match self.jobs.find(&prefix).await {
            Ok(id) => Ok(Some(id)),
            Err(JobsError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Learns when some job changes.
    pub async fn changes(&self) -> Result<Watch, StoreError> {
        Ok(self.jobs.store().await?.watch())
    }

    /// The service, for what is done with a job.
    pub fn service(&self) -> &Jobs {
        &self.jobs
    }
}

fn step_of(activity: &JobActivity) -> Option<StepSummary> {
    let now = SystemTime::now();
    activity.step(now).map(|step| StepSummary {
        words: step.words,
        since: now.checked_sub(step.took).unwrap_or(now),
    })
}

/// The verdict on the criteria of a run in an event of ours.
fn criteria(event: &StoredEvent) -> Option<Value> {
    if !event.kind.starts_with("codex-mcp/") {
        return None;
    }
    let mut data: Value = serde_json::from_str(&event.data).ok()?;
    data.get_mut("criteria").map(Value::take)
}

/// The questions that can be answered on this machine.
fn answerable(questions: &[Question]) -> Vec<NamedQuestion> {
    let ours = questions
        .iter()
        .filter(|one| one.origin == Origin::ThisMachine);
    let named = |one: &Question| {
        Some(NamedQuestion {
            id: one.id.clone(),
            question: StoredQuestion::of(one)?,
        })
    };
    ours.filter_map(named).collect()
}
