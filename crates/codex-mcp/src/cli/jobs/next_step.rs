//! The alternatives to a verb that the state of a job does not allow.

use job_queue::logic::{JobId, JobState};
use job_queue::service::{InstructError, Jobs, JobsError};
use job_queue::store::{Job, PromptText};

use super::failure::Failure;
use super::find::short;
use crate::cli::wrong_state::{Verb, WrongState};

/// The commands that apply to a job that has ended, each in a clause.
pub(super) fn after_end(job: &Job) -> Vec<String> {
    let id = short(&job.summary.id);
    let resume = job
        .proven_session()
        .map(|_| format!("`codex-mcp jobs resume {id} \"…\"` continues its thread"));
    let how = match (&job.request.run, job.summary.state) {
        (None, _) => "it once more",
        // Its options may be what has to be corrected, and `retry` takes none of them.
        (Some(_), JobState::Failed) => {
            "the run once more with the same options, `codex-mcp run --detach` with others"
        }
        (Some(_), _) => "the run once more with the same options",
    };
    let retry = match (&resume, job.summary.state, job.prompt) {
        (Some(_), JobState::Completed, _) => None,
        (_, _, PromptText::Whole) => Some(format!("`codex-mcp jobs retry {id}` submits {how}")),
        (_, _, PromptText::Masked) => Some(
            "`codex-mcp jobs submit` takes it as a new job, as credentials in it were masked when \
             it ended"
                .to_owned(),
        ),
    };
    resume.into_iter().chain(retry).collect()
}

/// The error of a verb in the present state of a job; `None` if the job runs or cannot be read.
pub(super) async fn wrong_state(jobs: &Jobs, id: &JobId, verb: Verb) -> Option<WrongState> {
    let job = jobs.store().await.ok()?.get(id).await.ok()??;
    let id = short(id);
    let state = job.summary.state;
    let instead = match state {
        JobState::Running => return None,
        JobState::Queued => format!("`codex-mcp jobs logs -f {id}` shows when it runs"),
        JobState::Completed | JobState::Failed | JobState::Cancelled => after_end(&job).join(", "),
    };
    let kind = match job.request.run {
        Some(_) => "run",
        None => "job",
    };
    Some(WrongState {
        verb,
        work: format!("{kind} {id}"),
        state: state.to_string(),
        instead,
    })
}

/// The error of an answer or a message for a job. If the job does not run or is a run, it names the
/// commands to use instead.
pub(super) async fn explained(jobs: &Jobs, id: &JobId, verb: Verb, error: JobsError) -> Failure {
    if matches!(error, JobsError::Instruct(InstructError::Run)) {
        return of_run(id, verb).into();
    }
    let is_of_state = matches!(
        error,
        JobsError::Instruct(InstructError::NotRunning(_) | InstructError::Ended)
    );
    if is_of_state && let Some(error) = wrong_state(jobs, id, verb).await {
        return error.into();
    }
    error.into()
}

fn of_run(id: &JobId, verb: Verb) -> WrongState {
    let id = short(id);
    WrongState {
        verb,
        work: format!("job {id}"),
        state: "a run, which takes no messages and answers Codex's questions as its --approve says"
            .to_owned(),
        instead: format!(
            "`codex-mcp jobs cancel {id}` cancels it, then `codex-mcp jobs resume {id} \"…\"` \
             continues its thread"
        ),
    }
}
