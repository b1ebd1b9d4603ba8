//! The protocol for one line to an IRC channel (RFC 2812). The caller holds the connection.
//!
//! ```text
//!              welcome             own JOIN            PONG
//!  Registering ───────► Joining ───────────► Speaking ──────► Leaving ── closed ──► said
//!    │  ▲ └──────┐         │ JOIN               │ PRIVMSG, PING   QUIT
//!    └──┘ refused└─────────┴── refused, ended ──┴──► not said
//!  nickname taken: the next one
//! ```
//!
//! A server answers in order: before the answer to our PING, the line was sent on, or its
//! refusal has come. We stay until the server has closed the connection, so that nothing is
//! cut off.
//!
//! - [`address`]: the address of a channel.

pub mod address;
mod line;
mod refusal;

use common::text::one_line;

use address::ChannelName;
use line::{ServerLine, is_same};

pub use refusal::{ChannelRefusal, IrcError};

/// The longest line with its end, in bytes. Source: RFC 2812, 2.3.
const LINE_LIMIT: usize = 512;

/// Our nickname, which fits servers that allow 9 characters. Source: RFC 2812, 1.2.1.
const NICKNAME: &str = "codex-mcp";

/// How many nicknames are tried.
const NICKNAMES: u8 = 9;

/// The token of our PING, which the PONG repeats.
const TOKEN: &str = "said";

/// How much of a server's words is shown, in bytes.
const WORDS_LIMIT: usize = 200;

/// The reply that accepts us. Source of the numbers: RFC 2812, 5.
const WELCOME: u16 = 1;

/// Replies that refuse a nickname: malformed, in use, or reserved.
const NICKNAME_REFUSED: [u16; 4] = [432, 433, 436, 437];

/// Replies that refuse the connection: wrong host, no password, banned, or soon banned.
const NOT_LET_IN: [u16; 4] = [463, 464, 465, 466];

/// The replies that are refusals.
const REFUSALS: std::ops::RangeInclusive<u16> = 400..=599;

/// Sends one line to a channel.
#[derive(Debug, Clone)]
pub struct ChannelSender {
    channel: ChannelName,
    line: String,
    state: State,
}

/// The state of a [`ChannelSender`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The nickname of this number was requested, from 1.
    Registering(u8),
    /// The server accepted this nickname.
    Joining { nickname: String },
    /// The line was sent.
    Speaking,
    /// The line was delivered.
    Leaving,
}

/// Why reading from the server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadEnd {
    /// The connection was closed or broke.
    Closed,
    /// The time limit was reached.
    TimedOut,
    /// The server sent more than the limit.
    Flood,
}

impl ChannelSender {
    /// Will send `line` to `channel`, with spaces for line breaks and colours.
    #[must_use]
    pub fn new(channel: ChannelName, line: &str) -> Self {
        Self {
            channel,
            line: one_line(line, LINE_LIMIT),
            state: State::Registering(1),
        }
    }

    /// The first lines to write, each with its end.
    #[must_use]
    pub fn registration(&self) -> String {
        lines(&[
            &format!("NICK {NICKNAME}"),
            &format!("USER {NICKNAME} 0 * :{NICKNAME}"),
        ])
    }

    /// Takes a line of the server, and returns the lines to write, each with its end.
    ///
    /// # Errors
    ///
    /// [`IrcError`] if the line will not be sent.
    pub fn receive(&mut self, line: &[u8]) -> Result<String, IrcError> {
        let Some(line) = ServerLine::parse(line) else {
            return Ok(String::new());
        };
        if line.command == "PING" {
            return Ok(lines(&[&format!("PONG :{}", one_word(line.words()))]));
        }
        if line.command == "ERROR" && self.state != State::Leaving {
            return Err(IrcError::Ended(shown(line.words())));
        }
        match &self.state {
            State::Registering(number) => self.register(*number, &line),
            State::Joining { nickname } => {
                let joined = line.command == "JOIN"
                    && is_same(line.nickname(), nickname)
                    && self.is_channel(line.parameter(0));
                match joined {
                    true => Ok(self.speak(&line.origin)),
                    false => self.check_refusal(&line),
                }
            }
            State::Speaking if line.command == "PONG" => {
                self.state = State::Leaving;
                Ok(lines(&["QUIT"]))
            }
            State::Speaking => self.check_refusal(&line),
            State::Leaving => Ok(String::new()),
        }
    }

    /// Whether the line was sent, at the end of reading.
    ///
    /// # Errors
    ///
    /// [`IrcError`] if it was not, or if that is unknown.
    pub fn end(&self, read_end: ReadEnd) -> Result<(), IrcError> {
        let doing = match self.state {
            State::Registering(_) => "while we registered",
            State::Joining { .. } => "while we joined the channel",
            State::Speaking => "after the line was sent; it may have been said",
            State::Leaving => return Ok(()),
        };
        Err(match read_end {
            ReadEnd::Closed => IrcError::Closed(doing),
            ReadEnd::TimedOut => IrcError::Silent(doing),
            ReadEnd::Flood => IrcError::Flood(doing),
        })
    }

    fn register(&mut self, number: u8, line: &ServerLine) -> Result<String, IrcError> {
        match line.number() {
            Some(WELCOME) => {
                let nickname = line.parameter(0).to_owned();
                self.state = State::Joining { nickname };
                Ok(lines(&[&format!("JOIN {}", self.channel)]))
            }
            Some(code) if NICKNAME_REFUSED.contains(&code) => {
                if number == NICKNAMES {
                    return Err(IrcError::Nicknames(shown(line.words())));
                }
                let next = number + 1;
                self.state = State::Registering(next);
                Ok(lines(&[&format!("NICK codex-{next}")]))
            }
            Some(code) if NOT_LET_IN.contains(&code) => {
                Err(IrcError::NotLetIn(shown(line.words())))
            }
            _ => Ok(String::new()),
        }
    }

    /// Sends the line. Servers relay it with `origin` before it, and cut off the excess, so it
    /// is shortened here.
    fn speak(&mut self, origin: &str) -> String {
        self.state = State::Speaking;
        let around = format!(":{origin} PRIVMSG {} :\r\n", self.channel);
        let room = LINE_LIMIT.saturating_sub(around.len());
        let text = match self.line.len() <= room {
            true => self.line.clone(),
            false => one_line(&self.line, room),
        };
        let message = format!("PRIVMSG {} :{text}", self.channel);
        lines(&[&message, &format!("PING :{TOKEN}")])
    }

    /// Returns the refusal of the channel, if the line is one. Servers also send refusals that are
    /// not about the channel, such as that there is no message of the day.
    fn check_refusal(&self, line: &ServerLine) -> Result<String, IrcError> {
        let code = line.number().filter(|code| REFUSALS.contains(code));
        match code {
            Some(code) if self.is_channel(line.parameter(1)) => Err(IrcError::Channel {
                channel: self.channel.clone(),
                refusal: ChannelRefusal::of(code),
                words: shown(line.words()),
            }),
            _ => Ok(String::new()),
        }
    }

    fn is_channel(&self, name: &str) -> bool {
        is_same(name, self.channel.as_str())
    }
}

fn lines(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\r\n")).collect()
}

/// The text that a server wants back, without characters that would begin another line.
fn one_word(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}

fn shown(text: &str) -> String {
    one_line(text, WORDS_LIMIT)
}

#[cfg(test)]
mod tests;
