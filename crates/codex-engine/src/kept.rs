//! The values that the guard of an app-server stores for the next host: JSON texts, by key.

use codex_protocol::codex::ThreadId;
use codex_protocol::rpc::RequestId;
use serde::{Deserialize, Serialize};
use supervise::adoptable::Keeper;

use super::command::{EffectiveSettings, Overrides, SessionId, Settings};
use crate::logic::session::{SessionRecord, Timeouts};

/// The key of the agreement of the engines that share the app-server.
pub(super) const AGREEMENT: &str = "agreement";

/// The key of the app-server's [`AccessToken`](super::access_token::AccessToken).
pub(super) const TOKEN: &str = "token";

/// The beginning of the key of a [`KeptSession`]; the ID of the session follows.
pub(super) const SETTINGS: &str = "settings/";

/// The beginning of the key of [`KeptSteps`]; the ID of the session follows.
pub(super) const RECORD: &str = "record/";

/// The beginning of the key of a value of the engine's owner; the owner's own key follows.
pub(super) const OF_OWNER: &str = "owner/";

/// The origin of a session's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Origin {
    /// This engine began the thread.
    New,
    /// The thread existed before the session, or was forked from one that did.
    Existing,
}

/// A session and its settings. Stored when the settings change, or a sub-agent begins.
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
    /// The latest threads of its sub-agents.
    #[serde(default)]
    pub(super) children: Vec<String>,
}

/// The turns of a session. Stored at each change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptSteps {
    /// The thread, in case the guard has no room for the [`KeptSession`]. `None` if an older
    /// version of this program stored the value.
    pub(super) thread: Option<ThreadId>,
    pub(super) record: SessionRecord,
    /// The IDs of Codex's requests for calls of our tools that are being executed.
    pub(super) calls: Vec<RequestId>,
    /// The number of the last turn that a call or a task has begun, and which it was.
    pub(super) begun_by: Option<(u64, String)>,
}

/// The keys of a session's values.
pub(super) fn keys(session: &SessionId) -> [String; 2] {
    [format!("{SETTINGS}{session}"), format!("{RECORD}{session}")]
}

/// Has the guard store a value.
pub(super) fn keep_as(keeper: &Keeper, key: &str, value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(value) => keeper.keep(key, value),
        Err(error) => tracing::error!("cannot keep {key} for the next process: {error}"),
    }
}
