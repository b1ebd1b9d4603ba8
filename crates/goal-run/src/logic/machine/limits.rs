//! The limits of a run: turns, times, idle turns and tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The default limit of turns. Source of this and the next two numbers: the specification of
/// futon3c's peripheral.
pub const MAX_TURNS: u32 = 10;

/// The default time limit of a turn (120 s).
pub const TURN_LIMIT: Duration = Duration::from_secs(120);

/// The default time limit of a run (10 min).
pub const TOTAL_LIMIT: Duration = Duration::from_secs(600);

/// The least time limit of a command of a criterion (5 min).
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// The largest limit of turns: a record of each turn is kept.
pub const MOST_TURNS: u32 = 100;

/// The longest time limit (24 h).
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The default number of idle turns in a row after which a run has stalled.
pub const STALL_AFTER: u32 = 3;

/// The limits of a run. As JSON, the times are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawLimits", into = "RawLimits")]
pub struct Limits {
    pub(super) turns: u32,
    pub(super) turn: Duration,
    pub(super) total: Duration,
    pub(super) stall_after: u32,
    pub(super) max_tokens: Option<u64>,
}

/// The limits by the names of the specification of futon3c's peripheral. Absent ones have
/// their defaults.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct RawLimits {
    /// The number of turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The time limit of a turn, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_timeout_ms: Option<u64>,
    /// The time limit of the run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_timeout_ms: Option<u64>,
    /// The number of idle turns in a row after which the run has stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_after: Option<u32>,
    /// The limit of tokens for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
}

impl TryFrom<RawLimits> for Limits {
    type Error = BadLimits;

    fn try_from(parts: RawLimits) -> Result<Self, BadLimits> {
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

impl From<Limits> for RawLimits {
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

/// A duration in milliseconds, as records have it.
#[must_use]
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why limits are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadLimits {
    /// Too few or too many turns.
    #[error("a run has from 1 to {MOST_TURNS} turns, not {0}")]
    Turns(u32),
    /// Too little or too much time for a turn.
    #[error("a turn takes more than 0 s and at most 24 h, not {} s", .0.as_secs())]
    TurnTime(Duration),
    /// Too little or too much time for the run.
    #[error("a run takes more than 0 s and at most 24 h, not {} s", .0.as_secs())]
    TotalTime(Duration),
    /// Too few or too many idle turns.
    #[error("a run stalls after 1 to {MOST_TURNS} idle turns, not {0}")]
    Stall(u32),
    /// A limit of no tokens.
    #[error("the token limit must be 1 or more")]
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

    /// Whether the limit is a duration of a turn or of the whole run.
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
    /// Limits of turns, of time for each turn, and of time for the run.
    ///
    /// # Errors
    ///
    /// [`BadLimits`] if one is zero or too large.
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

    /// The same limits with another number of idle turns.
    ///
    /// # Errors
    ///
    /// [`BadLimits::Stall`] if it is zero or more than [`MOST_TURNS`].
    pub fn stalling_after(self, stall_after: u32) -> Result<Self, BadLimits> {
        match (1..=MOST_TURNS).contains(&stall_after) {
            true => Ok(Self {
                stall_after,
                ..self
            }),
            false => Err(BadLimits::Stall(stall_after)),
        }
    }

    /// The same limits with a limit of tokens.
    ///
    /// # Errors
    ///
    /// [`BadLimits::Tokens`] if it is zero.
    pub fn within_tokens(self, max_tokens: Option<u64>) -> Result<Self, BadLimits> {
        match max_tokens {
            Some(0) => Err(BadLimits::Tokens),
            max_tokens => Ok(Self { max_tokens, ..self }),
        }
    }

    /// The limit of turns.
    #[must_use]
    pub fn turns(self) -> u32 {
        self.turns
    }

    /// The time limit of a turn.
    #[must_use]
    pub fn turn(self) -> Duration {
        self.turn
    }

    /// The time limit of a command of a criterion: the limit of a turn, in which Codex can run the
    /// same command, but at least 5 min.
    #[must_use]
    pub fn command(self) -> Duration {
        self.turn.max(COMMAND_LIMIT)
    }

    /// The time limit of the run.
    #[must_use]
    pub fn total(self) -> Duration {
        self.total
    }
}
