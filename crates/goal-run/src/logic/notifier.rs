//! Notifiers, as a person or a program writes them.

use std::fmt;
use std::str::FromStr;

use agent_team::logic::{Address, BadName};
use serde::{Deserialize, Serialize};

use super::irc::address::{BadIrcAddress, IrcAddress};
use super::names::{BadCommand, CommandLine};

/// How much of a refused text is shown, in characters.
const SHOWN: usize = 100;

/// Why a text is not a notifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNotifier {
    /// The text begins with none of the known schemes.
    #[error(
        "{0:?} is not a notifier; write mail:AGENT@TEAM, irc://HOST:PORT/CHANNEL or command:PROGRAM ARGUMENTS"
    )]
    Way(String),
    /// The connection would have to be encrypted.
    #[error(
        "IRC is spoken without encryption only, so {0:?} cannot be reached; write irc:// with a server on this machine or in a trusted network, or command:PROGRAM with one that can"
    )]
    Encrypted(String),
    /// The name of the agent or its team is invalid.
    #[error("mail goes to mail:AGENT or mail:AGENT@TEAM: {0}")]
    Mail(BadName),
    /// The IRC address is invalid.
    #[error(transparent)]
    Irc(#[from] BadIrcAddress),
    /// The command is invalid.
    #[error("after command: comes a program with its arguments: {0}")]
    Command(BadCommand),
    /// The command is meant for a shell.
    #[error(
        "{0} means something to a shell only, and none is started; name several programs, each by a --notify of its own, or write command:sh -c '…'"
    )]
    Shell(&'static str),
}

impl From<BadCommand> for BadNotifier {
    fn from(error: BadCommand) -> Self {
        match error {
            BadCommand::Shell(sign) => Self::Shell(sign),
            error => Self::Command(error),
        }
    }
}

/// A receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Notifier {
    /// An agent, by mail. Without a team, it is an agent of the sender's team.
    Mail(Address),
    /// An IRC channel. The text goes over the network unencrypted.
    Irc(IrcAddress),
    /// A program, which gets the line as one more argument.
    Command(CommandLine),
}

impl Notifier {
    /// Whether the notifier runs a program.
    #[must_use]
    pub fn runs_program(&self) -> bool {
        match self {
            Self::Command(_) => true,
            Self::Mail(_) | Self::Irc(_) => false,
        }
    }
}

impl FromStr for Notifier {
    type Err = BadNotifier;

    fn from_str(text: &str) -> Result<Self, BadNotifier> {
        let shown = || text.chars().take(SHOWN).collect();
        match text.split_once(':') {
            Some(("mail", address)) => {
                let address = address.parse().map_err(BadNotifier::Mail)?;
                Ok(Self::Mail(address))
            }
            Some(("irc", _)) => Ok(Self::Irc(text.parse()?)),
            Some(("command", command)) => Ok(Self::Command(command.parse()?)),
            Some(("ircs", _)) => Err(BadNotifier::Encrypted(shown())),
            _ => Err(BadNotifier::Way(shown())),
        }
    }
}

impl TryFrom<String> for Notifier {
    type Error = BadNotifier;

    fn try_from(text: String) -> Result<Self, BadNotifier> {
        text.parse()
    }
}

impl From<Notifier> for String {
    fn from(notifier: Notifier) -> Self {
        notifier.to_string()
    }
}

