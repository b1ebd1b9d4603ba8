//! `atm_broadcast`: sends a message to all other members of the team.

use agent_team::MailClient;
use agent_team::mail::MessageContent;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::parameters::{NonBlankText, arguments};
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "atm_broadcast";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    message: NonBlankText,
    summary: Option<String>,
}

pub(super) fn describe() -> Tool {
    let description =
        "Use to write to all other agents of the team. Tells who got it and who did not.";
    let answer = output(json!({ "sent?": "array", "failed?": "array" }));
    tool(NAME, "Broadcast Mail", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(
    mail_client: &MailClient,
    given: JsonObject,
) -> Result<ToolOutcome, ToolError> {
    let Arguments {
        message: NonBlankText(text),
        summary,
    } = arguments(given)?;
    let sent = mail_client
        .broadcast(MessageContent { text, summary })
        .await?;
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
