//! Errors of sending to a channel.

use std::fmt;

use super::address::ChannelName;

/// Why a line was not sent. Texts of servers are shortened and without control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IrcError {
    /// The server refused all of our nicknames.
    #[error("the server takes none of our nicknames, of codex-mcp and codex-2 to codex-9: {0}")]
    Nicknames(String),
    /// The server refused the connection.
    #[error(
        "the server refused the connection: {0}. Choose one that is open without a password, or notify by command:PROGRAM"
    )]
    NotLetIn(String),
    /// The server ended the connection with a reason.
    #[error("the server has ended the connection: {0}")]
    Ended(String),
    /// We may not join or speak.
    #[error("nothing can be said in {channel}: {refusal} (the server: {words})")]
    Channel {
        /// The channel.
        channel: ChannelName,
        /// The reason.
        refusal: ChannelRefusal,
        /// The server's own text.
        words: String,
    },
    /// The connection has ended.
    #[error("the connection was closed {0}")]
    Closed(&'static str),
    /// The server has not answered in time.
    #[error("the server has not answered in time, {0}")]
    Silent(&'static str),
    /// The server sent too much.
    #[error("the server sent more than the limit, {0}")]
    Flood(&'static str),
}

/// Why a channel refused us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "what they mean is shown")]
pub enum ChannelRefusal {
    NoChannel,
    NoVoice,
    TooMany,
    Elsewhere,
    Full,
    InviteOnly,
    Banned,
    Key,
    Registered,
    Encrypted,
    Other(u16),
}

impl ChannelRefusal {
    /// Source of the numbers: RFC 2812, 5.2. The numbers from 470 on that the RFC lacks are later
    /// conventions of servers.
    pub(super) fn of(code: u16) -> Self {
        match code {
            401 | 403 => Self::NoChannel,
            404 => Self::NoVoice,
            405 => Self::TooMany,
            470 => Self::Elsewhere,
            471 => Self::Full,
            473 => Self::InviteOnly,
            474 => Self::Banned,
            475 => Self::Key,
            477 => Self::Registered,
            489 => Self::Encrypted,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for ChannelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChannel => {
                "there is no such channel; have somebody make it, or see how it is written"
            }
            Self::NoVoice => "who joins may not speak there; take away its mode +m, or the ban",
            Self::TooMany => "we would be in too many channels",
            Self::Elsewhere => "the channel leads to another one; write that one",
            Self::Full => "the channel is full; raise its limit (+l)",
            Self::InviteOnly => "only who is invited may join (+i), and nobody invites us",
            Self::Banned => "we are banned there (+b)",
            Self::Key => "the channel wants a key (+k), and none can be given",
            Self::Registered => "only registered nicknames may join or speak, and ours is not",
            Self::Encrypted => "only who has an encrypted connection may join, and ours is not",
            Self::Other(code) => return write!(f, "the server refuses it (number {code})"),
        })
    }
}
