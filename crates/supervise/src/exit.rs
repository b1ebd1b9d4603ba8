//! How a process ended.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::SystemTime;

use common::timestamp::timestamp;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody can tell.
    Unknown,
}

impl Exit {
    pub(crate) fn from_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// Who has ended a Codex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// We have, by the end of its input.
    Asked,
    /// Itself, or somebody else.
    Itself,
}

/// The end of a Codex that nobody had asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// How it ended.
    pub exit: Exit,
    /// When.
    pub at: SystemTime,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codex {} at {}", self.exit, timestamp(self.at))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Unknown => f.write_str("ended, nobody can tell how"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was ended by signal {number} ({signal})"),
                Err(_) => write!(f, "was ended by signal {number}"),
            },
        }
    }
}
