//! Our live handle on a Codex thread: from a prompt to its outcome.
//!
//! ```text
//!              prompt                       Codex asks
//!   ┌──────┐ ─────────► ┌───────────┐ ────────────────► ┌───────────┐
//!   │ Idle │            │  Running  │                    │  Waiting  │
//!   └──────┘ ◄───────── └───────────┘ ◄──────────────── └───────────┘
//!              ended,                   last question
//!              refused                  answered
//!
//!   any state ── Codex gone ──► Error ── prompt ──► Running
//!   any state ── cancel ──► Cancelled, for good
//! ```
//!
//! Waiting is Running with open questions, so it is not stored but derived. A
//! turn exists from the moment its prompt is taken; before that has been sent, it
//! can be taken back. It can be interrupted once Codex says that it has started
//! (Codex refuses it before that: "no active turn to interrupt"), so an earlier
//! interrupt is kept until then. A session that is cancelled in the middle of a
//! turn lets go of the thread when the turn has ended. A turn for which Codex tells an
//! error that it does not mend, and then nothing, ends as failed.
//!
//! All that happens is written to the session's [event log](crate::logic::events).

mod alert;
mod answering;
mod ends;
mod hearing;
mod shown;
mod steps;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use codex_protocol::codex::{TokenCount, TurnError, TurnId};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::logic::action::{Action, WrongDecision};
use crate::logic::events::{EventData, EventLog, EventType, Poll, Shown};
use crate::logic::progress::{Activity, CurrentStep};
use turn::{Phase, Running};

pub use alert::Alert;
pub use answering::{Asked, ClosedQuestion, Closing};
pub use shown::{IDLE_POLL_INTERVAL, View};
pub use steps::Steps;
pub use turn::{ChangedFile, DIFF_LIMIT, Ending, Facts, Form, Outcome, PARTIAL_TEXT_LIMIT};

/// A session that nobody has used for this long is cancelled (30 min).
pub const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// A turn of which nothing was heard, and after which nobody has asked, for this
/// long is cancelled with its session (4 h).
pub const TURN_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// A session that is cancelled, or whose Codex has gone, is forgotten after this
/// long (5 min).
pub const TERMINAL_LIMIT: Duration = Duration::from_secs(5 * 60);

/// A turn is over this long after an error that Codex does not mend, unless Codex tells more
/// of it (10 s). Codex takes some 20 ms to tell of the end.
pub const FINAL_ERROR_GRACE: Duration = Duration::from_secs(10);

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing runs; a prompt is welcome.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs, and Codex waits for an answer.
    WaitingApproval,
    /// Codex has gone; the next prompt takes the thread up from its rollout.
    Error,
    /// Nobody wants it any more.
    Cancelled,
}

impl State {
    /// Whether a turn is under way that somebody may wait for.
    #[must_use]
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Running | Self::WaitingApproval)
    }
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Answer a question of Codex's.
    Answer {
        /// Codex's name for it.
        request: RequestId,
        /// The answer.
        result: Value,
    },
    /// Interrupt the turn.
    Interrupt(TurnId),
    /// End the commands that run on in the thread's background terminals: 0.153.4 and
    /// 0.169.0 leave them running when a turn is interrupted, and all releases when the
    /// thread is unloaded.
    StopCommands,
    /// Let Codex unload the thread.
    LetGo,
}

/// Why a prompt can't be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptRefused {
    /// A turn runs.
    #[error("a turn of this thread is still running")]
    Running,
    /// A turn waits for an answer.
    #[error("a turn of this thread waits for the answer to a question")]
    Waiting,
    /// The session is over.
    #[error("the session was cancelled")]
    Cancelled,
}

/// Why a decision is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefused {
    /// There is no such open question.
    #[error("there is no open question of that name; it may have been answered or timed out")]
    NotOpen,
    /// It doesn't fit; the question stays open.
    #[error(transparent)]
    Wrong(#[from] WrongDecision),
}

/// Why a look can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cursor {cursor} is beyond the end: the next event will be number {next}")]
pub struct BeyondTheEnd {
    /// What was asked for.
    pub cursor: u64,
    /// The number that the next event gets.
    pub next: u64,
}

/// How long a session waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// A question that stays unanswered for this long after somebody could first see
    /// it is declined.
    pub approval: Duration,
    /// A turn of which nothing is heard for this long is reported as stalled.
    pub stall: Duration,
}

/// Whether a session is to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is.
    Keep,
    /// It is of no use to anybody any more.
    Forget,
}

/// Of a session that is over.
#[derive(Debug)]
struct Cancelled {
    why: String,
    /// The turn in which it was, or the last one before.
    turn: Option<TurnId>,
    at: SystemTime,
}

