//! Notifiers, as a person or a program writes them.

use std::fmt;
use std::str::FromStr;

use agent_team::logic::{Address, BadName};
use common::secrets::mask;
use serde::{Deserialize, Serialize};

use super::irc::address::{BadIrcAddress, IrcAddress};
use super::names::{BadCommand, CommandLine};
use super::web_address::{BadWebAddress, WebAddress};

/// How much of a refused text is shown, in characters.
const SHOWN: usize = 100;

/// Why a text is not a notifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNotifier {
    /// The text begins with none of the known schemes.
    #[error(
        "{0:?} is not a notifier; write mail:AGENT@TEAM, irc://HOST:PORT/CHANNEL, desktop, webhook:https://HOST/PATH, ntfy:TOPIC or command:PROGRAM ARGUMENTS"
    )]
    Kind(String),
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
    /// The address of the webhook is invalid.
    #[error("after webhook: comes an address: {0}")]
    Webhook(BadWebAddress),
    /// The topic is invalid.
    #[error("after ntfy: comes a topic: {0}")]
    Ntfy(BadWebAddress),
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

/// A receiver of notifications. It is stored whole; `Display` and `Debug` hide the path of a web
/// address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Notifier {
    /// An agent, by mail. Without a team, it is an agent of the sender's team.
    Mail(Address),
    /// An IRC channel. The text goes over the network unencrypted.
    Irc(IrcAddress),
    /// The desktop of the user.
    Desktop,
    /// A web server, which gets a JSON object.
    Webhook(WebAddress),
    /// A topic of ntfy.
    Ntfy(WebAddress),
    /// A program, which gets the line as one more argument.
    Command(CommandLine),
}

impl Notifier {
    /// The name by which a refusal calls this notifier; `None` if clients may name it even under
    /// `allow_commands = false`. The notifiers with a name are refused, since they run any program,
    /// or send to any server.
    #[must_use]
    pub fn bounded_name(&self) -> Option<&'static str> {
        match self {
            Self::Command(_) => Some("the notifier command:"),
            Self::Webhook(_) => Some("the notifier webhook:"),
            Self::Ntfy(_) => Some("the notifier ntfy:"),
            Self::Irc(_) => Some("the notifier irc:"),
            Self::Mail(_) | Self::Desktop => None,
        }
    }

    /// The notifier as it was written, with the whole address.
    #[must_use]
    pub fn secret(&self) -> String {
        match self {
            Self::Webhook(address) => format!("webhook:{}", address.secret()),
            Self::Ntfy(address) => format!("ntfy:{}", address.secret()),
            Self::Mail(_) | Self::Irc(_) | Self::Desktop | Self::Command(_) => self.to_string(),
        }
    }
}

impl FromStr for Notifier {
    type Err = BadNotifier;

    fn from_str(text: &str) -> Result<Self, BadNotifier> {
        let shown = || shown(text);
        match text.split_once(':') {
            Some(("mail", address)) => {
                let address = address.parse().map_err(BadNotifier::Mail)?;
                Ok(Self::Mail(address))
            }
            Some(("irc", _)) => Ok(Self::Irc(text.parse()?)),
            Some(("webhook", address)) => {
                let address = WebAddress::of_webhook(address).map_err(BadNotifier::Webhook)?;
                Ok(Self::Webhook(address))
            }
            Some(("ntfy", topic)) => {
                let address = WebAddress::of_topic(topic).map_err(BadNotifier::Ntfy)?;
                Ok(Self::Ntfy(address))
            }
            None if text == "desktop" => Ok(Self::Desktop),
            Some(("command", command)) => Ok(Self::Command(command.parse()?)),
            Some(("ircs", _)) => Err(BadNotifier::Encrypted(shown())),
            _ => Err(BadNotifier::Kind(shown())),
        }
    }
}

/// The beginning of a refused text. The path of a web address would be a secret.
fn shown(text: &str) -> String {
    let is_web = text.contains("http://") || text.contains("https://");
    let host_end = text.find("://").filter(|_| is_web).map(|at| at + 3);
    let path = host_end.and_then(|host| text.get(host..)?.find(['/', '?']).map(|at| host + at));
    let (begin, end) = match path.and_then(|path| text.get(..path)) {
        Some(server) => (server, "/…"),
        None => (text, ""),
    };
    mask(begin).chars().take(SHOWN).collect::<String>() + end
}

impl TryFrom<String> for Notifier {
    type Error = BadNotifier;

    fn try_from(text: String) -> Result<Self, BadNotifier> {
        text.parse()
    }
}

impl From<Notifier> for String {
    fn from(notifier: Notifier) -> Self {
        notifier.secret()
    }
}

impl fmt::Display for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(address) => write!(f, "mail:{address}"),
            Self::Irc(address) => address.fmt(f),
            Self::Desktop => f.write_str("desktop"),
            Self::Webhook(address) => write!(f, "webhook:{address}"),
            Self::Ntfy(address) => write!(f, "ntfy:{address}"),
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
            ("desktop", "desktop"),
        ] {
            assert_eq!(shown(text), expected);
        }
    }

    #[test]
    fn path_of_web_address_is_stored_and_not_displayed() {
        for (text, stored, shown) in [
            (
                "webhook:https://hooks.example/T0/s3cret?a=b",
                "webhook:https://hooks.example/T0/s3cret?a=b",
                "webhook:https://hooks.example/…",
            ),
            (
                "ntfy:s3cret",
                "ntfy:https://ntfy.sh/s3cret",
                "ntfy:https://ntfy.sh/…",
            ),
        ] {
            let notifier: Notifier = text.parse().unwrap();
            let json = serde_json::to_value(&notifier).unwrap();
            assert_eq!(json, stored);
            assert_eq!(serde_json::from_value::<Notifier>(json).unwrap(), notifier);
            assert_eq!(notifier.to_string(), shown);
            assert!(!format!("{notifier:?}").contains("s3cret"));
        }
        let refused = "https://hooks.example/T0/s3cret".parse::<Notifier>();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("hooks.example/…"), "{refused}");
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
            "desktop:",
            "desktop:x",
            "Desktop",
            "webhook:",
            "webhook:http://hooks.example/T0",
            "webhook:https://me:pw@hooks.example/T0",
            "webhook:hooks.example/T0",
            "https://hooks.example/T0",
            "https://hooks.example?T0",
            "slack:https://hooks.example/T0",
            "ntfy:",
            "ntfy:a b",
            "ntfy:http://ntfy.example/T0",
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
