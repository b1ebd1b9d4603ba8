//! Work as the page lists it: sessions, jobs and runs alike.

use std::borrow::Cow;
use std::path::Path;
use std::time::SystemTime;

use codex_engine::logic::cost::{Cost, Prices};
use common::timestamp::{self, timestamp};
use host_process::logic::handshake::StepSummary;
use job_queue::job_json::{self, PROBLEMS_MARK};
use job_queue::logic::JobState;
use job_queue::question::NamedQuestion;
use job_queue::run::spec::TOOL as RUN_TOOL;
use job_queue::store::JobSummary;
use serde::{Serialize, Serializer};
use serde_json::json;
use strum::AsRefStr;

use crate::hosts::LiveSession;

/// The state of work that waits for an answer.
const ASKING: &str = "asking";

/// How much of an ID names work, in characters.
const SHORT_ID: usize = 13;

/// The kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// A session of a host.
    Session,
    /// A durable job.
    Job,
    /// A job that ends when its criteria are met.
    Run,
}

/// Where the page lists some work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// It needs a person.
    Asking,
    /// It runs or is queued.
    Running,
    /// It is idle or has ended.
    Ended,
}

/// Some work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Work {
    /// Its ID.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// Its state, such as `asking`, `running`, `idle` or `completed`.
    pub state: String,
    /// The current step, if some runs.
    #[serde(serialize_with = "step")]
    pub step: Option<StepSummary>,
    /// What a job waits for, or why it has failed; or that the host of a session was killed.
    pub note: Option<String>,
    /// Whether it is a job that has completed with problems, such as a step that was refused.
    pub has_problems: bool,
    /// The name of a job, or the beginning of the first prompt of a session.
    pub task: Option<String>,
    /// When it was begun.
    #[serde(rename = "created_at", serialize_with = "timestamp::serialize")]
    pub created: SystemTime,
    /// The tokens that it has used, if they are known.
    pub tokens: Option<u64>,
    /// Their cost, if one model has used them all and has a price.
    pub cost: Option<Cost>,
    /// Where it works.
    pub directory: String,
    /// The open questions.
    pub questions: Vec<NamedQuestion>,
    /// The thread of a session.
    pub thread: Option<String>,
}

const CANCELLED: &str = "cancelled";

impl Work {
    /// A session as work, with its cost at these prices.
    #[must_use]
    pub fn of_session(session: &LiveSession, prices: &Prices) -> Self {
        let summary = &session.summary;
        let usage = summary.usage.as_ref();
        let directory = summary.directory.as_deref().map(Path::to_string_lossy);
        Self {
            id: summary.session.clone(),
            kind: Kind::Session,
            state: match summary.state.as_str() {
                "waiting_approval" => ASKING.to_owned(),
                state => state.to_owned(),
            },
            step: summary.step.clone(),
            note: None,
            has_problems: false,
            task: summary.title.clone(),
            created: summary.created,
            tokens: summary.tokens,
            cost: usage.and_then(|usage| prices.cost(&usage.model, &usage.tokens)),
            directory: directory.unwrap_or_default().into_owned(),
            questions: session.questions.clone(),
            thread: Some(summary.thread.clone()),
        }
    }

    /// A job with its open questions and current step. Its problems are those of its report, which a
    /// summary does not have.
    #[must_use]
    pub fn of_job(
        job: &JobSummary,
        questions: Vec<NamedQuestion>,
        step: Option<StepSummary>,
    ) -> Self {
        let waits = job_json::waiting(job).map(|wait| wait.to_string());
        Self {
            id: job.id.as_str().to_owned(),
            kind: match job.tool_name == RUN_TOOL {
                true => Kind::Run,
                false => Kind::Job,
            },
            state: match questions.is_empty() {
                true => job.state.as_str().to_owned(),
                false => ASKING.to_owned(),
            },
            step,
            note: job
                .error
                .clone()
                .or(waits.filter(|_| job.state == JobState::Queued)),
            has_problems: false,
            task: Some(job.task_name.clone()),
            created: job.created_at,
            tokens: None,
            cost: None,
            directory: job.cwd.clone(),
            questions,
            thread: None,
        }
    }

    /// Its address on the page, without markup: an ID has none.
    #[must_use]
    pub fn address(&self) -> String {
        match self.kind {
            Kind::Session => format!("/sessions/{}", self.id),
            Kind::Job | Kind::Run => format!("/jobs/{}", self.id),
        }
    }

    /// Its name, or the beginning of its ID.
    #[must_use]
    pub fn title(&self) -> &str {
        match &self.task {
            Some(task) if !task.is_empty() => task,
            _ => self.id.get(..SHORT_ID).unwrap_or(&self.id),
        }
    }

    /// Its state for people, with the mark of a completed job that has problems.
    #[must_use]
    pub fn shown_state(&self) -> Cow<'_, str> {
        match self.has_problems {
            true => format!("{}{PROBLEMS_MARK}", self.state).into(),
            false => self.state.as_str().into(),
        }
    }

    /// Where it is listed.
    #[must_use]
    pub fn group(&self) -> Group {
        match self.state.as_str() {
            _ if !self.questions.is_empty() => Group::Asking,
            ASKING => Group::Asking,
            "running" | "queued" => Group::Running,
            _ => Group::Ended,
        }
    }

    /// Whether it has been ended by a person. The thread of such a session can be resumed.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state == CANCELLED
    }

    /// The state as a class of the style sheet.
    #[must_use]
    pub fn state_class(&self) -> &'static str {
        match self.state.as_str() {
            ASKING => "asking",
            "running" | "queued" => "running",
            "failed" | "error" => "failed",
            _ => "idle",
        }
    }
}

fn step<S: Serializer>(step: &Option<StepSummary>, serializer: S) -> Result<S::Ok, S::Error> {
    let step = step.as_ref();
    step.map(|step| json!({ "words": step.words, "since": timestamp(step.since) }))
        .serialize(serializer)
}

/// All work.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct AllWork {
    /// The work that could be listed, now or earlier.
    pub work: Vec<Work>,
    /// Why some of it is missing, or may have changed.
    pub failure: Option<String>,
}
