//! With what somebody looks.

use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// With what somebody looks.
#[derive(Debug, Clone)]
pub struct Means {
    /// Variables set on top of our own environment, for all programs.
    pub env: Vec<(OsString, OsString)>,
    /// How long each question to git may take, and looking through the files.
    pub patience: Duration,
    /// How long each question to the remote or to GitHub may take.
    pub network_patience: Duration,
    /// Gives up all that is being asked, which is told as a failure. Whoever wants to
    /// look once more after something has ended cancels it then, and not before.
    pub halt: CancellationToken,
}

impl Default for Means {
    fn default() -> Self {
        Self {
            env: Vec::new(),
            patience: Duration::from_secs(60),
            network_patience: Duration::from_secs(30),
            halt: CancellationToken::new(),
        }
    }
}
