//! The events of a Responses API stream, as far as Codex reads them.

use axum::body::Bytes;
use serde_json::{Value, json};

use crate::plan::ToolCall;
use crate::reply::Usage;

/// Writes the events of one response into a buffer.
///
/// A message is open from its first delta on; whatever is not text closes it.
pub(crate) struct EventWriter {
    buffer: String,
    /// Unlike any other response's, also across restarts: Codex tells calls
    /// apart by it.
    response_id: String,
    items: usize,
    message: Option<String>,
    /// The ID of the next call, if it is not to have one of its own.
    call_id: Option<String>,
}

impl EventWriter {
    pub(crate) fn new(response_id: String) -> Self {
        let mut writer = Self {
            buffer: String::new(),
            response_id,
            items: 0,
            message: None,
            call_id: None,
        };
        let created = json!({"response": {"id": writer.response_id, "status": "in_progress"}});
        writer.event("response.created", created);
        writer
    }

    pub(crate) fn delta(&mut self, text: &str) {
        self.open_message();
        let event = json!({
            "item_id": self.item_id("msg"),
            "output_index": self.items,
            "content_index": 0,
            "delta": text,
        });
        self.event("response.output_text.delta", event);
        if let Some(message) = &mut self.message {
            message.push_str(text);
        }
    }

    fn open_message(&mut self) {
        if self.message.is_some() {
            return;
        }
        let item = self.message_item("in_progress", json!([]));
        self.item_event("response.output_item.added", item);
        self.message = Some(String::new());
    }

    pub(crate) fn end_message(&mut self) {
        let Some(text) = self.message.take() else {
            return;
        };
        let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
        let item = self.message_item("completed", content);
        self.finish_item(item);
    }

    pub(crate) fn set_call_id(&mut self, id: String) {
        self.call_id = Some(id);
    }

    pub(crate) fn call(&mut self, call: ToolCall) {
        self.end_message();
        let call_id = self.call_id.take();
        let call_id = call_id.unwrap_or_else(|| self.item_id("call"));
        let item = match call {
            ToolCall::Function {
                namespace: Some(namespace),
                name,
                arguments,
            } => json!({
                "type": "function_call", "call_id": call_id,
                "namespace": namespace, "name": name, "arguments": arguments,
            }),
            ToolCall::Function {
                namespace: None,
                name,
                arguments,
            } => json!({
                "type": "function_call", "call_id": call_id,
                "name": name, "arguments": arguments,
            }),
            ToolCall::Freeform { name, input } => json!({
                "type": "custom_tool_call", "call_id": call_id, "name": name, "input": input,
            }),
        };
        self.finish_item(item);
    }

    pub(crate) fn completed(&mut self, usage: Usage) {
        self.end_message();
        let event = json!({"response": {
            "id": self.response_id,
            "status": "completed",
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cached_input},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input.saturating_add(usage.output),
            },
        }});
        self.event("response.completed", event);
    }

    pub(crate) fn failed(&mut self, code: &str, message: &str) {
        let event = json!({"response": {
            "id": self.response_id,
            "status": "failed",
            "error": {"code": code, "message": message},
        }});
        self.event("response.failed", event);
    }

    /// Bytes written and not taken.
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.buffer))
    }

    fn message_item(&self, status: &str, content: Value) -> Value {
        json!({
            "type": "message",
            "id": self.item_id("msg"),
            "role": "assistant",
            "status": status,
            "content": content,
        })
    }

    fn finish_item(&mut self, item: Value) {
        self.item_event("response.output_item.done", item);
        self.items += 1;
    }

    fn item_event(&mut self, kind: &str, item: Value) {
        let event = json!({"output_index": self.items, "item": item});
        self.event(kind, event);
    }

    fn item_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}_{}", self.response_id, self.items)
    }

    fn event(&mut self, kind: &str, mut event: Value) {
        if let Some(fields) = event.as_object_mut() {
            fields.insert("type".into(), json!(kind));
        }
        self.buffer.push_str("event: ");
        self.buffer.push_str(kind);
        self.buffer.push_str("\ndata: ");
        self.buffer.push_str(&event.to_string());
        self.buffer.push_str("\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(writer: &mut EventWriter) -> Vec<Value> {
        let bytes = writer.take();
        std::str::from_utf8(&bytes)
            .unwrap()
            .split_terminator("\n\n")
            .map(|event| {
                let (kind, data) = event.split_once('\n').unwrap();
                let data: Value =
                    serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(kind, format!("event: {}", data["type"].as_str().unwrap()));
                data
            })
            .collect()
    }

    fn kinds(events: &[Value]) -> Vec<&str> {
        events
            .iter()
            .map(|event| event["type"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn message_opens_once_and_is_closed_by_a_call() {
        let mut writer = EventWriter::new("r".into());
        writer.delta("one ");
        writer.delta("two");
        writer.call(ToolCall::Freeform {
            name: "apply_patch".into(),
            input: "…".into(),
        });
        writer.completed(Usage::default());
        let events = events(&mut writer);
        assert_eq!(
            kinds(&events),
            [
                "response.created",
                "response.output_item.added",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_item.done",
                "response.output_item.done",
                "response.completed",
            ]
        );
        assert_eq!(events[4]["item"]["content"][0]["text"], "one two");
        assert_eq!(events[5]["item"]["call_id"], "call_r_1");
        assert_eq!(events[6]["response"]["usage"]["total_tokens"], 110);
        assert_eq!(writer.len(), 0);
    }

    #[test]
    fn call_id_is_that_of_one_call() {
        let mut writer = EventWriter::new("r".into());
        let call = || ToolCall::Freeform {
            name: "apply_patch".into(),
            input: "…".into(),
        };
        writer.set_call_id("mine".into());
        writer.call(call());
        writer.call(call());
        let events = events(&mut writer);
        let ids: Vec<&Value> = events[1..]
            .iter()
            .map(|it| &it["item"]["call_id"])
            .collect();
        assert_eq!(ids, ["mine", "call_r_1"]);
    }

    #[test]
    fn line_breaks_in_a_text_stay_inside_the_event() {
        let mut writer = EventWriter::new("r".into());
        writer.delta("a\n\nb\r\n");
        assert_eq!(events(&mut writer)[2]["delta"], "a\n\nb\r\n");
    }
}
