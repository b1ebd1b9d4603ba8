//! What Codex tells without being asked.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::rpc::RequestId;

use super::{Item, Turn, TurnError};

/// A piece of a message that Codex is writing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentMessageDelta<'a> {
    /// The message's item.
    #[serde(borrow)]
    pub item_id: Cow<'a, str>,
    /// The text that is new.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

/// What the app-server tells without being asked, as far as codex-mcp uses it.
#[derive(Debug)]
pub enum Notification<'a> {
    /// A turn runs now and can be interrupted.
    TurnStarted(Turn),
    /// A turn has ended.
    TurnCompleted(Turn),
    /// A step has begun.
    ItemStarted(Item),
    /// A step has ended.
    ItemCompleted(Item),
    /// Codex writes.
    AgentMessageDelta(AgentMessageDelta<'a>),
    /// Something went wrong in a turn.
    Error {
        /// What.
        error: TurnError,
        /// Whether Codex tries again by itself; if so, the turn goes on.
        will_retry: bool,
    },
    /// A question of Codex's needs no answer any more.
    RequestResolved(RequestId),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfThread<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct WithTurn {
    turn: Turn,
}

#[derive(Deserialize)]
struct WithItem {
    item: Item,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithError {
    error: TurnError,
    #[serde(default)]
    will_retry: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithRequest {
    request_id: RequestId,
}

impl<'a> Notification<'a> {
    /// Reads a notification and the thread that it is about. `Ok(None)` for a
    /// method that codex-mcp doesn't use.
    ///
    /// # Errors
    ///
    /// When the parameters of a known method don't have its shape.
    pub fn read(
        method: &str,
        params: &'a RawValue,
    ) -> Result<Option<(Cow<'a, str>, Self)>, serde_json::Error> {
        let json = params.get();
        let notification = match method {
            "item/agentMessage/delta" => Self::AgentMessageDelta(serde_json::from_str(json)?),
            "turn/started" => Self::TurnStarted(serde_json::from_str::<WithTurn>(json)?.turn),
            "turn/completed" => Self::TurnCompleted(serde_json::from_str::<WithTurn>(json)?.turn),
            "item/started" => Self::ItemStarted(serde_json::from_str::<WithItem>(json)?.item),
            "item/completed" => Self::ItemCompleted(serde_json::from_str::<WithItem>(json)?.item),
            "error" => {
                let WithError { error, will_retry } = serde_json::from_str(json)?;
                Self::Error { error, will_retry }
            }
            "serverRequest/resolved" => {
                Self::RequestResolved(serde_json::from_str::<WithRequest>(json)?.request_id)
            }
            _ => return Ok(None),
        };
        let OfThread { thread_id } = serde_json::from_str(json)?;
        Ok(Some((thread_id, notification)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(method: &str, params: &'a RawValue) -> Option<(Cow<'a, str>, Notification<'a>)> {
        Notification::read(method, params).unwrap()
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn a_delta_is_borrowed_from_the_line() {
        let params = raw(r#"{"threadId":"t","turnId":"u","itemId":"i","delta":"x"}"#);
        let Some((thread, Notification::AgentMessageDelta(delta))) =
            read("item/agentMessage/delta", &params)
        else {
            panic!("a delta");
        };
        assert!(matches!(thread, Cow::Borrowed("t")));
        assert!(matches!(delta.delta, Cow::Borrowed("x")));
    }

    #[test]
    fn unknown_methods_and_items_are_taken() {
        assert!(read("brand/new", &raw("[]")).is_none());
        let params = raw(r#"{"threadId":"t","turnId":"u","item":{"type":"hologram","id":"i"}}"#);
        assert!(matches!(
            read("item/started", &params),
            Some((_, Notification::ItemStarted(Item::Other)))
        ));
    }

    #[test]
    fn a_known_method_with_other_parameters_is_an_error() {
        assert!(Notification::read("turn/completed", &raw(r#"{"threadId":"t"}"#)).is_err());
    }
}
