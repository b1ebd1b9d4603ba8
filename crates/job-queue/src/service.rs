//! Submits, shows, lists and cancels jobs, and waits for them. The tools and the command line
//! both use this.

mod change;
mod instructions;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use agent_team::audit::{Audit, AuditOutcome, Event, Record};
use codex_protocol::codex::ThreadId;
use common::duration::ago;
use common::sync::lock;
use common::text::one_line;
use goal_run::logic::notifier::Notifier;
use goal_run::notify::UnusableNotifier;
use safe_files::off_runtime;
use settings::Setting;
use settings::store_access::{Access, OthersJobs};
use settings::store_location::Location;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::run::spec::RunJobSpec;
use super::spec::{BadJobSpec, Continuation, JobSpec, SessionLocation};
use super::store::{
    Job, JobFilter, JobList, JobStore, JobSummary, NewJob, Ownership, Question, Request,
    StoreError, StoredEvent,
};
use super::submitter::Submitter;
use super::worker::start::{StartError, Starter};
use crate::logic::{CancelResponse, JobId, JobPrefix, JobState};
use crate::thread_ids::{ThreadPrefix, ThreadPrefixError};

use change::ChangeError;

pub use instructions::{InstructError, NewAnswer, Response, decision_for};

/// How often a caller that waits for a job checks that there is a worker.
const LOOK_AFTER: Duration = Duration::from_secs(5);

/// How long a cancellation waits for Codex to end: its commands have a second to end by
/// themselves, and the worker notices the cancellation within another second.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The most jobs that are listed for an ambiguous ID prefix.
const NAMED: usize = 10;

/// The limit of a task name in that list, in bytes.
const TASK_SHOWN: usize = 60;

/// An error of the job service.
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// The specification is invalid.
    #[error(transparent)]
    Spec(#[from] BadJobSpec),
    /// There is no job with this ID.
    #[error("Job not found: {0}")]
    NotFound(String),
    /// Several jobs have this ID prefix.
    #[error("several jobs begin with {prefix}; give more characters of the ID:\n{known}")]
    Ambiguous {
        /// The prefix.
        prefix: JobPrefix,
        /// The first of the jobs, a line each.
        known: String,
    },
    /// The thread to continue cannot be found.
    #[error(transparent)]
    Thread(#[from] ThreadPrefixError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store's answer to a submission was lost, and the job could not be submitted again.
    #[error(
        "job {job} may have been submitted or not: {error}. Submit it again only if \
         `codex-mcp jobs show {job}` finds no such job"
    )]
    SubmissionUnclear {
        /// The ID of the job.
        job: JobId,
        /// The error of the last attempt.
        error: StoreError,
    },
    /// The store's answer about an instruction was lost, and a later request got no answer either.
    #[error(
        "the worker of job {job} may have been instructed or not: {error}. See `codex-mcp jobs logs \
         {job}` before you repeat it"
    )]
    InstructionUnclear {
        /// The ID of the job.
        job: JobId,
        /// The error of the last attempt.
        error: StoreError,
    },
    /// The worker has not followed an instruction.
    #[error(transparent)]
    Instruct(#[from] InstructError),
    /// The audit log cannot be written. Acts in a member's name must be in it first.
    #[error("cannot write to the audit log, so nothing was done: {0}")]
    Audit(String),
}

/// A submitted job.
#[derive(Debug)]
pub struct Submission {
    /// The ID of the job.
    pub job: JobId,
    /// The thread that the job continues.
    pub session: Option<String>,
    /// Why no worker could be started; the job waits for one.
    pub no_worker: Option<StartError>,
}

/// The outcome of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CancelOutcome {
    /// The response of the store.
    pub response: CancelResponse,
    /// The state of the job now: a worker's job is running until Codex has ended.
    pub state: JobState,
}

/// A job with its open questions and the state of its worker.
#[derive(Debug)]
pub struct JobView {
    /// The job.
    pub job: Job,
    /// Codex's open questions.
    pub questions: Vec<Question>,
    /// Why no worker could be started, if the job has not ended.
    pub no_worker: Option<StartError>,
}

/// The jobs of a store. The store is opened at its first use.
pub struct Jobs {
    location: Setting<Location>,
    access: Access,
    store: OnceCell<JobStore>,
    starter: Starter,
    submitter: Submitter,
    audit: Option<Arc<Mutex<Audit>>>,
}

