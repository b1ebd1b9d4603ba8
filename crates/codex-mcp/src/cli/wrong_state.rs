//! The error of a verb that the state of the work does not allow, with the same wording for
//! sessions, jobs and runs.

use codex_engine::logic::action::Decision;
use job_queue::service::Response;

/// A verb that acts on work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Approve,
    Decline,
    Steer,
    Cancel,
}

impl Verb {
    /// The verb that gives a response.
    pub(super) fn of(response: &Response) -> Self {
        match response {
            Response::Decision(Decision::Decline | Decision::Cancel) => Self::Decline,
            _ => Self::Approve,
        }
    }

    /// The past participle of the verb.
    pub(super) fn done(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Decline => "declined",
            Self::Steer => "steered",
            Self::Cancel => "cancelled",
        }
    }

    /// The verb as it stands before the name of the work.
    fn before_work(self) -> &'static str {
        match self {
            Self::Approve => "approve anything in",
            Self::Decline => "decline anything in",
            Self::Steer => "steer",
            Self::Cancel => "cancel",
        }
    }
}

/// The state of the work does not allow a verb.
#[derive(Debug, thiserror::Error)]
#[error("cannot {} {work}: it is {state}; {instead}", .verb.before_work())]
pub(super) struct WrongState {
    pub(super) verb: Verb,
    /// The kind and the short ID of the work.
    pub(super) work: String,
    pub(super) state: String,
    /// What can be done instead, without a full stop.
    pub(super) instead: String,
}
