//! Inspection options.

use std::ffi::OsString;
use std::time::Duration;

use git_probe::until_stopped;
use tokio_util::sync::CancellationToken;

/// How long an inspection of a cancelled run may take (5 s).
pub(super) const LAST_LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The options of an inspection.
#[derive(Debug, Clone)]
pub struct InspectOptions {
    /// Variables set on top of our own environment, for all programs.
    pub env: Vec<(OsString, OsString)>,
    /// The time limit of each question to git, and of a scan of the files.
    pub timeout: Duration,
    /// The time limit of each question to the remote or to GitHub.
    pub network_timeout: Duration,
    /// Cancels all questions, which then fail. If a last inspection is wanted, cancel this only
    /// after that inspection.
    pub halt: CancellationToken,
    /// Cancelled with the run. Once it is cancelled, an inspection, whether running or new, is
    /// cancelled after 5 s.
    pub stop: CancellationToken,
}

impl InspectOptions {
    /// Does work that `halt` cancels, and cancels `halt` when the run is stopped.
    pub(super) async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> T {
        until_stopped(&self.stop, &self.halt, LAST_LOOK_TIMEOUT, work).await
    }
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            env: Vec::new(),
            timeout: Duration::from_secs(60),
            network_timeout: Duration::from_secs(30),
            halt: CancellationToken::new(),
            stop: CancellationToken::new(),
        }
    }
}
