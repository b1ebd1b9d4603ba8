//! Which turn comes next, and when a run is over.
//!
//! ```text
//!            start                 time is over, or stop
//!              │      ┌─────────┐ ──────────────────────► ┌──────────────┐
//!              └────► │ Working │       interrupt         │ Interrupting │
//!           prompt    └─────────┘ ◄────────────────────── └──────────────┘
//!          ┌────────►      │         the turn has ended,          │
//!          │               │         and another one may be       │
//!          │               │ the turn has ended                   │ the turn has ended
//!          │               ▼                                      ▼
//!          └─────────── decided ────────► Over: satisfied, stalled, max turns,
//!                                           total time, max tokens, could not run, cancelled
//! ```
//!
//! A turn runs in Working and Interrupting, and what has come of it is being looked
//! at. What decides is, in this order: whether it was called off; whether all holds;
//! whether there is time; whether there are tokens; whether Codex can run at all; whether anything comes of it;
//! whether there is another turn. Then the kind of the next prompt: a turn in which
//! nothing was executed or tried was words, whatever they said.
//!
//! A run has stalled after `Limits::stall_after` idle turns in a row. A turn is idle
//! if it brought nothing new, and Codex executed nothing in it or answered what it had
//! answered before. A turn that executed something is work, also when the limit of time
//! has cut it short.
//!
//! All moments are durations since the run began.

use std::time::Duration;

use codex_config::prompt_kind::PromptKind;
use codex_engine::logic::work::{Evidence, FailureClass};
use serde::{Deserialize, Serialize};

use super::artifacts::Gain;
use super::findings::Standing;

/// How many turns a run has, unless told otherwise. Source of this and the next two
/// numbers: the specification of futon3c's peripheral.
pub const MAX_TURNS: u32 = 10;

/// How long a turn may take, unless told otherwise (120 s).
pub const TURN_LIMIT: Duration = Duration::from_secs(120);

/// How long a run may take, unless told otherwise (10 min).
pub const TOTAL_LIMIT: Duration = Duration::from_secs(600);

/// How many turns a run can be given: a record is kept of each.
pub const MOST_TURNS: u32 = 100;

/// How long a run can be given (24 h).
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// After how many idle turns in a row a run has stalled, unless told otherwise.
pub const STALL_AFTER: u32 = 3;

/// After how many failed turns running, with nothing even tried, Codex counts as
/// unable to run: each takes an account's requests, and none has got anywhere.
pub const FAILURES_LIMIT: u32 = 3;

/// How much a run may take. As JSON, the times are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Limits {
    turns: u32,
    turn: Duration,
    total: Duration,
    stall_after: u32,
    max_tokens: Option<u64>,
}

/// The limits by the names of the specification of futon3c's peripheral; what isn't
/// said is as usual.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Parts {
    /// How many turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// How long a turn may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_timeout_ms: Option<u64>,
    /// How long all of it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_timeout_ms: Option<u64>,
    /// After how many idle turns in a row the run has stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<u32>,
    /// How many tokens all of it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

impl TryFrom<Parts> for Limits {
    type Error = BadLimits;

    fn try_from(parts: Parts) -> Result<Self, BadLimits> {
        let usual = Self::default();
        let time = |millis: Option<u64>| millis.map(Duration::from_millis);
        Self::new(
            parts.max_turns.unwrap_or(usual.turns),
            time(parts.turn_timeout_ms).unwrap_or(usual.turn),
            time(parts.total_timeout_ms).unwrap_or(usual.total),
        )?
        .stalling_after(parts.stall_after.unwrap_or(usual.stall_after))?
        .within_tokens(parts.max_tokens)
    }
}

impl From<Limits> for Parts {
    fn from(limits: Limits) -> Self {
        Self {
            max_turns: Some(limits.turns),
            turn_timeout_ms: Some(milliseconds(limits.turn)),
            total_timeout_ms: Some(milliseconds(limits.total)),
            stall_after: Some(limits.stall_after),
            max_tokens: limits.max_tokens,
        }
    }
}

