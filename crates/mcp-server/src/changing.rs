//! The resources whose content changes.

use std::sync::Arc;

use agent_team::{MailClient, Records};
use job_queue::service::Jobs;

/// The addresses.
pub(crate) const MAIL: &str = "codex-mcp:///mail";
pub(crate) const THREADS: &str = "codex-mcp:///threads";
pub(crate) const JOBS: &str = "codex-mcp:///jobs";

/// A resource whose content changes, with its source.
#[derive(Clone)]
pub(crate) enum Changing {
    /// How much mail is unread.
    Mail(MailClient),
    /// The threads of this identity.
    Threads(Arc<Records>),
    /// The newest jobs.
    Jobs(Arc<Jobs>),
}

impl Changing {
    /// Its address.
    pub(crate) fn uri(&self) -> &'static str {
        match self {
            Self::Mail(_) => MAIL,
            Self::Threads(_) => THREADS,
            Self::Jobs(_) => JOBS,
        }
    }
}
