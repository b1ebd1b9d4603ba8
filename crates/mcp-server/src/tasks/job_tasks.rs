//! Tasks of `call_codex` and `codex_run`: each is a job of the store. It continues without its
//! client and without this server, and any later server of the user on this machine answers for
//! it.

use std::time::SystemTime;

use codex_engine::logic::action::DecidedBy;
use common::timestamp::timestamp;
use job_queue::activity;
use job_queue::job_json;
use job_queue::logic::{JobId, JobState};
use job_queue::question::StoredQuestion;
use job_queue::service::{InstructError, JobView, Jobs, JobsError, NewAnswer};
use job_queue::store::{Job, Origin, Question};
use rmcp::ErrorData;
use rmcp::model::{
    CreateTaskResult, DetailedTask, InputRequest, InputRequests, InputResponses, Task, TaskPayload,
    TaskStatus,
};
use serde_json::json;

use super::{POLL_INTERVAL, internal, unknown, whole};
use crate::error::ToolError;
use crate::question::{self, ChoiceTitles};
use crate::server::Server;
use crate::tools::jobs::result_of_task;

/// The answer to a call whose result is fetched later.
pub(crate) async fn created(jobs: &Jobs, job: &JobId) -> Result<CreateTaskResult, ToolError> {
    let store = jobs.store().await?;
    let now = timestamp(SystemTime::now());
    let task = Task::new(store.task_id(job), TaskStatus::Working, now.clone(), now)
        .with_status_message("waits for a worker")
        .with_poll_interval_ms(POLL_INTERVAL);
    Ok(CreateTaskResult::new(task))
}

impl Server {
    /// The state of the task that is a job.
    pub(super) async fn state_of_job(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        let (jobs, job) = self.job_of_task(id).await?;
        let viewed = jobs.view(&job, None).await.map_err(internal)?;
        let words = in_words(jobs, &viewed).await?;
        let JobView { job, questions, .. } = viewed;
        let created = timestamp(job.summary.created_at);
        let changed = job.summary.completed_at.unwrap_or_else(SystemTime::now);
        let task = Task::new(id, TaskStatus::Working, created, timestamp(changed))
            .with_status_message(words)
            .with_poll_interval_ms(POLL_INTERVAL);
        Ok(DetailedTask::new(task, payload(&job, &questions)?))
    }

    /// Answers the questions of a job. A question that has been answered otherwise meanwhile, or
    /// that the client has dismissed, is left as it is.
    pub(super) async fn answer_job(
        &self,
        id: &str,
        responses: InputResponses,
    ) -> Result<(), ErrorData> {
        let (jobs, job) = self.job_of_task(id).await?;
        let open = jobs.questions(&job).await.map_err(internal)?;
        for (key, answer) in responses {
            let Some(question) = open.iter().find(|question| question.id == key) else {
                continue;
            };
            let stored = answerable(question);
            let response = stored.and_then(|stored| question::stored_response(&stored, &answer));
            let Some(response) = response else {
                continue;
            };
            let given = NewAnswer::new(response, DecidedBy::Elicitation);
            match jobs.respond(&job, Some(&key), given).await {
                Ok(_) => {}
                Err(JobsError::Instruct(
                    InstructError::NoQuestion(_)
                    | InstructError::Answered { .. }
                    | InstructError::NotRunning(_)
                    | InstructError::Ended,
                )) => tracing::debug!("the answer to {key} comes too late"),
                Err(error @ JobsError::Instruct(_)) => {
                    return Err(ErrorData::invalid_params(error.to_string(), None));
                }
                Err(error) => return Err(internal(error)),
            }
        }
        Ok(())
    }

    /// Ends a job.
    pub(super) async fn end_job(&self, id: &str) -> Result<(), ErrorData> {
        let (jobs, job) = self.job_of_task(id).await?;
        jobs.cancel(&job).await.map_err(internal)?;
        Ok(())
    }

    async fn job_of_task(&self, id: &str) -> Result<(&Jobs, JobId), ErrorData> {
        let jobs = self.jobs.as_ref().ok_or_else(unknown)?;
        let store = jobs.store().await.map_err(internal)?;
        let job = store.job_of_task(id).ok_or_else(unknown)?;
        match store.summary(&job).await.map_err(internal)? {
            Some(_) => Ok((jobs, job)),
            None => Err(unknown()),
        }
    }
}

/// What the job is doing, or waits for.
async fn in_words(jobs: &Jobs, viewed: &JobView) -> Result<String, ErrorData> {
    let summary = &viewed.job.summary;
    Ok(match (summary.state, &viewed.no_worker) {
        (JobState::Queued, Some(why)) => format!("waits: {why}"),
        (JobState::Queued, None) => match job_json::waiting(summary) {
            Some(wait) => wait.to_string(),
            None => "waits for a worker".to_owned(),
        },
        (JobState::Running, _) if !viewed.questions.is_empty() => {
            "Codex waits for an answer".to_owned()
        }
        (JobState::Running, _) => {
            let events = jobs.tail(&summary.id, activity::TAIL).await;
            let events = events.map_err(internal)?;
            let step = activity::current_step(&events, SystemTime::now());
            let words = step.map(|step| step.words).unwrap_or_default();
            match words.is_empty() {
                true => "Codex works".to_owned(),
                false => words,
            }
        }
        (state, _) => state.to_string(),
    })
}

fn payload(job: &Job, questions: &[Question]) -> Result<TaskPayload, ErrorData> {
    Ok(match job.summary.state {
        JobState::Cancelled => TaskPayload::Cancelled,
        state if state.has_ended() => TaskPayload::Completed {
            result: whole(&result_of_task(job))?,
        },
        _ => match input_requests(questions)? {
            none if none.is_empty() => TaskPayload::Working,
            input_requests => TaskPayload::InputRequired { input_requests },
        },
    })
}

/// The questions that can be answered here, as requests to the client.
fn input_requests(questions: &[Question]) -> Result<InputRequests, ErrorData> {
    let mut requests = InputRequests::new();
    for question in questions {
        let Some(stored) = answerable(question) else {
            continue;
        };
        let request: InputRequest = serde_json::from_value(json!({
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": stored.text,
                "requestedSchema": question::stored_schema(&stored, ChoiceTitles::OneOf),
            },
        }))
        .map_err(internal)?;
        requests.insert(question.id.clone(), request);
    }
    Ok(requests)
}

fn answerable(question: &Question) -> Option<StoredQuestion> {
    match question.origin {
        Origin::ThisMachine => StoredQuestion::of(question),
        Origin::Unproven => None,
    }
}
