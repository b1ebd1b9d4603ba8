//! When Codex is ended and resumed with a picture, and when the wrapper gives up.
//!
//! ```text
//!              a request                 Codex waits, and has for a while
//!   Running ─────────────► NeedImage ──────────────────────────► Restarting
//!      ▲                       │ ▲ a newer request                │  Codex is ended
//!      │                       └─┘                                │
//!      │                                             Codex has gone│
//!      │  it has started                  the pictures are looked at
//!      └───────────────── Resuming ◄───────────────────────────────┘
//!              start Codex with pictures and words
//!
//!   Running, NeedImage ── Codex has gone ──────────────► Over: Codex's own code
//!   all ── a signal ── Codex has gone, or none runs ──► Over: 128 and its number
//!   NeedImage ── the 6th restart in 5 minutes ──► Restarting, without a picture; once
//!                in 5 minutes, and further requests are passed over: Running
//!   Restarting ── Codex does not go, not even by KILL, Error ──► Over: 1
//!   Resuming ── it can't be started, Error ──► Over: 1
//! ```
//!
//! What the specification calls nudging is a part of resuming: the words are the prompt
//! of the Codex that is resumed, as what is typed while it resumes stays unsent.
//!
//! All open requests are answered together, up to a limit; what is left out is named. A
//! picture that is not there any more is no error: Codex is resumed without it and told
//! why. The old Codex has gone, with all that it has started, before the pictures are
//! looked at, and the new one is started after that; so there are never two.
//!
//! A Codex that asks for pictures without end is resumed once without one and told why,
//! and then left to the person at the terminal, who can say what is to happen.
//!
//! All moments are durations since the wrapper began.

use std::collections::VecDeque;
use std::time::Duration;

use codex_protocol::codex::ThreadId;

use super::contract::{all, over_limit, resumed};
use super::path::PicturePath;
use super::picture::BadPicture;
use super::queue::Number;
use super::screen::Sight;
use super::wanted::Wanted;

pub use events::{Effect, Exit, GaveUp, Input, Leave, Resume, Session, Signal};

mod events;

/// How often Codex is restarted with pictures within [`RESTARTS_WITHIN`], unless another
/// limit is set. Source of both: the program that this one replaces.
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
    /// How often Codex is restarted with pictures within [`RESTARTS_WITHIN`].
    most_restarts: usize,
    /// When Codex was restarted with pictures, of late.
    restarts: VecDeque<Duration>,
    /// When it was last restarted without one, to be told that it was too often.
    refused: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    NeedImage(Request),
    /// The old Codex is being ended, since then.
    Restarting(Duration, Request, Answer),
    /// Nobody runs; the pictures are being looked at.
    Resuming(Wanted),
    /// Codex is being started, and ended again if that was said in the meantime.
    Starting(Option<Leave>),
    /// Codex is being ended, since then, and that is all.
    Leaving(Duration, Leave),
    Over,
}

/// The open requests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Request {
    /// That of the newest.
    number: Number,
    wanted: Wanted,
    /// When the newest was seen.
    seen: Duration,
}

/// What Codex is resumed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Pictures,
    /// That there are none, as it was restarted too often.
    Refusal,
}

impl Request {
    fn add(&mut self, number: Number, path: PicturePath, at: Duration) {
        self.number = number;
        self.wanted.add(path);
        self.seen = at;
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            state: State::Running,
            waiting: None,
            thread: None,
            answered: None,
            most_restarts: MOST_RESTARTS,
            restarts: VecDeque::new(),
            refused: None,
        }
    }
}

impl Machine {
    /// The same with another limit for restarts within [`RESTARTS_WITHIN`].
    #[must_use]
    pub fn with_most_restarts(self, most_restarts: usize) -> Self {
        Self {
            most_restarts,
            ..self
        }
    }

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
            State::Restarting(since, ..) | State::Leaving(since, _) => {
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
            Input::Checked(bad) => self.checked(&bad, at),
            Input::Started => self.started(at),
            Input::NotStarted(why) => self.not_started(why),
            Input::Time => self.time(at),
        }
    }

    fn asked(&mut self, number: Number, path: PicturePath, at: Duration) -> Option<Effect> {
        if Some(number) <= self.answered {
            return None;
        }
        match &mut self.state {
            State::Running => {
                self.state = State::NeedImage(Request {
                    number,
                    wanted: Wanted::one(path),
                    seen: at,
                });
            }
            State::NeedImage(open) if number > open.number => open.add(number, path, at),
            State::Restarting(_, open, _) if number > open.number => {
                self.answered = Some(number);
                open.add(number, path, at);
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
            State::Restarting(_, Request { wanted, .. }, Answer::Pictures) => {
                self.state = State::Resuming(wanted.clone());
                Some(Effect::Check(wanted))
            }
            State::Restarting(_, Request { wanted, .. }, Answer::Refusal) => {
                Some(self.refuse(&wanted))
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
            State::Restarting(since, ..) => self.stay(State::Leaving(since, leave)),
            State::Resuming(_) => Some(self.leave(leave)),
            State::Starting(earlier) => self.stay(State::Starting(earlier.or(Some(leave)))),
            other @ (State::Leaving(..) | State::Over) => self.stay(other),
        }
    }

    fn checked(&mut self, bad: &[BadPicture], at: Duration) -> Option<Effect> {
        let wanted = match self.take() {
            State::Resuming(wanted) => wanted,
            other => return self.stay(other),
        };
        self.state = State::Starting(None);
        self.restarts.push_back(at);
        let words = resumed(&wanted, bad);
        let is_bad = |path: &PicturePath| bad.iter().any(|bad| bad.path == *path);
        let mut pictures = wanted.pictures;
        pictures.retain(|path| !is_bad(path));
        Some(Effect::Start(Resume {
            session: self.session(),
            pictures,
            words,
            notice: None,
        }))
    }

    fn refuse(&mut self, wanted: &Wanted) -> Effect {
        self.state = State::Starting(None);
        let most = self.most_restarts;
        Effect::Start(Resume {
            session: self.session(),
            pictures: Vec::new(),
            words: over_limit(wanted, most),
            notice: Some(format!(
                "Codex was restarted {most} times in 5 minutes and now asks for {}, without an \
                 answer; go on with it as you like, --max-restarts sets another limit",
                all(wanted)
            )),
        })
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
            State::NeedImage(request) => self.restart(request, at),
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

    /// Ends Codex, to start it again with pictures if it has not been started too often.
    /// That is counted from start to start: none comes before this one is over. If it was
    /// too often, it is told so once, and left alone then.
    fn restart(&mut self, request: Request, at: Duration) -> Option<Effect> {
        self.answered = Some(request.number);
        let is_old = |restart: &Duration| at.saturating_sub(*restart) >= RESTARTS_WITHIN;
        while self.restarts.front().is_some_and(is_old) {
            self.restarts.pop_front();
        }
        let answer = if self.restarts.len() < self.most_restarts {
            Answer::Pictures
        } else if self.refused.as_ref().is_none_or(is_old) {
            self.refused = Some(at);
            Answer::Refusal
        } else {
            return self.stay(State::Running);
        };
        self.state = State::Restarting(at, request, answer);
        Some(Effect::End)
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
