//! The records of a store.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use settings::store_location::Location;
use uuid::Uuid;

use crate::logic::{Cancellation, Ending, JobId, JobState, Wait, WaitHistory, WorkerId};

/// The limit of one text, such as a prompt, a result or an event, in bytes.
pub const LONGEST_TEXT: usize = 16 << 20;

/// The request of a job: the fields of the contract that its submitter sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The tool that was called.
    pub tool_name: String,
    /// The caller's name of the job.
    pub task_name: String,
    /// The caller's program.
    pub agent_source: Option<String>,
    /// The agent that does the work: `codex`.
    pub agent_instance: String,
    /// The prompt.
    pub prompt: String,
    /// The working directory.
    pub cwd: String,
    /// The model; as Codex is configured if `None`.
    pub model_override: Option<String>,
    /// The time limit of the turn, in milliseconds.
    pub timeout_ms: u32,
    /// The time limit of a tool call, in milliseconds.
    pub tool_timeout_ms: u32,
    /// Whether Codex's events are a part of the result.
    pub expose_stream: bool,
    /// Whether the caller does not intend to fetch the result.
    pub fire_and_forget: bool,
    /// Whether to continue the latest job of the directory.
    pub continue_latest: bool,
    /// The thread to resume.
    pub resume_session_id: Option<String>,
    /// The sandbox of commands.
    pub sandbox: Option<String>,
    /// The reasoning effort of the model.
    pub effort: Option<String>,
    /// Codex's profile.
    pub profile: Option<String>,
    /// Pictures: paths or data URLs.
    pub images: Vec<String>,
    /// The form of the final message, as a JSON Schema.
    pub output_schema: Option<Json>,
    /// The submitter's CODEX_HOME.
    pub codex_home: Option<String>,
    /// The submitter's Codex.
    pub codex_bin: Option<String>,
    /// The submitter's machine.
    pub host: Option<String>,
    /// The submitter's identity.
    pub submitted_by: Option<String>,
    /// The only machine that may run the job; any if `None`.
    pub run_on: Option<String>,
    /// How often the job may run again when its worker is lost.
    pub retry: u32,
    /// The [`StoredRun`](crate::run::spec::StoredRun) of a run; `None` for any other job.
    pub run: Option<Json>,
    /// The [`CallSettings`](crate::call_settings::CallSettings) of a call, if there are
    /// any.
    pub settings: Option<Json>,
}

impl Request {
    /// A request with the defaults of the contract.
    #[must_use]
    pub fn new(prompt: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self {
            tool_name: "call_codex".to_owned(),
            task_name: "call_codex".to_owned(),
            agent_source: None,
            agent_instance: "codex".to_owned(),
            prompt: prompt.into(),
            cwd: cwd.into(),
            model_override: None,
            timeout_ms: 60_000,
            tool_timeout_ms: 300_000,
            expose_stream: false,
            fire_and_forget: false,
            continue_latest: false,
            resume_session_id: None,
            sandbox: None,
            effort: None,
            profile: None,
            images: Vec::new(),
            output_schema: None,
            codex_home: None,
            codex_bin: None,
            host: None,
            submitted_by: None,
            run_on: None,
            retry: 0,
            run: None,
            settings: None,
        }
    }
}

/// The owner of a job: its submitter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The name that the submitter gives: `USER@HOST`. Programs before signatures gave none.
    pub name: Option<String>,
    /// The submitter's role on the database server.
    pub role: Option<String>,
    /// Whether the job is ours, as the row says. [`Job::origin`] decides whether programs are
    /// taken from it.
    pub ownership: Ownership,
}

/// Whether a job is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The job belongs to this user, on this machine.
    Ours,
    /// The job belongs to another user, or to the same user on another machine.
    Others,
}

/// Whether a signature proves that this machine has written a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The signature of this machine is valid.
    ThisMachine,
    /// There is no valid signature: no programs are taken from the record.
    Unproven,
}

/// Whether a prompt is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptText {
    /// The prompt is complete.
    Whole,
    /// Credentials in the prompt were masked when the job ended.
    Masked,
}

/// A job to submit. Its ID is created here, so that the submission can be repeated if its
/// outcome is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// The ID of the job.
    pub id: JobId,
    /// The request.
    pub request: Request,
}

