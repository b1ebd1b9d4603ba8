//! Jobs as JSON, with the fields of the contract of `call_codex`. All fields are always there;
//! unknown values are `null`.

use std::time::{Duration, SystemTime};

use common::secrets::MASK;
use common::timestamp::timestamp;
use goal_run::logic::notifier::Notifier;
use serde_json::{Value, json};

use super::question;
use super::report::Report;
use super::run::result;
use super::store::{Job, JobStore, JobSummary, Ownership, PromptText, Question, StoreError};
use crate::logic::{Cancellation, JobId, JobState, Wait};

/// How many of the first events are searched for that of the thread. In a run, warnings come before
/// it.
const BEGINNING: u32 = 30;

/// A whole job, as `call_status` returns it. Moments are RFC 3339 in UTC, durations are
/// milliseconds.
///
/// - `metadata` is the job's [`Report`], and `null` before the end.
/// - `response` is Codex's final message.
/// - `sandbox` is the requested mode, `sandbox_in_force` the effective one: it is known once a
///   call has ended, or where a mode was requested. [`record_with_sandbox`] knows it earlier.
/// - `questions` are Codex's open questions.
/// - `waits_until` and `waits_for` are set while the job waits in the queue until a moment, for
///   instance for the reset of a usage limit.
/// - `problems` are those of the report, which qualify the answer.
/// - `result` is the [`result`] of a run.
#[must_use]
pub fn record(job: &Job, questions: &[Question]) -> Value {
    let Job {
        summary, request, ..
    } = job;
    let response = job
        .result
        .as_ref()
        .and_then(|report| report.get("response"));
    let report = report_of(job);
    let in_force = report.sandbox.clone().or_else(|| request.sandbox.clone());
    let mut record = json!({
        "job_id": summary.id,
        "status": summary.state,
        "tool_name": summary.tool_name,
        "agent_source": request.agent_source,
        "agent_instance": request.agent_instance,
        "created_at": timestamp(summary.created_at),
        "started_at": moment(summary.started_at),
        "completed_at": moment(summary.completed_at),
        "duration_ms": millis(summary.duration()),
        "error": summary.error,
        "questions": question::shown(questions),
        "problems": report.problems(),
        "warnings": report.warnings,
        "session_id": summary.session_id,
        "exchange_id": job.exchange_id,
        "metadata": job.result,
        "response": response,
        "prompt": request.prompt,
        "task_name": summary.task_name,
        "model_override": request.model_override,
        "cwd": summary.cwd,
        "sandbox": request.sandbox,
        "sandbox_in_force": in_force,
        "timeout_ms": request.timeout_ms,
        "tool_timeout_ms": request.tool_timeout_ms,
        "settings": request.settings.as_ref().map(shown_settings),
        "expose_stream": request.expose_stream,
        "resume_session_id": request.resume_session_id,
        "continue_latest": request.continue_latest,
        "fire_and_forget": request.fire_and_forget,
        "attempts": job.counted_attempts(),
        "waits_until": moment(waiting(summary).map(|wait| wait.until)),
        "waits_for": waiting(summary).map(|wait| wait.reason.words()),
        "retry": request.retry,
        "worker": job.worker,
        "worker_host": job.worker_host,
        "cancel_requested": summary.cancellation == Cancellation::Requested,
        "owner": summary.owner.name,
        "owner_role": summary.owner.role,
        "is_ours": summary.owner.ownership == Ownership::Ours,
        "prompt_masked": job.prompt == PromptText::Masked,
    });
    if let (Some(result), Some(members)) = (result::of(job), record.as_object_mut()) {
        members.insert("result".to_owned(), result);
        if let Some(Value::Object(metadata)) = members.get_mut("metadata") {
            metadata.remove("run");
        }
    }
    record
}

/// The same, with the sandbox in force from the beginning of the thread on.
///
/// # Errors
///
/// [`StoreError`].
pub async fn record_with_sandbox(
    store: &JobStore,
    job: &Job,
    questions: &[Question],
) -> Result<Value, StoreError> {
    let mut record = record(job, questions);
    let sandbox = sandbox_in_force(store, job).await?;
    if let Some(members) = record.as_object_mut() {
        members.insert("sandbox_in_force".to_owned(), sandbox.into());
    }
    Ok(record)
}

