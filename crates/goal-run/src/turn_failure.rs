//! Classification of errors as ends of a turn.

use codex_engine::EngineError;
use codex_engine::logic::session::TurnEnding;
use codex_engine::logic::work::{FailureClass, class_of_turn, in_words};

use crate::logic::machine::TurnEnd;

/// The end of a turn that had begun, and Codex's error if the turn failed.
pub(super) fn of_turn(ending: &TurnEnding) -> (TurnEnd, Option<String>) {
    match ending {
        TurnEnding::Completed => (TurnEnd::Completed, None),
        TurnEnding::Interrupted => (TurnEnd::Interrupted, None),
        TurnEnding::Failed(error) => (TurnEnd::Failed(class_of_turn(error)), Some(in_words(error))),
        TurnEnding::Lost(how) => (TurnEnd::Died, Some(format!("{how} during the turn"))),
    }
}

/// Whether a turn failed at a usage limit of the account.
pub(super) fn is_at_usage_limit(ending: &TurnEnding) -> bool {
    matches!(ending, TurnEnding::Failed(error) if error.is_of_the_account())
}

/// The advice for Codex after a turn that took too long.
pub(super) const IN_SMALLER_STEPS: &str =
    "work in smaller steps, as a turn that takes too long is interrupted";

/// The error of a turn that took too long. `doing` is its last step.
pub(super) fn of_time(doing: &str) -> String {
    let was = "the turn took too long and was interrupted";
    match doing {
        "" => was.to_owned(),
        doing => format!("{was}; the last that was seen of it: {doing}"),
    }
}

/// The end of a turn that could not begin.
pub(super) fn of_start(error: &EngineError) -> TurnEnd {
    match error {
        EngineError::NoThread(_) => TurnEnd::StaleSession,
        EngineError::NoLogin | EngineError::BadConfiguration(_) => {
            TurnEnd::Failed(FailureClass::Auth)
        }
        EngineError::Gone(_) | EngineError::NewThreadLost(_) => TurnEnd::Died,
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
