//! The card on which the user of a client that shows MCP Apps decides what Codex asks.
//!
//! Source: MCP Apps, version 2026-01-26,
//! <https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/2026-01-26/apps.mdx>.

use rmcp::RoleServer;
use rmcp::model::{
    ClientCapabilities, JsonObject, MetaObject, ReadResourceResult, ResourceContents,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

/// The address of the card, as a resource.
pub(crate) const URI: &str = "ui://codex-mcp/approval";

/// The extension's name among a client's capabilities.
const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// The only type of card that the extension defines.
const MIME_TYPE: &str = "text/html;profile=mcp-app";

const PAGE: &str = include_str!("approval_card.html");

/// Whether the client shows cards.
pub(crate) fn is_shown(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(takes_cards)
}

fn takes_cards(capabilities: ClientCapabilities) -> bool {
    let extensions = capabilities.extensions.unwrap_or_default();
    let settings = extensions.get(EXTENSION);
    let types = settings.and_then(|settings| settings.get("mimeTypes")?.as_array());
    types.is_some_and(|types| types.iter().any(|one| one == MIME_TYPE))
}

/// The metadata of a tool whose results the card shows.
pub(crate) fn of_tool() -> MetaObject {
    under_ui(&json!({ "resourceUri": URI }))
}

/// The answer to `resources/read` for the card. It asks for no access to any server, so clients give
/// it none.
pub(crate) fn read() -> ReadResourceResult {
    let contents = ResourceContents::text(PAGE, URI)
        .with_mime_type(MIME_TYPE)
        .with_meta(under_ui(&json!({ "prefersBorder": true })));
    ReadResourceResult::new(vec![contents])
}

fn under_ui(value: &Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([("ui".to_owned(), value.clone())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_is_for_clients_that_take_its_type() {
        for (extensions, takes) in [
            (
                json!({ EXTENSION: { "mimeTypes": ["text/plain", MIME_TYPE] } }),
                true,
            ),
            (json!({ EXTENSION: { "mimeTypes": ["text/html"] } }), false),
            (json!({ EXTENSION: {} }), false),
            (json!({ "other": { "mimeTypes": [MIME_TYPE] } }), false),
            (json!(null), false),
        ] {
            let capabilities = json!({ "extensions": extensions });
            let capabilities = serde_json::from_value(capabilities).unwrap();
            assert_eq!(takes_cards(capabilities), takes, "{extensions}");
        }
    }
}
