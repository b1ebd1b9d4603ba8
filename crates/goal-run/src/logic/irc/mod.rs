//! Telling a channel of IRC one line (RFC 2812), over a connection that somebody else
//! holds.
//!
//! ```text
//!              welcome             own JOIN            PONG
//!  Registering ───────► Joining ───────────► Speaking ──────► Leaving ── closed ──► said
//!    │  ▲ └──────┐         │ JOIN               │ PRIVMSG, PING   QUIT
//!    └──┘ refused└─────────┴── refused, ended ──┴──► not said
//!  nickname taken: the next one
//! ```
//!
//! A server answers in the order in which it is asked: with the answer to our PING, the
//! line before that has been said, or else its refusal has come. To be told so, and not
//! to be cut off in the middle, we stay until the server has closed the connection.
//!
//! - [`address`]: which channel, and where.

pub mod address;
mod line;
mod refusal;

use common::text::one_line;

use address::ChannelName;
use line::{ServerLine, is_same};

pub use refusal::{ChannelRefusal, IrcError};

/// The longest line, with what ends it, in bytes. Source: RFC 2812, 2.3.
const LINE_LIMIT: usize = 512;

/// Who we are; it fits where nicknames have 9 characters. Source: RFC 2812, 1.2.1.
const NICKNAME: &str = "codex-mcp";

/// How many nicknames are tried.
const NICKNAMES: u8 = 9;

/// What our PING asks to be given back.
const TOKEN: &str = "said";

/// How much of a server's words is shown, in bytes.
const WORDS_LIMIT: usize = 200;

/// What a server says when it takes us in. Source of the numbers: RFC 2812, 5.
const WELCOME: u16 = 1;

/// A nickname is not to be had: it is malformed there, in use, or kept for somebody.
const NICKNAME_REFUSED: [u16; 4] = [432, 433, 436, 437];

/// We are not let in: not from here, without a password, banned, or soon banned.
const NOT_LET_IN: [u16; 4] = [463, 464, 465, 466];

/// A refusal.
const REFUSALS: std::ops::RangeInclusive<u16> = 400..=599;

/// Says one line in a channel.
#[derive(Debug, Clone)]
pub struct Speaker {
    channel: ChannelName,
    line: String,
    state: State,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The nickname of this number was asked for, from 1.
    Registering(u8),
    /// The server calls us so.
    Joining { nickname: String },
    /// The line was sent.
    Speaking,
    /// It was said.
    Leaving,
}

/// Why nothing more comes from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// It has closed the connection, or that has broken.
    Closed,
    /// It was given time enough.
    TimedOut,
    /// It has said more than anybody wants to hear.
    Flood,
}

impl Speaker {
    /// Somebody who says `line` in `channel`. What would break a line or be a colour is
    /// a space in it.
    #[must_use]
    pub fn new(channel: ChannelName, line: &str) -> Self {
        Self {
            channel,
            line: one_line(line, LINE_LIMIT),
            state: State::Registering(1),
        }
    }

    /// What is written first: lines, each with its end.
    #[must_use]
    pub fn greeting(&self) -> String {
        lines(&[
            &format!("NICK {NICKNAME}"),
            &format!("USER {NICKNAME} 0 * :{NICKNAME}"),
        ])
    }

    /// Takes in a line of the server's and returns what is to be written then: lines,
    /// each with its end.
    ///
    /// # Errors
    ///
    /// [`IrcError`] when the line will not be said.
    pub fn hear(&mut self, line: &[u8]) -> Result<String, IrcError> {
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
                    false => self.unless_refused(&line),
                }
            }
            State::Speaking if line.command == "PONG" => {
                self.state = State::Leaving;
                Ok(lines(&["QUIT"]))
            }
            State::Speaking => self.unless_refused(&line),
            State::Leaving => Ok(String::new()),
        }
    }

    /// Whether the line was said, now that nothing more comes.
    ///
    /// # Errors
    ///
    /// [`IrcError`] if it was not, or nobody knows.
    pub fn end(&self, silence: Silence) -> Result<(), IrcError> {
        let doing = match self.state {
            State::Registering(_) => "while we registered",
            State::Joining { .. } => "while we joined the channel",
            State::Speaking => "after the line was sent; it may have been said",
            State::Leaving => return Ok(()),
        };
        Err(match silence {
            Silence::Closed => IrcError::Closed(doing),
            Silence::TimedOut => IrcError::Silent(doing),
            Silence::Flood => IrcError::Flood(doing),
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

    /// Sends the line. Others get it with `origin` before it, and more than a line may
    /// have is cut off for them.
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

    /// A refusal names what it is about: also other things are refused, such as a
    /// message of the day.
    fn unless_refused(&self, line: &ServerLine) -> Result<String, IrcError> {
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

/// What a server wants back as it was, but never as another line.
fn one_word(text: &str) -> String {
    text.chars().filter(|one| !one.is_control()).collect()
}

fn shown(text: &str) -> String {
    one_line(text, WORDS_LIMIT)
}

#[cfg(test)]
mod tests;
