//! The position of a request in its conversation.
//!
//! Codex sends the whole conversation with every request, so nothing has to be
//! remembered between two of them: the position is read from the request's
//! `input` alone. It is the last thing a person said, and how many times the
//! model has answered since. Threads can therefore not disturb each other, and
//! a request that Codex sends again after a lost connection gets the same
//! position again.

use serde_json::Value;

/// The beginnings of messages that Codex writes in the user's name.
///
/// Openings of `user` messages that no person typed, as sent by Codex 0.104.0,
/// 0.153.4 and 0.169.0 or found among the message markers in their binaries.
const INJECTED: &[&str] = &[
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<agent_message_board_notification>",
    "<codex_internal_context",
    "<environment_context>",
    "<hook_prompt",
    "<recommended_plugins>",
    "<skill>",
    "<startup_context>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
    "Another language model started to solve this problem",
    "Warning: The maximum number of unified exec processes",
    "Warning: apply_patch was requested via ",
];

/// The tags Codex puts before and after an attached picture.
const PICTURE_TAGS: &[&str] = &["<image>", "<image name=", "</image>"];

/// The last user message and the number of model answers after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) prompt: String,
    pub(crate) round: usize,
}

impl Position {
    /// Reads the position from the body of a Responses API request.
    pub(crate) fn of(body: &Value) -> Self {
        let input = match body.get("input") {
            Some(Value::Array(items)) => items.as_slice(),
            Some(Value::String(prompt)) => {
                return Self {
                    prompt: prompt.clone(),
                    round: 0,
                };
            }
            _ => return Self::default(),
        };
        let last = input
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, item)| Some((index, typed_prompt(item)?)));
        let Some((index, prompt)) = last else {
            return Self::default();
        };
        let answers = input.get(index + 1..).unwrap_or_default();
        Self {
            prompt,
            round: rounds(answers),
        }
    }
}

/// How many model answers `items` hold. One answer can be several items in a
/// row (a message and two tool calls, say). A tool's output ends it; so does a
/// message that is not the model's, unless a call still waits for its output:
/// Codex 0.104.0 writes warnings in between.
fn rounds(items: &[Value]) -> usize {
    let mut rounds = 0;
    let mut answering = false;
    let mut waiting_calls = 0_usize;
    for item in items {
        if is_by_model(item) {
            rounds += usize::from(!answering);
            answering = true;
            waiting_calls += usize::from(is_call(item));
        } else if is_output(item) {
            answering = false;
            waiting_calls = waiting_calls.saturating_sub(1);
        } else if waiting_calls == 0 {
            answering = false;
        }
    }
    rounds
}

fn is_by_model(item: &Value) -> bool {
    match kind(item) {
        "message" => role(item) == "assistant",
        "reasoning" => true,
        _ => is_call(item),
    }
}

fn is_call(item: &Value) -> bool {
    kind(item).ends_with("_call")
}

/// Whether the item is what a tool answered.
pub(crate) fn is_output(item: &Value) -> bool {
    kind(item).ends_with("_call_output")
}

/// The text of a message that a person typed, `None` for everything else.
fn typed_prompt(item: &Value) -> Option<String> {
    if kind(item) != "message" || role(item) != "user" {
        return None;
    }
    let texts: Vec<&str> = texts(item, "content")
        .into_iter()
        .filter(|text| !is_injected(text))
        .collect();
    if texts.is_empty() {
        return None;
    }
    Some(texts.join("\n"))
}

fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED
        .iter()
        .chain(PICTURE_TAGS)
        .any(|opening| text.starts_with(opening))
}

/// The `type` of an input item; a message may leave it out.
pub(crate) fn kind(item: &Value) -> &str {
    item.get("type")
        .and_then(Value::as_str)
        .unwrap_or("message")
}

pub(crate) fn role(item: &Value) -> &str {
    item.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// The texts of a member of an item, such as the content of a message or the output of a tool. It is
/// a string or a list of parts.
pub(crate) fn texts<'a>(item: &'a Value, member: &str) -> Vec<&'a str> {
    match item.get(member) {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn user(text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    }

    fn assistant(text: &str) -> Value {
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "exec_command", "arguments": "{}"})
    }

    fn output(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "ok"})
    }

    fn position(input: Vec<Value>) -> (String, usize) {
        let Position { prompt, round } = Position::of(&json!({ "input": input }));
        (prompt, round)
    }

    #[test]
    fn fresh_prompt_is_round_zero() {
        let input = vec![user("<environment_context>…"), user("hello")];
        assert_eq!(position(input), ("hello".into(), 0));
    }

    #[test]
    fn only_answers_after_the_last_prompt_count() {
        let input = vec![
            user("first"),
            call("a"),
            output("a"),
            assistant("done"),
            user("second"),
            call("b"),
            output("b"),
        ];
        assert_eq!(position(input), ("second".into(), 1));
    }

    #[test]
    fn message_with_several_calls_is_one_round() {
        let input = vec![
            user("go"),
            assistant("I will look"),
            call("a"),
            call("b"),
            output("a"),
            output("b"),
            call("c"),
            output("c"),
        ];
        assert_eq!(position(input), ("go".into(), 2));
    }

    #[test]
    fn warning_between_calls_does_not_split_a_round() {
        let warning = "Warning: apply_patch was requested via exec_command. Use …";
        let input = vec![
            user("go"),
            call("a"),
            user(warning),
            call("b"),
            output("a"),
            output("b"),
        ];
        assert_eq!(position(input), ("go".into(), 1));
    }

    #[test]
    fn context_after_the_prompt_is_not_a_prompt() {
        let input = vec![
            user("go"),
            call("a"),
            output("a"),
            user("<turn_aborted>\nstopped"),
            user("# AGENTS.md instructions for /project"),
        ];
        assert_eq!(position(input), ("go".into(), 1));
    }

    #[test]
    fn picture_is_not_part_of_the_prompt() {
        let message = json!({"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "<image name=[Image #1]>"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
            {"type": "input_text", "text": "</image>"},
            {"type": "input_text", "text": "what is this?"},
        ]});
        assert_eq!(position(vec![message]), ("what is this?".into(), 0));
    }

    #[test]
    fn picture_without_words_does_not_change_the_prompt() {
        let picture = json!({"type": "message", "role": "user", "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
        ]});
        let input = vec![user("look"), call("a"), output("a"), picture];
        assert_eq!(position(input), ("look".into(), 1));
    }

    #[test]
    fn input_and_content_may_be_plain_strings() {
        let short = json!({"input": "hello"});
        assert_eq!(Position::of(&short).prompt, "hello");
        let message = json!({"role": "user", "content": "hi"});
        assert_eq!(position(vec![message]), ("hi".into(), 0));
    }

    #[test]
    fn request_without_a_prompt_is_at_the_start() {
        assert_eq!(Position::of(&json!({})), Position::default());
        assert_eq!(position(vec![assistant("alone")]), (String::new(), 0));
    }
}
