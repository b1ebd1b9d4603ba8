//! The names of jobs and of workers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How long the parts of a UUID are.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an id: it has the form of a UUID, 8-4-4-4-12 hexadecimal digits")]
pub struct BadId(pub String);

fn check(text: &str) -> Result<String, BadId> {
    let lengths = text.split('-').map(str::len);
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match lengths.eq(PARTS) && text.split('-').all(digits) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(BadId(text.chars().take(100).collect())),
    }
}

/// How much of an id stands for it at least, in characters.
const SHORTEST_PREFIX: usize = 8;

/// Why a text is not the beginning of an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no job: give the id of one, or how it begins, {SHORTEST_PREFIX} characters or more"
)]
pub struct BadPrefix(pub String);

/// How the id of a job begins, 8 characters or more; all of it is fine too. It holds
/// hexadecimal digits and dashes, where ids have them, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobPrefix(String);

impl JobPrefix {
    /// It as a text, in small letters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The job, if it is all of its id.
    #[must_use]
    pub fn whole(&self) -> Option<JobId> {
        self.0.parse().ok()
    }
}

impl FromStr for JobPrefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        // The rest is made up, so that what is there is held to the form of an id.
        let rest = "00000000-0000-0000-0000-000000000000".get(text.len()..);
        let is_prefix = text.len() >= SHORTEST_PREFIX
            && rest.is_some_and(|rest| check(&format!("{text}{rest}")).is_ok());
        match is_prefix {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(BadPrefix(text.chars().take(100).collect())),
        }
    }
}

impl fmt::Display for JobPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A UUID of version 4 from random bits (RFC 9562, 5.4).
fn from_random(random: u128) -> String {
    let versioned = random & !(0xf << 76) | 0x4 << 76;
    let number = versioned & !(0x3 << 62) | 0x2 << 62;
    let digits = format!("{number:032x}");
    let mut text = String::with_capacity(36);
    for (index, digit) in digits.chars().enumerate() {
        if matches!(index, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident;)*) => { $(
        $(#[$about])*
        ///
        /// A UUID of version 4, in small letters.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A new one, from bits that must be random: nobody is asked whether
            /// they were used before.
            #[must_use]
            pub fn from_random(random: u128) -> Self {
                Self(from_random(random))
            }

            /// It as a text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                check(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;

            fn try_from(text: String) -> Result<Self, BadId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

ids! {
    /// A job.
    JobId;
    /// A worker: one run of one process.
    WorkerId;
}
