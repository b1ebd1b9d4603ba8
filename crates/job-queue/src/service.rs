//! Jobs as clients have them: handed over, looked at, waited for, called off. The
//! tools and the command line are two faces of this.

mod telling;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use agent_team::audit::{Audit, Event, Outcome, Record};
use codex_protocol::codex::ThreadId;
use common::duration::ago;
use common::text::one_line;
use safe_files::off_runtime;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::order::{BadOrder, Order, Past, Submitter, Thread};
use super::run::order::RunOrder;
use super::store::{
    Filter, Job, JobStore, JobSummary, Listed, NewJob, Question, Request, StoreError, StoredEvent,
    Whose,
};
use super::worker::start::{StartError, Starter};
use crate::logic::{CancelAnswer, JobId, JobPrefix, JobState};
use crate::thread_ids::{NoThread, ThreadPrefix};

pub use telling::{NotTold, Response};

/// How often it is looked whether the worker of a job that is waited for is still
/// there.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// How long a cancellation waits for Codex to be gone: its commands have a second to
/// end by themselves, and the worker hears of it within another.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// How many jobs are named that begin alike.
const NAMED: usize = 10;

/// How much is shown of the name of a task, in bytes.
const TASK_SHOWN: usize = 60;

/// Why nothing has come of a request.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// What was asked for can't be.
    #[error(transparent)]
    Order(#[from] BadOrder),
    /// There is no such job.
    #[error("Job not found: {0}")]
    NotFound(String),
    /// Several jobs begin so.
    #[error("several jobs begin with {prefix}; give more of the id:\n{known}")]
    Ambiguous {
        /// What was given.
        prefix: JobPrefix,
        /// The first of them, a line each.
        known: String,
    },
    /// The thread to go on in cannot be found.
    #[error(transparent)]
    Thread(#[from] NoThread),
    /// The store can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its worker was not told something.
    #[error(transparent)]
    NotTold(#[from] NotTold),
    /// What is done in somebody's name has to be in the audit first.
    #[error("it can't be written into the audit, so nothing was done: {0}")]
    Audit(String),
}

/// A job that was handed over.
#[derive(Debug)]
pub struct Submitted {
    /// Its name.
    pub job: JobId,
    /// The session that it goes on with.
    pub session: Option<String>,
    /// Why no worker has been started for it. It waits for one.
    pub no_worker: Option<StartError>,
}

/// What has come of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled {
    /// What the store has answered.
    pub answer: CancelAnswer,
    /// How the job stands now: one that a worker has runs until Codex is gone.
    pub state: JobState,
}

/// A job as it is, and what keeps it from being done.
#[derive(Debug)]
pub struct Looked {
    /// The job.
    pub job: Job,
    /// What Codex asks.
    pub questions: Vec<Question>,
    /// Why there is no worker for it, if it has not ended.
    pub no_worker: Option<StartError>,
}

/// The jobs of a store. The store is opened when it is needed first.
pub struct Jobs {
    location: Location,
    access: Access,
    store: OnceCell<JobStore>,
    starter: Starter,
    submitter: Submitter,
    audit: Option<Arc<Mutex<Audit>>>,
}

impl Jobs {
    /// Those of the store at `location`, opened so, whose worker `starter` starts.
    #[must_use]
    pub fn new(location: Location, access: Access, starter: Starter, submitter: Submitter) -> Self {
        Self {
            location,
            access,
            store: OnceCell::new(),
            starter,
            submitter,
            audit: None,
        }
    }

    /// The same, with all that is done in somebody's name in the audit first.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self {
            audit: Some(Arc::new(Mutex::new(audit))),
            ..self
        }
    }

    /// Their store.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn store(&self) -> Result<&JobStore, StoreError> {
        let open = || JobStore::open(&self.location, &self.access);
        self.store.get_or_try_init(open).await
    }

    /// A number for a run, by which others know it: none has it but this.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn number_of_a_run(&self) -> Result<u64, StoreError> {
        self.store().await?.number_of_a_run().await
    }

    /// Hands a job over. From then on it is done, whatever becomes of us.
    ///
    /// # Errors
    ///
    /// [`JobsError`]; nothing was submitted then, unless the store was lost in the
    /// middle.
    pub async fn submit(&self, order: Order) -> Result<Submitted, JobsError> {
        let past = match order.past {
            Past::None => None,
            Past::Session(ref session) => Some(self.of_session(session.as_str()).await?),
            Past::Latest => Some(self.latest(&order.cwd).await?),
        };
        let session = past.as_ref().map(|past| past.session.clone());
        let submitter = self.submitter.clone();
        let request = off_runtime::run(move || submitter.request(order, past)).await;
        let request = request.map_err(BadOrder::from)??;
        let submitted = self.hand_over(request, Event::CallCodex).await?;
        Ok(Submitted {
            session,
            ..submitted
        })
    }

    /// The same with a run: turns of one thread until its criteria hold.
    ///
    /// # Errors
    ///
    /// [`JobsError`], as for [`Jobs::submit`].
    pub async fn submit_run(&self, order: RunOrder) -> Result<Submitted, JobsError> {
        let request = self.submitter.run_request(order)?;
        self.hand_over(request, Event::CodexRun).await
    }

    async fn hand_over(&self, request: Request, event: Event) -> Result<Submitted, JobsError> {
        let job = NewJob::new(request);
        let prompt = Some(job.request.prompt.as_str());
        self.note(&job.id, event, Outcome::Begun, prompt)?;
        let submitted = self.store().await?.submit(&job).await;
        let outcome = match submitted {
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Failed,
        };
        self.note_end(&job.id, event, outcome);
        submitted?;
        Ok(Submitted {
            job: job.id,
            session: job.request.resume_session_id,
            no_worker: self.starter.ensure().await.err(),
        })
    }

    /// Where the session of a job is. One that no job has had is this machine's.
    async fn of_session(&self, session: &str) -> Result<Thread, JobsError> {
        let host = self.store().await?.host_of_session(session).await?;
        Ok(Thread {
            session: session.to_owned(),
            host: host.unwrap_or_else(|| self.submitter.host.clone()),
        })
    }

    async fn latest(&self, cwd: &Path) -> Result<Thread, JobsError> {
        let cwd = safe_files::directory::resolved(cwd);
        let job = self
            .store()
            .await?
            .latest_of(&cwd.to_string_lossy())
            .await?;
        let Some(job) = job else {
            return Err(BadOrder::NothingToContinue(cwd).into());
        };
        match job.summary.session_id {
            Some(session) if job.summary.state.has_ended() => Ok(Thread {
                session,
                host: job
                    .worker_host
                    .unwrap_or_else(|| self.submitter.host.clone()),
            }),
            None if job.summary.state.has_ended() => {
                Err(BadOrder::NoSession(job.summary.id).into())
            }
            _ => Err(BadOrder::StillUnderWay(job.summary.id).into()),
        }
    }

    /// The job whose id begins so.
    ///
    /// # Errors
    ///
    /// [`JobsError`], if there is none, or more than one.
    pub async fn find(&self, prefix: &JobPrefix) -> Result<JobId, JobsError> {
        let most = u32::try_from(NAMED).unwrap_or(u32::MAX).saturating_add(1);
        let found = self.store().await?.find_by_prefix(prefix, most).await?;
        match found.as_slice() {
            [] => Err(JobsError::NotFound(prefix.to_string())),
            [job] => Ok(job.id.clone()),
            several => Err(JobsError::Ambiguous {
                prefix: prefix.clone(),
                known: names(several),
            }),
        }
    }

    /// The thread of the submitter's Codex whose id begins so.
    ///
    /// # Errors
    ///
    /// [`JobsError`], if there is none, or more than one.
    pub async fn thread(&self, prefix: ThreadPrefix) -> Result<ThreadId, JobsError> {
        let Submitter {
            codex_home,
            atm_home,
            ..
        } = &self.submitter;
        let (codex_home, atm_home) = (codex_home.clone(), atm_home.clone());
        let resolved = off_runtime::run(move || prefix.resolve(&codex_home, &atm_home)).await;
        Ok(resolved.map_err(BadOrder::from)??)
    }

    /// A job as it is; if `wait` is given, once it has ended, or after that time.
    ///
    /// # Errors
    ///
    /// [`JobsError`].
    pub async fn look(&self, id: &JobId, wait: Option<Duration>) -> Result<Looked, JobsError> {
        let store = self.store().await?;
        let until = Instant::now() + wait.unwrap_or_default();
        let mut watch = store.watch();
        let mut no_worker = None;
        let mut look_after = Instant::now();
        let none = || JobsError::NotFound(id.to_string());
        loop {
            let summary = store.summary(id).await?.ok_or_else(none)?;
            let now = Instant::now();
            if summary.state.has_ended() {
                no_worker = None;
                break;
            }
            if now >= look_after {
                look_after = now + LOOK_AFTER;
                no_worker = self.look_after().await;
                continue;
            }
            if now >= until {
                break;
            }
            // Whether it has changed or time is up is looked at above.
            let _ = timeout_at(until.min(look_after), watch.changed()).await;
        }
        let job = store.get(id).await?.ok_or_else(none)?;
        let questions = match job.summary.state {
            JobState::Running => store.questions(id).await?,
            _ => Vec::new(),
        };
        Ok(Looked {
            job,
            questions,
            no_worker,
        })
    }

    /// Sees to it that no job waits for a worker that isn't there, or is in the hands of
    /// one that has died: a worker takes such jobs too. Returns why there is none.
    pub async fn look_after(&self) -> Option<StartError> {
        self.starter.ensure().await.err()
    }

    /// Whether this host runs such jobs, or submits them again.
    #[must_use]
    pub fn may_run(&self, whose: Whose) -> bool {
        whose == Whose::Ours || self.access.others == OthersJobs::Run
    }

    /// The newest jobs that fit a filter, at most so many, and how many fit in all.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list(&self, filter: &Filter, limit: u32) -> Result<Listed, StoreError> {
        let listed = self.store().await?.list(filter, limit).await?;
        let waits = |job: &JobSummary| !job.state.has_ended() && self.may_run(job.owner.whose);
        if listed.jobs.iter().any(waits)
            && let Some(why) = self.look_after().await
        {
            tracing::warn!("jobs wait: {why}");
        }
        Ok(listed)
    }

    /// Calls a job off, and waits until Codex is gone, for some seconds.
    ///
    /// # Errors
    ///
    /// [`JobsError`].
    pub async fn cancel(&self, id: &JobId) -> Result<Cancelled, JobsError> {
        let store = self.store().await?;
        self.note(id, Event::CallCancel, Outcome::Begun, None)?;
        let answer = store.request_cancel(id).await;
        let outcome = match answer {
            Ok(Some(CancelAnswer::Refused(_)) | None) | Err(StoreError::OfOthers { .. }) => {
                Outcome::Refused
            }
            Ok(Some(_)) => Outcome::Done,
            Err(_) => Outcome::Failed,
        };
        self.note_end(id, Event::CallCancel, outcome);
        let answer = answer?.ok_or_else(|| JobsError::NotFound(id.to_string()))?;
        let state = match answer {
            CancelAnswer::Asked => {
                let looked = self.look(id, Some(CANCEL_PATIENCE)).await?;
                looked.job.summary.state
            }
            ended => ended.new_status(),
        };
        Ok(Cancelled { answer, state })
    }

    /// The last events of a job, at most so many, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn tail(&self, id: &JobId, most: u32) -> Result<Vec<StoredEvent>, StoreError> {
        self.store().await?.tail(id, most).await
    }

    /// What has come of it is told to the caller; that the log lacks a line isn't worse.
    fn note_end(&self, job: &JobId, event: Event, outcome: Outcome) {
        if let Err(error) = self.note(job, event, outcome, None) {
            tracing::warn!("{error}");
        }
    }

    fn note(
        &self,
        job: &JobId,
        event: Event,
        outcome: Outcome,
        prompt: Option<&str>,
    ) -> Result<(), JobsError> {
        self.write_down(job, event, outcome, |record| record.summary = prompt)
    }

    fn write_down<'a>(
        &self,
        job: &JobId,
        event: Event,
        outcome: Outcome,
        complete: impl FnOnce(&mut Record<'a>),
    ) -> Result<(), JobsError> {
        let Some(audit) = &self.audit else {
            return Ok(());
        };
        // A job's name has the form of a UUID.
        let id = Uuid::parse_str(job.as_str()).unwrap_or_default();
        let mut record = Record::new(id, event, outcome);
        complete(&mut record);
        let mut audit = audit.lock().unwrap_or_else(PoisonError::into_inner);
        audit
            .write(&record)
            .map_err(|error| JobsError::Audit(error.to_string()))
    }
}

