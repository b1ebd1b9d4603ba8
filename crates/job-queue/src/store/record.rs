//! What a store keeps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::timestamp::writable;
use serde_json::Value as Json;
use uuid::Uuid;

use super::access::Identity;
use super::error::Fault;
use super::sql::{Row, Value};
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
    /// In which folder.
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
    /// Whether to go on with the latest job of the folder.
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
    /// In which folder.
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
    /// Those of this folder.
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

/// Refuses what is too long to be kept.
pub(super) fn bound(what: &'static str, text: &str) -> Result<(), Fault> {
    match text.len() > LONGEST_TEXT {
        true => Err(Fault::TooLong {
            what,
            length: text.len(),
            most: LONGEST_TEXT,
        }),
        false => Ok(()),
    }
}

/// The columns of a request, in the order of [`Request::values`].
pub(super) const REQUEST: &str = "tool_name, task_name, agent_source, agent_instance, prompt, \
    cwd, model_override, timeout_ms, tool_timeout_ms, expose_stream, fire_and_forget, \
    continue_latest, resume_session_id, sandbox, effort, profile, images, output_schema, \
    codex_home, codex_bin, host, submitted_by, run_on, retry, run, settings";

/// The columns of a list, beside those of a request.
pub(super) const SUMMARY: &str = "id, state, tool_name, task_name, cwd, created_at, started_at, \
    completed_at, session_id, error, cancel_requested, not_before, waits_for, owner, owner_role, signer, \
    {role matches} AS same_role";

/// The other columns of a job.
pub(super) const REST: &str = "attempts, waits, wait_since, wait_resets, wait_pauses, worker, worker_host, exchange_id, result, signature, \
    ended_signature, masked";

/// The columns that a host signs with, in the order of [`Identity::sign`].
pub(super) const SIGNED: &str = "owner, signer, signature, ended_signature";

/// The columns of a request that are numbers; the others are texts.
pub(super) const NUMBERS: [&str; 6] = [
    "timeout_ms",
    "tool_timeout_ms",
    "expose_stream",
    "fire_and_forget",
    "continue_latest",
    "retry",
];

/// The columns of a request, one by one.
pub(super) fn request_columns() -> impl Iterator<Item = &'static str> {
    REQUEST.split(',').map(str::trim)
}

impl Request {
    pub(super) fn values(&self) -> Result<Vec<Value>, Fault> {
        bound("the prompt", &self.prompt)?;
        let images = Json::from(self.images.clone()).to_string();
        let schema = self.output_schema.as_ref().map(Json::to_string);
        let run = self.run.as_ref().map(Json::to_string);
        bound("the list of images", &images)?;
        bound("the output schema", schema.as_deref().unwrap_or_default())?;
        bound("the run", run.as_deref().unwrap_or_default())?;
        let settings = self.settings.as_ref().map(Json::to_string);
        bound("the settings", settings.as_deref().unwrap_or_default())?;
        Ok(vec![
            (&self.tool_name).into(),
            (&self.task_name).into(),
            (&self.agent_source).into(),
            (&self.agent_instance).into(),
            (&self.prompt).into(),
            (&self.cwd).into(),
            (&self.model_override).into(),
            self.timeout_ms.into(),
            self.tool_timeout_ms.into(),
            self.expose_stream.into(),
            self.fire_and_forget.into(),
            self.continue_latest.into(),
            (&self.resume_session_id).into(),
            (&self.sandbox).into(),
            (&self.effort).into(),
            (&self.profile).into(),
            images.as_str().into(),
            schema.into(),
            (&self.codex_home).into(),
            (&self.codex_bin).into(),
            (&self.host).into(),
            (&self.submitted_by).into(),
            (&self.run_on).into(),
            self.retry.into(),
            run.into(),
            settings.into(),
        ])
    }

    fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            tool_name: text(row, "tool_name")?,
            task_name: text(row, "task_name")?,
            agent_source: row.text("agent_source")?,
            agent_instance: text(row, "agent_instance")?,
            prompt: text(row, "prompt")?,
            cwd: text(row, "cwd")?,
            model_override: row.text("model_override")?,
            timeout_ms: count(row, "timeout_ms")?,
            tool_timeout_ms: count(row, "tool_timeout_ms")?,
            expose_stream: truth(row, "expose_stream")?,
            fire_and_forget: truth(row, "fire_and_forget")?,
            continue_latest: truth(row, "continue_latest")?,
            resume_session_id: row.text("resume_session_id")?,
            sandbox: row.text("sandbox")?,
            effort: row.text("effort")?,
            profile: row.text("profile")?,
            images: json(row, "images")?.unwrap_or_default(),
            output_schema: json(row, "output_schema")?,
            codex_home: row.text("codex_home")?,
            codex_bin: row.text("codex_bin")?,
            host: row.text("host")?,
            submitted_by: row.text("submitted_by")?,
            run_on: row.text("run_on")?,
            retry: count(row, "retry")?,
            run: json(row, "run")?,
            settings: json(row, "settings")?,
        })
    }
}

impl JobSummary {
    pub(super) fn read(row: &Row, identity: &Identity) -> Result<Self, Fault> {
        Ok(Self {
            id: parsed(row, "id")?,
            state: state(row)?,
            tool_name: text(row, "tool_name")?,
            task_name: text(row, "task_name")?,
            cwd: text(row, "cwd")?,
            created_at: moment(row, "created_at")?.unwrap_or(UNIX_EPOCH),
            started_at: moment(row, "started_at")?,
            completed_at: moment(row, "completed_at")?,
            session_id: row.text("session_id")?,
            error: row.text("error")?,
            wanted: wanted(row)?,
            wait: wait(row)?,
            owner: identity.owner(row)?,
        })
    }
}

impl Job {
    pub(super) fn read(row: &Row, identity: &Identity) -> Result<Self, Fault> {
        Ok(Self {
            summary: JobSummary::read(row, identity)?,
            request: Request::read(row)?,
            origin: identity.origin(row)?,
            prompt: match truth(row, "masked")? {
                true => PromptText::Masked,
                false => PromptText::Whole,
            },
            attempts: count(row, "attempts")?,
            waits: count(row, "waits")?,
            wait_history: wait_history(row)?,
            worker: optional(row, "worker")?,
            worker_host: row.text("worker_host")?,
            exchange_id: row.text("exchange_id")?,
            result: json(row, "result")?,
        })
    }
}

impl Demand {
    /// How the statement of [`JobStore::demand`](super::JobStore::demand) says it.
    const WORDS: [(&str, Self); 4] = [
        ("waiting", Self::Waiting),
        ("running", Self::Running),
        ("elsewhere", Self::Elsewhere),
        ("nothing", Self::Nothing),
    ];

    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let word = text(row, "demand")?;
        let found = Self::WORDS.into_iter().find(|(known, _)| *known == word);
        let (_, demand) = found.ok_or_else(|| nothing("demand"))?;
        Ok(demand)
    }
}

impl StoredEvent {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        Ok(Self {
            sequence: count(row, "sequence")?,
            at: moment(row, "at")?.unwrap_or(UNIX_EPOCH),
            kind: text(row, "kind")?,
            data: text(row, "data")?,
        })
    }
}

impl Question {
    /// Which attempt of which job has asked it is known already.
    pub(super) fn read(row: &Row, origin: Origin) -> Result<Self, Fault> {
        Ok(Self {
            id: text(row, "id")?,
            asked_at: moment(row, "asked_at")?.unwrap_or(UNIX_EPOCH),
            question: json(row, "question")?.unwrap_or_default(),
            origin,
        })
    }
}

