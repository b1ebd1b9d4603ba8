//! Tasks of `call_codex` and `codex_run`. Each task is a job of the store: it continues without its
//! client and without this server, and any later server of the user on this machine can answer
//! requests about it.

use std::time::SystemTime;

use codex_engine::logic::action::{DecidedBy, Decision};
use common::timestamp::timestamp;
use job_queue::activity;
use job_queue::job_json;
use job_queue::logic::{JobId, JobState};
use job_queue::question::StoredQuestion;
use job_queue::service::{InstructError, JobView, Jobs, JobsError, NewAnswer, Response};
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
    // The call has succeeded, even if the job cannot be read now.
    let stored = store.summary(job).await.ok().flatten();
    let now = SystemTime::now();
    let created = timestamp(stored.map_or(now, |stored| stored.created_at));
    let task = Task::new(
        store.task_id(job),
        TaskStatus::Working,
        created,
        timestamp(now),
    )
    .with_status_message("waits for a worker")
    .with_poll_interval_ms(POLL_INTERVAL);
    Ok(CreateTaskResult::new(task))
}

impl Server {
    /// The state of the task that is a job.
    pub(super) async fn state_of_job(&self, id: &str) -> Result<DetailedTask, ErrorData> {
        let (jobs, job) = self.job_of_task(id).await?;
        let viewed = jobs.view(&job, None).await.map_err(internal)?;
        let words = status_message(jobs, &viewed).await?;
        let JobView { job, questions, .. } = viewed;
        let created = timestamp(job.summary.created_at);
        let changed = job.summary.completed_at.unwrap_or_else(SystemTime::now);
        let task = Task::new(id, TaskStatus::Working, created, timestamp(changed))
            .with_status_message(words)
            .with_poll_interval_ms(POLL_INTERVAL);
        Ok(DetailedTask::new(task, payload(&job, &questions)?))
    }

    /// Answers the questions of a job. Skips a question that has been answered in another way, or
    /// that the client has dismissed. If an answer fails, the others are still given; the first
    /// error is returned.
    pub(super) async fn answer_job(
        &self,
        id: &str,
        responses: InputResponses,
    ) -> Result<(), ErrorData> {
        let (jobs, job) = self.job_of_task(id).await?;
        let open = jobs.questions(&job).await.map_err(internal)?;
        let mut answered = Ok(());
        for (key, answer) in responses {
            let Some(question) = open.iter().find(|question| question.id == key) else {
                continue;
            };
            let stored = answerable(question);
            let given = stored.and_then(|stored| question::stored_answer(&stored, &answer));
            let Some(given) = given else {
                continue;
            };
            answered = answered.and(answer_question(jobs, &job, &key, given).await);
        }
        answered
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

/// Answers a question of a job. An approval that is out of bounds, or that the question does not
/// offer, becomes a refusal, as in sessions: the client does not answer again.
async fn answer_question(
    jobs: &Jobs,
    job: &JobId,
    question: &str,
    given: NewAnswer,
) -> Result<(), ErrorData> {
    let refused = match jobs.respond(job, Some(question), given).await {
        Ok(_) => return Ok(()),
        Err(JobsError::Instruct(
            error @ (InstructError::OutOfBounds(_) | InstructError::NotOffered { .. }),
        )) => error,
        Err(error) => return not_answered(error),
    };
    let no = NewAnswer {
        response: Response::Decision(Decision::Decline),
        reason: Some(refused.to_string()),
        by: DecidedBy::Settings,
    };
    match jobs.respond(job, Some(question), no).await {
        Ok(_) => Ok(()),
        Err(error) => not_answered(error),
    }
}

/// The error for the client, unless its answer came too late.
fn not_answered(error: JobsError) -> Result<(), ErrorData> {
    match error {
        JobsError::Instruct(
            InstructError::NoQuestion(_)
            | InstructError::Answered { .. }
            | InstructError::NotRunning(_)
            | InstructError::Ended,
        ) => {
            tracing::debug!("an answer comes too late: {error}");
            Ok(())
        }
        // The answer may be right: the job's worker is late.
        JobsError::Instruct(InstructError::NotTaken | InstructError::Unknown) => {
            Err(internal(error))
        }
        JobsError::Instruct(_) => Err(ErrorData::invalid_params(error.to_string(), None)),
        error => Err(internal(error)),
    }
}

/// The current step of the job, or the reason why it waits, in words.
async fn status_message(jobs: &Jobs, viewed: &JobView) -> Result<String, ErrorData> {
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
            let store = jobs.store().await.map_err(internal)?;
            let step = activity::current_step(store, &summary.id, SystemTime::now()).await;
            let step = step.map_err(internal)?;
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

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;

    use super::*;

    #[test]
    fn answer_is_wrong_only_if_its_question_does_not_take_it() {
        let question = "q".to_owned();
        let not_offered = InstructError::NotOffered {
            question: question.clone(),
            decision: "accept".to_owned(),
            offered: "decline".to_owned(),
        };
        for (error, expected) in [
            (not_offered, Some(ErrorCode::INVALID_PARAMS)),
            (InstructError::NotTaken, Some(ErrorCode::INTERNAL_ERROR)),
            (InstructError::Unknown, Some(ErrorCode::INTERNAL_ERROR)),
            (InstructError::NoQuestion(question), None),
            (InstructError::Ended, None),
        ] {
            let error = not_answered(error.into()).err();
            assert_eq!(error.map(|error| error.code), expected);
        }
    }
}