/// A duration as records tell it.
#[must_use]
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why a run can't have such limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLimits {
    /// Too few or too many turns.
    #[error("a run has from 1 to {MOST_TURNS} turns, not {0}")]
    Turns(u32),
    /// Too little or too much time for a turn.
    #[error("a turn takes more than 0 s and at most 24 h, not {} s", .0.as_secs())]
    TurnTime(Duration),
    /// The same for all of them together.
    #[error("a run takes more than 0 s and at most 24 h, not {} s", .0.as_secs())]
    TotalTime(Duration),
    /// Too few or too many idle turns.
    #[error("a run stalls after 1 to {MOST_TURNS} idle turns, not {0}")]
    Stall(u32),
    /// No tokens.
    #[error("a run needs tokens: the limit must be 1 or more")]
    Tokens,
}

impl BadLimits {
    /// The name of the limit.
    #[must_use]
    pub fn limit(self) -> &'static str {
        match self {
            Self::Turns(_) => "max_turns",
            Self::TurnTime(_) => "turn_timeout",
            Self::TotalTime(_) => "total_timeout",
            Self::Stall(_) => "stall_after",
            Self::Tokens => "max_tokens",
        }
    }

    /// Whether it is a time.
    #[must_use]
    pub fn is_about_time(self) -> bool {
        matches!(self, Self::TurnTime(_) | Self::TotalTime(_))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns: MAX_TURNS,
            turn: TURN_LIMIT,
            total: TOTAL_LIMIT,
            stall_after: STALL_AFTER,
            max_tokens: None,
        }
    }
}

impl Limits {
    /// So many turns, so much time for each, and for all together.
    ///
    /// # Errors
    ///
    /// [`BadLimits`] if there is none, or more than a run can have.
    pub fn new(turns: u32, turn: Duration, total: Duration) -> Result<Self, BadLimits> {
        if !(1..=MOST_TURNS).contains(&turns) {
            return Err(BadLimits::Turns(turns));
        }
        let bad = |time: &Duration| time.is_zero() || *time > LONGEST;
        match (bad(&turn), bad(&total)) {
            (true, _) => Err(BadLimits::TurnTime(turn)),
            (_, true) => Err(BadLimits::TotalTime(total)),
            (false, false) => Ok(Self {
                turns,
                turn,
                total,
                ..Self::default()
            }),
        }
    }

    /// The same limits, for a run that stalls after so many idle turns in a row.
    ///
    /// # Errors
    ///
    /// [`BadLimits::Stall`] if there is none, or more than a run has turns at most.
    pub fn stalling_after(self, stall_after: u32) -> Result<Self, BadLimits> {
        match (1..=MOST_TURNS).contains(&stall_after) {
            true => Ok(Self {
                stall_after,
                ..self
            }),
            false => Err(BadLimits::Stall(stall_after)),
        }
    }

    /// The same limits, for a run that may use so many tokens.
    ///
    /// # Errors
    ///
    /// [`BadLimits::Tokens`] if there are none.
    pub fn within_tokens(self, max_tokens: Option<u64>) -> Result<Self, BadLimits> {
        match max_tokens {
            Some(0) => Err(BadLimits::Tokens),
            max_tokens => Ok(Self { max_tokens, ..self }),
        }
    }

    /// How many turns there can be.
    #[must_use]
    pub fn turns(self) -> u32 {
        self.turns
    }

    /// How long a turn may take.
    #[must_use]
    pub fn turn(self) -> Duration {
        self.turn
    }

    /// How long all of it may take.
    #[must_use]
    pub fn total(self) -> Duration {
        self.total
    }
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// Codex was done.
    Completed,
    /// It failed, and this is how.
    Failed(FailureClass),
    /// It took too long and was ended.
    TimedOut,
    /// It was interrupted.
    Interrupted,
    /// Codex died.
    Died,
    /// It never began: Codex doesn't know the conversation any more.
    StaleSession,
}

/// Whether the answer of a turn says something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerNovelty {
    /// There is none, or it differs from the last one.
    New,
    /// It is the answer of the turn before.
    Repeated,
}

/// What has come of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// How it ended.
    pub end: TurnEnd,
    /// What Codex did in it.
    pub evidence: Evidence,
    /// What Codex tried and was denied, and that is not in `evidence`.
    pub denied: u64,
    /// Steps that went wrong: commands that exited with another code than 0 for
    /// example.
    pub failed: u64,
    /// How far the work has come now.
    pub standing: Standing,
    /// Whether there is something that was not there before.
    pub gain: Gain,
    /// Whether its answer says something new.
    pub answer: AnswerNovelty,
    /// How many tokens the run has used until now.
    pub tokens: u64,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// To give Codex a prompt.
    Prompt(Prompt),
    /// To interrupt the turn. If none runs any more, nothing.
    Interrupt,
    /// Nothing: the run is over.
    End(End),
}

