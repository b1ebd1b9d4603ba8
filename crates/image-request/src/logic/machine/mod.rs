//! Decides when Codex is ended and resumed with a picture, and when the wrapper gives up.
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
//! The specification's nudge is part of resuming: its text is the prompt of the resumed Codex,
//! since text typed while Codex resumes would stay unsent.
//!
//! All open requests are answered together, up to a limit; omitted pictures are named. A picture
//! that no longer exists is not an error: Codex is resumed without it and told why. The old Codex
//! and all its processes have ended before the pictures are checked, and the new one starts after
//! that, so two never run at once.
//!
//! A Codex that asks for pictures endlessly is resumed once without one and told why, and then left
//! to the person at the terminal.
//!
//! All times are durations since the wrapper began.

use std::collections::VecDeque;
use std::time::Duration;

use codex_protocol::codex::ThreadId;

use super::contract::{all, over_limit, resumed};
use super::path::PicturePath;
use super::picture::BadPicture;
use super::queue::RequestNumber;
use super::requested::RequestedPictures;
use super::screen::ScreenState;

pub use events::{Effect, Exit, Input, Resume, Session, Shutdown, Signal, WrapperError};

mod events;

/// How often Codex is restarted with pictures within [`RESTARTS_WITHIN`], unless another
/// limit is set. Source of both: the program that this one replaces.
pub const MOST_RESTARTS: usize = 5;

/// See [`MOST_RESTARTS`].
pub const RESTARTS_WITHIN: Duration = Duration::from_secs(5 * 60);

/// How long Codex must be seen waiting before it is ended (400 ms). Codex draws a screen in several
/// steps, but always completes it within this time.
pub const QUIET: Duration = Duration::from_millis(400);

/// How long Codex may take to end (8 s). KILL is sent from the first second on, so a process that
/// still exists is waiting for a disk.
pub const END: Duration = Duration::from_secs(8);

/// The machine. It begins with Codex running.
#[derive(Debug, Clone)]
pub struct Machine {
    state: State,
    /// The time since which Codex has been seen waiting.
    waiting: Option<Duration>,
    thread: Option<ThreadId>,
    /// The last request that was answered, or is being answered.
    answered: Option<RequestNumber>,
    /// How often Codex is restarted with pictures within [`RESTARTS_WITHIN`].
    most_restarts: usize,
    /// The times of recent restarts with pictures.
    restarts: VecDeque<Duration>,
    /// The time of the last restart without a picture, because of too many restarts.
    refused: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running,
    NeedImage(OpenRequests),
    /// The old Codex is being ended, since this time.
    Restarting(Duration, OpenRequests, Answer),
    /// No Codex runs; the pictures are being checked.
    Resuming(RequestedPictures),
    /// Codex is being started. If a signal arrived meanwhile, Codex will be ended again.
    Starting(Option<Shutdown>),
    /// Codex is being ended for good, since this time.
    Leaving(Duration, Shutdown),
    Over,
}

/// The open requests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenRequests {
    /// The number of the newest request.
    number: RequestNumber,
    requested: RequestedPictures,
    /// The time of the newest request.
    seen: Duration,
}

/// The answer for the resumed Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Pictures,
    /// No pictures, because of too many restarts.
    Refusal,
}

impl OpenRequests {
    fn add(&mut self, number: RequestNumber, path: PicturePath, at: Duration) {
        self.number = number;
        self.requested.add(path);
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

    /// The last request that was answered, or is being answered. Older ones are ignored.
    #[must_use]
    pub fn answered(&self) -> Option<RequestNumber> {
        self.answered
    }

    /// The conversation of the last request, if it is known.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref()
    }

    /// The time at which to apply [`Input::DeadlineReached`], if at all.
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

    /// Takes an input, and returns the effect to perform.
    pub fn apply(&mut self, input: Input, at: Duration) -> Option<Effect> {
        match input {
            Input::Requested(number, path) => self.on_request(number, path, at),
            Input::ScreenObserved(screen_state) => self.on_screen(screen_state, at),
            Input::ThreadIdentified(thread) => {
                self.thread = Some(thread);
                None
            }
            Input::CodexExited(exit) => self.on_exit(exit),
            Input::Signalled(signal) => self.on_signal(signal, at),
            Input::PicturesChecked(bad) => self.on_checked(&bad, at),
            Input::CodexStarted => self.on_started(at),
            Input::StartFailed(why) => self.on_start_failed(why),
            Input::DeadlineReached => self.on_deadline(at),
        }
    }

