//! The end of a process: its exit code or signal.

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
    /// The status is not known.
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

/// Who ended a Codex process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCause {
    /// We did: by closing its input, or by its guard.
    Requested,
    /// Codex itself, or another process.
    Unrequested,
}

/// The exit of a Codex process that we did not request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexpectedExit {
    /// How it ended.
    pub exit: Exit,
    /// The time of the exit.
    pub at: SystemTime,
}

impl fmt::Display for UnexpectedExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codex {} at {}", self.exit, timestamp(self.at))
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Unknown => f.write_str("ended with an unknown status"),
            Self::Signal(number) => match Signal::try_from(*number) {
                Ok(signal) => write!(f, "was ended by signal {number} ({signal})"),
                Err(_) => write!(f, "was ended by signal {number}"),
            },
        }
    }
}
