//! When Codex is ended and resumed with a picture, and when the wrapper gives up.
//!
//! ```text
//!              a request                 Codex waits, and has for a while
//!   Running ─────────────► NeedImage ──────────────────────────► Restarting
//!      ▲                       │ ▲ a newer request                │  Codex is ended
//!      │                       └─┘                                │
//!      │                                             Codex has gone│
//!      │  it has started                    the picture is looked at
//!      └───────────────── Resuming ◄───────────────────────────────┘
//!              start Codex with picture and words
//!
//!   Running, NeedImage ── Codex has gone ──────────────► Over: Codex's own code
//!   all ── a signal ── Codex has gone, or none runs ──► Over: 128 and its number
//!   NeedImage ── the 6th restart in 5 minutes, Error ── Codex has gone ──► Over: 1
//!   Restarting ── Codex does not go, not even by KILL, Error ──► Over: 1
//!   Resuming ── it can't be started, Error ──► Over: 1
//! ```
//!
//! What the specification calls nudging is a part of resuming: the words are the prompt
//! of the Codex that is resumed, as what is typed while it resumes stays unsent.
//!
//! A request is answered by the picture that was asked for last. A picture that is not
//! there any more is no error: Codex is resumed without it and told why. The old Codex
//! has gone, with all that it has started, before the picture is looked at, and the new
//! one is started after that; so there are never two.
//!
//! All moments are durations since the wrapper began.

use std::collections::VecDeque;
use std::time::Duration;

use codex_mcp_protocol::codex::ThreadId;

use super::contract::{ATTACHED, not_attached};
use super::path::PicturePath;
use super::picture::BadPicture;
use super::queue::Number;
use super::screen::Sight;

pub use events::{Effect, Exit, GaveUp, Input, Leave, Resume, Session, Signal};

mod events;

/// How often Codex is restarted within [`RESTARTS_WITHIN`]. Source of both: the program
/// that this one replaces.
pub const MOST_RESTARTS: usize = 5;

/// See [`MOST_RESTARTS`].
pub const RESTARTS_WITHIN: Duration = Duration::from_secs(5 * 60);

/// How long Codex must be seen waiting before it is ended. It draws a screen in parts,
/// but never takes so long for one.
pub const QUIET: Duration = Duration::from_millis(400);

/// How long Codex may take to end. Whoever ends it sends KILL after a second, again and
/// again; what is then still there waits for a disk.
pub const END: Duration = Duration::from_secs(8);

/// The machine. It begins with Codex running.
#[derive(Debug, Clone)]
pub struct Machine {
    state: State,
    /// Since when Codex has been seen waiting.
    waiting: Option<Duration>,
    thread: Option<ThreadId>,
    /// The last request that was answered, or is being.
    answered: Option<Number>,
    /// When Codex was restarted, of late.
    restarts: VecDeque<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    NeedImage(Request),
    /// The old Codex is being ended, since then.
    Restarting(Duration, Request),
    /// Nobody runs; the picture is being looked at.
    Resuming(PicturePath),
    /// Codex is being started, and ended again if that was said in the meantime.
    Starting(Option<Leave>),
    /// Codex is being ended, since then, and that is all.
    Leaving(Duration, Leave),
    Over,
}

/// An open request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    number: Number,
    path: PicturePath,
    /// When it was seen.
    seen: Duration,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            state: State::Running,
            waiting: None,
            thread: None,
            answered: None,
            restarts: VecDeque::new(),
        }
    }
}

impl Machine {
    /// The last request that was answered, or is being: older ones are of no interest.
    #[must_use]
    pub fn answered(&self) -> Option<Number> {
        self.answered
    }