/// Of a session whose Codex has gone.
#[derive(Debug, Clone)]
struct Lost {
    /// How it went.
    how: String,
    at: SystemTime,
}

/// The machine.
#[derive(Debug)]
pub struct Session {
    /// Codex's name for the thread, as readers of its events are told.
    thread: String,
    patience: Patience,
    log: EventLog,
    turn: Option<Running>,
    /// How Codex went away, if it did.
    lost: Option<Lost>,
    cancelled: Option<Cancelled>,
    actions: Vec<Action>,
    /// Those that were closed since somebody asked.
    closed: Vec<ClosedQuestion>,
    alerts: Vec<Alert>,
    outcome: Option<(u64, Arc<Outcome>)>,
    turns: u64,
    /// How many prompts Codex did not take.
    refused: u64,
    /// What the thread has used, as Codex told last.
    used: Option<TokenCount>,
    activity: Activity<Instant>,
    created: Now,
    /// When Codex was heard, or the session used, last.
    active: Now,
    /// When Codex was heard last.
    heard: Instant,
    /// When a turn that has stalled was seen to be silent last.
    stalled: Option<Instant>,
}

impl Session {
    /// A session of this thread in which nothing has happened yet.
    #[must_use]
    pub fn new(thread: &str, patience: Patience, now: Now) -> Self {
        Self {
            thread: thread.to_owned(),
            patience,
            log: EventLog::default(),
            turn: None,
            lost: None,
            cancelled: None,
            actions: Vec::new(),
            closed: Vec::new(),
            alerts: Vec::new(),
            outcome: None,
            turns: 0,
            refused: 0,
            used: None,
            activity: Activity::new(now.instant),
            created: now,
            active: now,
            heard: now.instant,
            stalled: None,
        }
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> State {
        match (
            &self.cancelled,
            &self.turn,
            self.actions.is_empty(),
            &self.lost,
        ) {
            (Some(_), ..) => State::Cancelled,
            (None, Some(_), true, _) => State::Running,
            (None, Some(_), false, _) => State::WaitingApproval,
            (None, None, _, Some(_)) => State::Error,
            (None, None, _, None) => State::Idle,
        }
    }

    /// The open questions, oldest first.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// What came of the last turn that has ended, and the number of that turn.
    /// It stays while the next turn runs, so that nobody who waits for it can
    /// miss it.
    #[must_use]
    pub fn outcome(&self) -> Option<&(u64, Arc<Outcome>)> {
        self.outcome.as_ref()
    }

    /// How many prompts were taken: the number of the current turn.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Codex's name for the running turn, once it is known.
    #[must_use]
    pub fn turn_id(&self) -> Option<&TurnId> {
        self.turn.as_ref()?.id.as_ref()
    }

    /// Whether a turn is under way, be the session cancelled or not.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// The step that the turn is at.
    #[must_use]
    pub fn progress(&self, now: Instant) -> CurrentStep {
        let activity = &self.activity;
        let (words, since) = match self.stalled {
            Some(_) if self.turn.is_some() => {
                let words = format!("no event from Codex ({})", activity.words());
                (words, self.heard)
            }
            _ => (activity.words().to_owned(), activity.since()),
        };
        CurrentStep {
            number: activity.number(),
            words,
            took: now.saturating_duration_since(since),
        }
    }

    /// All that Codex has said in the running turn.
    #[must_use]
    pub fn partial_text(&self) -> String {
        self.turn.as_ref().map(Running::partial).unwrap_or_default()
    }

    /// What the running turn has used so far.
    #[must_use]
    pub fn spent(&self) -> TokenCount {
        let turn = self.turn.as_ref();
        turn.map(|turn| turn.facts.spent).unwrap_or_default()
    }

    /// When it was used, or Codex heard, last.
    #[must_use]
    pub fn last_active(&self) -> Instant {
        self.active.instant
    }

    /// Whether somebody has wanted the running turn to end.
    #[must_use]
    pub fn is_being_interrupted(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.interrupt_wanted)
    }

