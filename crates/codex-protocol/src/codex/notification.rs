//! The notifications of the app-server.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::rpc::RequestId;

use super::{Item, RawItem, Turn, TurnError};

/// The kind of text that a delta belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaSource {
    /// A message of Codex's.
    AgentMessage,
    /// The output of a command.
    CommandOutput,
    /// The output of a change of files.
    FileChangeOutput,
    /// A plan that is written as text.
    Plan,
    /// Codex's thoughts.
    Reasoning,
    /// A summary of Codex's thoughts.
    ReasoningSummary,
}

impl DeltaSource {
    /// The method of its notification.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::AgentMessage => "item/agentMessage/delta",
            Self::CommandOutput => "item/commandExecution/outputDelta",
            Self::FileChangeOutput => "item/fileChange/outputDelta",
            Self::Plan => "item/plan/delta",
            Self::Reasoning => "item/reasoning/textDelta",
            Self::ReasoningSummary => "item/reasoning/summaryTextDelta",
        }
    }

    fn of(method: &str) -> Option<Self> {
        [
            Self::AgentMessage,
            Self::CommandOutput,
            Self::FileChangeOutput,
            Self::Plan,
            Self::Reasoning,
            Self::ReasoningSummary,
        ]
        .into_iter()
        .find(|source| source.method() == method)
    }
}

/// A piece of the text of an item that is in progress.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta<'a> {
    /// The item.
    #[serde(borrow)]
    pub item_id: Cow<'a, str>,
    /// The turn.
    #[serde(borrow, default)]
    pub turn_id: Cow<'a, str>,
    /// The new text.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

/// The tokens used, and the size of the model's context: `thread/tokenUsage/updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// The tokens of the last request to the model.
    pub last: TokenCount,
    /// The tokens of the thread as a whole.
    pub total: TokenCount,
    /// The size of the model's context, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_context_window: Option<i64>,
}

/// A number of tokens, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCount {
    /// All tokens.
    pub total_tokens: i64,
    /// Tokens read by the model.
    pub input_tokens: i64,
    /// Tokens read from the cache, included in the input.
    pub cached_input_tokens: i64,
    /// Tokens written by the model.
    pub output_tokens: i64,
    /// Tokens of reasoning, included in the output.
    pub reasoning_output_tokens: i64,
}

impl TokenCount {
    /// The difference from an earlier count; no member is negative.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let more = |now: i64, before: i64| now.saturating_sub(before).max(0);
        Self {
            total_tokens: more(self.total_tokens, earlier.total_tokens),
            input_tokens: more(self.input_tokens, earlier.input_tokens),
            cached_input_tokens: more(self.cached_input_tokens, earlier.cached_input_tokens),
            output_tokens: more(self.output_tokens, earlier.output_tokens),
            reasoning_output_tokens: more(
                self.reasoning_output_tokens,
                earlier.reasoning_output_tokens,
            ),
        }
    }
}

/// Codex's plan: `turn/plan/updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The reasons for the plan or its changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// The steps, in order.
    #[serde(rename = "plan")]
    pub steps: Vec<PlanStep>,
}

/// A step of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// The task of the step.
    pub step: String,
    /// `pending`, `inProgress` or `completed`.
    pub status: String,
}

