//! Applies a client's answer to a question of Codex to the session.

use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::session::DecisionRefused;
use codex_engine::{EngineError, SessionHandle};
use serde_json::Value;

use crate::question::{self, Reply};

/// The outcome of a client's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyOutcome {
    /// The client has decided, or the question is no longer open.
    Decided,
    /// The client has dismissed the question, or can't be asked: the question stays open.
    Dismissed,
}

/// Applies a client's answer to a question; `None` means that the client can't be asked. An answer
/// that does not fit is replaced by the nearest one that does, as the client will not answer again.
/// A late answer is not an error: the question may have timed out in the meantime.
pub(crate) fn decide(
    session: &SessionHandle,
    action: &ActionId,
    answer: Option<&Value>,
) -> ReplyOutcome {
    match try_decide(session, action, answer) {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::warn!("an answer could not be applied: {error}");
            ReplyOutcome::Decided
        }
    }
}

fn try_decide(
    session: &SessionHandle,
    action: &ActionId,
    answer: Option<&Value>,
) -> Result<ReplyOutcome, EngineError> {
    let questions = session.questions();
    let open = questions.iter().find(|open| open.id == *action);
    let open = open.ok_or(EngineError::Decision(DecisionRefused::NotOpen))?;
    let reply = answer.map_or(Reply::Dismissed, |answer| {
        question::reply(&open.ask, answer)
    });
    let Reply::Decided { decisions, reason } = reply else {
        session.dismiss(action);
        return Ok(ReplyOutcome::Dismissed);
    };
    for decision in decisions {
        let asked = DecidedBy::Elicitation;
        match session.respond(asked, action, &decision, reason.as_deref()) {
            Ok(()) => break,
            Err(EngineError::OutOfBounds(why)) => {
                let why = why.to_string();
                let (bounds, no) = (DecidedBy::Settings, &Decision::Decline);
                session.respond(bounds, action, no, Some(&why))?;
                break;
            }
            Err(EngineError::Decision(DecisionRefused::Wrong(why))) => {
                tracing::warn!("an answer does not fit the question: {why}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ReplyOutcome::Decided)
}
