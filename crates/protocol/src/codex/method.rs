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
    /// Gives a thread its next prompt.
    TurnStart,
    /// Ends the running turn of a thread.
    TurnInterrupt,
}

impl Method {
    /// The method as it stands on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::ThreadStart => "thread/start",
            Self::ThreadResume => "thread/resume",
            Self::TurnStart => "turn/start",
            Self::TurnInterrupt => "turn/interrupt",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