    fn on_request(
        &mut self,
        number: RequestNumber,
        path: PicturePath,
        at: Duration,
    ) -> Option<Effect> {
        if Some(number) <= self.answered {
            return None;
        }
        match &mut self.state {
            State::Running => {
                self.state = State::NeedImage(OpenRequests {
                    number,
                    requested: RequestedPictures::one(path),
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

    /// The screen of a Codex that is being ended, or does not run, is ignored.
    fn on_screen(&mut self, screen_state: ScreenState, at: Duration) -> Option<Effect> {
        let watched = matches!(self.state, State::Running | State::NeedImage(_));
        self.waiting = match screen_state {
            ScreenState::Waiting if watched => self.waiting.or(Some(at)),
            _ => None,
        };
        None
    }

    fn on_exit(&mut self, exit: Exit) -> Option<Effect> {
        match self.take_state() {
            State::Running | State::NeedImage(_) => {
                let code = exit.code();
                Some(self.shutdown(Shutdown { code, error: None }))
            }
            State::Restarting(_, OpenRequests { requested, .. }, Answer::Pictures) => {
                self.state = State::Resuming(requested.clone());
                Some(Effect::CheckPictures(requested))
            }
            State::Restarting(_, OpenRequests { requested, .. }, Answer::Refusal) => {
                Some(self.refuse(&requested))
            }
            State::Leaving(_, shutdown) => Some(self.shutdown(shutdown)),
            other @ (State::Resuming(_) | State::Starting(_) | State::Over) => {
                self.set_state(other)
            }
        }
    }

    /// The first signal determines the exit code.
    fn on_signal(&mut self, signal: Signal, at: Duration) -> Option<Effect> {
        let shutdown = Shutdown {
            code: signal.code(),
            error: None,
        };
        match self.take_state() {
            State::Running | State::NeedImage(_) => Some(self.end(shutdown, at)),
            State::Restarting(since, ..) => self.set_state(State::Leaving(since, shutdown)),
            State::Resuming(_) => Some(self.shutdown(shutdown)),
            State::Starting(earlier) => self.set_state(State::Starting(earlier.or(Some(shutdown)))),
            other @ (State::Leaving(..) | State::Over) => self.set_state(other),
        }
    }

    fn on_checked(&mut self, bad: &[BadPicture], at: Duration) -> Option<Effect> {
        let requested = match self.take_state() {
            State::Resuming(requested) => requested,
            other => return self.set_state(other),
        };
        self.state = State::Starting(None);
        self.restarts.push_back(at);
        let words = resumed(&requested, bad);
        let is_bad = |path: &PicturePath| bad.iter().any(|bad| bad.path == *path);
        let mut pictures = requested.pictures;
        pictures.retain(|path| !is_bad(path));
        Some(Effect::StartCodex(Resume {
            session: self.session(),
            pictures,
            words,
            notice: None,
        }))
    }

    fn refuse(&mut self, requested: &RequestedPictures) -> Effect {
        self.state = State::Starting(None);
        let most = self.most_restarts;
        Effect::StartCodex(Resume {
            session: self.session(),
            pictures: Vec::new(),
            words: over_limit(requested, most),
            notice: Some(format!(
                "Codex was restarted {most} times in 5 minutes and now asks for {}, without an \
                 answer; go on with it as you like, --max-restarts sets another limit",
                all(requested)
            )),
        })
    }

    fn on_started(&mut self, at: Duration) -> Option<Effect> {
        match self.take_state() {
            State::Starting(None) => {
                self.waiting = None;
                self.set_state(State::Running)
            }
            State::Starting(Some(shutdown)) => Some(self.end(shutdown, at)),
            other => self.set_state(other),
        }
    }

    fn on_start_failed(&mut self, why: String) -> Option<Effect> {
        match self.take_state() {
            State::Starting(on_signal) => Some(self.shutdown(on_signal.unwrap_or(Shutdown {
                code: 1,
                error: Some(WrapperError::NotStarted(why, self.session())),
            }))),
            other => self.set_state(other),
        }
    }

    fn on_deadline(&mut self, at: Duration) -> Option<Effect> {
        if self.deadline().is_none_or(|deadline| at < deadline) {
            return None;
        }
        match self.take_state() {
            State::NeedImage(request) => self.restart(request, at),
            State::Restarting(..) => Some(self.shutdown(Shutdown {
                code: 1,
                error: Some(WrapperError::StillThere),
            })),
            State::Leaving(_, shutdown) => Some(self.shutdown(Shutdown {
                code: shutdown.code,
                error: shutdown.error.or(Some(WrapperError::StillThere)),
            })),
            other => self.set_state(other),
        }
    }

    /// Ends Codex, to restart it with pictures unless it was restarted too often. Restarts are
    /// counted by the times of their starts. When there were too many, Codex is restarted once
    /// without pictures, and then left alone.
    fn restart(&mut self, request: OpenRequests, at: Duration) -> Option<Effect> {
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
            return self.set_state(State::Running);
        };
        self.state = State::Restarting(at, request, answer);
        Some(Effect::TerminateCodex)
    }

    fn session(&self) -> Session {
        match &self.thread {
            Some(thread) => Session::Named(thread.clone()),
            None => Session::Last,
        }
    }

    fn end(&mut self, shutdown: Shutdown, at: Duration) -> Effect {
        self.state = State::Leaving(at, shutdown);
        Effect::TerminateCodex
    }

    fn shutdown(&mut self, shutdown: Shutdown) -> Effect {
        self.state = State::Over;
        Effect::ShutDown(shutdown)
    }

    fn set_state(&mut self, state: State) -> Option<Effect> {
        self.state = state;
        None
    }

    /// Takes the state out, to be replaced or put back by [`Self::set_state`].
    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Over)
    }
}

#[cfg(test)]
mod tests;
