//! What we ask of the app-server.

use std::fmt;

/// A request that codex-mcp makes of the app-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Introduces the client; once per connection, before all else.
    Initialize,
    /// Begins a thread.
    ThreadStart,
    /// Takes up a thread again from its rollout.
    ThreadResume,
    /// Begins a thread that goes on from where another one stands.
    ThreadFork,
    /// Lets go of a thread, which Codex may unload then; 0.104.0 does not know it.
    ThreadUnsubscribe,
    /// Put a thread away, and unload it.
    ThreadArchive,
    /// Bring one back that was put away.
    ThreadUnarchive,
    /// Gives a thread its next prompt.
    TurnStart,
    /// Has a thread review code, as a turn of its own.
    ReviewStart,
    /// Adds to the prompt of the running turn.
    TurnSteer,
    /// Ends the running turn of a thread.
    TurnInterrupt,
    /// Ends the commands of a thread that run on after their turn.
    BackgroundTerminalsClean,
    /// Lists them; 0.104.0 does not know it.
    BackgroundTerminalsList,
    /// Ends one of them; 0.104.0 does not know it.
    BackgroundTerminalsTerminate,
    /// Tells whether there is a login, and whether one is needed.
    AccountRead,
    /// Tells how much of the account's limits is used. Codex asks its backend, and older
    /// releases answer nothing else until that has answered.
    AccountRateLimitsRead,
}

impl Method {
    /// The method as it stands on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ThreadStart => "thread/start",
            Self::ThreadResume => "thread/resume",
            Self::ThreadFork => "thread/fork",
            Self::ThreadUnsubscribe => "thread/unsubscribe",
            Self::ThreadArchive => "thread/archive",
            Self::ThreadUnarchive => "thread/unarchive",
            Self::TurnStart => "turn/start",
            Self::ReviewStart => "review/start",
            Self::TurnSteer => "turn/steer",
            Self::TurnInterrupt => "turn/interrupt",
            Self::BackgroundTerminalsClean => "thread/backgroundTerminals/clean",
            Self::BackgroundTerminalsList => "thread/backgroundTerminals/list",
            Self::BackgroundTerminalsTerminate => "thread/backgroundTerminals/terminate",
            Self::AccountRead => "account/read",
            Self::AccountRateLimitsRead => "account/rateLimits/read",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
