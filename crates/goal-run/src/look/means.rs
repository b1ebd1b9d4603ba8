//! With what somebody looks.

use std::ffi::OsString;
use std::time::Duration;

use git_probe::until_stopped;
use tokio_util::sync::CancellationToken;

/// How long a look may take of a run that nobody wants any more (5 s).
pub(super) const LAST_LOOK: Duration = Duration::from_secs(5);

/// With what somebody looks.
#[derive(Debug, Clone)]
pub struct InspectOptions {
    /// Variables set on top of our own environment, for all programs.
    pub env: Vec<(OsString, OsString)>,
    /// How long each question to git may take, and looking through the files.
    pub patience: Duration,
    /// How long each question to the remote or to GitHub may take.
    pub network_patience: Duration,
    /// Gives up all that is being asked, which is told as a failure. Whoever wants to
    /// look once more after something has ended cancels it then, and not before.
    pub halt: CancellationToken,
    /// Cancelled when nobody wants the run any more. A look that is under way then, or
    /// begins later, is given up after 5 s.
    pub stop: CancellationToken,
}

impl InspectOptions {
    /// Does work that `halt` gives up, and gives it up where the run is stopped.
    pub(super) async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> T {
        until_stopped(&self.stop, &self.halt, LAST_LOOK, work).await
    }
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            env: Vec::new(),
            patience: Duration::from_secs(60),
            network_patience: Duration::from_secs(30),
            halt: CancellationToken::new(),
            stop: CancellationToken::new(),
        }
    }
}
