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
//! Waiting is Running with open questions, so it is derived and not stored. A turn exists
//! from the moment at which the session accepts its prompt; until the prompt has been
//! sent, it can be withdrawn. A turn can be interrupted once Codex reports its start
//! (before that, Codex refuses: "no active turn to interrupt"), so an earlier interrupt
//! is deferred until then. A session that is cancelled during a turn releases the thread
//! when the turn has ended. A turn for which Codex reports a final error, and then
//! nothing, ends as failed.
//!
//! All events are written to the session's [event log](crate::logic::events).

mod alert;
mod endings;
mod file_changes;
mod notifications;
mod prompts;
mod questions;
mod record;
mod steps;
mod turn;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use codex_protocol::codex::{TokenCount, TurnError, TurnId};
use codex_protocol::rpc::RequestId;
use common::timestamp::Now;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::logic::action::{Action, WrongDecision};
use crate::logic::events::{EventData, EventLog, EventType, Poll, PollContent};
use crate::logic::progress::{Activity, CurrentStep};
use prompts::Prompts;
use record::{EarlierQuestion, EndedRecord};
use turn::{Phase, RunningTurn};

pub use alert::{Alert, AlertKind, EndStatus};
pub use prompts::SentPrompt;
pub use questions::{CloseReason, ClosedQuestion, IncomingQuestion};
pub use record::{Expected, ListedTurn, SessionRecord};
pub use steps::Steps;
pub use turn::{DIFF_LIMIT, Facts, Form, PARTIAL_TEXT_LIMIT, PatchedFile, TurnEnding, TurnOutcome};
pub use view::{IDLE_POLL_INTERVAL, SessionView};

/// The time without use after which an idle session is cancelled (30 min).
pub const IDLE_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The time without notifications and requests after which a turn is cancelled with its
/// session (4 h).
pub const TURN_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

/// The time after which a session that is cancelled, or whose Codex has exited, is forgotten (5
/// min).
pub const TERMINAL_LIMIT: Duration = Duration::from_secs(5 * 60);

/// How long a turn may stay silent after a final error before it ends as failed (10 s). Codex
/// usually reports the end within about 20 ms.
pub const FINAL_ERROR_GRACE: Duration = Duration::from_secs(10);

/// The longest name of a model that is kept, in bytes.
const LONGEST_MODEL: usize = 200;

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// No turn runs; the session accepts a prompt.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs, and Codex waits for an answer.
    WaitingApproval,
    /// Codex has exited; the next prompt resumes the thread from its rollout.
    Error,
    /// The session was cancelled.
    Cancelled,
}

impl State {
    /// Whether a turn is running.
    #[must_use]
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Running | Self::WaitingApproval)
    }
}

/// An action that the engine performs for a machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Answer a question of Codex's.
    Answer {
        /// Codex's ID of the request.
        request: RequestId,
        /// The answer.
        result: Value,
    },
    /// Interrupt the turn.
    Interrupt(TurnId),
    /// End the commands in the thread's background terminals: 0.153.4 and 0.169.0 leave
    /// them running when a turn is interrupted, and all releases when the thread is
    /// unloaded.
    StopCommands,
    /// Unsubscribe from the thread, so that Codex may unload it.
    Unsubscribe,
}

/// Why a prompt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PromptRefused {
    /// A turn runs.
    #[error("a turn of this thread is still running")]
    Running,
    /// A turn waits for an answer.
    #[error("a turn of this thread waits for the answer to a question")]
    Waiting,
    /// The session was cancelled.
    #[error("the session was cancelled")]
    Cancelled,
}

/// Why a decision is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefused {
    /// There is no such open question.
    #[error("there is no open question of that name; it may have been answered or timed out")]
    NotOpen,
    /// It is closed.
    #[error("that question is closed: {0}")]
    Closed(String),
    /// The decision does not fit; the question stays open.
    #[error(transparent)]
    Wrong(#[from] WrongDecision),
}

/// A poll with a cursor beyond the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cursor {cursor} is beyond the end: the next event will be number {next}")]
pub struct CursorBeyondEnd {
    /// The requested cursor.
    pub cursor: u64,
    /// The number that the next event gets.
    pub next: u64,
}

