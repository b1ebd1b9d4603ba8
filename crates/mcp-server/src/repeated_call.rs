//! Calls that the relay of a client repeats because the host that had them was killed. Their turns
//! may continue in the next host, and must not be begun a second time.

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::json;

/// The member of `_meta` that marks a repeated call. A client that sets it gets the answer to an
/// earlier call of its own, or an error.
pub const MARK: &str = "codex-mcp/repeated";

/// The error text for a call that was open when its host ended, and has no answer.
pub(crate) const LOST: &str =
    "the host process ended before it answered this call; its turn may continue";

/// Whether a call is repeated.
pub(crate) fn is_repeated(context: &RequestContext<RoleServer>) -> bool {
    context.meta.get(MARK).is_some_and(|mark| *mark == true)
}

/// The ID of a call, as the client has made it.
pub(crate) fn id(context: &RequestContext<RoleServer>) -> String {
    json!(context.id).to_string()
}
