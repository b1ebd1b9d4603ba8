//! What can be asked of the engine and what it answers: plain values, so that
//! the engine could as well live in another process than the one that asks.

use std::fmt;
use std::sync::Arc;

use codex_mcp_core::action::ActionId;
use codex_mcp_core::session::{Outcome, State};
use codex_mcp_protocol::codex::{Ask, ThreadId, ThreadSettings, TurnId};
use serde::{Deserialize, Serialize};

use super::profile::ProfileName;

/// Our name for a session: `sess_` and 12 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    pub(crate) fn new() -> Self {
        let mut digits = uuid::Uuid::new_v4().simple().to_string();
        digits.truncate(12);
        Self(format!("sess_{digits}"))
    }

    /// The id in a text that came from outside. It need not exist.
    #[must_use]
    pub fn named(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Begin a thread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// Its settings. A relative `cwd` is relative to our own.
    pub settings: ThreadSettings,
    /// A profile of Codex's, below the settings.
    pub profile: Option<ProfileName>,
}

/// A thread that can be prompted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Our session with it.
    pub session: SessionId,
    /// The thread.
    pub thread: ThreadId,
}

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRef {
    /// The session.
    pub session: SessionId,
    /// Which of its turns, counted from 1.
    pub number: u64,
}

/// How a session stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct View {
    /// Counts the changes; see `Engine::changed`.
    pub revision: u64,
    /// In short.
    pub state: State,
    /// The number of the current or last turn.
    pub turn: u64,
    /// Codex's name for the running turn, once it is known.
    pub turn_id: Option<TurnId>,
    /// How many steps Codex has taken, and the last one in words.
    pub progress: (u64, String),
    /// What Codex waits for.
    pub actions: Vec<Open>,
    /// What came of the last turn that ended, and which one that was.
    pub outcome: Option<(u64, Arc<Outcome>)>,
}

/// A question of Codex's that is open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// Its name.
    pub id: ActionId,
    /// The question.
    pub ask: Ask,
}
