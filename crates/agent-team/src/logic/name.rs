//! Names that become parts of paths.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes: together with its additions, a name has to be a file name (255 bytes
/// at most on Linux and macOS).
const LONGEST: usize = 100;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is too long.
    #[error("a name has at most {LONGEST} characters, not {0}")]
    TooLong(usize),
    /// The text has a character that names can't have, or can't begin with.
    #[error(
        "{0:?} is not a name: use letters, digits, `-`, `_` and `.`, and begin with a letter or a digit"
    )]
    Characters(String),
}

/// Names are plain ASCII, and no name is a hidden file, a flag or a path.
fn check(text: &str) -> Result<(), BadName> {
    if text.is_empty() {
        return Err(BadName::Empty);
    }
    if text.len() > LONGEST {
        return Err(BadName::TooLong(text.chars().count()));
    }
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    match begins_well && text.chars().all(plain) {
        true => Ok(()),
        false => Err(BadName::Characters(text.to_owned())),
    }
}

macro_rules! names {
    ($($(#[$about:meta])* $name:ident;)*) => { $(
        $(#[$about])*
        ///
        /// At most 100 letters, digits, `-`, `_` and `.`, the first of them a letter
        /// or a digit: it is safe as a part of a path.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                check(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        common::string_conversions!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

names! {
    /// An agent of a team, and so an identity that a server can have.
    AgentName;
    /// A team.
    TeamName;
    /// A set of settings in the configuration.
    RoleName;
    /// A thread of Codex's, as the name of its directory. (Codex's own are UUIDs.)
    ThreadName;
}

/// A recipient of mail: `agent`, or `agent@team`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The agent.
    pub agent: AgentName,
    /// Its team, if it was named.
    pub team: Option<TeamName>,
}

impl FromStr for Address {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (agent, team) = match text.split_once('@') {
            Some((agent, team)) => (agent, Some(team.parse()?)),
            None => (text, None),
        };
        Ok(Self {
            agent: agent.parse()?,
            team,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.team {
            Some(team) => write!(f, "{}@{team}", self.agent),
            None => self.agent.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_accepted() {
        for name in [
            "a",
            "team-lead",
            "arch.ctm",
            "X_1",
            "con",
            "007",
            &"x".repeat(100),
        ] {
            assert_eq!(name.parse::<AgentName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn unsafe_path_components_are_refused() {
        let long = "x".repeat(300);
        for text in [
            "", ".", "..", "../x", "a/b", "a\\b", "a\0b", "-x", "_x", ".hidden", "a b", "a\n", "é",
            "😀", "a@b", "~", &long,
        ] {
            assert!(text.parse::<AgentName>().is_err(), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<TeamName>(&json).is_err(), "{text:?}");
        }
        let message = long.parse::<AgentName>().unwrap_err().to_string();
        assert!(!message.contains("xxx"), "{message}");
    }

    #[test]
    fn address_may_name_the_team() {
        let address: Address = "a@t".parse().unwrap();
        assert_eq!(address.agent.as_str(), "a");
        assert_eq!(address.team.unwrap().as_str(), "t");
        assert_eq!("a".parse::<Address>().unwrap().team, None);
        for text in ["@t", "a@", "a@t@u", "../a@t", "a@../t"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