/// The timeouts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// How long a question stays open, counted from when somebody could first see it. Then it is
    /// declined.
    pub approval: Duration,
    /// The time without notifications after which a turn is reported as stalled.
    pub stall: Duration,
}

/// Whether [`Session::tidy`] finds that a session is still needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TidyOutcome {
    /// The session is kept.
    Keep,
    /// The session can be forgotten.
    Forget,
}

/// The cancellation of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cancellation {
    why: String,
    /// The turn that was running when the session was cancelled, or else the last one.
    turn: Option<TurnId>,
    at: SystemTime,
}

/// The exit of a session's Codex.
#[derive(Debug, Clone)]
struct CodexLoss {
    /// A description of the exit.
    how: String,
    at: SystemTime,
}

/// A turn that was given up before Codex reported its start.
#[derive(Debug)]
struct AbandonedTurn {
    number: u64,
    /// Its ID, once Codex has answered the prompt.
    id: Option<TurnId>,
}

/// The state machine of a session.
#[derive(Debug)]
pub struct Session {
    /// The thread's ID, for events.
    thread: String,
    timeouts: Timeouts,
    log: EventLog,
    prompts: Prompts,
    turn: Option<RunningTurn>,
    /// The last turn that was given up before its start, which Codex may still begin.
    abandoned: Option<AbandonedTurn>,
    /// The exit of Codex, if the session has not recovered from it.
    lost: Option<CodexLoss>,
    cancelled: Option<Cancellation>,
    actions: Vec<Action>,
    /// The open questions of an earlier process that Codex has not repeated yet.
    asked_before: Vec<EarlierQuestion>,
    /// The questions closed since they were last taken.
    closed: Vec<ClosedQuestion>,
    alerts: Vec<Alert>,
    outcome: Option<(u64, Arc<TurnOutcome>)>,
    /// The last turn before the last one, or before the last ones, if these are summaries for clients
    /// that have left: nobody has requested them.
    before_summary: Option<EndedRecord>,
    turns: u64,
    /// Whether turns that another client of Codex begins are turns of this session.
    is_attached: bool,
    /// How many prompts Codex refused.
    refused: u64,
    /// The tokens that the thread has used, by Codex's last report.
    used: Option<TokenCount>,
    /// The model that has used all of them; `None` if it is unknown, or if there may be several.
    sole_model: Option<String>,
    activity: Activity<Instant>,
    created: Now,
    /// The last notification of Codex, or use of the session.
    active: Now,
    /// The time of Codex's last notification.
    last_heard: Instant,
    /// When the silence of a stalled turn was last noticed; `None` while the turn is not stalled.
    stalled: Option<Instant>,
}

impl Session {
    /// Creates a session of this thread.
    #[must_use]
    pub fn new(thread: &str, timeouts: Timeouts, now: Now) -> Self {
        Self {
            thread: thread.to_owned(),
            timeouts,
            log: EventLog::default(),
            prompts: Prompts::default(),
            turn: None,
            abandoned: None,
            lost: None,
            cancelled: None,
            actions: Vec::new(),
            asked_before: Vec::new(),
            closed: Vec::new(),
            alerts: Vec::new(),
            outcome: None,
            before_summary: None,
            turns: 0,
            is_attached: false,
            refused: 0,
            used: None,
            sole_model: None,
            activity: Activity::new(now.instant),
            created: now,
            active: now,
            last_heard: now.instant,
            stalled: None,
        }
    }

