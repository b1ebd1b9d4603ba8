//! The address of an IRC channel: `irc://HOST:PORT/CHANNEL`.
//!
//! The host goes to the resolver and the channel into lines of the protocol, so characters
//! that could end a line or begin another word are refused.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

/// The customary port of servers without encryption, see RFC 7194, 1.
const DEFAULT_PORT: u16 = 6667;

/// The longest name of a host, in bytes. Source: RFC 1035, 2.3.4.
const HOST_LIMIT: usize = 253;

/// The longest name of a channel with its sign, in bytes. Source: RFC 2812, 1.3.
const CHANNEL_LIMIT: usize = 50;

/// How much of a refused text is shown, in characters.
const SHOWN: usize = 100;

/// The signs that begin a channel's name. (A channel with `!` has a name that only the server
/// knows.) Source: RFC 2812, 1.3.
const SIGNS: [char; 3] = ['#', '&', '+'];

/// Why a text is not the address of a channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIrcAddress {
    /// It lacks the scheme or the channel.
    #[error("{0:?} names no channel; write irc://HOST/CHANNEL or irc://HOST:PORT/CHANNEL")]
    Form(String),
    /// It has a name or a password.
    #[error(
        "an address of IRC has neither a name nor a password here; write irc://HOST:PORT/CHANNEL"
    )]
    User,
    /// The host is invalid.
    #[error(
        "{0:?} is no host; write a name such as irc.example.org, an IPv4 address, or an IPv6 address in brackets"
    )]
    Host(String),
    /// The port is invalid.
    #[error("{0:?} is no port; write a number from 1 to 65535")]
    Port(String),
    /// A percent sign is not followed by two hexadecimal digits, or the decoded text is not
    /// UTF-8.
    #[error("{0:?} cannot be decoded; write %25 for a percent sign and UTF-8 for the rest")]
    Percent(String),
    /// There is a key or another option.
    #[error(
        "{0:?} has options, which are not supported; channels with a key are not supported either; write %3F for a question mark"
    )]
    Options(String),
    /// The channel is invalid.
    #[error(
        "{0:?} is no channel; write at most {CHANNEL_LIMIT} bytes without spaces, commas, colons and control characters, after #, & or +"
    )]
    Channel(String),
}

/// The name of a host, or its address: never with a space, a slash or a control
/// character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host(String);

impl Host {
    /// The host as a text, an IPv6 address without brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Host {
    type Err = BadIrcAddress;

    fn from_str(text: &str) -> Result<Self, BadIrcAddress> {
        let bad = || BadIrcAddress::Host(shown(text));
        let bracketed = text.strip_prefix('[');
        let host = match bracketed {
            Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
            None => text,
        };
        let fine = match bracketed {
            Some(_) => host.parse::<Ipv6Addr>().is_ok(),
            None => host.len() <= HOST_LIMIT && host.split('.').all(is_label),
        };
        match fine {
            true => Ok(Self(host.to_owned())),
            false => Err(bad()),
        }
    }
}

/// A part of a host's name. Local names have underscores at times.
fn is_label(label: &str) -> bool {
    let plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
    (1..=63).contains(&label.len()) && !label.starts_with('-') && label.chars().all(plain)
}

/// The name of a channel, with its sign. It is one word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelName(String);

impl ChannelName {
    /// The name as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ChannelName {
    type Err = BadIrcAddress;

    /// A name without a sign gets `#`.
    fn from_str(text: &str) -> Result<Self, BadIrcAddress> {
        let name = match text.starts_with(SIGNS) {
            true => text.to_owned(),
            false => format!("#{text}"),
        };
        let bad = |one: char| one.is_control() || one.is_whitespace() || matches!(one, ',' | ':');
        let fine = (2..=CHANNEL_LIMIT).contains(&name.len())
            && !text.starts_with('!')
            && !name.chars().any(bad);
        match fine {
            true => Ok(Self(name)),
            false => Err(BadIrcAddress::Channel(shown(text))),
        }
    }
}

/// The address of a channel. The connection is not encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IrcAddress {
    /// The server.
    pub host: Host,
    /// Its port, from 1.
    pub port: u16,
    /// The channel.
    pub channel: ChannelName,
}

impl FromStr for IrcAddress {
    type Err = BadIrcAddress;

    /// A `#` need not be encoded, as people write it plainly.
    fn from_str(text: &str) -> Result<Self, BadIrcAddress> {
        let form = || BadIrcAddress::Form(shown(text));
        let rest = text.strip_prefix("irc://").ok_or_else(form)?;
        let (server, channel) = rest.split_once('/').ok_or_else(form)?;
        if server.contains('@') {
            return Err(BadIrcAddress::User);
        }
        let (host, port) = split_port(server);
        if host.is_empty() || channel.is_empty() {
            return Err(form());
        }
        if channel.contains('?') {
            return Err(BadIrcAddress::Options(shown(channel)));
        }
        Ok(Self {
            host: host.parse()?,
            port: port.map_or(Ok(DEFAULT_PORT), read_port)?,
            channel: decoded(channel)?.parse()?,
        })
    }
}

/// The host, and the text after its colon.
fn split_port(server: &str) -> (&str, Option<&str>) {
    match server.rsplit_once(':') {
        // The colon is one of an IPv6 address.
        Some((_, port)) if port.ends_with(']') => (server, None),
        Some((host, port)) => (host, Some(port)),
        None => (server, None),
    }
}

fn read_port(text: &str) -> Result<u16, BadIrcAddress> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port > 0);
    port.ok_or_else(|| BadIrcAddress::Port(shown(text)))
}

/// Source: RFC 3986, 2.1.
fn decoded(text: &str) -> Result<String, BadIrcAddress> {
    let bad = || BadIrcAddress::Percent(shown(text));
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2).ok_or_else(bad)?;
        if !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        bytes.push(u8::from_str_radix(code, 16).map_err(|_| bad())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.contains(':') {
            true => write!(f, "[{}]", self.0),
            false => f.write_str(&self.0),
        }
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for IrcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            port,
            channel,
        } = self;
        let channel = channel.as_str().replace('%', "%25").replace('?', "%3F");
        write!(f, "irc://{host}:{port}/{channel}")
    }
}
