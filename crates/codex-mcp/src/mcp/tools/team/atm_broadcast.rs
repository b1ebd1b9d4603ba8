//! `atm_broadcast`: write to all other members of the team.

use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parameters::{Words, arguments};
use super::{Told, answer, tool};
use crate::mcp::error::ToolError;
use crate::team::Desk;
use crate::team::mail::Letter;

pub(super) const NAME: &str = "atm_broadcast";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    message: Words,
    summary: Option<String>,
}

pub(super) fn describe() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "message": { "type": "string" },
            "summary": { "type": "string", "description": "One line for the list of messages." },
        },
        "required": ["message"],
        "additionalProperties": false,
    });
    let description = "Sends a message to every other agent of the team. Answers to whom it was \
sent, and to whom it could not be.";
    tool(NAME, description, input).with_title("Broadcast Mail")
}

pub(super) async fn call(desk: &Desk, given: JsonObject) -> Result<Told, ToolError> {
    let Arguments {
        message: Words(text),
        summary,
    } = arguments(given)?;
    let sent = desk.broadcast(Letter { text, summary }).await?;
    let (mut reached, mut failed): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for (to, outcome) in sent {
        match outcome {
            Ok(id) => reached.push(json!({ "to": to, "message_id": id.to_string() })),
            Err(error) => failed.push(json!({ "to": to, "error": error.to_string() })),
        }
    }
    let all_failed = reached.is_empty() && !failed.is_empty();
    let mut result = answer(json!({ "sent": reached, "failed": failed }));
    if all_failed {
        result.is_error = Some(true);
    }
    Ok(result.into())
}
