//! Actions on work, and their outcomes.

use codex_engine::logic::action::DecidedBy;
use host_process::connect::ConnectError;
use host_process::logic::handshake::{Door, SessionAct};
use job_queue::logic::{JobId, JobState};
use job_queue::service::{InstructError, JobsError, NewAnswer, Response};
use work_board::{ActError, Prompted, Resubmitted, RetryError, WorkBoard};

use crate::logic::mode::{Draft, Effect, Target};

/// The outcome of an action.
#[derive(Debug)]
pub(crate) enum ActionOutcome {
    Said(&'static str),
    /// A fork, or a job that was submitted again, and the work it came from.
    Begun {
        from: Target,
        new: Target,
        warning: Option<String>,
    },
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    #[error(transparent)]
    Session(#[from] ActError),
    #[error(transparent)]
    Job(#[from] JobsError),
    #[error(transparent)]
    Retry(#[from] RetryError),
    #[error("there is no such job; it may have been pruned")]
    NoJob,
    #[error("the job is {0}: it had ended before it could be cancelled")]
    NotCancelled(JobState),
    /// A message was refused.
    #[error("{}", .0.why)]
    NotSent(Draft),
}

impl NotDone {
    /// Whether a message was refused. Otherwise it may have reached Codex, and is not offered to be sent
    /// again.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Job(JobsError::Instruct(why)) => !matches!(why, InstructError::Unknown),
            other => matches!(
                other,
                Self::NoJob
                    | Self::Session(
                        ActError::Refused(_)
                            | ActError::Busy(_)
                            | ActError::Wrong(_)
                            | ActError::Unknown
                    )
                    // No connection was made.
                    | Self::Session(ActError::Host(ConnectError::BetweenHosts))
                    | Self::Job(JobsError::NotFound(_) | JobsError::Audit(_))
            ),
        }
    }
}

/// Does it. What concerns the terminal alone does nothing here.
pub(crate) async fn act(
    board: &WorkBoard,
    effect: Effect,
) -> Result<Option<ActionOutcome>, NotDone> {
    let done = match effect {
        Effect::Quit | Effect::Suspend | Effect::Follow(_) | Effect::Unfollow => return Ok(None),
        Effect::Answer {
            target,
            question,
            decision,
        } => {
            let response = Response::Decision(decision);
            answer(board, &target, &question, response).await?
        }
        Effect::Send { target, text } => {
            let sent = send(board, &target, text.clone()).await;
            sent.map_err(|error| match error.is_refusal() {
                true => NotDone::NotSent(Draft::new(target, text, &error.to_string())),
                false => error,
            })?
        }
        Effect::Interrupt(target) => {
            board.hosts.act(&target.id, SessionAct::Interrupt).await?;
            ActionOutcome::Said("Codex was told to interrupt the turn.")
        }
        Effect::Cancel(target) => cancel(board, &target).await?,
        Effect::Fork(from) => {
            let id = board.fork(&from.id).await?;
            begun(from, id, None)
        }
        Effect::Retry(from) => {
            let job = from.id.parse().map_err(|_| NotDone::NoJob)?;
            let Resubmitted { job, warning } = board.retry(job, Door::Terminal).await?;
            begun(from, job.as_str().to_owned(), warning)
        }
    };
    Ok(Some(done))
}

fn begun(from: Target, id: String, warning: Option<String>) -> ActionOutcome {
    let kind = from.kind;
    ActionOutcome::Begun {
        from,
        new: Target { id, kind },
        warning,
    }
}

async fn job(board: &WorkBoard, target: &Target) -> Result<JobId, NotDone> {
    board.jobs.find(&target.id).await?.ok_or(NotDone::NoJob)
}

async fn answer(
    board: &WorkBoard,
    target: &Target,
    question: &str,
    response: Response,
) -> Result<ActionOutcome, NotDone> {
    if target.is_session() {
        let door = Door::Terminal;
        board.answer(&target.id, question, response, door).await?;
    } else {
        let (id, jobs) = (job(board, target).await?, board.jobs.service());
        let given = NewAnswer::new(response, DecidedBy::Terminal);
        jobs.respond(&id, Some(question), given).await?;
    }
    Ok(ActionOutcome::Said("Answered."))
}

async fn send(board: &WorkBoard, target: &Target, text: String) -> Result<ActionOutcome, NotDone> {
    if target.is_session() {
        return Ok(match board.prompt(&target.id, text).await? {
            Prompted::Steered => ActionOutcome::Said("Added to the turn."),
            Prompted::Sent => ActionOutcome::Said("Sent."),
        });
    }
    let id = job(board, target).await?;
    board.jobs.service().steer(&id, text).await?;
    Ok(ActionOutcome::Said("Added to the turn."))
}

async fn cancel(board: &WorkBoard, target: &Target) -> Result<ActionOutcome, NotDone> {
    if target.is_session() {
        let door = Door::Terminal;
        board
            .hosts
            .act(&target.id, SessionAct::Cancel { door })
            .await?;
        return Ok(ActionOutcome::Said("The session has ended."));
    }
    let id = job(board, target).await?;
    let outcome = board.jobs.service().cancel(&id).await?;
    match outcome.new_status() {
        JobState::Cancelled => Ok(ActionOutcome::Said("Cancelled.")),
        state => Err(NotDone::NotCancelled(state)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn message_that_may_have_been_sent_is_not_refused() {
        let lost = ConnectError::Unclear(io::ErrorKind::UnexpectedEof.into());
        let instructed = |error: InstructError| NotDone::from(JobsError::from(error));
        for (error, is_refusal) in [
            (NotDone::from(ActError::Refused(String::new())), true),
            (NotDone::from(ActError::Busy(String::new())), true),
            (NotDone::from(ActError::Wrong(String::new())), true),
            (
                NotDone::from(ActError::Host(ConnectError::BetweenHosts)),
                true,
            ),
            (NotDone::from(ActError::Host(lost)), false),
            (NotDone::from(ActError::UnexpectedAnswer), false),
            (NotDone::NoJob, true),
            (instructed(InstructError::NotTaken), true),
            (instructed(InstructError::Unknown), false),
        ] {
            assert_eq!(error.is_refusal(), is_refusal, "{error:?}");
        }
    }
}