/// The effective sandbox of a job: that of its report, the requested one, or else the one with
/// which its thread has begun.
///
/// # Errors
///
/// [`StoreError`].
pub async fn sandbox_in_force(store: &JobStore, job: &Job) -> Result<Option<String>, StoreError> {
    let known = report_of(job)
        .sandbox
        .or_else(|| job.request.sandbox.clone());
    // A later attempt may have another one, and its events are not the first.
    if known.is_some() || job.attempts != 1 {
        return Ok(known);
    }
    let first = store.events(&job.summary.id, 0, BEGINNING).await?;
    let begun = first
        .iter()
        .find(|event| ["thread.started", "codex-mcp/thread"].contains(&event.kind.as_str()));
    let data: Option<Value> = begun.and_then(|event| serde_json::from_str(&event.data).ok());
    let sandbox = data.as_ref().and_then(|data| data.get("sandbox"));
    Ok(sandbox.and_then(Value::as_str).map(str::to_owned))
}

/// The settings of a call, with its notifiers as they are displayed: without secret paths.
fn shown_settings(settings: &Value) -> Value {
    let mut settings = settings.clone();
    let notify = settings.get_mut("notify").and_then(Value::as_array_mut);
    for notifier in notify.into_iter().flatten() {
        let parsed = notifier.as_str().map(str::parse::<Notifier>);
        // A newer program may know more of them.
        *notifier = match parsed {
            Some(Ok(parsed)) => parsed.to_string().into(),
            _ => MASK.into(),
        };
    }
    settings
}

/// The report of a job; an empty one if there is none or it cannot be parsed.
pub fn report_of(job: &Job) -> Report {
    let report = job.result.clone().map(serde_json::from_value);
    report.and_then(Result::ok).unwrap_or_default()
}

/// Whether a job has completed with problems, which qualify its answer.
#[must_use]
pub fn has_problems(job: &Job) -> bool {
    job.summary.state == JobState::Completed && !report_of(job).problems().is_empty()
}

