//! The script: which reply a request gets.

use std::fmt;
use std::sync::Arc;

use crate::record::Recording;
use crate::reply::Reply;
use crate::request::Request;

/// Rules that say how the model answers.
///
/// The first rule whose condition fits a request's [prompt](Request::prompt)
/// answers it. A rule holds the replies of one turn: the first for the request
/// with the fresh prompt, the next for the request after the first round of tool
/// calls, and so on ([`Request::round`]). A request that no rule fits, or that
/// comes after a rule's last reply, is refused with HTTP status 400 and noted in
/// [`unanswered`](crate::ScriptedModel::unanswered).
#[derive(Debug, Default)]
pub struct Script {
    rules: Vec<Rule>,
    pub(crate) recording: Recording,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
}

#[derive(Debug)]
struct Rule {
    condition: Condition,
    replies: Replies,
}

enum Condition {
    Contains(String),
    When(Arc<dyn Fn(&Request) -> bool + Send + Sync>),
    Always,
}

enum Replies {
    InOrder(Vec<Reply>),
    By(Arc<dyn Fn(&Request) -> Reply + Send + Sync>),
}

/// Why the script has no reply to a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ReplyError {
    #[error("no rule of the script fits the prompt {prompt:?}: add a rule for it, or `otherwise`")]
    NoRule { prompt: String },
    #[error(
        "the rule for the prompt {prompt:?} has {replies} replies, and this is request {request} \
         of the turn: add a reply"
    )]
    NoneLeft {
        prompt: String,
        replies: usize,
        request: usize,
    },
}

impl Script {
    /// A script without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A script that is nothing but a function: it answers every request.
    #[must_use]
    pub fn by(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::new().rule(Condition::Always, Replies::By(Arc::new(answer)))
    }

    /// Answers prompts that contain `text`.
    #[must_use]
    pub fn on(self, text: impl Into<String>, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.rule(Condition::Contains(text.into()), Replies::of(replies))
    }

    /// Answers requests for which `condition` holds.
    #[must_use]
    pub fn when(
        self,
        condition: impl Fn(&Request) -> bool + Send + Sync + 'static,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        self.rule(Condition::When(Arc::new(condition)), Replies::of(replies))
    }

    /// Answers all requests that no earlier rule fits.
    #[must_use]
    pub fn otherwise(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.rule(Condition::Always, Replies::of(replies))
    }

    /// Which requests to keep. Default: all.
    #[must_use]
    pub fn recording(mut self, recording: Recording) -> Self {
        self.recording = recording;
        self
    }

    /// Adds a header to every answer that is not a refusal.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn rule(mut self, condition: Condition, replies: Replies) -> Self {
        self.rules.push(Rule { condition, replies });
        self
    }

    /// The reply to `request`.
    pub(crate) fn reply(&self, request: &Request) -> Result<Reply, ReplyError> {
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.condition.fits(request))
            .ok_or_else(|| ReplyError::NoRule {
                prompt: request.prompt().to_owned(),
            })?;
        match &rule.replies {
            Replies::By(answer) => Ok(answer(request)),
            Replies::InOrder(replies) => {
                replies
                    .get(request.round())
                    .cloned()
                    .ok_or_else(|| ReplyError::NoneLeft {
                        prompt: request.prompt().to_owned(),
                        replies: replies.len(),
                        request: request.round() + 1,
                    })
            }
        }
    }
}

impl Condition {
    fn fits(&self, request: &Request) -> bool {
        match self {
            Self::Contains(text) => request.prompt().contains(text.as_str()),
            Self::When(condition) => condition(request),
            Self::Always => true,
        }
    }
}

impl Replies {
    fn of(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::InOrder(replies.into_iter().collect())
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contains(text) => f.debug_tuple("Contains").field(text).finish(),
            Self::When(_) => f.write_str("When"),
            Self::Always => f.write_str("Always"),
        }
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InOrder(replies) => f.debug_tuple("InOrder").field(replies).finish(),
            Self::By(_) => f.write_str("By"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Step;
    use serde_json::{Value, json};

    /// A conversation: the prompt, then `rounds` rounds of a tool call.
    fn request(prompt: &str, rounds: usize) -> Request {
        let mut input = vec![json!({"role": "user", "content": prompt})];
        for round in 0..rounds {
            input.push(json!({"type": "function_call", "call_id": round}));
            input.push(json!({"type": "function_call_output", "call_id": round}));
        }
        Request::new(json!({ "input": Value::Array(input) }))
    }

    fn reply_text(reply: Result<Reply, ReplyError>) -> String {
        match reply.unwrap().steps.first() {
            Some(Step::Text(text)) => text.pieces.concat(),
            other => panic!("not a text: {other:?}"),
        }
    }

    #[test]
    fn first_matching_rule_answers() {
        let script = Script::new()
            .on("create a file", [Reply::say("one")])
            .when(|request| request.round() > 3, [])
            .on("create", [Reply::say("two")])
            .otherwise([Reply::say("three")]);
        assert_eq!(
            reply_text(script.reply(&request("create a file, please", 0))),
            "one"
        );
        assert_eq!(reply_text(script.reply(&request("create it", 0))), "two");
        assert_eq!(reply_text(script.reply(&request("hello", 0))), "three");
    }

    #[test]
    fn round_picks_the_reply() {
        let script = Script::new().on("go", [Reply::say("first"), Reply::say("second")]);
        assert_eq!(reply_text(script.reply(&request("go", 0))), "first");
        assert_eq!(reply_text(script.reply(&request("go", 1))), "second");
        assert_eq!(reply_text(script.reply(&request("go", 0))), "first");
    }

    #[test]
    fn exhausted_rule_is_reported() {
        let script = Script::new().on("go", [Reply::say("first")]);
        assert_eq!(
            script.reply(&request("go", 1)).unwrap_err(),
            ReplyError::NoneLeft {
                prompt: "go".into(),
                replies: 1,
                request: 2
            }
        );
    }

    #[test]
    fn prompt_without_a_rule_is_named() {
        let script = Script::new().on("go", [Reply::say("first")]);
        assert_eq!(
            script.reply(&request("stay", 0)).unwrap_err(),
            ReplyError::NoRule {
                prompt: "stay".into()
            }
        );
    }

    #[test]
    fn function_answers_every_round() {
        let script = Script::by(|request| Reply::say(format!("round {}", request.round())));
        assert_eq!(reply_text(script.reply(&request("go", 2))), "round 2");
    }
}
