//! `atm_send`: sends a message to a member of a team.

use agent_team::MailClient;
use agent_team::logic::{Address, BadName};
use agent_team::mail::Letter;
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::json;

use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::parameters::{NonBlankText, arguments};
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "atm_send";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    to: To,
    message: NonBlankText,
    summary: Option<String>,
}

/// The recipient.
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
    let properties = json!({
        "to": { "type": "string", "description": "AGENT or AGENT@TEAM" },
        "message": { "type": "string" },
        "summary": { "type": "string" },
    });
    let description = "Use to write to another agent of the team, in this server's own name.";
    let answer = output(json!({ "to?": "string", "message_id?": "string" }));
    let input = input(properties, ["to", "message"]);
    tool(NAME, "Send Mail", description, input).with_raw_output_schema(answer)
}

pub(super) async fn call(
    mail_client: &MailClient,
    given: JsonObject,
) -> Result<ToolOutcome, ToolError> {
    let Arguments {
        to: To(address),
        message: NonBlankText(text),
        summary,
    } = arguments(given)?;
    let sent = mail_client.send(address, Letter { text, summary }).await?;
    Ok(answer(json!({ "to": sent.to, "message_id": sent.message_id })).into())
}
