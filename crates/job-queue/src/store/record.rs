//! What a store keeps.

use std::time::{Duration, SystemTime};

use serde_json::Value as Json;
use uuid::Uuid;

use crate::logic::{Ending, JobId, JobState, Wait, WaitHistory, Wanted, WorkerId};

/// The longest text, in bytes: a prompt, a result, an event.
pub const LONGEST_TEXT: usize = 16 << 20;

/// What is asked for: the fields of the contract that come from who submits a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The tool that was called.
    pub tool_name: String,
    /// What the caller calls it.
    pub task_name: String,
    /// Which program the caller is.
    pub agent_source: Option<String>,
    /// Who is to do it: `codex`.
    pub agent_instance: String,
    /// What is to be done.
    pub prompt: String,
    /// In which directory.
    pub cwd: String,
    /// With which model; `None` is Codex's configuration's.
    pub model_override: Option<String>,
    /// How long Codex may take, in milliseconds.
    pub timeout_ms: u32,
    /// How long one of its tools may take, in milliseconds.
    pub tool_timeout_ms: u32,
    /// Whether Codex's events are a part of the result.
    pub expose_stream: bool,
    /// Whether nobody will ask for the result.
    pub fire_and_forget: bool,
    /// Whether to go on with the latest job of the directory.
    pub continue_latest: bool,
    /// Which session to go on with.
    pub resume_session_id: Option<String>,
    /// What commands may touch.
    pub sandbox: Option<String>,
    /// How hard the model thinks.
    pub effort: Option<String>,
    /// Codex's profile.
    pub profile: Option<String>,
    /// Paths of pictures.
    pub images: Vec<String>,
    /// What the answer has to look like: a JSON schema.
    pub output_schema: Option<Json>,
    /// The CODEX_HOME of who submits it.
    pub codex_home: Option<String>,
    /// Their Codex.
    pub codex_bin: Option<String>,
    /// Their machine.
    pub host: Option<String>,
    /// Who they are.
    pub submitted_by: Option<String>,
    /// The only machine that may run it; `None` is any.
    pub run_on: Option<String>,
    /// How often it may run again when its worker is lost.
    pub retry: u32,
    /// What is wanted of a run; `None` for any other job.
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

/// Who has submitted a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// As they say: `USER@HOST`. Programs before signatures said nothing.
    pub name: Option<String>,
    /// The role by which a server knows them.
    pub role: Option<String>,
    /// Whether that is us, as the row has it. For what names programs, see
    /// [`Job::origin`].
    pub whose: Whose,
}

/// Whose a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This user's, on this host.
    Ours,
    /// Somebody else's, or the same user's on another host.
    Others,
}

/// Whether a job is as this host has submitted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is: its signature is right.
    ThisHost,
    /// Nothing shows that: what names programs is not taken from it.
    Unproven,
}

/// Whether a prompt is there as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptText {
    /// It is.
    Whole,
    /// Credentials in it have been masked when the job ended.
    Masked,
}

/// A job that is to be submitted. Its id is made here, so that it can be submitted
/// again when nobody knows whether that has succeeded.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its name.
    pub id: JobId,
    /// What is asked for.
    pub request: Request,
}

impl NewJob {
    /// A job with a new name.
    #[must_use]
    pub fn new(request: Request) -> Self {
        let id = JobId::from_random(Uuid::new_v4().as_u128());
        Self { id, request }
    }
}

/// A new name for a worker.
#[must_use]
pub fn new_worker_id() -> WorkerId {
    WorkerId::from_random(Uuid::new_v4().as_u128())
}

/// A job, as a list shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSummary {
    /// Its name.
    pub id: JobId,
    /// How it stands.
    pub state: JobState,
    /// The tool that was called.
    pub tool_name: String,
    /// What the caller calls it.
    pub task_name: String,
    /// In which directory.
    pub cwd: String,
    /// When it was submitted.
    pub created_at: SystemTime,
    /// When its last attempt began.
    pub started_at: Option<SystemTime>,
    /// When it ended.
    pub completed_at: Option<SystemTime>,
    /// Codex's session.
    pub session_id: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Whether its worker was asked to cancel it.
    pub wanted: Wanted,
    /// Until when it waits in the queue, if it does not wait for a worker alone.
    pub wait: Option<Wait>,
    /// Who has submitted it.
    pub owner: Owner,
}

impl JobSummary {
    /// How long its last attempt took, if it has ended.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        let (begin, end) = (self.started_at?, self.completed_at?);
        Some(end.duration_since(begin).unwrap_or_default())
    }
}

