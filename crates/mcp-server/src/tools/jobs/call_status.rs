//! `call_status`: the state and the result of a job.

use job_queue::job_json;
use job_queue::logic::{JobId, WORKER_LOST};
use job_queue::service::{JobView, Jobs};
use job_queue::store::{Job, Question, StoredEvent};
use job_queue::worker::start::StartError;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::ids::JobIdArgument;
use super::wait::{WaitOutcome, until_ended};
use crate::code::Code;
use crate::error::ToolError;
use crate::tools::parameters::{Count, Wait, arguments};
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "call_status";

/// The most events that may be asked for.
const MAX_EVENTS: u64 = 100;

/// The longest part of an event that is shown, in bytes.
const EVENT_LIMIT: usize = 4096;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    job_id: JobIdArgument,
    /// For its end.
    wait_ms: Option<Wait>,
    tail: Option<Count>,
}

pub(super) fn describe() -> Tool {
    let description = "Use to follow a job: response (final message), error, questions (for \
call_respond), problems, metadata (changed files, diff, commands, usage), result of a run.";
    let answer = output(json!({
        "job_id": "string",
        "status": "string",
        "response": ["string", "null"],
    }));
    tool(NAME, "Job Status", description, input::<Arguments>()).with_raw_output_schema(answer)
}

/// The query of a call.
#[derive(Debug)]
pub struct StatusQuery {
    id: JobId,
    /// The number of the last events to return.
    tail: u32,
    /// The time until which the end is awaited.
    until: Instant,
}

/// Parses the arguments of a call, and finds its job.
pub(super) async fn query(jobs: &Jobs, given: JsonObject) -> Result<StatusQuery, ToolError> {
    let Arguments {
        job_id: JobIdArgument(prefix),
        wait_ms,
        tail,
    } = arguments(given)?;
    let tail = tail.map_or(0, |Count(count)| count);
    if tail > MAX_EVENTS {
        let why = format!("tail must be at most {MAX_EVENTS}, not {tail}");
        return Err(ToolError::new(Code::InvalidArgument, why));
    }
    let wait = wait_ms.map(|Wait(wait)| wait).unwrap_or_default();
    Ok(StatusQuery {
        id: jobs.find(&prefix).await?,
        tail: u32::try_from(tail).unwrap_or(u32::MAX),
        until: Instant::now() + wait,
    })
}

impl StatusQuery {
    /// Waits for one second at most.
    pub(super) async fn wait(&self, jobs: &Jobs) -> Result<WaitOutcome, ToolError> {
        match until_ended(jobs, &self.id, self.until).await? {
            WaitOutcome::Over(looked) => Ok(WaitOutcome::Over(self.answer(jobs, looked).await?)),
            WaitOutcome::Running(step) => Ok(WaitOutcome::Running(step)),
        }
    }

    async fn answer(&self, jobs: &Jobs, looked: JobView) -> Result<CallToolResult, ToolError> {
        let JobView {
            job,
            questions,
            no_worker,
        } = looked;
        let store = jobs.store().await?;
        let mut record = job_json::record_with_sandbox(store, &job, &questions).await?;
        if let Some(members) = record.as_object_mut() {
            if self.tail > 0 {
                let events = jobs.tail(&self.id, self.tail).await?;
                members.insert("events".to_owned(), events.iter().map(event).collect());
            }
            if let Some(note) = note(&job, &questions, no_worker) {
                members.insert("note".to_owned(), note.into());
            }
        }
        Ok(answer(record))
    }
}

/// A note on what the job waits for and what to do, in addition to the record.
fn note(job: &Job, questions: &[Question], no_worker: Option<StartError>) -> Option<String> {
    if !questions.is_empty() {
        let words = "Codex waits: answer each of `questions` with call_respond before it expires.";
        return Some(words.to_owned());
    }
    if let Some(why) = no_worker {
        return Some(format!(
            "It waits: {why}. `codex-mcp worker` runs a worker by hand."
        ));
    }
    if let Some(wait) = job_json::waiting(&job.summary) {
        return Some(format!("The job {wait}. It then starts automatically."));
    }
    let is_lost = job.summary.error.as_deref() == Some(WORKER_LOST);
    is_lost.then(|| {
        "Its worker was killed, and Codex with it; what it had changed is still there. \
         Continue with its session_id as resume_session_id of call_codex. With retry, a job is \
         restarted automatically."
            .to_owned()
    })
}

/// An event, as JSON where it isn't too long.
fn event(event: &StoredEvent) -> Value {
    let StoredEvent {
        sequence,
        at,
        kind,
        data,
    } = event;
    let whole = || serde_json::from_str(data).ok();
    let data = match data.len() <= EVENT_LIMIT {
        true => whole().unwrap_or_else(|| data.as_str().into()),
        false => {
            let end = data.floor_char_boundary(EVENT_LIMIT);
            json!({ "cut": data.get(..end), "bytes": data.len() })
        }
    };
    let at = common::timestamp::timestamp(*at);
    json!({ "sequence": sequence, "at": at, "type": kind, "data": data })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn of(data: &str) -> Value {
        event(&StoredEvent {
            sequence: 7,
            at: UNIX_EPOCH,
            kind: "item.completed".to_owned(),
            data: data.to_owned(),
        })
    }

    #[test]
    fn short_event_is_shown_as_json_and_a_long_one_is_cut() {
        let shown = of(r#"{"a":1}"#);
        assert_eq!(shown["data"], json!({ "a": 1 }));
        assert_eq!(shown["sequence"], 7);
        assert_eq!(shown["at"], "1970-01-01T00:00:00.000Z");
        assert_eq!(of("not JSON")["data"], "not JSON");
        let long = format!("{{\"a\":\"{}\"}}", "ß".repeat(5000));
        let shown = of(&long);
        assert_eq!(shown["data"]["bytes"], long.len());
        let cut = shown["data"]["cut"].as_str().unwrap();
        assert!(long.starts_with(cut) && cut.len() >= EVENT_LIMIT - 1);
    }
}
