//! `atm_pending_count`: counts unread mail.

use agent_team::MailClient;
use agent_team::logic::inbox::PendingMail;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::parameters::arguments;
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "atm_pending_count";

/// The tool takes no arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {}

pub(super) fn describe() -> Tool {
    let description = "Use to see how much mail is unread, and from whom; it stays unread.";
    let answer = output(json!({ "count?": "integer", "senders?": "array" }));
    tool(NAME, "Count Mail", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(
    mail_client: &MailClient,
    given: JsonObject,
) -> Result<ToolOutcome, ToolError> {
    let Arguments {} = arguments(given)?;
    Ok(answer(shown(&mail_client.pending().await?)).into())
}

/// The number of unread messages, and their first senders. The number of further senders is rarely
/// present, so the schema, which takes room in the client's context, does not list it.
pub(crate) fn shown(pending: &PendingMail) -> Value {
    let senders = pending.senders.iter();
    let senders: Vec<Value> = senders
        .map(|(from, count)| json!({ "from": from, "count": count }))
        .collect();
    let count = pending.count;
    match pending.other_senders {
        0 => json!({ "count": count, "senders": senders }),
        others => json!({ "count": count, "senders": senders, "other_senders": others }),
    }
}
