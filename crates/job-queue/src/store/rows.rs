//! Converts records to rows of the store, and rows to records.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use super::access::Identity;
use super::cells::{
    cancellation, count, json, moment, nothing, optional, parsed, state, text, truth,
};
use super::columns::{longest, request_columns};
use super::error::Fault;
use super::record::{
    Demand, Job, JobSummary, LONGEST_TEXT, NewWorker, Origin, PromptText, Question, Request,
    StoredEvent, WorkerRecord,
};
use super::sql::{Row, Value};
use crate::logic::{JobState, Wait, WaitHistory};

/// Refuses a text that is too long for the store.
pub(super) fn bound(what: &'static str, text: &str) -> Result<(), Fault> {
    bound_to(LONGEST_TEXT, what, text)
}

fn bound_to(most: usize, what: &'static str, text: &str) -> Result<(), Fault> {
    match text.len() > most {
        true => Err(Fault::TooLong {
            what,
            length: text.len(),
            most,
        }),
        false => Ok(()),
    }
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
        let values = vec![
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
        ];
        // A longer text would not be read.
        for (what, value) in request_columns().zip(&values) {
            if let Value::Text(Some(text)) = value {
                bound_to(longest(what), what, text)?;
            }
        }
        Ok(values)
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
            cancellation: cancellation(row)?,
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
            session_origin: identity.session_origin(row)?,
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
    /// The names in the statement of [`JobStore::demand`](super::JobStore::demand).
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
    /// Reads a question. The caller knows its job and attempt already.
    pub(super) fn read(row: &Row, origin: Origin) -> Result<Self, Fault> {
        Ok(Self {
            id: text(row, "id")?,
            asked_at: moment(row, "asked_at")?.unwrap_or(UNIX_EPOCH),
            question: json(row, "question")?.unwrap_or_default(),
            origin,
        })
    }
}

impl WorkerRecord {
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

/// The wait of the job of a row, if the job is queued and the wait is not over.
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
