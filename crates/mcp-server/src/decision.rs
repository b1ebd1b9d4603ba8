//! What a client has answered to a question of Codex, applied to the session.

use codex_engine::command::SessionId;
use codex_engine::logic::action::{ActionId, DecidedBy, Decision};
use codex_engine::logic::session::DecisionRefused;
use codex_engine::{Engine, EngineError};
use serde_json::Value;

use crate::question::{self, Reply};

/// How a client has taken a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It has decided, or the question is open no longer.
    Decided,
    /// It has dismissed the question, or can't be asked: the question stays open.
    Dismissed,
}

/// Takes a client's answer to a question; none from a client that can't be asked. An
/// answer that doesn't fit counts as the nearest that does: the client has answered
/// and won't do so again. A late one is no error: the question may have timed out
/// while the answer was under way.
pub(crate) fn decide(
    engine: &Engine,
    session: &SessionId,
    action: &ActionId,
    answer: Option<&Value>,
) -> Taken {
    match try_decide(engine, session, action, answer) {
        Ok(taken) => taken,
        Err(error) => {
            tracing::warn!("an answer was not taken: {error}");
            Taken::Decided
        }
    }
}

fn try_decide(
    engine: &Engine,
    session: &SessionId,
    action: &ActionId,
    answer: Option<&Value>,
) -> Result<Taken, EngineError> {
    let view = engine.inspect(session)?;
    let open = view.actions.iter().find(|open| open.id == *action);
    let open = open.ok_or(EngineError::Decision(DecisionRefused::NotOpen))?;
    let reply = answer.map_or(Reply::Dismissed, |answer| {
        question::reply(&open.ask, answer)
    });
    let Reply::Decided { decisions, reason } = reply else {
        engine.dismiss(session, action)?;
        return Ok(Taken::Dismissed);
    };
    for decision in decisions {
        let asked = DecidedBy::Elicitation;
        match engine.respond_as(asked, session, action, &decision, reason.as_deref()) {
            Ok(()) => break,
            Err(EngineError::OutOfBounds(why)) => {
                let why = why.to_string();
                let (bounds, no) = (DecidedBy::Settings, &Decision::Decline);
                engine.respond_as(bounds, session, action, no, Some(&why))?;
                break;
            }
            Err(EngineError::Decision(DecisionRefused::Wrong(why))) => {
                tracing::warn!("an answer doesn't fit the question: {why}");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Taken::Decided)
}