/// A notification of the app-server, with the fields that codex-mcp uses.
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
    /// An item sent to or by the model, if the thread was begun with
    /// `experimentalRawEvents`.
    Raw(RawItem),
    /// A piece of the text of an item.
    Delta(DeltaSource, Delta<'a>),
    /// A new or changed plan.
    Plan(Plan),
    /// All changes of files by the turn so far, as a unified diff.
    Diff(Cow<'a, str>),
    /// The tokens used.
    TokenUsage(TokenUsage),
    /// An error in a turn.
    Error {
        /// The error.
        error: TurnError,
        /// Whether Codex retries by itself, in which case the turn continues.
        will_retry: bool,
    },
    /// A question of Codex's that no longer needs an answer.
    RequestResolved(RequestId),
    /// A warning; the turn continues.
    Warning(String),
    /// Another notification about a turn.
    Other,
}

/// A [`Notification`] with its thread, method and parameters.
#[derive(Debug)]
pub struct ThreadNotification<'a> {
    /// The thread that it is about.
    pub thread: Cow<'a, str>,
    /// The method.
    pub method: &'a str,
    /// The parameters as they were received.
    pub params: &'a RawValue,
    /// The parsed parameters.
    pub notification: Notification<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfThread<'a> {
    #[serde(borrow)]
    thread_id: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTurn<'a> {
    #[serde(borrow, default)]
    thread_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    turn_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithDiff<'a> {
    #[serde(borrow)]
    diff: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithUsage {
    token_usage: TokenUsage,
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
struct WithRawItem {
    item: RawItem,
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
struct WithWarning {
    #[serde(default)]
    thread_id: Option<String>,
    message: String,
}

/// The form of a warning of 0.104.0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithOldWarning {
    conversation_id: String,
    msg: OldWarning,
}

#[derive(Deserialize)]
struct OldWarning {
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WithRequest {
    request_id: RequestId,
}

impl<'a> ThreadNotification<'a> {
    /// The most JSON values of the parameters, which take some 15 MB once parsed. The
    /// result of a tool can have any number: see [`reduced`](crate::json_values::reduced).
    pub const MAX_VALUES: usize = 50_000;

    /// Reads a notification. `Ok(None)` for one that is not about a thread's turn.
    ///
    /// # Errors
    ///
    /// If the parameters of a known method do not have its shape.
    pub fn read(method: &'a str, params: &'a RawValue) -> Result<Option<Self>, serde_json::Error> {
        let json = params.get();
        let notification = match method {
            "turn/started" => {
                Notification::TurnStarted(serde_json::from_str::<WithTurn>(json)?.turn)
            }
            "turn/completed" => {
                Notification::TurnCompleted(serde_json::from_str::<WithTurn>(json)?.turn)
            }
            "turn/plan/updated" => Notification::Plan(serde_json::from_str(json)?),
            "turn/diff/updated" => {
                Notification::Diff(serde_json::from_str::<WithDiff<'_>>(json)?.diff)
            }
            "thread/tokenUsage/updated" => {
                Notification::TokenUsage(serde_json::from_str::<WithUsage>(json)?.token_usage)
            }
            "item/started" => {
                Notification::ItemStarted(serde_json::from_str::<WithItem>(json)?.item)
            }
            "item/completed" => {
                Notification::ItemCompleted(serde_json::from_str::<WithItem>(json)?.item)
            }
            "rawResponseItem/completed" => {
                Notification::Raw(serde_json::from_str::<WithRawItem>(json)?.item)
            }
            "error" => {
                let WithError { error, will_retry } = serde_json::from_str(json)?;
                Notification::Error { error, will_retry }
            }
            "serverRequest/resolved" => {
                Notification::RequestResolved(serde_json::from_str::<WithRequest>(json)?.request_id)
            }
            "warning" => {
                let WithWarning { thread_id, message } = serde_json::from_str(json)?;
                return Ok(thread_id.map(|thread| Self::warning(thread, message, method, params)));
            }
            "codex/event/warning" => {
                let WithOldWarning {
                    conversation_id,
                    msg,
                } = serde_json::from_str(json)?;
                let warning = Self::warning(conversation_id, msg.message, method, params);
                return Ok(Some(warning));
            }
            other => match DeltaSource::of(other) {
                Some(source) => Notification::Delta(source, serde_json::from_str(json)?),
                None => return Ok(Self::other(method, params)),
            },
        };
        let OfThread { thread_id: thread } = serde_json::from_str(json)?;
        Ok(Some(Self {
            thread,
            method,
            params,
            notification,
        }))
    }

    fn warning(thread: String, message: String, method: &'a str, params: &'a RawValue) -> Self {
        Self {
            thread: thread.into(),
            method,
            params,
            notification: Notification::Warning(message),
        }
    }

    /// An unknown method counts only if its parameters name a thread and a turn.
    fn other(method: &'a str, params: &'a RawValue) -> Option<Self> {
        let about: OfTurn<'a> = serde_json::from_str(params.get()).ok()?;
        about.turn_id?;
        Some(Self {
            thread: about.thread_id?,
            method,
            params,
            notification: Notification::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(method: &'a str, params: &'a RawValue) -> Option<ThreadNotification<'a>> {
        ThreadNotification::read(method, params).unwrap()
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn delta_is_borrowed_from_the_line() {
        let params = raw(r#"{"threadId":"t","turnId":"u","itemId":"i","delta":"x"}"#);
        let notification = read("item/agentMessage/delta", &params).unwrap();
        assert!(matches!(notification.thread, Cow::Borrowed("t")));
        let Notification::Delta(DeltaSource::AgentMessage, delta) = notification.notification
        else {
            panic!("a delta");
        };
        assert!(matches!(delta.delta, Cow::Borrowed("x")));
        assert!(matches!(delta.turn_id, Cow::Borrowed("u")));
    }

    #[test]
    fn unknown_methods_and_items_are_accepted() {
        assert!(read("brand/new", &raw("[]")).is_none());
        assert!(read("brand/new", &raw(r#"{"threadId":"t","turnId":null}"#)).is_none());
        let about_a_turn = raw(r#"{"threadId":"t","turnId":"u","more":[1]}"#);
        let notification = read("brand/new", &about_a_turn).unwrap();
        assert!(matches!(notification.notification, Notification::Other));
        assert_eq!(
            (notification.method, &*notification.thread),
            ("brand/new", "t")
        );
        let params = raw(r#"{"threadId":"t","turnId":"u","item":{"type":"hologram","id":"i"}}"#);
        assert!(matches!(
            read("item/started", &params).unwrap().notification,
            Notification::ItemStarted(Item::Other)
        ));
    }

    #[test]
    fn warning_is_read_in_both_forms() {
        for (method, params) in [
            ("warning", r#"{"threadId":"t","message":"w"}"#),
            (
                "codex/event/warning",
                r#"{"conversationId":"t","msg":{"type":"warning","message":"w"}}"#,
            ),
        ] {
            let params = raw(params);
            let notification = read(method, &params).unwrap();
            assert_eq!(notification.thread, "t");
            assert!(
                matches!(notification.notification, Notification::Warning(words) if words == "w")
            );
        }
        assert!(read("warning", &raw(r#"{"message":"w"}"#)).is_none());
    }

    #[test]
    fn known_method_with_wrong_parameters_is_an_error() {
        assert!(ThreadNotification::read("turn/completed", &raw(r#"{"threadId":"t"}"#)).is_err());
    }

    #[test]
    fn delta_source_is_derived_from_its_method() {
        let params =
            raw(r#"{"threadId":"t","turnId":"u","itemId":"i","delta":"x","summaryIndex":0}"#);
        for method in [
            "item/agentMessage/delta",
            "item/commandExecution/outputDelta",
            "item/fileChange/outputDelta",
            "item/plan/delta",
            "item/reasoning/textDelta",
            "item/reasoning/summaryTextDelta",
        ] {
            let news = read(method, &params).unwrap().notification;
            let Notification::Delta(source, _) = news else {
                panic!("{method} is a delta");
            };
            assert_eq!(source.method(), method);
        }
    }
}
