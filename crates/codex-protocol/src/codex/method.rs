//! The requests that codex-mcp makes to the app-server.

use std::fmt;

/// The method of a request to the app-server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Introduces the client; once per connection, before all else.
    Initialize,
    /// Begins a thread.
    ThreadStart,
    /// Resumes a thread from its rollout.
    ThreadResume,
    /// Lists the threads that are loaded; 0.104.0 knows it too.
    ThreadLoadedList,
    /// Begins a thread that continues from the current state of another one.
    ThreadFork,
    /// Unsubscribes from a thread, which Codex may then unload; 0.104.0 does not know it.
    ThreadUnsubscribe,
    /// Archives and unloads a thread.
    ThreadArchive,
    /// Restores an archived thread.
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
    /// Reads the configuration. Codex refuses it if it cannot load its configuration.
    ConfigRead,
    /// Reads the account, and whether a login is required.
    AccountRead,
    /// Reads how much of the account's limits is used. Codex asks its backend; older
    /// releases answer no other request until the backend has answered.
    AccountRateLimitsRead,
}

impl Method {
    /// The method's name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ThreadStart => "thread/start",
            Self::ThreadResume => "thread/resume",
            Self::ThreadLoadedList => "thread/loaded/list",
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
            Self::ConfigRead => "config/read",
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