/// A prompt to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prompt {
    /// Which.
    pub kind: PromptKind,
    /// Where.
    pub conversation: Conversation,
    /// The number of the turn that it begins, from 1.
    pub turn: u32,
    /// When the turn has to be over.
    pub until: Duration,
}

/// In which conversation a turn takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    /// The one that the run is in, or is to take up; a new one if there is none.
    Same,
    /// A new one: nothing that was said before is known there.
    New,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// All holds.
    Satisfied,
    /// All held, but the repository has changed since. No step ends a run in this way: the
    /// shell finds it out afterwards.
    Unconfirmed,
    /// Codex executes nothing, or repeats itself.
    Stalled,
    /// There are no more turns.
    MaxTurns,
    /// There is no more time.
    TotalTime,
    /// There are no more tokens.
    MaxTokens,
    /// Codex can't work, for this reason.
    CouldNotRun(FailureClass),
    /// Somebody called it off.
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Working,
    Interrupting(Why),
    Over,
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Time,
    Tokens,
    Stop,
}

/// Whether the run has had to leave its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewed {
    Never,
    Once,
}

/// The machine.
#[derive(Debug, Clone)]
pub struct Run {
    limits: Limits,
    state: State,
    turns: u32,
    until: Duration,
    renewed: Renewed,
    /// How many turns in a row were idle.
    idle: u32,
    /// How many turns running failed with nothing tried.
    failures: u32,
}

impl Run {
    /// Begins a run.
    #[must_use]
    pub fn start(limits: Limits) -> (Self, Prompt) {
        let mut run = Self {
            limits,
            state: State::Working,
            turns: 0,
            until: Duration::ZERO,
            renewed: Renewed::Never,
            idle: 0,
            failures: 0,
        };
        let prompt = run.prompt(PromptKind::Initial, Conversation::Same, Duration::ZERO);
        (run, prompt)
    }

    /// How many turns there have been, the running one among them. One that never
    /// began, as its conversation was not known any more, is none.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// When the machine wants to be told the time, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (self.state == State::Working).then_some(self.until)
    }

    /// Takes the time; a turn that takes too long is to be interrupted.
    pub fn tick(&mut self, at: Duration) -> Option<Next> {
        let late = self.deadline().is_some_and(|deadline| at >= deadline);
        late.then(|| self.interrupt(Why::Time))
    }

    /// Takes how many tokens the run has used; a turn that uses too many is to be
    /// interrupted.
    pub fn used(&mut self, tokens: u64) -> Option<Next> {
        let too_many = self.state == State::Working && self.is_used_up(tokens);
        too_many.then(|| self.interrupt(Why::Tokens))
    }

    fn is_used_up(&self, tokens: u64) -> bool {
        self.limits.max_tokens.is_some_and(|most| tokens >= most)
    }

    /// Somebody doesn't want the run any more. It is over when the turn has ended.
    pub fn stop(&mut self) -> Option<Next> {
        match self.state {
            State::Working => Some(self.interrupt(Why::Stop)),
            State::Interrupting(_) => {
                self.state = State::Interrupting(Why::Stop);
                None
            }
            State::Over => None,
        }
    }

    /// Takes what has come of the turn; `None` if the run was over before.
    pub fn step(&mut self, report: &Report, at: Duration) -> Option<Next> {
        let why = match self.state {
            State::Working => None,
            State::Interrupting(why) => Some(why),
            State::Over => return None,
        };
        self.count(report);
        let next = match self.end(report, why, at) {
            Some(end) => Next::End(end),
            None => self.go_on(report, at),
        };
        self.state = match next {
            Next::End(_) => State::Over,
            Next::Prompt(_) | Next::Interrupt => State::Working,
        };
        Some(next)
    }

    fn interrupt(&mut self, why: Why) -> Next {
        self.state = State::Interrupting(why);
        Next::Interrupt
    }

    fn count(&mut self, report: &Report) {
        let tried = report.tried();
        let failed = matches!(
            report.end,
            TurnEnd::Failed(_) | TurnEnd::Died | TurnEnd::TimedOut
        );
        let raised = |count: u32, holds: bool| if holds { count + 1 } else { 0 };
        self.idle = raised(self.idle, report.is_idle());
        self.failures = raised(self.failures, failed && tried == Tried::Nothing);
        if report.failure() == Some(FailureClass::UnknownSession) {
            self.turns = self.turns.saturating_sub(1);
        }
    }

    /// Whether this was the last turn.
    fn end(&self, report: &Report, why: Option<Why>, at: Duration) -> Option<End> {
        let broken = report.failure();
        let lost_again = report.has_lost_its_conversation() && self.renewed == Renewed::Once;
        let is_hopeless = broken.is_some_and(is_hopeless);
        let end = if why == Some(Why::Stop) {
            End::Cancelled
        } else if report.standing == Standing::Satisfied {
            End::Satisfied
        } else if at >= self.limits.total {
            End::TotalTime
        } else if self.is_used_up(report.tokens) {
            End::MaxTokens
        } else if let Some(class) = broken
            && (is_hopeless || lost_again || self.failures >= FAILURES_LIMIT)
        {
            End::CouldNotRun(class)
        } else if self.idle >= self.limits.stall_after {
            End::Stalled
        } else if self.turns >= self.limits.turns {
            End::MaxTurns
        } else {
            return None;
        };
        Some(end)
    }

    fn go_on(&mut self, report: &Report, at: Duration) -> Next {
        if !report.has_lost_its_conversation() {
            return Next::Prompt(self.prompt(report.wants(), Conversation::Same, at));
        }
        self.renewed = Renewed::Once;
        let kind = match self.turns {
            0 => PromptKind::Initial,
            _ => PromptKind::Continuation,
        };
        Next::Prompt(self.prompt(kind, Conversation::New, at))
    }

    fn prompt(&mut self, kind: PromptKind, conversation: Conversation, at: Duration) -> Prompt {
        self.turns += 1;
        self.until = self.limits.total.min(at.saturating_add(self.limits.turn));
        Prompt {
            kind,
            conversation,
            turn: self.turns,
            until: self.until,
        }
    }
}

