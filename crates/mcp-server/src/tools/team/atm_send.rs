//! `atm_send`: sends a message to a member of a team.

use agent_team::MailClient;
use agent_team::logic::{Address, BadName};
use agent_team::mail::MessageContent;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::parameters::{NonBlankText, arguments};
use crate::tools::schema::{answer, input, output, sent_as, tool};

pub(super) const NAME: &str = "atm_send";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// AGENT or AGENT@TEAM
    to: To,
    message: NonBlankText,
    summary: Option<String>,
}

/// The recipient.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct To(Address);

sent_as!(String: To);

impl TryFrom<String> for To {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse().map(Self)
    }
}

pub(super) fn describe() -> Tool {
    let description = "Use to write to another agent of the team, in this server's own name.";
    let answer = output(json!({ "to?": "string", "message_id?": "string" }));
    tool(NAME, "Send Mail", description, input::<Arguments>()).with_raw_output_schema(answer)
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
    let sent = mail_client
        .send(address, MessageContent { text, summary })
        .await?;
    Ok(answer(json!({ "to": sent.to, "message_id": sent.message_id })).into())
}