impl NewJob {
    /// A job with a new ID.
    #[must_use]
    pub fn new(request: Request) -> Self {
        let id = JobId::from_random(Uuid::new_v4().as_u128());
        Self { id, request }
    }
}

/// A new ID for a worker.
#[must_use]
pub fn new_worker_id() -> WorkerId {
    WorkerId::from_random(Uuid::new_v4().as_u128())
}

/// The fields of a job in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSummary {
    /// The ID of the job.
    pub id: JobId,
    /// The state of the job.
    pub state: JobState,
    /// The tool that was called.
    pub tool_name: String,
    /// The caller's name of the job.
    pub task_name: String,
    /// The working directory.
    pub cwd: String,
    /// When the job was submitted.
    pub created_at: SystemTime,
    /// When its last attempt started.
    pub started_at: Option<SystemTime>,
    /// When the job ended.
    pub completed_at: Option<SystemTime>,
    /// The ID of Codex's thread.
    pub session_id: Option<String>,
    /// Why the job failed.
    pub error: Option<String>,
    /// Whether its worker was asked to cancel the job.
    pub cancellation: Cancellation,
    /// The wait of a queued job, if it waits until a moment.
    pub wait: Option<Wait>,
    /// The submitter.
    pub owner: Owner,
}

impl JobSummary {
    /// The duration of the last attempt, if the job has ended.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let (begin, end) = (self.started_at?, self.completed_at?);
        Some(end.duration_since(begin).unwrap_or_default())
    }
}

/// A whole job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The fields of a list.
    pub summary: JobSummary,
    /// The request.
    pub request: Request,
    /// Whether this machine has submitted the job.
    pub origin: Origin,
    /// Whether a worker of this machine has stored the thread in the summary, see
    /// [`Job::proven_session`].
    pub session_origin: Origin,
    /// Whether the prompt is complete.
    pub prompt: PromptText,
    /// How often a worker has claimed the job.
    pub attempts: u32,
    /// How many of these attempts do not count, as they ended at a usage limit.
    pub waits: u32,
    /// The waits after these attempts.
    pub wait_history: WaitHistory,
    /// The worker that has the job, or had it last.
    pub worker: Option<WorkerId>,
    /// The machine of that worker.
    pub worker_host: Option<String>,
    /// The ID of the exchange of prompt and answer, `JOB.ATTEMPT`, after a turn of Codex.
    pub exchange_id: Option<String>,
    /// The report that the worker has stored.
    pub result: Option<Json>,
}

impl Job {
    /// The ID of Codex's thread, if its signature proves that nobody else can have written it into
    /// the store. Jobs of this machine continue no other threads.
    #[must_use]
    pub fn proven_session(&self) -> Option<&str> {
        let session = self.summary.session_id.as_deref();
        session.filter(|_| self.session_origin == Origin::ThisMachine)
    }

    /// Whether the job was submitted on the machine of this name, and so finds the submitter's
    /// Codex and home there. In any store, this machine must have signed the job. A store in a file
    /// belongs to one machine, so the name is compared only in other stores: the machine may have
    /// been renamed.
    #[must_use]
    pub fn is_of_machine(&self, name: &str, store: &Location) -> bool {
        let names_it = || self.request.host.as_deref() == Some(name);
        self.origin == Origin::ThisMachine && (store.path().is_some() || names_it())
    }

    /// The number of attempts that count.
    #[must_use]
    pub fn counted_attempts(&self) -> u32 {
        self.attempts.saturating_sub(self.waits)
    }
}

/// A worker's claim to a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// The worker.
    pub worker: WorkerId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// A job that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedJob {
    /// The claim, against which each write of the worker is checked.
    pub claim: Claim,
    /// The job. It has a thread if an earlier attempt has started one.
    pub job: Job,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedJob {
    /// The final state.
    pub ending: Ending,
    /// Why the job failed.
    pub error: Option<String>,
    /// The ID of Codex's thread; `None` keeps the stored one.
    pub session_id: Option<String>,
    /// The ID of the exchange.
    pub exchange_id: Option<String>,
    /// The report: the answer, usage, commands, changed files.
    pub result: Option<Json>,
}

