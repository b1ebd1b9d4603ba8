//! A request as it arrived, with typed access to what tests ask about.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::conversation::{self, Position};

/// One request for a model's answer. Cloning it is cheap.
#[derive(Clone)]
pub struct Request(Arc<Inner>);

struct Inner {
    body: Value,
    position: Position,
}

/// A tool that a request offers to the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tool<'a> {
    /// The namespace the tool is in: newer Codex releases put the tools of each
    /// MCP server into one.
    pub namespace: Option<&'a str>,
    /// The tool's name; for tools the provider runs itself (`web_search`), and
    /// for others without a name, their type.
    pub name: &'a str,
    /// The tool's declaration as sent.
    pub declaration: &'a Value,
}

/// What a tool answered, as Codex reports it back to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutput {
    /// The call it answers.
    pub call_id: String,
    /// All of its text. Pictures are in [`Request::images`].
    pub text: String,
}

impl Request {
    pub(crate) fn new(body: Value) -> Self {
        let position = Position::of(&body);
        Self(Arc::new(Inner { body, position }))
    }

    /// The whole JSON body.
    pub fn body(&self) -> &Value {
        &self.0.body
    }

    /// The last message a person typed, without what Codex adds in the user's
    /// name (environment, project instructions, picture tags). Empty when there
    /// is none.
    pub fn prompt(&self) -> &str {
        &self.0.position.prompt
    }

    /// How many times the model has answered since that message: 0 for the
    /// first request of a turn, 1 after the first round of tool calls.
    pub fn round(&self) -> usize {
        self.0.position.round
    }

    /// The model asked for.
    pub fn model(&self) -> &str {
        self.text_field("model")
    }

    /// The conversation this belongs to: Codex uses the thread's id as the
    /// prompt cache key.
    pub fn thread_id(&self) -> &str {
        self.text_field("prompt_cache_key")
    }

    /// The base instructions; empty when they are not in this field. Codex
    /// 0.169.0 sends them as the first developer message instead.
    pub fn instructions(&self) -> &str {
        self.text_field("instructions")
    }

    /// The texts of all developer messages, in order.
    pub fn developer_messages(&self) -> Vec<&str> {
        self.messages_by("developer")
    }

    /// The texts of all user messages, in order, with those Codex wrote in the
    /// user's name.
    pub fn user_messages(&self) -> Vec<&str> {
        self.messages_by("user")
    }

    /// The texts of everything the model has said so far, in order.
    pub fn assistant_messages(&self) -> Vec<&str> {
        self.messages_by("assistant")
    }

    /// Every text the model gets to read: the instructions, all messages and
    /// all tool outputs.
    pub fn texts(&self) -> Vec<&str> {
        let mut texts = vec![self.instructions()];
        for item in self.input() {
            texts.extend(conversation::texts(item, "content"));
            texts.extend(conversation::texts(item, "output"));
        }
        texts.retain(|text| !text.is_empty());
        texts
    }

    /// The tools on offer, those inside namespaces one by one.
    pub fn tools(&self) -> Vec<Tool<'_>> {
        list(self.body(), "tools")
            .iter()
            .flat_map(|declaration| match tool_type(declaration) {
                "namespace" => {
                    let namespace = declaration.get("name").and_then(Value::as_str);
                    list(declaration, "tools")
                        .iter()
                        .map(|tool| Tool::new(namespace, tool))
                        .collect()
                }
                _ => vec![Tool::new(None, declaration)],
            })
            .collect()
    }

    /// The names of the tools on offer, as `namespace/name` inside a namespace.
    pub fn tool_names(&self) -> Vec<String> {
        self.tools().iter().map(Tool::to_string).collect()
    }

    /// The tool of that name outside any namespace.
    pub fn tool(&self, name: &str) -> Option<Tool<'_>> {
        self.tools()
            .into_iter()
            .find(|tool| tool.namespace.is_none() && tool.name == name)
    }

    /// The URLs (mostly `data:`) of all pictures in the input, in messages and
    /// in tool outputs.
    pub fn images(&self) -> Vec<&str> {
        self.input()
            .iter()
            .flat_map(|item| list(item, "content").iter().chain(list(item, "output")))
            .filter_map(|part| part.get("image_url")?.as_str())
            .collect()
    }

    /// What tools have answered so far, in order.
    pub fn tool_outputs(&self) -> Vec<ToolOutput> {
        self.input()
            .iter()
            .filter(|item| conversation::is_output(item))
            .map(|item| ToolOutput {
                call_id: text_of(item, "call_id").to_owned(),
                text: conversation::texts(item, "output").join("\n"),
            })
            .collect()
    }

    fn input(&self) -> &[Value] {
        list(self.body(), "input")
    }

    fn text_field(&self, name: &str) -> &str {
        text_of(self.body(), name)
    }

    fn messages_by(&self, role: &str) -> Vec<&str> {
        self.input()
            .iter()
            .filter(|item| {
                conversation::kind(item) == "message" && conversation::role(item) == role
            })
            .flat_map(|item| conversation::texts(item, "content"))
            .collect()
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("thread_id", &self.thread_id())
            .field("prompt", &self.prompt())
            .field("round", &self.round())
            .finish_non_exhaustive()
    }
}