    /// The beginning of its first prompt, in one line without hidden characters.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.prompts.title()
    }

    /// The latest prompts, from number `from` on.
    #[must_use]
    pub fn prompts(&self, from: u64) -> Vec<SentPrompt> {
        self.prompts.from(from)
    }

    /// All changes of files by the running turn, or else the last one, as a unified diff.
    #[must_use]
    pub fn diff(&self) -> &str {
        match (&self.turn, &self.outcome) {
            (Some(turn), _) => &turn.facts.diff,
            (None, Some((_, outcome))) => &outcome.facts.diff,
            (None, None) => "",
        }
    }

    /// The state of the session.
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

    /// The number and outcome of the last turn that has ended. They stay available while
    /// the next turn runs, so that no waiting caller can miss them.
    #[must_use]
    pub fn outcome(&self) -> Option<&(u64, Arc<TurnOutcome>)> {
        self.outcome.as_ref()
    }

    /// How many prompts were accepted: the number of the current turn.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Codex's ID of the running turn, once it is known.
    #[must_use]
    pub fn turn_id(&self) -> Option<&TurnId> {
        self.turn.as_ref()?.id.as_ref()
    }

    /// Whether Codex has not reported the start of the running turn.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        let is_starting = |turn: &RunningTurn| turn.phase != Phase::Started;
        self.cancelled.is_none() && self.turn.as_ref().is_some_and(is_starting)
    }

    /// Whether a turn is running, even if the session is cancelled.
    #[must_use]
    pub fn has_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// The current step of the turn.
    #[must_use]
    pub fn progress(&self, now: Instant) -> CurrentStep {
        let activity = &self.activity;
        let (words, since) = match self.stalled {
            Some(_) if self.turn.is_some() => {
                let words = format!("no event from Codex ({})", activity.words());
                (words, self.last_heard)
            }
            _ => (activity.words().to_owned(), activity.since()),
        };
        CurrentStep {
            number: activity.number(),
            words,
            took: now.saturating_duration_since(since),
        }
    }

    /// All text of Codex in the running turn.
    #[must_use]
    pub fn partial_text(&self) -> String {
        self.turn
            .as_ref()
            .map(RunningTurn::partial)
            .unwrap_or_default()
    }

    /// The tokens that the running turn has used so far.
    #[must_use]
    pub fn spent(&self) -> TokenCount {
        let turn = self.turn.as_ref();
        turn.map(|turn| turn.facts.spent).unwrap_or_default()
    }

    /// The time of the last notification of Codex or use of the session.
    #[must_use]
    pub fn last_active(&self) -> Instant {
        self.active.instant
    }

    /// Whether the running turn is being interrupted.
    #[must_use]
    pub fn is_being_interrupted(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.interrupt_wanted)
    }

    /// Whether Codex has reported this step, and not its end.
    #[must_use]
    pub fn has_step(&self, id: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.has_step(id))
    }

    /// Notes a use of the session.
    pub fn used(&mut self, now: Now) {
        self.active = now;
    }

    /// The session's timeouts.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Sets the session's timeouts.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Keeps the questions of the running turn open for this long, whatever the session's timeouts
    /// are.
    pub fn keep_questions_open(&mut self, approval: Duration) {
        if let Some(turn) = &mut self.turn {
            turn.approval_timeout = Some(approval);
        }
    }

    /// Raises no alert at the end of the running turn.
    pub fn omit_end_alert(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.is_unannounced = true;
        }
    }

    /// How long a question of the running turn stays open.
    fn approval_timeout(&self) -> Duration {
        let of_turn = self.turn.as_ref().and_then(|turn| turn.approval_timeout);
        of_turn.unwrap_or(self.timeouts.approval)
    }

    /// Accepts a prompt. The caller reports with [`sending`](Self::sending) that it is
    /// being sent to Codex, and with [`accepted`](Self::accepted) or
    /// [`refused`](Self::refused) Codex's response.
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
                self.turn = Some(RunningTurn::new(form, self.lost.take(), since));
                self.turns += 1;
                self.activity.turn_begins(now.instant);
                self.mark_active(now);
                Ok(())
            }
        }
    }

    /// Whether another client of Codex may begin turns.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// Notes that another client of Codex also has the thread, and may begin turns from now on.
    pub fn attach(&mut self) {
        self.is_attached = true;
        // That client may choose another model, of which older releases report nothing.
        self.uses_model(None);
    }

    /// Notes the model of a thread that has not used any tokens.
    pub fn begins_with_model(&mut self, model: &str) {
        let model = Some(model).filter(|model| model.len() <= LONGEST_MODEL);
        self.sole_model = model.map(str::to_owned);
    }

    /// Notes the model that the thread may use from now on; `None` stands for an unknown one.
    pub fn uses_model(&mut self, model: Option<&str>) {
        self.sole_model.take_if(|sole| Some(sole.as_str()) != model);
    }

    /// Notes that the prompt of turn `number` is being sent to Codex; `false` if it was
    /// withdrawn.
    pub fn sending(&mut self, number: u64) -> bool {
        let current = self.turns == number;
        let Some(turn) = self.turn.as_mut().filter(|_| current) else {
            return false;
        };
        turn.phase = Phase::Sent;
        if turn.form() == Form::Review {
            // Codex does not report the tokens of reviews.
            self.uses_model(None);
        }
        true
    }

    /// Polls the log. The returned events count as read.
    ///
    /// # Errors
    ///
    /// [`CursorBeyondEnd`] for a cursor that no event can have yet.
    pub fn poll(&mut self, poll: &Poll, now: Now) -> Result<PollContent, CursorBeyondEnd> {
        self.read_position(poll.cursor)?;
        self.used(now);
        let actions = self.actions.iter().map(Action::shown).collect();
        let result = self.result(poll.mode);
        Ok(self.log.read(poll, actions, result))
    }

    /// The cursor at which a reader continues: `cursor`, but not before the events that
    /// have been read.
    ///
    /// # Errors
    ///
    /// [`CursorBeyondEnd`] for a cursor that no event can have yet.
    pub fn read_position(&self, cursor: Option<u64>) -> Result<u64, CursorBeyondEnd> {
        let (next, read_to) = (self.log.next_id(), self.log.read_to());
        match cursor {
            Some(cursor) if cursor > next => Err(CursorBeyondEnd { cursor, next }),
            cursor => Ok(cursor.unwrap_or_default().max(read_to)),
        }
    }

    /// The event log; reading it marks nothing as read.
    #[must_use]
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// The next time at which the machine needs a [`tick`](Self::tick), if any.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_state = match self.state() {
            State::WaitingApproval => self.actions.iter().map(|action| action.deadline).min(),
            State::Running => Some(self.stalled.unwrap_or(self.last_heard) + self.timeouts.stall),
            State::Idle | State::Error | State::Cancelled => None,
        };
        let error = self
            .turn
            .as_ref()
            .and_then(|turn| turn.final_error.as_ref());
        let of_error = error.map(|error| error.deadline);
        of_state.into_iter().chain(of_error).min()
    }

    /// Declines questions whose timeout has passed, reports a stalled turn, and ends a turn whose
    /// end did not follow a final error in time.
    pub fn tick(&mut self, now: Now) -> Vec<Effect> {
        let ended = self.end_after_error(now);
        if !ended.is_empty() || !self.has_turn() {
            return ended;
        }
        let silent = now.instant.saturating_duration_since(self.last_heard);
        if self.state() == State::Running && silent >= self.timeouts.stall {
            let before = self.stalled.replace(now.instant);
            if before.is_none() {
                self.activity.count();
                self.alert_of_stall(silent);
                self.log_stall(silent, now);
            }
        }
        self.decline_late(now)
    }

    /// How long the session has not been used.
    #[must_use]
    pub fn unused_for(&self, now: Now) -> Duration {
        now.instant.saturating_duration_since(self.active.instant)
    }

    /// Cancels a session that has not been used for long, and returns whether an ended
    /// one can be forgotten.
    pub fn tidy(&mut self, now: Now) -> (Vec<Effect>, TidyOutcome) {
        let unused = self.unused_for(now);
        let (limit, why) = match self.state() {
            State::Idle => (IDLE_LIMIT, "not used for 30 minutes"),
            // The deadlines of its questions end the wait.
            State::WaitingApproval if self.keeps_questions_open() => {
                return (Vec::new(), TidyOutcome::Keep);
            }
            State::Running | State::WaitingApproval => {
                (TURN_LIMIT, "nothing has happened for 4 hours")
            }
            State::Error | State::Cancelled => {
                let over = unused >= TERMINAL_LIMIT && self.turn.is_none();
                let outcome = if over {
                    TidyOutcome::Forget
                } else {
                    TidyOutcome::Keep
                };
                return (Vec::new(), outcome);
            }
        };
        match unused >= limit {
            true => (self.cancel(why, now), TidyOutcome::Keep),
            false => (Vec::new(), TidyOutcome::Keep),
        }
    }

    /// Whether a question of the running turn is meant to stay open for longer than a session may be
    /// unused.
    fn keeps_questions_open(&self) -> bool {
        self.has_turn() && self.approval_timeout() > TURN_LIMIT
    }

    fn has_unsent_prompt(&self) -> bool {
        let turn = self.turn.as_ref();
        turn.is_some_and(|turn| turn.phase == Phase::Pending)
    }

    fn mark_active(&mut self, now: Now) {
        self.active = now;
        self.last_heard = now.instant;
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
