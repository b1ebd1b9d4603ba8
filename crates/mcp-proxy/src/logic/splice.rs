//! Replaces parts of a message and leaves every other byte as it is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use codex_protocol::codex::LegacyRefusal;
use codex_protocol::rpc::{RequestId, code};
use common::json::range_of;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct WithId<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithTools<'a> {
    #[serde(borrow)]
    tools: &'a RawValue,
    /// Present if the list has more pages.
    next_cursor: Option<IgnoredAny>,
}

/// The message with `part`, which is borrowed from it, replaced; `None` if `part` is not borrowed
/// from it.
#[must_use]
pub fn replace(message: &[u8], part: &str, with: &str) -> Option<Vec<u8>> {
    let Range { start, end } = range_of(message, part)?;
    let (before, after) = (message.get(..start)?, message.get(end..)?);
    Some([before, with.as_bytes(), after].concat())
}

/// The message with its ID replaced by `id`.
pub(super) fn with_id(message: &[u8], id: &RequestId) -> Option<Vec<u8>> {
    let WithId { id: before } = serde_json::from_slice(message).ok()?;
    replace(message, before.get(), &to_json(id))
}

/// The tools of an answer to `tools/list`, if it is the only page.
pub(super) fn whole_list(result: &RawValue) -> Option<Vec<Box<RawValue>>> {
    let WithTools { tools, next_cursor } = serde_json::from_str(result.get()).ok()?;
    match next_cursor {
        Some(_) => None,
        None => serde_json::from_str(tools.get()).ok(),
    }
}

/// The answer to `tools/list` with `tools` appended, if it is the last page.
pub(super) fn with_tools(
    message: &[u8],
    result: &RawValue,
    tools: &[(String, Box<RawValue>)],
) -> Option<Vec<u8>> {
    let WithTools {
        tools: before,
        next_cursor,
    } = serde_json::from_str(result.get()).ok()?;
    if next_cursor.is_some() {
        return None;
    }
    let list: Vec<&RawValue> = serde_json::from_str(before.get()).ok()?;
    let inner = before.get().strip_suffix(']')?;
    let mut longer = inner.to_owned();
    for (number, (_, tool)) in tools.iter().enumerate() {
        if number > 0 || !list.is_empty() {
            longer.push(',');
        }
        longer.push_str(tool.get());
    }
    longer.push(']');
    replace(message, before.get(), &longer)
}

/// Whether the client has dismissed a question without a choice. Headless clients do so at once,
/// and do not mean to end the turn.
pub(super) fn is_dismissal(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Reply {
        action: String,
        decision: Option<IgnoredAny>,
    }
    let reply: Option<Reply> = serde_json::from_str(result.get()).ok();
    reply.is_some_and(|reply| reply.action == "cancel" && reply.decision.is_none())
}

/// Adds the decision that the child reads to the client's answer if the answer has none: the child
/// would take the standard `{"action":"accept"}` for a refusal.
pub(super) fn with_decision(
    message: &[u8],
    result: &RawValue,
    refusal: LegacyRefusal,
) -> Option<Vec<u8>> {
    let members: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(result.get()).ok()?;
    let action: Cow<'_, str> = serde_json::from_str(members.get("action")?.get()).ok()?;
    let decision = match &*action {
        "accept" => json!("approved"),
        _ => denied(refusal),
    };
    match members.get("decision") {
        Some(none) if none.get() == "null" => replace(message, none.get(), &decision.to_string()),
        Some(_) => None,
        None => {
            // The object has at least one member.
            let rest = result.get().strip_prefix('{')?;
            replace(
                message,
                result.get(),
                &format!("{{\"decision\":{decision},{rest}"),
            )
        }
    }
}

/// An error response to a request of the child.
pub(super) fn refused(id: &RequestId) -> Vec<u8> {
    let why = "the request cannot be accepted";
    let error = json!({ "code": code::INVALID_REQUEST, "message": why });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
        .to_string()
        .into_bytes()
}

/// A refusal of a question of the child, in both forms.
pub(super) fn declined(id: &RequestId, refusal: LegacyRefusal) -> Vec<u8> {
    let result = json!({ "action": "decline", "decision": denied(refusal) });
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
        .to_string()
        .into_bytes()
}

fn denied(refusal: LegacyRefusal) -> Value {
    match refusal {
        LegacyRefusal::Word => json!("denied"),
        LegacyRefusal::Object => json!({ "denied": { "rejection": "declined by the user" } }),
    }
}

pub(super) fn to_json(value: &impl Serialize) -> String {
    // Ids can always be written.
    serde_json::to_string(value).unwrap_or_default()
}