/// All that is known of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// What a list shows.
    pub summary: JobSummary,
    /// What is asked for.
    pub request: Request,
    /// Whether this host has asked for it.
    pub origin: Origin,
    /// Whether its prompt is whole.
    pub prompt: PromptText,
    /// How often a worker has taken it.
    pub attempts: u32,
    /// How many of these attempts do not count, as its account was used up.
    pub waits: u32,
    /// The waits at the end of these attempts.
    pub wait_history: WaitHistory,
    /// Who has it, or had it last.
    pub worker: Option<WorkerId>,
    /// On which machine.
    pub worker_host: Option<String>,
    /// The exchange of prompt and answer, `JOB.ATTEMPT`, once Codex has had its turn.
    pub exchange_id: Option<String>,
    /// What has come of it, as its worker has written it.
    pub result: Option<Json>,
}

impl Job {
    /// How many of its attempts count.
    #[must_use]
    pub fn counted_attempts(&self) -> u32 {
        self.attempts.saturating_sub(self.waits)
    }
}

/// A worker's hold on a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The job.
    pub job: JobId,
    /// The worker.
    pub worker: WorkerId,
    /// Which attempt it is, from 1.
    pub attempt: u32,
}

/// A job that a worker has got.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// What everything that the worker writes is checked against.
    pub claim: Claim,
    /// The job. A session id is there if an earlier attempt has begun a session.
    pub job: Job,
}

/// How a job has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// In which way.
    pub ending: Ending,
    /// Why it failed.
    pub error: Option<String>,
    /// Codex's session; `None` keeps what was noted.
    pub session_id: Option<String>,
    /// The session's exchange.
    pub exchange_id: Option<String>,
    /// What has come of it: the answer, usage, commands, changed files.
    pub result: Option<Json>,
}

/// What has come of what a worker wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is in the store.
    Done,
    /// Nothing was changed: the job is not that worker's any more.
    Lost,
}

/// What has come of the renewal of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// It was renewed. Says whether the job is still wanted.
    Held(Wanted),
    /// The job is not that worker's any more: it has to be left alone.
    Lost,
}

/// Something that happened in a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// What kind of thing.
    pub kind: String,
    /// All of it, as JSON.
    pub data: String,
}

/// Something that happened in a job, with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its number, from 1.
    pub sequence: u32,
    /// When it was stored.
    pub at: SystemTime,
    /// What kind of thing.
    pub kind: String,
    /// All of it, as JSON.
    pub data: String,
}

/// A question of Codex's, as the worker of a job writes it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuestion {
    /// Its name: no other question of the job has it.
    pub id: String,
    /// All about it, as JSON.
    pub question: String,
}

/// A question of Codex's that is open.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Its name.
    pub id: String,
    /// When it was written down.
    pub asked_at: SystemTime,
    /// All about it.
    pub question: Json,
    /// Whether a worker of this host has written it.
    pub origin: Origin,
}

/// Something that the worker of a running job is to do: a
/// [`Directive`](crate::directive::Directive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInstruction {
    /// Its name. It is made by whoever gives the instruction, so that it can be given again
    /// when nobody knows whether that has succeeded.
    pub id: Uuid,
    /// The question that it answers.
    pub question: Option<String>,
    /// All of it, as JSON.
    pub data: String,
}

/// An instruction that a worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its name.
    pub id: String,
    /// All of it, as JSON.
    pub data: String,
    /// Whether this host has given it, for this attempt.
    pub origin: Origin,
}

/// What has come of an instruction in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructed {
    /// It waits for the worker.
    Given,
    /// The job does not run.
    NotRunning(JobState),
    /// The job has no such open question.
    NoQuestion,
    /// The question has an answer already.
    Answered,
}

/// How far an instruction is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// No worker has it yet.
    Waiting,
    /// The worker has taken it.
    Taken,
    /// This has come of it, in the worker's words.
    Concluded(String),
    /// It is not there any more: the attempt has ended.
    Gone,
}

/// A job whose worker was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    /// The job.
    pub job: JobId,
    /// Who had it.
    pub worker: Option<WorkerId>,
    /// What has become of it.
    pub state: JobState,
}

/// A worker that announces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    /// Its name.
    pub id: WorkerId,
    /// Its machine.
    pub host: String,
    /// The number of its process there.
    pub pid: u32,
    /// How many jobs it runs at once.
    pub concurrency: u32,
}

/// A worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// What it has said of itself.
    pub about: NewWorker,
    /// When it began.
    pub started_at: SystemTime,
    /// How long ago it was heard of, by the database's clock.
    pub silent_for: Duration,
}

/// What there is to do for the workers of some machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// A job waits that they may run, now or later.
    Waiting,
    /// None does, but a worker of the machine has one. If the worker has died, the
    /// job has to be taken from it.
    Running,
    /// Only workers of other machines have jobs. Should one of them be lost, its job
    /// may come to wait here.
    Elsewhere,
    /// No job runs, and none waits that they may run.
    Nothing,
}

/// Which jobs a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those that stand so.
    pub status: Option<JobState>,
    /// Those of this tool.
    pub tool_name: Option<String>,
    /// Those of this directory.
    pub cwd: Option<String>,
}

/// The newest jobs that fit a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// The newest of them, newest first.
    pub jobs: Vec<JobSummary>,
    /// How many fit in all.
    pub total: u64,
}
