//! `mail`: the number of unread messages.

use rmcp::ErrorData;
use serde_json::Value;

use crate::server::Server;
use crate::tools::team::atm_pending_count;

/// The answer of `atm_pending_count`.
pub(super) async fn show(server: &Server) -> Result<Value, ErrorData> {
    let none = || ErrorData::internal_error("this server has no mail", None);
    let pending = server.mail_client().ok_or_else(none)?.pending().await;
    let pending = pending.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(atm_pending_count::shown(&pending))
}