impl Jobs {
    /// The jobs of the store at `location`; `starter` starts their worker.
    #[must_use]
    pub fn new(
        location: Setting<Location>,
        access: Access,
        starter: Starter,
        submitter: Submitter,
    ) -> Self {
        Self {
            location,
            access,
            store: OnceCell::new(),
            starter,
            submitter,
            audit: None,
        }
    }

    /// The same jobs, with an audit log that records each act first.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self {
            audit: Some(Arc::new(Mutex::new(audit))),
            ..self
        }
    }

    /// The store, opened if necessary.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn store(&self) -> Result<&JobStore, StoreError> {
        let open = || async {
            self.has_store()?;
            JobStore::open(&self.location.value, &self.access).await
        };
        self.store.get_or_try_init(open).await
    }

    /// Whether there is a store, see [`JobStore::exists`].
    ///
    /// # Errors
    ///
    /// [`StoreError::NoDirectory`].
    pub fn has_store(&self) -> Result<bool, StoreError> {
        JobStore::exists(&self.location)
    }

    /// A unique number for a run, for its notifications.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn next_run_number(&self) -> Result<u64, StoreError> {
        self.store().await?.next_run_number().await
    }

    /// Submits a job. Once this returns, the job will run even if this process ends.
    ///
    /// # Errors
    ///
    /// [`JobsError`]; nothing was submitted then, except perhaps after
    /// [`JobsError::SubmissionUnclear`].
    pub async fn submit(&self, spec: JobSpec) -> Result<Submission, JobsError> {
        let continuation = match spec.continuation {
            Continuation::None => None,
            Continuation::Session(ref session) => {
                Some(self.session_location(session.as_str()).await?)
            }
            Continuation::Latest => Some(self.latest(&spec.cwd).await?),
        };
        let session = continuation
            .as_ref()
            .map(|continuation| continuation.session.clone());
        let submitter = self.submitter.clone();
        let request = off_runtime::run(move || submitter.request(spec, continuation)).await;
        let request = request.map_err(BadJobSpec::from)??;
        let submitted = self.hand_over(request, Event::CallCodex).await?;
        Ok(Submission {
            session,
            ..submitted
        })
    }

    /// Submits a run: turns of one thread until its criteria hold.
    ///
    /// # Errors
    ///
    /// [`JobsError`], as for [`Jobs::submit`].
    pub async fn submit_run(&self, spec: RunJobSpec) -> Result<Submission, JobsError> {
        let submitter = self.submitter.clone();
        let request = off_runtime::run(move || submitter.run_request(spec)).await;
        let request = request.map_err(BadJobSpec::from)??;
        self.hand_over(request, Event::CodexRun).await
    }

    /// The notifiers that can work in a directory, as far as this machine knows before, and why the
    /// others cannot.
    ///
    /// # Errors
    ///
    /// If the file system does not answer in time.
    pub async fn usable_notifiers(
        &self,
        notify: Vec<Notifier>,
        directory: &Path,
    ) -> Result<(Vec<Notifier>, Vec<UnusableNotifier>), JobsError> {
        let (submitter, directory) = (self.submitter.clone(), directory.to_owned());
        let sorted = off_runtime::run(move || submitter.usable_notifiers(notify, &directory)).await;
        Ok(sorted.map_err(BadJobSpec::from)?)
    }

    async fn hand_over(&self, request: Request, event: Event) -> Result<Submission, JobsError> {
        let job = NewJob::new(request);
        let prompt = Some(job.request.prompt.as_str());
        let store = self.store().await?;
        self.note(&job.id, event, AuditOutcome::Started, prompt)?;
        let submitted = change::repeat(|| store.submit(&job)).await;
        let outcome = match submitted {
            Ok(_) => AuditOutcome::Succeeded,
            Err(_) => AuditOutcome::Failed,
        };
        self.note_end(&job.id, event, outcome);
        submitted.map_err(|error| match error {
            ChangeError::NotMade(error) => JobsError::Store(error),
            ChangeError::Unclear(error) => JobsError::SubmissionUnclear {
                job: job.id.clone(),
                error,
            },
        })?;
        Ok(Submission {
            job: job.id,
            session: job.request.resume_session_id,
            no_worker: self.starter.ensure().await.err(),
        })
    }

    /// The machine of a thread; this machine if no job has used the thread.
    async fn session_location(&self, session: &str) -> Result<SessionLocation, JobsError> {
        let host = self.store().await?.host_of_session(session).await?;
        Ok(SessionLocation {
            session: session.to_owned(),
            host: host.unwrap_or_else(|| self.submitter.host.clone()),
        })
    }

    async fn latest(&self, cwd: &Path) -> Result<SessionLocation, JobsError> {
        let cwd = safe_files::directory::resolved(&self.submitter.directory.join(cwd));
        let job = self
            .store()
            .await?
            .latest_of(&cwd.to_string_lossy())
            .await?;
        let Some(job) = job else {
            return Err(BadJobSpec::NothingToContinue(cwd).into());
        };
        let session = job.proven_session().map(str::to_owned);
        let JobSummary {
            id,
            state,
            session_id,
            ..
        } = job.summary;
        match (session, session_id) {
            _ if !state.has_ended() => Err(BadJobSpec::StillUnderWay(id).into()),
            (Some(session), _) => Ok(SessionLocation {
                session,
                host: job
                    .worker_host
                    .unwrap_or_else(|| self.submitter.host.clone()),
            }),
            (None, Some(_)) => Err(BadJobSpec::UnprovenSession(id).into()),
            (None, None) => Err(BadJobSpec::NoSession(id).into()),
        }
    }

    /// Resolves a job by ID prefix.
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

    /// Resolves a thread of the submitter's Codex by ID prefix.
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
        Ok(resolved.map_err(BadJobSpec::from)??)
    }

    /// The current state of a job. If `wait` is given, waits for the end of the job, at most for
    /// that time.
    ///
    /// # Errors
    ///
    /// [`JobsError`].
    pub async fn view(&self, id: &JobId, wait: Option<Duration>) -> Result<JobView, JobsError> {
        let store = self.store().await?;
        let until = Instant::now() + wait.unwrap_or_default();
        let mut watch = store.watch();
        let mut no_worker = None;
        let mut ensure_worker = Instant::now();
        let none = || JobsError::NotFound(id.to_string());
        loop {
            let summary = store.summary(id).await?.ok_or_else(none)?;
            let now = Instant::now();
            if summary.state.has_ended() {
                no_worker = None;
                break;
            }
            if now >= ensure_worker {
                ensure_worker = now + LOOK_AFTER;
                no_worker = self.ensure_worker().await;
                continue;
            }
            if now >= until {
                break;
            }
            // The loop checks both the change and the time.
            let _ = timeout_at(until.min(ensure_worker), watch.changed()).await;
        }
        let job = store.get(id).await?.ok_or_else(none)?;
        let questions = match job.summary.state {
            JobState::Running => store.questions(id).await?,
            _ => Vec::new(),
        };
        Ok(JobView {
            job,
            questions,
            no_worker,
        })
    }

    /// Starts a worker if there is none, so that waiting jobs run and jobs of dead workers are
    /// recovered. Returns the error if no worker could be started.
    pub async fn ensure_worker(&self) -> Option<StartError> {
        self.starter.ensure_unless_failed_recently().await.err()
    }

    /// Whether this machine runs jobs of this owner, and may submit them again.
    #[must_use]
    pub fn may_run(&self, ownership: Ownership) -> bool {
        ownership == Ownership::Ours || self.access.others == OthersJobs::Run
    }

    /// The newest `limit` jobs that match a filter, and the number of all that match.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn list(&self, filter: &JobFilter, limit: u32) -> Result<JobList, StoreError> {
        let listed = self.store().await?.list(filter, limit).await?;
        let waits = |job: &JobSummary| !job.state.has_ended() && self.may_run(job.owner.ownership);
        if listed.jobs.iter().any(waits)
            && let Some(why) = self.ensure_worker().await
        {
            tracing::warn!("jobs wait: {why}");
        }
        Ok(listed)
    }

    /// Cancels a job, and waits some seconds for Codex to end.
    ///
    /// # Errors
    ///
    /// [`JobsError`].
    pub async fn cancel(&self, id: &JobId) -> Result<CancelOutcome, JobsError> {
        let store = self.store().await?;
        self.note(id, Event::CallCancel, AuditOutcome::Started, None)?;
        let response = store.request_cancel(id).await;
        let outcome = match response {
            Ok(Some(CancelResponse::Refused(_)) | None) | Err(StoreError::OfOthers { .. }) => {
                AuditOutcome::Refused
            }
            Ok(Some(_)) => AuditOutcome::Succeeded,
            Err(_) => AuditOutcome::Failed,
        };
        self.note_end(id, Event::CallCancel, outcome);
        let response = response?.ok_or_else(|| JobsError::NotFound(id.to_string()))?;
        let state = match response {
            CancelResponse::Requested => {
                let looked = self.view(id, Some(CANCEL_TIMEOUT)).await?;
                looked.job.summary.state
            }
            ended => ended.new_status(),
        };
        Ok(CancelOutcome { response, state })
    }

    /// The last `most` events of a job, oldest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub async fn tail(&self, id: &JobId, most: u32) -> Result<Vec<StoredEvent>, StoreError> {
        self.store().await?.tail(id, most).await
    }

    /// Records the end of an act. The caller knows the result, so that a missing record is only
    /// a warning.
    fn note_end(&self, job: &JobId, event: Event, outcome: AuditOutcome) {
        if let Err(error) = self.note(job, event, outcome, None) {
            tracing::warn!("{error}");
        }
    }

    fn note(
        &self,
        job: &JobId,
        event: Event,
        outcome: AuditOutcome,
        prompt: Option<&str>,
    ) -> Result<(), JobsError> {
        self.write_down(job, event, outcome, |record| record.summary = prompt)
    }

    fn write_down<'a>(
        &self,
        job: &JobId,
        event: Event,
        outcome: AuditOutcome,
        complete: impl FnOnce(&mut Record<'a>),
    ) -> Result<(), JobsError> {
        let Some(audit) = &self.audit else {
            return Ok(());
        };
        // A job's ID has the form of a UUID.
        let id = Uuid::parse_str(job.as_str()).unwrap_or_default();
        let mut record = Record::new(id, event, outcome);
        complete(&mut record);
        lock(audit)
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

impl CancelOutcome {
    /// The state of the job now, or once it has ended.
    #[must_use]
    pub fn new_status(self) -> JobState {
        match self.state.has_ended() {
            true => self.state,
            false => self.response.new_status(),
        }
    }

    /// The outcome as a message.
    #[must_use]
    pub fn message(self) -> String {
        match (self.response, self.state) {
            (CancelResponse::Requested, JobState::Cancelled) => {
                "Job cancelled; its turn and commands have ended".to_owned()
            }
            (CancelResponse::Requested, state) if state.has_ended() => {
                format!("Job {state} before it could be cancelled")
            }
            (CancelResponse::Requested, _) => {
                "Cancellation requested; its worker has not ended its turn \
                yet. If the worker has died, the job is cancelled when the next one takes it over, \
                or when its lease ends"
                    .to_owned()
            }
            (response, _) => response.message(),
        }
    }
}

#[cfg(test)]
mod tests {
    use settings::Source;

    use super::*;
    use crate::submitter::StoreScope;
    use crate::submitter::tests::submitter;
    use crate::worker::lock::WorkerLock;
    use crate::worker::start;

    #[tokio::test]
    async fn worker_that_cannot_start_is_not_started_again_at_once() {
        let state = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(state.path().join("jobs.db"));
        // Each client has its own.
        let jobs = || {
            let starter = Starter::new(location.clone(), state.path(), None);
            let access = Access::of(state.path());
            Jobs::new(
                Setting::new(location.clone(), Source::Default),
                access,
                starter,
                submitter(StoreScope::Here),
            )
        };
        // While a directory is in the place of the log, no worker starts.
        let log = start::log_of(state.path());
        std::fs::create_dir(&log).unwrap();
        let first = jobs().ensure_worker().await.unwrap().to_string();
        std::fs::remove_dir(&log).unwrap();
        let second = jobs().ensure_worker().await.unwrap().to_string();
        assert_eq!(second, first);
        assert!(!log.exists(), "a start was tried");
        let lock = WorkerLock::of(&location, state.path());
        let _worker = lock.try_take().unwrap().unwrap();
        assert!(jobs().ensure_worker().await.is_none(), "there is a worker");
    }
}