impl<'a> Tool<'a> {
    fn new(namespace: Option<&'a str>, declaration: &'a Value) -> Self {
        let name = declaration
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_else(|| tool_type(declaration));
        Self {
            namespace,
            name,
            declaration,
        }
    }

    /// Whether the tool takes free text instead of JSON arguments.
    pub fn is_freeform(&self) -> bool {
        tool_type(self.declaration) == "custom"
    }

    /// Whether the tool's schema has an argument of that name.
    pub fn takes(&self, argument: &str) -> bool {
        self.declaration
            .get("parameters")
            .and_then(|parameters| parameters.get("properties"))
            .is_some_and(|properties| properties.get(argument).is_some())
    }
}

impl fmt::Display for Tool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name)
    }
}

fn tool_type(declaration: &Value) -> &str {
    text_of(declaration, "type")
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Request {
        Request::new(json!({
            "model": "mock-model",
            "prompt_cache_key": "thread-1",
            "instructions": "be brief",
            "tools": [
                {"type": "function", "name": "exec_command",
                 "parameters": {"properties": {"cmd": {"type": "string"}}}},
                {"type": "custom", "name": "apply_patch"},
                {"type": "namespace", "name": "mcp__ours", "tools": [{"type": "function", "name": "ask"}]},
                {"type": "web_search"},
            ],
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_image", "image_url": "data:one"},
                    {"type": "input_text", "text": "look"},
                ]},
                {"type": "function_call", "call_id": "c1", "name": "view_image", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [
                    {"type": "input_text", "text": "seen"},
                    {"type": "input_image", "image_url": "data:two"},
                ]},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "patched"},
            ],
        }))
    }

    #[test]
    fn texts_are_grouped_by_kind() {
        let request = sample();
        assert_eq!(request.instructions(), "be brief");
        assert_eq!(request.developer_messages(), ["rules"]);
        assert_eq!(request.user_messages(), ["look"]);
        assert_eq!(request.assistant_messages(), [""; 0]);
        assert_eq!(
            request.texts(),
            ["be brief", "rules", "look", "seen", "patched"]
        );
        assert_eq!(request.thread_id(), "thread-1");
    }

    #[test]
    fn tools_are_listed_flat() {
        let request = sample();
        assert_eq!(
            request.tool_names(),
            ["exec_command", "apply_patch", "mcp__ours/ask", "web_search"]
        );
        assert!(request.tool("exec_command").unwrap().takes("cmd"));
        assert!(!request.tool("exec_command").unwrap().takes("command"));
        assert!(request.tool("apply_patch").unwrap().is_freeform());
        assert_eq!(request.tool("ask"), None);
    }

    #[test]
    fn images_and_outputs_are_found_in_tool_results_too() {
        let request = sample();
        assert_eq!(request.images(), ["data:one", "data:two"]);
        let output = |call_id: &str, text: &str| ToolOutput {
            call_id: call_id.into(),
            text: text.into(),
        };
        assert_eq!(
            request.tool_outputs(),
            [output("c1", "seen"), output("c2", "patched")]
        );
    }
}
