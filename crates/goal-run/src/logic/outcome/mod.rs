//! The outcome of a run, and its texts for notifiers.

mod letter;
mod notice;

use std::ops::AddAssign;

use codex_config::logic::prompt_kind::PromptKind;
use codex_engine::logic::describe::line;
use codex_engine::logic::work::Evidence;
use codex_protocol::codex::TokenCount;
use serde::{Deserialize, Serialize};

use super::artifacts::{Artifact, Gain};
use super::findings::Verdict;
use super::machine::{Conversation, RunEnd, TurnEnd};

pub use letter::letter;
pub use notice::{NOTICE_LIMIT, blocked};

/// How many artifacts an outcome lists; all are counted.
pub const ARTIFACTS_LIMIT: usize = 500;

/// How many notes of a kind the record of a turn has.
pub const NOTES_LIMIT: usize = 20;

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunOutcome {
    /// Whether all criteria hold.
    pub ok: bool,
    /// Whether criteria were given and hold. Without criteria, `ok` rests on Codex's steps
    /// alone.
    pub verified: bool,
    /// The artifacts; empty if not all criteria hold, see `partial`.
    pub artifacts: Vec<Artifact>,
    /// The evidence of all turns.
    pub evidence: RunEvidence,
    /// The number of turns.
    pub turns: u32,
    /// Why the run ended, if not all criteria hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Details of the reason, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Advice for people; `None` if `why` has it.
    #[serde(skip)]
    pub hint: Option<&'static str>,
    /// The artifacts, if not all criteria hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<Vec<Artifact>>,
    /// The criteria that do not hold or are unknown, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The number of artifacts that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_artifacts: usize,
}

/// Why a run ended although not all criteria hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All criteria held, but the repository changed afterwards.
    Unconfirmed,
    /// The criteria want a change, and the sandbox is read-only.
    ReadOnly,
    /// Codex executed nothing, or repeated its answers.
    Stalled,
    /// All turns were used up.
    MaxTurnsExceeded,
    /// The time was used up.
    TotalTimeExceeded,
    /// The tokens were used up.
    MaxTokensExceeded,
    /// Codex could not work.
    CouldNotRun,
    /// The run was cancelled.
    Cancelled,
}

/// The evidence of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEvidence {
    /// The steps of all turns.
    #[serde(flatten)]
    pub total: Evidence,
    /// The verdict at the end.
    pub criteria: Verdict,
    /// The records of the turns.
    pub log: Vec<TurnRecord>,
}

/// The tokens used, as Codex reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All of them, read and written.
    pub total_tokens: u64,
    /// Read by the model.
    pub input_tokens: u64,
    /// Of these, known from an earlier request.
    pub cached_input_tokens: u64,
    /// Written by the model.
    pub output_tokens: u64,
    /// Of these, thoughts.
    pub reasoning_output_tokens: u64,
}

impl Usage {
    /// Whether Codex reported no tokens.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl From<TokenCount> for Usage {
    fn from(count: TokenCount) -> Self {
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        Self {
            total_tokens: number(count.total_tokens),
            input_tokens: number(count.input_tokens),
            cached_input_tokens: number(count.cached_input_tokens),
            output_tokens: number(count.output_tokens),
            reasoning_output_tokens: number(count.reasoning_output_tokens),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.total_tokens += more.total_tokens;
        self.input_tokens += more.input_tokens;
        self.cached_input_tokens += more.cached_input_tokens;
        self.output_tokens += more.output_tokens;
        self.reasoning_output_tokens += more.reasoning_output_tokens;
    }
}

/// The record of a turn: a line of the evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The number of the turn, from 1.
    pub turn: u32,
    /// The kind of prompt that began the turn.
    pub prompt: PromptKind,
    /// Whether the turn continued the conversation or began a new one.
    pub conversation: Conversation,
    /// How the turn ended, in one word.
    pub end: String,
    /// The duration of the turn, in milliseconds.
    pub duration_ms: u64,
    /// The steps of the turn.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// Refusals, in words: see [`notes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// The tokens of the turn; zero if Codex reported none.
    #[serde(default, skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// Errors, in words: see [`notes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Words by which Codex announced work. They decide nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<String>,
    /// Whether the turn brought something new.
    pub gain: Gain,
    /// The review of the changes after the turn, within 8 KiB, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<String>,
    /// The verdict after the turn.
    pub criteria: Verdict,
}

