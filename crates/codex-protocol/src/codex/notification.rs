//! What Codex tells without being asked.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::rpc::RequestId;

use super::{Item, RawItem, Turn, TurnError};

/// What a piece of text is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeltaSource {
    /// A message of Codex's.
    AgentMessage,
    /// What a command prints.
    CommandOutput,
    /// What a change of files prints.
    FileChangeOutput,
    /// A plan that is written as a text.
    Plan,
    /// Codex's thoughts.
    Reasoning,
    /// A summary of Codex's thoughts.
    ReasoningSummary,
}

impl DeltaSource {
    /// Codex's method for it.
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

/// A piece of text of an item that Codex is at.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta<'a> {
    /// The item.
    #[serde(borrow)]
    pub item_id: Cow<'a, str>,
    /// The turn.
    #[serde(borrow, default)]
    pub turn_id: Cow<'a, str>,
    /// The text that is new.
    #[serde(borrow)]
    pub delta: Cow<'a, str>,
}

/// How many tokens were used, and how many fit: `thread/tokenUsage/updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// By the last request to the model.
    pub last: TokenCount,
    /// By the thread as a whole.
    pub total: TokenCount,
    /// How many fit the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_context_window: Option<i64>,
}

/// A number of tokens, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCount {
    /// All.
    pub total_tokens: i64,
    /// Read by the model.
    pub input_tokens: i64,
    /// Of these, known from an earlier request.
    pub cached_input_tokens: i64,
    /// Written by the model.
    pub output_tokens: i64,
    /// Of these, thoughts.
    pub reasoning_output_tokens: i64,
}

impl TokenCount {
    /// How much more this is than an earlier count.
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

/// What Codex means to do: `turn/plan/updated`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Why it is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// The steps, in order.
    #[serde(rename = "plan")]
    pub steps: Vec<PlanStep>,
}

/// A step of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// What is to be done.
    pub step: String,
    /// `pending`, `inProgress` or `completed`.
    pub status: String,
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
    /// What went to or from the model, where that was asked for.
    Raw(RawItem),
    /// A piece of what an item says or prints.
    Delta(DeltaSource, Delta<'a>),
    /// Codex has a plan, or another one.
    Plan(Plan),
    /// All that the turn has changed in files so far, as a unified diff.
    Diff(Cow<'a, str>),
    /// How many tokens were used.
    TokenUsage(TokenUsage),
    /// Something went wrong in a turn.
    Error {
        /// What.
        error: TurnError,
        /// Whether Codex tries again by itself; if so, the turn goes on.
        will_retry: bool,
    },
    /// A question of Codex's needs no answer any more.
    RequestResolved(RequestId),
    /// Codex warns of something, and goes on.
    Warning(String),
    /// Something else that is about a turn.
    Other,
}

/// A [`Notification`], what it is about, and how it came.
#[derive(Debug)]
pub struct Heard<'a> {
    /// The thread that it is about.
    pub thread: Cow<'a, str>,
    /// Codex's name for this kind of news.
    pub method: &'a str,
    /// The parameters as they came.
    pub params: &'a RawValue,
    /// What is known of them.
    pub news: Notification<'a>,
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

/// As 0.104.0 tells it.
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

impl<'a> Heard<'a> {
    /// Reads a notification. `Ok(None)` for one that is not about a thread's turn.
    ///
    /// # Errors
    ///
    /// When the parameters of a known method don't have its shape.
    pub fn read(method: &'a str, params: &'a RawValue) -> Result<Option<Self>, serde_json::Error> {
        let json = params.get();
        let news = match method {
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
            news,
        }))
    }

    fn warning(thread: String, message: String, method: &'a str, params: &'a RawValue) -> Self {
        Self {
            thread: thread.into(),
            method,
            params,
            news: Notification::Warning(message),
        }
    }

    /// What isn't known is news only if it names a thread and a turn.
    fn other(method: &'a str, params: &'a RawValue) -> Option<Self> {
        let about: OfTurn<'a> = serde_json::from_str(params.get()).ok()?;
        about.turn_id?;
        Some(Self {
            thread: about.thread_id?,
            method,
            params,
            news: Notification::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<'a>(method: &'a str, params: &'a RawValue) -> Option<Heard<'a>> {
        Heard::read(method, params).unwrap()
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    #[test]
    fn a_delta_is_borrowed_from_the_line() {
        let params = raw(r#"{"threadId":"t","turnId":"u","itemId":"i","delta":"x"}"#);
        let heard = read("item/agentMessage/delta", &params).unwrap();
        assert!(matches!(heard.thread, Cow::Borrowed("t")));
        let Notification::Delta(DeltaSource::AgentMessage, delta) = heard.news else {
            panic!("a delta");
        };
        assert!(matches!(delta.delta, Cow::Borrowed("x")));
        assert!(matches!(delta.turn_id, Cow::Borrowed("u")));
    }

    #[test]
    fn unknown_methods_and_items_are_taken() {
        assert!(read("brand/new", &raw("[]")).is_none());
        assert!(read("brand/new", &raw(r#"{"threadId":"t","turnId":null}"#)).is_none());
        let about_a_turn = raw(r#"{"threadId":"t","turnId":"u","more":[1]}"#);
        let heard = read("brand/new", &about_a_turn).unwrap();
        assert!(matches!(heard.news, Notification::Other));
        assert_eq!((heard.method, &*heard.thread), ("brand/new", "t"));
        let params = raw(r#"{"threadId":"t","turnId":"u","item":{"type":"hologram","id":"i"}}"#);
        assert!(matches!(
            read("item/started", &params).unwrap().news,
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
            let heard = read(method, &params).unwrap();
            assert_eq!(heard.thread, "t");
            assert!(matches!(heard.news, Notification::Warning(words) if words == "w"));
        }
        assert!(read("warning", &raw(r#"{"message":"w"}"#)).is_none());
    }

    #[test]
    fn a_known_method_with_other_parameters_is_an_error() {
        assert!(Heard::read("turn/completed", &raw(r#"{"threadId":"t"}"#)).is_err());
    }

    #[test]
    fn every_source_of_deltas_is_known_by_its_method() {
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
            let news = read(method, &params).unwrap().news;
            let Notification::Delta(source, _) = news else {
                panic!("{method} is a delta");
            };
            assert_eq!(source.method(), method);
        }
    }
}