/// Whether Codex has done more than to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tried {
    Nothing,
    Something,
}

impl Report {
    /// A denied step is an attempt too, and so is a call that failed.
    fn tried(&self) -> Tried {
        match self.evidence.executed() + self.denied() + self.evidence.failed_calls {
            0 => Tried::Nothing,
            _ => Tried::Something,
        }
    }

    fn is_idle(&self) -> bool {
        let repeated = self.answer == AnswerNovelty::Repeated;
        self.gain == Gain::Nothing && (self.evidence.executed() == 0 || repeated)
    }

    fn denied(&self) -> u64 {
        self.evidence.declined.saturating_add(self.denied)
    }

    fn failure(&self) -> Option<FailureClass> {
        match self.end {
            TurnEnd::Failed(class) => Some(class),
            TurnEnd::Died => Some(FailureClass::Signal),
            TurnEnd::StaleSession => Some(FailureClass::UnknownSession),
            TurnEnd::TimedOut => Some(FailureClass::Timeout),
            TurnEnd::Completed | TurnEnd::Interrupted => None,
        }
    }

    /// Whether a turn can only be had in a new conversation.
    fn has_lost_its_conversation(&self) -> bool {
        let lost = [FailureClass::UnknownSession, FailureClass::ContextWindow];
        self.failure().is_some_and(|class| lost.contains(&class))
    }

    /// The prompt that fits, if there is to be one.
    fn wants(&self) -> PromptKind {
        if self.end != TurnEnd::Completed || self.denied() > 0 {
            return PromptKind::Recovery;
        }
        match (self.tried(), self.failed, self.gain) {
            (Tried::Nothing, ..) => PromptKind::Nudge,
            (Tried::Something, 1.., Gain::Nothing) => PromptKind::Recovery,
            (Tried::Something, ..) => PromptKind::Continuation,
        }
    }
}

/// Whether another turn at once would fail as well.
fn is_hopeless(class: FailureClass) -> bool {
    match class {
        FailureClass::Auth
        | FailureClass::RateLimit
        | FailureClass::Sandbox
        | FailureClass::ModelNotFound
        | FailureClass::SessionBusy
        | FailureClass::NotStarted => true,
        FailureClass::ContextWindow
        | FailureClass::Overloaded
        | FailureClass::Connection
        | FailureClass::UnknownSession
        | FailureClass::Timeout
        | FailureClass::Cancelled
        | FailureClass::Declined
        | FailureClass::EmptyOutput
        | FailureClass::Exit
        | FailureClass::Signal => false,
    }
}

#[cfg(test)]
mod tests;