/// The same for a listed job. A row that cannot be read must not hide the list.
///
/// # Errors
///
/// When the store cannot be reached.
pub async fn has_problems_in(store: &JobStore, id: &JobId) -> Result<bool, StoreError> {
    match store.get(id).await {
        Ok(job) => Ok(job.is_some_and(|job| has_problems(&job))),
        Err(StoreError::Unreadable { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Marks a completed job with problems in lists for people.
pub const PROBLEMS_MARK: char = '*';

/// A job in a list, as `call_jobs` returns it.
#[must_use]
pub fn summary(job: &JobSummary) -> Value {
    json!({
        "job_id": job.id,
        "status": job.state,
        "tool_name": job.tool_name,
        "task_name": job.task_name,
        "cwd": job.cwd,
        "created_at": timestamp(job.created_at),
        "completed_at": moment(job.completed_at),
        "duration_ms": millis(job.duration()),
        "session_id": job.session_id,
        "error": job.error,
        "waits_until": moment(waiting(job).map(|wait| wait.until)),
        "waits_for": waiting(job).map(|wait| wait.reason.words()),
        "owner": job.owner.name,
        "is_ours": job.owner.ownership == Ownership::Ours,
    })
}

/// The wait of a queued job.
pub fn waiting(job: &JobSummary) -> Option<Wait> {
    job.wait.filter(|_| job.state == JobState::Queued)
}

fn moment(at: Option<SystemTime>) -> Option<String> {
    at.map(timestamp)
}

fn millis(time: Option<Duration>) -> Option<u64> {
    time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use crate::logic::JobId;
    use crate::logic::WaitReason;

    use super::*;
    use crate::store::Origin;
    use crate::store::Owner;
    use crate::store::Request;

    fn job() -> Job {
        let request = Request::new("Do it.", "/repo");
        Job {
            summary: JobSummary {
                id: JobId::from_random(7),
                state: JobState::Queued,
                tool_name: request.tool_name.clone(),
                task_name: request.task_name.clone(),
                cwd: request.cwd.clone(),
                created_at: UNIX_EPOCH,
                started_at: None,
                completed_at: None,
                session_id: None,
                error: None,
                cancellation: Cancellation::NotRequested,
                wait: None,
                owner: Owner {
                    name: Some("me@here".to_owned()),
                    role: None,
                    ownership: Ownership::Ours,
                },
            },
            request,
            origin: Origin::ThisMachine,
            session_origin: Origin::ThisMachine,
            prompt: PromptText::Whole,
            attempts: 0,
            waits: 0,
            wait_history: crate::logic::WaitHistory::default(),
            worker: None,
            worker_host: None,
            exchange_id: None,
            result: None,
        }
    }

    #[test]
    fn queued_job_has_every_field() {
        let expected = json!({
            "job_id": "00000000-0000-4000-8000-000000000007", "status": "queued",
            "tool_name": "call_codex", "agent_source": null, "agent_instance": "codex",
            "created_at": "1970-01-01T00:00:00.000Z", "started_at": null, "completed_at": null,
            "duration_ms": null, "error": null, "questions": [], "problems": [],
            "warnings": [],
            "session_id": null, "exchange_id": null,
            "metadata": null, "response": null, "prompt": "Do it.", "task_name": "call_codex",
            "model_override": null, "cwd": "/repo", "sandbox": null, "sandbox_in_force": null,
            "timeout_ms": 60000, "tool_timeout_ms": 300_000, "settings": null,
            "expose_stream": false, "resume_session_id": null, "continue_latest": false,
            "fire_and_forget": false, "attempts": 0, "waits_until": null,
            "waits_for": null, "retry": 0, "worker": null,
            "worker_host": null, "cancel_requested": false, "owner": "me@here",
            "owner_role": null, "is_ours": true, "prompt_masked": false,
        });
        assert_eq!(record(&job(), &[]), expected);
    }

    #[test]
    fn address_of_webhook_is_not_shown() {
        let mut job = job();
        let notify = json!(["mail:lead", "webhook:https://h/s3cret", "pager:s3cret"]);
        job.request.settings = Some(json!({ "notify": notify, "network": true }));
        let shown = json!({
            "notify": ["mail:lead", "webhook:https://h/…", "[masked]"], "network": true,
        });
        assert_eq!(record(&job, &[])["settings"], shown);
    }

    #[test]
    fn ended_job_shows_its_result() {
        let mut job = job();
        job.summary.state = JobState::Completed;
        job.summary.started_at = Some(UNIX_EPOCH + Duration::from_secs(1));
        job.summary.completed_at = Some(UNIX_EPOCH + Duration::from_millis(2500));
        job.summary.cancellation = Cancellation::Requested;
        let report = json!({"response": "Done.", "sandbox": "read-only", "warnings": ["w"]});
        job.result = Some(report.clone());
        let told = record(&job, &[]);
        assert_eq!(told["response"], "Done.");
        assert_eq!(told["sandbox_in_force"], "read-only");
        assert_eq!(told["warnings"], json!(["w"]));
        assert_eq!(told["metadata"], report);
        assert_eq!(told["completed_at"], "1970-01-01T00:00:02.500Z");
        assert_eq!(told["duration_ms"], 1500);
        assert_eq!(told["cancel_requested"], true);
        let expected = json!({
            "job_id": told["job_id"], "status": "completed", "tool_name": "call_codex",
            "task_name": "call_codex", "cwd": "/repo", "created_at": "1970-01-01T00:00:00.000Z",
            "completed_at": "1970-01-01T00:00:02.500Z", "duration_ms": 1500,
            "session_id": null, "error": null, "waits_until": null, "waits_for": null,
            "owner": "me@here", "is_ours": true,
        });
        assert_eq!(summary(&job.summary), expected);
    }

    #[test]
    fn waiting_job_shows_until_when_and_why() {
        let mut job = job();
        (job.attempts, job.waits) = (3, 2);
        job.summary.wait = Some(Wait {
            until: UNIX_EPOCH,
            reason: WaitReason::LimitReset,
        });
        let words = "a usage limit of the account is reached";
        for told in [record(&job, &[]), summary(&job.summary)] {
            assert_eq!(told["waits_until"], "1970-01-01T00:00:00.000Z");
            assert_eq!(told["waits_for"], words);
        }
        assert_eq!(record(&job, &[])["attempts"], 1);
        job.summary.state = JobState::Running;
        assert_eq!(record(&job, &[])["waits_until"], Value::Null);
    }
}