impl Worker {
    pub(super) fn read(row: &Row) -> Result<Self, Fault> {
        let silent = row.number("silent_for")?.unwrap_or_default();
        Ok(Self {
            about: NewWorker {
                id: parsed(row, "id")?,
                host: text(row, "host")?,
                pid: count(row, "pid")?,
                concurrency: count(row, "concurrency")?,
            },
            started_at: moment(row, "started_at")?.unwrap_or(UNIX_EPOCH),
            silent_for: Duration::from_millis(silent.try_into().unwrap_or_default()),
        })
    }
}

/// How the job of a row stands.
pub(super) fn state(row: &Row) -> Result<JobState, Fault> {
    parsed(row, "state")
}

/// Whether the job of a row is still wanted.
pub(super) fn wanted(row: &Row) -> Result<Wanted, Fault> {
    Ok(match truth(row, "cancel_requested")? {
        true => Wanted::No,
        false => Wanted::Yes,
    })
}

/// Until when the job of a row waits in the queue, if that moment is not past.
fn wait(row: &Row) -> Result<Option<Wait>, Fault> {
    let is_queued = state(row)? == JobState::Queued;
    let wait = last_wait(row)?.filter(|wait| is_queued && wait.until > SystemTime::now());
    Ok(wait)
}

/// The last wait of the job of a row.
fn last_wait(row: &Row) -> Result<Option<Wait>, Fault> {
    let wait = moment(row, "not_before")?.zip(optional(row, "waits_for")?);
    Ok(wait.map(|(until, reason)| Wait { until, reason }))
}

fn wait_history(row: &Row) -> Result<WaitHistory, Fault> {
    Ok(WaitHistory {
        since: moment(row, "wait_since")?,
        last: last_wait(row)?,
        resets: count(row, "wait_resets")?,
        pauses: count(row, "wait_pauses")?,
    })
}

/// A text that has to be there.
pub(super) fn text(row: &Row, column: &'static str) -> Result<String, Fault> {
    row.text(column)?.ok_or_else(|| nothing(column))
}

/// A number that is not negative, and has to be there.
pub(super) fn count(row: &Row, column: &'static str) -> Result<u32, Fault> {
    let number = row.number(column)?.ok_or_else(|| nothing(column))?;
    number
        .try_into()
        .map_err(|error| unreadable(column, &error))
}

/// Something with a form of its own, which has to be there.
pub(super) fn parsed<T>(row: &Row, column: &'static str) -> Result<T, Fault>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    let text = text(row, column)?;
    text.parse().map_err(|error| unreadable(column, &error))
}

/// The same where there may be nothing.
pub(super) fn optional<T>(row: &Row, column: &'static str) -> Result<Option<T>, Fault>
where
    T: std::str::FromStr<Err: std::error::Error>,
{
    let text = row.text(column)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|error| unreadable(column, &error))
}

fn json<T: serde::de::DeserializeOwned>(
    row: &Row,
    column: &'static str,
) -> Result<Option<T>, Fault> {
    let text = row.text(column)?;
    let read = text.map(|text| serde_json::from_str(&text)).transpose();
    read.map_err(|error| unreadable(column, &error))
}

fn truth(row: &Row, column: &'static str) -> Result<bool, Fault> {
    Ok(count(row, column)? != 0)
}

fn moment(row: &Row, column: &'static str) -> Result<Option<SystemTime>, Fault> {
    let since = |millis: i64| Duration::from_millis(millis.try_into().unwrap_or_default());
    // Whoever else writes to the database may have written any number.
    let moment = row.number(column)?;
    Ok(moment.map(|millis| writable(UNIX_EPOCH + since(millis))))
}

fn nothing(column: &'static str) -> Fault {
    Fault::Unreadable {
        column,
        error: "there is nothing".to_owned(),
    }
}

fn unreadable(column: &'static str, error: &dyn std::error::Error) -> Fault {
    let error = error.to_string();
    Fault::Unreadable { column, error }
}