    /// Whether Codex has told of this step, and not of its end.
    #[must_use]
    pub fn has_step(&self, id: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.has_step(id))
    }

    /// Notes that somebody takes an interest in the session.
    pub fn used(&mut self, now: Now) {
        self.active = now;
    }

    /// How long the session waits for what.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Sets how long the session waits for what, from now on.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Takes a prompt. The caller says with [`sending`](Self::sending) when it
    /// goes to Codex, and tells with [`accepted`](Self::accepted) or
    /// [`refused`](Self::refused) how that went.
    ///
    /// # Errors
    ///
    /// [`PromptRefused`] while a turn runs, and once the session is cancelled.
    pub fn prompt(&mut self, form: Form, now: Now) -> Result<(), PromptRefused> {
        match self.state() {
            State::Running => Err(PromptRefused::Running),
            State::WaitingApproval => Err(PromptRefused::Waiting),
            State::Cancelled => Err(PromptRefused::Cancelled),
            State::Idle | State::Error => {
                let since = self.log.next_id();
                self.turn = Some(Running::new(form, self.lost.take(), since));
                self.turns += 1;
                self.activity.turn_begins(now.instant);
                self.alive(now);
                Ok(())
            }
        }
    }

    /// The prompt of turn `number` goes to Codex now; `false` if nobody wants that
    /// any more.
    pub fn sending(&mut self, number: u64) -> bool {
        let current = self.turns == number;
        match self.turn.as_mut().filter(|_| current) {
            Some(turn) => {
                turn.phase = Phase::Prompted;
                true
            }
            None => false,
        }
    }

    /// Looks into the log. What was shown counts as read.
    ///
    /// # Errors
    ///
    /// [`BeyondTheEnd`] for a cursor that no event can have yet.
    pub fn poll(&mut self, poll: &Poll, now: Now) -> Result<Shown, BeyondTheEnd> {
        self.place(poll.cursor)?;
        self.used(now);
        let actions = self.actions.iter().map(Action::shown).collect();
        let result = self.result(poll.mode);
        Ok(self.log.look(poll, actions, result))
    }

    /// Where somebody reads on who has been at `cursor`: not before the place up to
    /// which the log has been read.
    ///
    /// # Errors
    ///
    /// [`BeyondTheEnd`] for a cursor that no event can have yet.
    pub fn place(&self, cursor: Option<u64>) -> Result<u64, BeyondTheEnd> {
        let (next, read_to) = (self.log.next_id(), self.log.read_to());
        match cursor {
            Some(cursor) if cursor > next => Err(BeyondTheEnd { cursor, next }),
            cursor => Ok(cursor.unwrap_or_default().max(read_to)),
        }
    }

    /// The log, to be looked into without a trace.
    #[must_use]
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// When the machine wants to be told the time next, if at all.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_state = match self.state() {
            State::WaitingApproval => self.actions.iter().map(|action| action.deadline).min(),
            State::Running => Some(self.stalled.unwrap_or(self.heard) + self.patience.stall),
            State::Idle | State::Error | State::Cancelled => None,
        };
        let error = self
            .turn
            .as_ref()
            .and_then(|turn| turn.final_error.as_ref());
        let of_error = error.map(|error| error.deadline);
        of_state.into_iter().chain(of_error).min()
    }

    /// Declines what nobody has answered in time, notices a turn that has stalled, and ends
    /// one that has failed without an end.
    pub fn tick(&mut self, now: Now) -> Vec<Effect> {
        let ended = self.end_after_error(now);
        if !ended.is_empty() || !self.has_turn() {
            return ended;
        }
        let silent = now.instant.saturating_duration_since(self.heard);
        if self.state() == State::Running && silent >= self.patience.stall {
            let before = self.stalled.replace(now.instant);
            if before.is_none() {
                self.activity.count();
                self.alert_of_stall(silent);
                self.log_stall(silent, now);
            }
        }
        self.decline_late(now)
    }

    /// For how long nobody has used it.
    #[must_use]
    pub fn unused_for(&self, now: Now) -> Duration {
        now.instant.saturating_duration_since(self.active.instant)
    }

    /// Cancels a session that nobody has used for long, and tells whether one
    /// that is over can be forgotten.
    pub fn tidy(&mut self, now: Now) -> (Vec<Effect>, Fate) {
        let unused = self.unused_for(now);
        let (limit, why) = match self.state() {
            State::Idle => (IDLE_LIMIT, "not used for 30 minutes"),
            State::Running | State::WaitingApproval => {
                (TURN_LIMIT, "nothing has happened for 4 hours")
            }
            State::Error | State::Cancelled => {
                let over = unused >= TERMINAL_LIMIT && self.turn.is_none();
                let fate = if over { Fate::Forget } else { Fate::Keep };
                return (Vec::new(), fate);
            }
        };
        match unused >= limit {
            true => (self.cancel(why, now), Fate::Keep),
            false => (Vec::new(), Fate::Keep),
        }
    }

    fn has_unsent_prompt(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.phase == Phase::Taken)
    }

    fn alive(&mut self, now: Now) {
        self.active = now;
        self.heard = now.instant;
        self.stalled = None;
    }

    fn write(&mut self, now: Now, kind: EventType, data: Value) {
        if let Value::Object(data) = data {
            self.log.push(now.wall, EventData::new(kind, data));
        }
    }
}

fn failure(message: String) -> TurnError {
    TurnError {
        message,
        codex_error_info: None,
        additional_details: None,
    }
}

#[cfg(test)]
mod tests;
