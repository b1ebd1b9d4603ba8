//! What the guard of an app-server keeps for the next host: values in JSON, each with a key.

use codex_protocol::codex::ThreadId;
use codex_protocol::rpc::RequestId;
use serde::{Deserialize, Serialize};

use super::command::{EffectiveSettings, Overrides, SessionId, Settings};
use crate::logic::session::{SessionRecord, Timeouts};

/// The key of what engines agree in that share the app-server.
pub(super) const AGREEMENT: &str = "agreement";

/// The beginning of the key of a [`KeptSession`]; the ID of the session follows.
pub(super) const SETTINGS: &str = "settings/";

/// The beginning of the key of [`KeptSteps`]; the ID of the session follows.
pub(super) const RECORD: &str = "record/";

/// The origin of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Origin {
    /// The thread was begun by this engine.
    New,
    /// The thread, or the one from which it was forked, existed before.
    Existing,
}

/// What is kept of a session when its settings change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptSession {
    pub(super) session: SessionId,
    pub(super) thread: ThreadId,
    pub(super) origin: Origin,
    pub(super) settings: Settings,
    pub(super) effective: EffectiveSettings,
    pub(super) pending: Overrides,
    pub(super) timeouts: Timeouts,
    pub(super) sandbox_bound: Option<String>,
    pub(super) client: Option<String>,
}

/// What is kept of a session at each step.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptSteps {
    pub(super) record: SessionRecord,
    /// Codex's requests for calls of our tools that have been begun.
    pub(super) calls: Vec<RequestId>,
    /// The turn that a client's call has begun last, and the call.
    pub(super) begun_by: Option<(u64, String)>,
}

/// The keys under which a session is kept.
pub(super) fn keys(session: &SessionId) -> [String; 2] {
    [format!("{SETTINGS}{session}"), format!("{RECORD}{session}")]
}