impl fmt::Display for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(address) => write!(f, "mail:{address}"),
            Self::Irc(address) => address.fmt(f),
            Self::Command(command) => write!(f, "command:{command}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let notifier: Notifier = text.parse().unwrap();
        let shown = notifier.to_string();
        assert_eq!(shown.parse::<Notifier>().unwrap(), notifier, "{text}");
        let json = serde_json::to_string(&notifier).unwrap();
        assert_eq!(
            json,
            serde_json::to_string(&shown).unwrap(),
            "it is stored as the text"
        );
        assert_eq!(serde_json::from_str::<Notifier>(&json).unwrap(), notifier);
        shown
    }

    #[test]
    fn notifiers_survive_parsing_and_display() {
        for (text, expected) in [
            ("mail:lead@team-1", "mail:lead@team-1"),
            ("mail:lead", "mail:lead"),
            ("irc://chat.example/runs", "irc://chat.example:6667/#runs"),
            ("irc://[::1]/runs", "irc://[::1]:6667/#runs"),
            ("irc://[::1]:7000/runs", "irc://[::1]:7000/#runs"),
            ("irc://127.0.0.1:1/%23runs", "irc://127.0.0.1:1/#runs"),
            ("irc://my_host:65535/#runs", "irc://my_host:65535/#runs"),
            ("irc://h/%23%23rust", "irc://h:6667/##rust"),
            ("irc://h/&local", "irc://h:6667/&local"),
            ("irc://h/+modeless", "irc://h:6667/+modeless"),
            ("irc://h/100%25%3f", "irc://h:6667/#100%25%3F"),
            ("irc://h/b%c3%a4r", "irc://h:6667/#bär"),
            ("irc://h/a/b", "irc://h:6667/#a/b"),
            ("irc://h/'$(x)\"", "irc://h:6667/#'$(x)\""),
            ("command:say 'a b' $(c)", "command:say 'a b' $(c)"),
            ("command:/bin/true", "command:/bin/true"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn command_is_split_and_channel_is_one_name() {
        let Notifier::Command(command) = "command:say 'a b' \"$(c)\"".parse().unwrap() else {
            panic!("it is a command");
        };
        assert_eq!(command.words(), ["say", "a b", "$(c)"]);
        let Notifier::Irc(address) = "irc://[::1]:7000/runs".parse().unwrap() else {
            panic!("it is a channel");
        };
        let parts = (
            address.host.as_str(),
            address.port,
            address.channel.as_str(),
        );
        assert_eq!(parts, ("::1", 7000, "#runs"));
    }

    #[test]
    fn malformed_notifier_is_refused_with_advice() {
        let long = format!("irc://h/{}", "x".repeat(50));
        let long_host = format!("irc://{}a/x", "a.".repeat(200));
        let mut table = String::new();
        for text in [
            "",
            "lead@team",
            "sms:1",
            "MAIL:lead",
            "mail:",
            "mail:@team",
            "mail:lead@",
            "mail:../x@team",
            "mail:lead@../x",
            "mail:a@b@c",
            "mail:a b",
            "irc:",
            "irc:h/x",
            "irc://",
            "irc://h",
            "irc://h/",
            "irc:///x",
            "irc://:6667/x",
            "irc://h:/x",
            "irc://h:0/x",
            "irc://h:65536/x",
            "irc://h:+1/x",
            "irc://h:6667:1/x",
            "irc://::1/x",
            "irc://[::1/x",
            "irc://[h]/x",
            "irc://[::1]x/x",
            "irc://-h/x",
            "irc://h..i/x",
            "irc://h h/x",
            "irc://h\r\n/x",
            "irc://ä.example/x",
            "irc://me:secret@h/x",
            "irc://h/x?key=secret",
            "irc://h/#",
            "irc://h/a b",
            "irc://h/a%20b",
            "irc://h/a,b",
            "irc://h/a:b",
            "irc://h/a%0d%0aQUIT",
            "irc://h/a\nQUIT",
            "irc://h/a%07",
            "irc://h/a%00",
            "irc://h/!a",
            "irc://h/a%",
            "irc://h/a%2",
            "irc://h/a%+1",
            "irc://h/a%zz",
            "irc://h/a%ff",
            &long,
            &long_host,
            "ircs://h/x",
            "command:",
            "command:'a",
            "command:-x",
            "command:a | b",
            "command:a\0",
        ] {
            let refusal = text.parse::<Notifier>().unwrap_err();
            let shown: String = text.chars().take(30).collect();
            table += &format!("{shown:?}: {refusal}\n");
        }
        insta::assert_snapshot!(table);
    }
}