    /// The conversation that asked for a picture last, if it is known.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref()
    }

    /// When the machine wants to be told the time, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match &self.state {
            State::NeedImage(request) => {
                let since = self.waiting?.max(request.seen);
                Some(since.saturating_add(QUIET))
            }
            State::Restarting(since, _) | State::Leaving(since, _) => {
                Some(since.saturating_add(END))
            }
            State::Running | State::Resuming(_) | State::Starting(_) | State::Over => None,
        }
    }

    /// Takes what happens at a moment, and says what is to be done about it.
    pub fn apply(&mut self, input: Input, at: Duration) -> Option<Effect> {
        match input {
            Input::Asked(number, path) => self.asked(number, path, at),
            Input::Saw(sight) => self.saw(sight, at),
            Input::Named(thread) => {
                self.thread = thread;
                None
            }
            Input::Exited(exit) => self.exited(exit),
            Input::Told(signal) => self.told(signal, at),
            Input::Checked(found) => self.checked(found, at),
            Input::Started => self.started(at),
            Input::NotStarted(why) => self.not_started(why),
            Input::Time => self.time(at),
        }
    }

    fn asked(&mut self, number: Number, path: PicturePath, at: Duration) -> Option<Effect> {
        if Some(number) <= self.answered {
            return None;
        }
        let request = Request {
            number,
            path,
            seen: at,
        };
        match &mut self.state {
            State::Running => self.state = State::NeedImage(request),
            State::NeedImage(open) if number > open.number => *open = request,
            State::Restarting(_, open) if number > open.number => {
                self.answered = Some(number);
                *open = request;
            }
            _ => {}
        }
        None
    }

    /// What is seen of a Codex that is being ended, or is not there, tells nothing.
    fn saw(&mut self, sight: Sight, at: Duration) -> Option<Effect> {
        let watched = matches!(self.state, State::Running | State::NeedImage(_));
        self.waiting = match sight {
            Sight::Waiting if watched => self.waiting.or(Some(at)),
            _ => None,
        };
        None
    }

    fn exited(&mut self, exit: Exit) -> Option<Effect> {
        match self.take() {
            State::Running | State::NeedImage(_) => {
                let code = exit.code();
                Some(self.leave(Leave { code, error: None }))
            }
            State::Restarting(_, request) => {
                self.state = State::Resuming(request.path.clone());
                Some(Effect::Check(request.path))
            }
            State::Leaving(_, leave) => Some(self.leave(leave)),
            other @ (State::Resuming(_) | State::Starting(_) | State::Over) => self.stay(other),
        }
    }

    /// The first signal decides with which code.
    fn told(&mut self, signal: Signal, at: Duration) -> Option<Effect> {
        let leave = Leave {
            code: signal.code(),
            error: None,
        };
        match self.take() {
            State::Running | State::NeedImage(_) => Some(self.end(leave, at)),
            State::Restarting(since, _) => self.stay(State::Leaving(since, leave)),
            State::Resuming(_) => Some(self.leave(leave)),
            State::Starting(earlier) => self.stay(State::Starting(earlier.or(Some(leave)))),
            other @ (State::Leaving(..) | State::Over) => self.stay(other),
        }
    }

    fn checked(&mut self, found: Result<(), BadPicture>, at: Duration) -> Option<Effect> {
        let path = match self.take() {
            State::Resuming(path) => path,
            other => return self.stay(other),
        };
        self.state = State::Starting(None);
        self.restarts.push_back(at);
        let session = self.session();
        let (picture, words) = match found {
            Ok(()) => (Some(path), ATTACHED.to_owned()),
            Err(why) => (None, not_attached(&why)),
        };
        Some(Effect::Start(Resume {
            session,
            picture,
            words,
        }))
    }

    fn started(&mut self, at: Duration) -> Option<Effect> {
        match self.take() {
            State::Starting(None) => {
                self.waiting = None;
                self.stay(State::Running)
            }
            State::Starting(Some(leave)) => Some(self.end(leave, at)),
            other => self.stay(other),
        }
    }

    fn not_started(&mut self, why: String) -> Option<Effect> {
        match self.take() {
            State::Starting(told) => Some(self.leave(told.unwrap_or(Leave {
                code: 1,
                error: Some(GaveUp::NotStarted(why, self.session())),
            }))),
            other => self.stay(other),
        }
    }

    fn time(&mut self, at: Duration) -> Option<Effect> {
        if self.deadline().is_none_or(|deadline| at < deadline) {
            return None;
        }
        match self.take() {
            State::NeedImage(request) => Some(self.restart(request, at)),
            State::Restarting(..) => Some(self.leave(Leave {
                code: 1,
                error: Some(GaveUp::StillThere),
            })),
            State::Leaving(_, leave) => Some(self.leave(Leave {
                code: leave.code,
                error: leave.error.or(Some(GaveUp::StillThere)),
            })),
            other => self.stay(other),
        }
    }

    /// Ends Codex, to start it again if it has not been started too often. That is
    /// counted from start to start: none comes before this one is over.
    fn restart(&mut self, request: Request, at: Duration) -> Effect {
        self.answered = Some(request.number);
        let is_old = |restart: &Duration| at.saturating_sub(*restart) >= RESTARTS_WITHIN;
        while self.restarts.front().is_some_and(is_old) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= MOST_RESTARTS {
            let error = Some(GaveUp::TooManyRestarts(request.path, self.session()));
            return self.end(Leave { code: 1, error }, at);
        }
        self.state = State::Restarting(at, request);
        Effect::End
    }

    fn session(&self) -> Session {
        match &self.thread {
            Some(thread) => Session::Named(thread.clone()),
            None => Session::Last,
        }
    }

    fn end(&mut self, leave: Leave, at: Duration) -> Effect {
        self.state = State::Leaving(at, leave);
        Effect::End
    }

    fn leave(&mut self, leave: Leave) -> Effect {
        self.state = State::Over;
        Effect::Leave(leave)
    }

    fn stay(&mut self, state: State) -> Option<Effect> {
        self.state = state;
        None
    }

    /// The state, to be replaced by another one or put back by [`Self::stay`].
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Over)
    }
}

#[cfg(test)]
mod tests;
