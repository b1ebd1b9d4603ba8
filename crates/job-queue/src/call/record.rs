//! What another process needs to continue a call.

use std::time::SystemTime;

use codex_engine::CommandMark;
use codex_engine::command::SessionId;
use serde::{Deserialize, Serialize};

use super::git::TreeState;

/// The state of a call that only its process knows. Codex has the rest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallRecord {
    /// The session of the call.
    pub(crate) session: SessionId,
    pub(super) begun: SystemTime,
    /// When time is up; `None` if that is too far in the future.
    pub(super) limit: Option<SystemTime>,
    /// Since when a question has been open.
    pub(super) waiting_since: Option<SystemTime>,
    pub(super) mark: CommandMark,
    pub(super) sandbox: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) before: TreeState,
}

/// The longest state of a working tree that is kept for another process, in bytes of JSON. A guard has
/// 64 MiB for all calls of its app-server.
const LONGEST_TREE: usize = 1 << 20;

/// The state of a working tree, as it is kept for another process.
pub(super) fn kept(before: &TreeState) -> TreeState {
    match serde_json::to_string(before) {
        Ok(json) if json.len() <= LONGEST_TREE => before.clone(),
        Ok(_) => TreeState::Unknown(
            "the worker was killed, and the state before the turn was too long to be kept"
                .to_owned(),
        ),
        Err(error) => TreeState::Unknown(format!(
            "the worker was killed, and the state before the turn could not be kept: {error}"
        )),
    }
}
