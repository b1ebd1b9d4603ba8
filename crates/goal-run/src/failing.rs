//! What kind of end an error is for a turn.

use codex_engine::EngineError;
use codex_engine::logic::session::Ending;
use codex_engine::logic::work::{FailureClass, class_of_turn, in_words};

use crate::logic::machine::TurnEnd;

/// How a turn ended that had begun, and what Codex says of it if it failed.
pub(super) fn of_turn(ending: &Ending) -> (TurnEnd, Option<String>) {
    match ending {
        Ending::Completed => (TurnEnd::Completed, None),
        Ending::Interrupted => (TurnEnd::Interrupted, None),
        Ending::Failed(error) => (TurnEnd::Failed(class_of_turn(error)), Some(in_words(error))),
        Ending::Lost(how) => (TurnEnd::Died, Some(format!("{how} during the turn"))),
    }
}

/// Whether a turn failed at a usage limit of the account.
pub(super) fn is_at_usage_limit(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed(error) if error.is_of_the_account())
}

/// What Codex is to do after a turn that took too long.
pub(super) const IN_SMALLER_STEPS: &str =
    "work in smaller steps, as a turn that takes too long is interrupted";

/// That a turn took too long.
pub(super) fn of_time(doing: &str) -> String {
    let was = "the turn took too long and was interrupted";
    match doing {
        "" => was.to_owned(),
        doing => format!("{was}; the last that was seen of it: {doing}"),
    }
}

/// How a turn ended that could not be begun.
pub(super) fn of_start(error: &EngineError) -> TurnEnd {
    match error {
        EngineError::NoThread(_) => TurnEnd::StaleSession,
        EngineError::NoLogin => TurnEnd::Failed(FailureClass::Auth),
        EngineError::Gone(_) => TurnEnd::Died,
        EngineError::ThreadInUse(_)
        | EngineError::Busy(_)
        | EngineError::StillEnding(_)
        | EngineError::Live { .. } => TurnEnd::Failed(FailureClass::SessionBusy),
        EngineError::Silent { .. } | EngineError::Unreadable { .. } => {
            TurnEnd::Failed(FailureClass::Timeout)
        }
        EngineError::Refused { .. } => TurnEnd::Failed(FailureClass::Exit),
        _ => TurnEnd::Failed(FailureClass::NotStarted),
    }
}
