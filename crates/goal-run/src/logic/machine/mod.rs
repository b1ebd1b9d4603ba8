//! The machine of a run: the next turn, and the end.
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
//!          └─────────── decided ────────► Over: satisfied, read only, stalled, max turns,
//!                                           total time, max tokens, could not run, cancelled
//! ```
//!
//! In Working and Interrupting, a turn runs or its result is inspected. The decision depends,
//! in this order, on cancellation, the criteria, the time, the tokens, whether Codex can run
//! at all, whether it can make the changes that the criteria want, whether the run has stalled,
//! and the number of turns. If the run continues, the result of the turn determines the kind of
//! the next prompt: a turn in which nothing was executed or attempted had words only, whatever
//! they said.
//!
//! A run has stalled after `Limits::stall_after` idle turns in a row. A turn is idle if it
//! brought nothing new, and Codex executed nothing in it or repeated its last answer. A turn
//! that executed something is work, even if the time limit cut it short.
//!
//! All times are durations since the run began.

mod limits;

use std::time::Duration;

use codex_config::logic::prompt_kind::PromptKind;
use codex_engine::logic::work::{Evidence, FailureClass};
use serde::{Deserialize, Serialize};

use super::artifacts::Gain;
use super::findings::VerdictStatus;

pub use limits::{
    BadLimits, LONGEST, Limits, MAX_TURNS, MOST_TURNS, RawLimits, STALL_AFTER, TOTAL_LIMIT,
    TURN_LIMIT, milliseconds,
};

/// The number of failed turns in a row, without any attempt, after which Codex counts as unable to
/// run. Each such turn costs requests of the account.
pub const FAILURES_LIMIT: u32 = 3;

/// The end of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnEnd {
    /// Codex completed the turn.
    Completed,
    /// The turn failed.
    Failed(FailureClass),
    /// The turn took too long and was interrupted.
    TimedOut,
    /// The turn was interrupted.
    Interrupted,
    /// Codex died.
    Died,
    /// The turn did not begin, as Codex no longer knows the conversation.
    StaleSession,
}

/// Whether the answer of a turn says something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerNovelty {
    /// There is no answer, or it differs from the last one.
    New,
    /// The answer is that of the turn before.
    Repeated,
}

/// Whether Codex can make the changes that the criteria want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAccess {
    /// Nothing shows that it cannot.
    Possible,
    /// A criterion that only a change can meet does not hold, and the sandbox lets Codex change
    /// nothing.
    Refused,
}

/// The report of a turn for the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnReport {
    /// The end of the turn.
    pub end: TurnEnd,
    /// The steps that Codex executed.
    pub evidence: Evidence,
    /// The number of refused attempts that are not in `evidence`.
    pub denied: u64,
    /// The number of failed steps, such as commands that exited with another code than 0.
    pub failed: u64,
    /// The summary of the verdict after the turn.
    pub status: VerdictStatus,
    /// Whether the turn brought something new.
    pub gain: Gain,
    /// Whether its answer is new.
    pub answer: AnswerNovelty,
    /// Whether Codex can make the changes that are still wanted.
    pub write_access: WriteAccess,
    /// The tokens of the run until now.
    pub tokens: u64,
}

/// The next step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Give Codex a prompt.
    Prompt(TurnPrompt),
    /// Interrupt the turn, if one runs.
    Interrupt,
    /// The run is over.
    End(RunEnd),
}

/// The prompt of the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnPrompt {
    /// The kind of prompt.
    pub kind: PromptKind,
    /// The conversation for it.
    pub conversation: Conversation,
    /// The number of the turn, from 1.
    pub turn: u32,
    /// The time at which the turn must be over.
    pub until: Duration,
}

/// The conversation of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    /// The current or resumed conversation of the run; a new one if there is none.
    Same,
    /// A new conversation, without the earlier messages.
    New,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunEnd {
    /// All criteria hold.
    Satisfied,
    /// All criteria held, but the repository changed afterwards. Found by the shell, never by
    /// the machine.
    Unconfirmed,
    /// The criteria want a change, and the sandbox is read-only.
    ReadOnly,
    /// Codex executes nothing, or repeats its answers.
    Stalled,
    /// All turns are used up.
    MaxTurns,
    /// The time is used up.
    TotalTime,
    /// The tokens are used up.
    MaxTokens,
    /// Codex cannot work, for this reason.
    CouldNotRun(FailureClass),
    /// The run was cancelled.
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Working,
    Interrupting(InterruptReason),
    Over,
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum InterruptReason {
    Time,
    Tokens,
    Stop,
}

/// Whether the run has replaced its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Renewal {
    Never,
    Once,
}

/// The machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    limits: Limits,
    state: State,
    turns: u32,
    until: Duration,
    renewal: Renewal,
    /// The number of idle turns in a row.
    idle: u32,
    /// The number of failed turns in a row without an attempt.
    failures: u32,
}

impl Run {
    /// Begins a run.
    #[must_use]
    pub fn start(limits: Limits) -> (Self, TurnPrompt) {
        let mut run = Self {
            limits,
            state: State::Working,
            turns: 0,
            until: Duration::ZERO,
            renewal: Renewal::Never,
            idle: 0,
            failures: 0,
        };
        let prompt = run.prompt(PromptKind::Initial, Conversation::Same, Duration::ZERO);
        (run, prompt)
    }

