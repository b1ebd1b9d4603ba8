//! What a run answers, and how others are told of it.

mod letter;
mod notice;

use std::ops::AddAssign;

use codex_config::prompt_kind::PromptKind;
use codex_engine::logic::describe::line;
use codex_engine::logic::work::Evidence;
use codex_protocol::codex::TokenCount;
use serde::{Deserialize, Serialize};

use super::artifacts::{Artifact, Gain};
use super::findings::Verdict;
use super::machine::{Conversation, End, TurnEnd};

pub use letter::letter;
pub use notice::{NOTICE_LIMIT, blocked};

/// How many artifacts are told; all are counted.
pub const ARTIFACTS_LIMIT: usize = 500;

/// How many things of a kind are told of a turn.
pub const NOTES_LIMIT: usize = 20;

/// What has come of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Whether all that was asked for holds.
    pub ok: bool,
    /// Whether something was asked for and found to hold. Without criteria, `ok` rests on
    /// what Codex did alone.
    pub verified: bool,
    /// What was made; nothing if not all holds, see `partial`.
    pub artifacts: Vec<Artifact>,
    /// What was seen.
    pub evidence: RunEvidence,
    /// How many turns there were.
    pub turns: u32,
    /// Why it ended, if not all holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// More about the reason, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about it, for people; `None` where `why` says that.
    #[serde(skip)]
    pub hint: Option<&'static str>,
    /// What was made all the same, if not all holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<Vec<Artifact>>,
    /// What doesn't hold, or can't be told, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How many artifacts more there are than are told.
    #[serde(skip_serializing_if = "is_zero")]
    pub more_artifacts: usize,
}

/// Why a run ended without all that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All held, but the repository has changed since.
    Unconfirmed,
    /// Codex executed nothing, or repeated itself.
    Stalled,
    /// There were no more turns.
    MaxTurnsExceeded,
    /// There was no more time.
    TotalTimeExceeded,
    /// There were no more tokens.
    MaxTokensExceeded,
    /// Codex could not work.
    CouldNotRun,
    /// Somebody called it off.
    Cancelled,
}

/// What was seen of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEvidence {
    /// What Codex did in all turns together.
    #[serde(flatten)]
    pub total: Evidence,
    /// What was found of each criterion in the end.
    pub criteria: Verdict,
    /// The turns.
    pub log: Vec<TurnRecord>,
}

/// How many tokens were used, as Codex tells it.
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
    /// Whether Codex has told of none.
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

/// What was seen of a turn: a line of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TurnRecord {
    /// Its number, from 1.
    pub turn: u32,
    /// What it began with.
    pub prompt: PromptKind,
    /// Where it took place.
    pub conversation: Conversation,
    /// How it ended, in a word.
    pub end: &'static str,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What Codex did in it.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// What Codex was denied, in words: see [`notes`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// How many tokens it used; none where Codex did not tell.
    #[serde(skip_serializing_if = "Usage::is_nothing")]
    pub usage: Usage,
    /// What went wrong, in words: see [`notes`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Words by which Codex announced work. They decide nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub promises: Vec<&'static str>,
    /// Whether there was something new after it.
    pub gain: Gain,
    /// What was found of each criterion after it.
    pub criteria: Verdict,
}

impl TurnEnd {
    /// It in a word.
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
    fn of(end: End) -> Option<Self> {
        match end {
            End::Satisfied => None,
            End::Unconfirmed => Some(Self::Unconfirmed),
            End::Stalled => Some(Self::Stalled),
            End::MaxTurns => Some(Self::MaxTurnsExceeded),
            End::TotalTime => Some(Self::TotalTimeExceeded),
            End::MaxTokens => Some(Self::MaxTokensExceeded),
            End::CouldNotRun(_) => Some(Self::CouldNotRun),
            End::Cancelled => Some(Self::Cancelled),
        }
    }

    /// It in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Unconfirmed => "all held, but the repository changed before Codex had ended",
            Self::Stalled => "Codex executed nothing, or repeated its last answer, turn after turn",
            Self::MaxTurnsExceeded => "all turns are used up",
            Self::TotalTimeExceeded => "the time is used up",
            Self::MaxTokensExceeded => "the tokens are used up",
            Self::CouldNotRun => "Codex could not run",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Outcome {
    /// What a run answers that ended in this way. `made` is what there is to show,
    /// what weighs most first; `why` says more about a failure than its kind.
    #[must_use]
    pub fn new(
        end: End,
        mut made: Vec<Artifact>,
        evidence: RunEvidence,
        turns: u32,
        why: Option<String>,
    ) -> Self {
        let more_artifacts = made.len().saturating_sub(ARTIFACTS_LIMIT);
        made.truncate(ARTIFACTS_LIMIT);
        let reason = Reason::of(end);
        let hint = match end {
            End::CouldNotRun(class) => Some(class.hint()),
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

    /// What was made, whether or not all holds.
    #[must_use]
    pub fn made(&self) -> &[Artifact] {
        self.partial.as_deref().unwrap_or(&self.artifacts)
    }
}

/// Accounts of things as a record keeps them: a line each, the first [`NOTES_LIMIT`]
/// and how many more there are.
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