impl TurnEnd {
    /// The end in a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed(class) => class.name(),
            Self::TimedOut => "timed_out",
            Self::Interrupted => "interrupted",
            Self::Died => "died",
            Self::StaleSession => "stale_session",
        }
    }
}

impl Reason {
    fn of(end: RunEnd) -> Option<Self> {
        match end {
            RunEnd::Satisfied => None,
            RunEnd::Unconfirmed => Some(Self::Unconfirmed),
            RunEnd::ReadOnly => Some(Self::ReadOnly),
            RunEnd::Stalled => Some(Self::Stalled),
            RunEnd::MaxTurns => Some(Self::MaxTurnsExceeded),
            RunEnd::TotalTime => Some(Self::TotalTimeExceeded),
            RunEnd::MaxTokens => Some(Self::MaxTokensExceeded),
            RunEnd::CouldNotRun(_) => Some(Self::CouldNotRun),
            RunEnd::Cancelled => Some(Self::Cancelled),
        }
    }

    /// The reason in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Unconfirmed => "all held, but the repository changed before Codex had ended",
            Self::ReadOnly => "Codex's sandbox is read-only, and the criteria require a change",
            Self::Stalled => "Codex executed nothing, or repeated its last answer, turn after turn",
            Self::MaxTurnsExceeded => "all turns are used up",
            Self::TotalTimeExceeded => "the time is used up",
            Self::MaxTokensExceeded => "the tokens are used up",
            Self::CouldNotRun => "Codex could not run",
            Self::Cancelled => "cancelled",
        }
    }
}

impl RunOutcome {
    /// The outcome of a run with this end. `made` has the artifacts, the most important ones
    /// first; `why` has details of a failure.
    #[must_use]
    pub fn new(
        end: RunEnd,
        mut made: Vec<Artifact>,
        evidence: RunEvidence,
        turns: u32,
        why: Option<String>,
    ) -> Self {
        let more_artifacts = made.len().saturating_sub(ARTIFACTS_LIMIT);
        made.truncate(ARTIFACTS_LIMIT);
        let reason = Reason::of(end);
        let hint = match end {
            RunEnd::CouldNotRun(class) => Some(class.hint()),
            _ => None,
        };
        let (artifacts, partial) = match reason {
            None => (made, None),
            Some(_) => (Vec::new(), Some(made)),
        };
        Self {
            ok: reason.is_none(),
            verified: reason.is_none() && evidence.criteria.has_criteria(),
            artifacts,
            missing: evidence.criteria.missing(),
            evidence,
            turns,
            reason,
            hint: hint.filter(|_| why.is_some()),
            why: why.or_else(|| hint.map(str::to_owned)),
            partial,
            more_artifacts,
        }
    }

    /// The artifacts, whether or not all criteria hold.
    #[must_use]
    pub fn made(&self) -> &[Artifact] {
        self.partial.as_deref().unwrap_or(&self.artifacts)
    }
}

/// Notes for a record: a line each, the first [`NOTES_LIMIT`], and the number of others.
#[must_use]
pub fn notes(accounts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut accounts = accounts.into_iter();
    let first = accounts.by_ref().take(NOTES_LIMIT);
    let mut notes: Vec<String> = first.map(|account| line(&account)).collect();
    match accounts.count() {
        0 => {}
        more => notes.push(format!("and {more} more")),
    }
    notes
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
