//! `atm_send`: write to a member of a team.

use codex_mcp_core::team::{Address, BadName};
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::json;

use super::parameters::{Words, arguments};
use super::{Told, answer, tool};
use crate::mcp::error::ToolError;
use crate::team::Desk;
use crate::team::mail::Letter;

pub(super) const NAME: &str = "atm_send";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    to: To,
    message: Words,
    summary: Option<String>,
}

/// Whom it is for.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct To(Address);

impl TryFrom<String> for To {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse().map(Self)
    }
}

pub(super) fn describe() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "to": { "type": "string", "description": "agent, or agent@team." },
            "message": { "type": "string" },
            "summary": { "type": "string", "description": "One line for the list of messages." },
        },
        "required": ["to", "message"],
        "additionalProperties": false,
    });
    let description = "Sends a message to the inbox of another agent of the team. Answers its \
message_id. The sender is always this server's own identity.";
    tool(NAME, description, input).with_title("Send Mail")
}

pub(super) async fn call(desk: &Desk, given: JsonObject) -> Result<Told, ToolError> {
    let Arguments {
        to: To(address),
        message: Words(text),
        summary,
    } = arguments(given)?;
    let sent = desk.send(address, Letter { text, summary }).await?;
    Ok(answer(json!({ "to": sent.to, "message_id": sent.message_id })).into())
}
