//! `codex_threads`: lists the threads of this identity.

use agent_team::Records;
use agent_team::logic::registry::Entry;
use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::code::Code;
use crate::deliveries::ToolOutcome;
use crate::error::ToolError;
use crate::tools::parameters::{Count, arguments};
use crate::tools::schema::{answer, input, output, tool};

pub(super) const NAME: &str = "codex_threads";

/// The default number of threads.
pub(crate) const LIMIT: u64 = 20;

/// The most threads that may be asked for.
const MAX_LIMIT: u64 = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(extend("default" = LIMIT))]
    limit: Option<Count>,
}

pub(super) fn describe() -> Tool {
    let description = "Use to find this identity's earlier threads, latest first, to continue with \
codex-reply or codex_session.";
    let answer = output(json!({ "threads": "array", "total": "integer" }));
    tool(NAME, "Codex Threads", description, input::<Arguments>()).with_raw_output_schema(answer)
}

pub(super) async fn call(
    records: Option<&Records>,
    given: JsonObject,
) -> Result<ToolOutcome, ToolError> {
    let Arguments { limit } = arguments(given)?;
    let limit = limit.map_or(LIMIT, |Count(limit)| limit);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let message = format!("limit must be from 1 to {MAX_LIMIT}, not {limit}");
        return Err(ToolError::new(Code::InvalidArgument, message));
    }
    let none = || {
        ToolError::new(
            Code::TeamFiles,
            "this server keeps no record of its threads",
        )
    };
    Ok(answer(shown(records.ok_or_else(none)?, limit).await?).into())
}

/// The latest threads.
pub(crate) async fn shown(records: &Records, limit: u64) -> Result<Value, ToolError> {
    let threads = records.threads().await;
    let mut threads =
        threads.map_err(|error| ToolError::new(Code::TeamFiles, error.to_string()))?;
    let total = threads.len();
    threads.sort_by_key(|entry| std::cmp::Reverse(entry.last_active));
    threads.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let shown: Vec<Value> = threads.iter().map(show).collect();
    let identity = records.identity();
    Ok(json!({ "identity": identity, "threads": shown, "total": total }))
}

/// An entry without unknown values.
fn show(entry: &Entry) -> Value {
    let mut shown = json!(entry);
    if let Some(members) = shown.as_object_mut() {
        members.retain(|_, value| !value.is_null());
        members.remove("identity");
    }
    shown
}
