//! The IDs of jobs and workers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Builder;

/// The lengths of the parts of a UUID.
const PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// The error of a malformed ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an ID: an ID has the form of a UUID, 8-4-4-4-12 hexadecimal digits")]
pub struct BadId(pub String);

fn check(text: &str) -> Result<String, BadId> {
    let lengths = text.split('-').map(str::len);
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match lengths.eq(PARTS) && text.split('-').all(digits) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(BadId(text.chars().take(100).collect())),
    }
}

/// The shortest prefix of an ID, in characters.
const SHORTEST_PREFIX: usize = 8;

/// The error of a malformed ID prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a job ID: give a full ID or a prefix of {SHORTEST_PREFIX} or more characters"
)]
pub struct BadPrefix(pub String);

/// A prefix of a job's ID with 8 characters or more, or the whole ID. It has hexadecimal digits,
/// and dashes where IDs have them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobPrefix(String);

impl JobPrefix {
    /// The prefix as a text, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole ID, if the prefix is one.
    #[must_use]
    pub fn whole(&self) -> Option<JobId> {
        self.0.parse().ok()
    }
}

impl FromStr for JobPrefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        // Complete the prefix to a whole ID, so that the form of an ID is checked.
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

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident;)*) => { $(
        $(#[$about])*
        ///
        /// A UUID of version 4, in lower case.
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A new ID from random bits. Nothing checks whether they were used before.
            #[must_use]
            pub fn from_random(random: u128) -> Self {
                let bytes = random.to_be_bytes();
                Self(Builder::from_random_bytes(bytes).into_uuid().to_string())
            }

            /// The ID as a text.
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

        common::string_conversions!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )* };
}

ids! {
    /// The ID of a job.
    JobId;
    /// The ID of a worker process.
    WorkerId;
}