fn names(several: &[JobSummary]) -> String {
    let now = SystemTime::now();
    let name = |job: &JobSummary| {
        let age = ago(now.duration_since(job.created_at).unwrap_or_default());
        let task = one_line(&job.task_name, TASK_SHOWN);
        format!("  {}  {}  {age}  {task}", job.id, job.state)
    };
    let mut lines: Vec<String> = several.iter().take(NAMED).map(name).collect();
    if several.len() > NAMED {
        lines.push("  …".to_owned());
    }
    lines.join("\n")
}

impl Cancelled {
    /// How the job stands, or will.
    #[must_use]
    pub fn new_status(self) -> JobState {
        match self.state.has_ended() {
            true => self.state,
            false => self.answer.new_status(),
        }
    }

    /// It in words.
    #[must_use]
    pub fn message(self) -> String {
        match (self.answer, self.state) {
            (CancelAnswer::Asked, JobState::Cancelled) => {
                "Job cancelled; nothing of it runs any more".to_owned()
            }
            (CancelAnswer::Asked, state) if state.has_ended() => {
                format!("Job {state} before it could be cancelled")
            }
            (CancelAnswer::Asked, _) => {
                "Cancellation requested; its worker has not ended its turn \
                yet. If the worker has died, so has Codex, and the job is cancelled when the \
                worker's lease ends"
                    .to_owned()
            }
            (answer, _) => answer.message(),
        }
    }
}