/// The outcome of a worker's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The change is in the store.
    Done,
    /// Nothing was changed: the worker no longer has the job.
    Lost,
}

/// The outcome of renewing a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The lease was renewed. Also reports whether the cancellation of the job was requested.
    Held(Cancellation),
    /// The worker no longer has the job, and must not change it.
    Lost,
}

/// An event of a job to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The kind of the event.
    pub kind: String,
    /// The event as JSON.
    pub data: String,
}

/// A stored event of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// The number of the event, from 1.
    pub sequence: u32,
    /// When the event was stored.
    pub at: SystemTime,
    /// The kind of the event.
    pub kind: String,
    /// The event as JSON.
    pub data: String,
}

/// A question of Codex to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuestion {
    /// The ID of the question, unique within the job.
    pub id: String,
    /// The [`StoredQuestion`](crate::question::StoredQuestion) as JSON.
    pub question: String,
}

/// An open question of Codex.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The ID of the question.
    pub id: String,
    /// When the question was stored.
    pub asked_at: SystemTime,
    /// The [`StoredQuestion`](crate::question::StoredQuestion).
    pub question: Json,
    /// Whether a worker of this machine has signed the question.
    pub origin: Origin,
}

/// An instruction to the worker of a running job: a
/// [`Directive`](crate::directive::Directive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInstruction {
    /// The ID of the instruction. Its sender creates it, so that the instruction can be given
    /// again if the outcome is unknown.
    pub id: Uuid,
    /// The question that the instruction answers.
    pub question: Option<String>,
    /// The directive as JSON.
    pub data: String,
}

/// An instruction that a worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The ID of the instruction.
    pub id: String,
    /// The directive as JSON.
    pub data: String,
    /// Whether this machine has given the instruction, for this attempt.
    pub origin: Origin,
}

/// The outcome of giving an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstructOutcome {
    /// The instruction waits for the worker.
    Given,
    /// The job does not run.
    NotRunning(JobState),
    /// The job has no such open question.
    NoQuestion,
    /// The question already has an answer. Holds the data of that answer, if they are known.
    Answered(Option<String>),
}

/// The progress of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstructionProgress {
    /// The instruction waits for the worker.
    Waiting,
    /// The worker has taken the instruction.
    Taken,
    /// The worker has stored this outcome.
    Concluded(String),
    /// The instruction was removed, as the attempt has ended.
    Gone,
}

/// A job that was recovered from a lost worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ReapedJob {
    /// The job.
    pub job: JobId,
    /// The lost worker.
    pub worker: Option<WorkerId>,
    /// The new state of the job.
    pub state: JobState,
    /// The whole job, if it has ended by this recovery. Its credentials are not masked, as its
    /// notification needs them. `None` also if its row cannot be read.
    pub ended: Option<Job>,
}

/// A worker that registers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    /// The ID of the worker.
    pub id: WorkerId,
    /// The worker's machine.
    pub host: String,
    /// The ID of its process there.
    pub pid: u32,
    /// The most jobs that the worker runs at once.
    pub concurrency: u32,
}

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRecord {
    /// The worker's own registration.
    pub about: NewWorker,
    /// When the worker registered.
    pub started_at: SystemTime,
    /// The time since its last heartbeat, by the database's clock.
    pub silent_for: Duration,
}

/// The demand for workers of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A job waits that the machine may run, now or later.
    Waiting,
    /// No such job waits, but a worker of the machine runs one. If that worker has died, the job
    /// has to be recovered.
    Running,
    /// Only workers of other machines run jobs. If one of them is lost, its job may be queued for
    /// this machine.
    Elsewhere,
    /// No job runs, and none waits that the machine may run.
    Nothing,
}

/// The filter of a list of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// The state of the jobs.
    pub status: Option<JobState>,
    /// The tool of the jobs.
    pub tool_name: Option<String>,
    /// The directory of the jobs.
    pub cwd: Option<String>,
}

/// A list of jobs that match a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct JobList {
    /// The newest jobs, newest first.
    pub jobs: Vec<JobSummary>,
    /// The number of all matching jobs.
    pub total: u64,
}