    /// The number of turns, including the running one. A turn that could not begin because its
    /// conversation was lost does not count.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// The time at which to call [`tick`](Self::tick), if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        (self.state == State::Working).then_some(self.until)
    }

    /// Takes the time, and interrupts a turn that takes too long.
    pub fn tick(&mut self, at: Duration) -> Option<NextStep> {
        let late = self.deadline().is_some_and(|deadline| at >= deadline);
        late.then(|| self.interrupt(InterruptReason::Time))
    }

    /// Takes the tokens of the run, and interrupts a turn that uses too many.
    pub fn tokens_used(&mut self, tokens: u64) -> Option<NextStep> {
        let too_many = self.state == State::Working && self.is_used_up(tokens);
        too_many.then(|| self.interrupt(InterruptReason::Tokens))
    }

    fn is_used_up(&self, tokens: u64) -> bool {
        self.limits.max_tokens.is_some_and(|most| tokens >= most)
    }

    /// Cancels the run, which is over when the turn has ended.
    pub fn stop(&mut self) -> Option<NextStep> {
        match self.state {
            State::Working => Some(self.interrupt(InterruptReason::Stop)),
            State::Interrupting(_) => {
                self.state = State::Interrupting(InterruptReason::Stop);
                None
            }
            State::Over => None,
        }
    }

    /// Takes the report of a turn, and returns the next step; `None` if the run was over.
    pub fn step(&mut self, report: &TurnReport, at: Duration) -> Option<NextStep> {
        let why = match self.state {
            State::Working => None,
            State::Interrupting(why) => Some(why),
            State::Over => return None,
        };
        self.update_counters(report);
        let next = match self.run_end(report, why, at) {
            Some(end) => NextStep::End(end),
            None => self.continue_run(report, at),
        };
        self.state = match next {
            NextStep::End(_) => State::Over,
            NextStep::Prompt(_) | NextStep::Interrupt => State::Working,
        };
        Some(next)
    }

    fn interrupt(&mut self, why: InterruptReason) -> NextStep {
        self.state = State::Interrupting(why);
        NextStep::Interrupt
    }

    fn update_counters(&mut self, report: &TurnReport) {
        let activity = report.activity();
        let failed = matches!(
            report.end,
            TurnEnd::Failed(_) | TurnEnd::Died | TurnEnd::TimedOut
        );
        let raised = |count: u32, holds: bool| if holds { count + 1 } else { 0 };
        self.idle = raised(self.idle, report.is_idle());
        self.failures = raised(self.failures, failed && activity == Activity::WordsOnly);
        if report.failure() == Some(FailureClass::UnknownSession) {
            self.turns = self.turns.saturating_sub(1);
        }
    }

    /// The end of the run, if this was the last turn.
    fn run_end(
        &self,
        report: &TurnReport,
        why: Option<InterruptReason>,
        at: Duration,
    ) -> Option<RunEnd> {
        let broken = report.failure();
        let lost_again = report.has_lost_its_conversation() && self.renewal == Renewal::Once;
        let is_permanent = broken.is_some_and(is_permanent);
        let end = if why == Some(InterruptReason::Stop) {
            RunEnd::Cancelled
        } else if report.status == VerdictStatus::Satisfied {
            RunEnd::Satisfied
        } else if at >= self.limits.total {
            RunEnd::TotalTime
        } else if self.is_used_up(report.tokens) {
            RunEnd::MaxTokens
        } else if let Some(class) = broken
            && (is_permanent || lost_again || self.failures >= FAILURES_LIMIT)
        {
            RunEnd::CouldNotRun(class)
        } else if report.write_access == WriteAccess::Refused && report.gain == Gain::Nothing {
            RunEnd::ReadOnly
        } else if self.idle >= self.limits.stall_after {
            RunEnd::Stalled
        } else if self.turns >= self.limits.turns {
            RunEnd::MaxTurns
        } else {
            return None;
        };
        Some(end)
    }

    fn continue_run(&mut self, report: &TurnReport, at: Duration) -> NextStep {
        if !report.has_lost_its_conversation() {
            return NextStep::Prompt(self.prompt(
                report.next_prompt_kind(),
                Conversation::Same,
                at,
            ));
        }
        self.renewal = Renewal::Once;
        let kind = match self.turns {
            0 => PromptKind::Initial,
            _ => PromptKind::Continuation,
        };
        NextStep::Prompt(self.prompt(kind, Conversation::New, at))
    }

    fn prompt(&mut self, kind: PromptKind, conversation: Conversation, at: Duration) -> TurnPrompt {
        self.turns += 1;
        self.until = self.limits.total.min(at.saturating_add(self.limits.turn));
        TurnPrompt {
            kind,
            conversation,
            turn: self.turns,
            until: self.until,
        }
    }
}

/// Whether Codex attempted anything in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    WordsOnly,
    Attempted,
}

impl TurnReport {
    /// Denied steps and failed calls are attempts too.
    fn activity(&self) -> Activity {
        match self.evidence.executed() + self.denied() + self.evidence.failed_calls {
            0 => Activity::WordsOnly,
            _ => Activity::Attempted,
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

    /// Whether the next turn needs a new conversation.
    fn has_lost_its_conversation(&self) -> bool {
        let lost = [FailureClass::UnknownSession, FailureClass::ContextWindow];
        self.failure().is_some_and(|class| lost.contains(&class))
    }

    /// The kind of the next prompt, if there is one.
    fn next_prompt_kind(&self) -> PromptKind {
        if self.end != TurnEnd::Completed || self.denied() > 0 {
            return PromptKind::Recovery;
        }
        match (self.activity(), self.failed, self.gain) {
            (Activity::WordsOnly, ..) => PromptKind::Nudge,
            (Activity::Attempted, 1.., Gain::Nothing) => PromptKind::Recovery,
            (Activity::Attempted, ..) => PromptKind::Continuation,
        }
    }
}

/// Whether an immediate further turn would fail as well.
fn is_permanent(class: FailureClass) -> bool {
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
