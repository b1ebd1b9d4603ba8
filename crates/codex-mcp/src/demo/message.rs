//! Summaries of MCP messages: the method and the important members.

use serde_json::{Map, Value};

/// A message, summarised for display.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    /// The method, or `result` or `error`.
    pub(super) title: String,
    /// The ID that links a request and its answer.
    pub(super) id: Option<String>,
    /// The most important part, if it is short.
    pub(super) about: Option<String>,
    /// The rest, by name.
    pub(super) fields: Vec<(String, String)>,
}

/// Summarises a JSON-RPC message of MCP.
pub(super) fn summary(message: &Value) -> Summary {
    let id = message.get("id").map(plain);
    let mut summary = match message.get("method").and_then(Value::as_str) {
        Some(method) => call(method, at(message, "/params")),
        None => match message.get("error") {
            Some(error) => Summary {
                title: "error".to_owned(),
                fields: fields(error, &["code", "message"]),
                ..Summary::default()
            },
            None => result(at(message, "/result")),
        },
    };
    summary.id = id;
    summary
}

fn call(method: &str, params: &Value) -> Summary {
    let (about, fields) = match method {
        "initialize" => (None, introduction(params, "clientInfo")),
        "tools/call" => (
            text(params, "/name"),
            prompt_first(at(params, "/arguments")),
        ),
        "notifications/progress" => (text(params, "/message"), Vec::new()),
        "elicitation/create" => (None, fields(params, &["message", "codex_command"])),
        _ => (None, Vec::new()),
    };
    Summary {
        title: method.to_owned(),
        about,
        fields,
        ..Summary::default()
    }
}

fn result(result: &Value) -> Summary {
    let fields = if result.get("protocolVersion").is_some() {
        introduction(result, "serverInfo")
    } else if let Some(tools) = result.get("tools").and_then(Value::as_array) {
        let names: Vec<&str> = tools.iter().filter_map(name).collect();
        vec![("tools".to_owned(), names.join(", "))]
    } else if let Some(structured) = result.get("structuredContent") {
        let mut told = fields(structured, &["threadId", "status", "content"]);
        told.extend(fields(at(structured, "/error"), &["code", "message"]));
        told.retain(|(_, value)| !value.is_empty());
        told
    } else {
        members(result)
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect()
    };
    Summary {
        title: "result".to_owned(),
        fields,
        ..Summary::default()
    }
}

/// The members by which each side of `initialize` introduces itself.
fn introduction(params: &Value, who: &str) -> Vec<(String, String)> {
    let name = text(params, &format!("/{who}/name")).unwrap_or_default();
    let version = text(params, &format!("/{who}/version")).unwrap_or_default();
    let capabilities: Vec<&str> = members(at(params, "/capabilities"))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut introduction = vec![(who.to_owned(), format!("{name} {version}"))];
    introduction.extend(fields(params, &["protocolVersion"]));
    introduction.push(("capabilities".to_owned(), capabilities.join(", ")));
    introduction
}

/// The arguments of a tool: the prompt first, then the options.
fn prompt_first(arguments: &Value) -> Vec<(String, String)> {
    let mut arguments: Vec<(String, String)> = members(arguments)
        .map(|(name, value)| (name.clone(), plain(value)))
        .collect();
    arguments.sort_by_key(|(name, _)| name != "prompt");
    arguments
}

fn name(tool: &Value) -> Option<&str> {
    tool.get("name").and_then(Value::as_str)
}

fn fields(object: &Value, names: &[&str]) -> Vec<(String, String)> {
    names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), plain(object.get(name)?))))
        .collect()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn at<'a>(value: &'a Value, place: &str) -> &'a Value {
    value.pointer(place).unwrap_or(&Value::Null)
}

fn text(value: &Value, place: &str) -> Option<String> {
    Some(value.pointer(place)?.as_str()?.to_owned())
}

/// A string without quotes, any other value as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn in_short(message: Value) -> String {
        let summary = summary(&message);
        let mut lines = vec![
            [Some(summary.title), summary.about, summary.id]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" | "),
        ];
        lines.extend(
            summary
                .fields
                .into_iter()
                .map(|(name, value)| format!("{name}: {value}")),
        );
        lines.join("\n")
    }

    #[test]
    fn request_is_summarised_by_its_parameters() {
        assert_eq!(
            in_short(json!({
                "id": 0, "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"elicitation": {}},
                    "clientInfo": {"name": "demo", "version": "1"},
                },
            })),
            "initialize | 0\nclientInfo: demo 1\nprotocolVersion: 2025-11-25\ncapabilities: elicitation"
        );
        assert_eq!(
            in_short(json!({
                "id": 2, "method": "tools/call",
                "params": {"name": "codex", "arguments": {"config": {"a": 1}, "prompt": "Go"}},
            })),
            "tools/call | codex | 2\nprompt: Go\nconfig: {\"a\":1}"
        );
        assert_eq!(
            in_short(json!({
                "id": 0, "method": "elicitation/create",
                "params": {"message": "May I?", "codex_command": ["touch", "a"], "requestedSchema": {}},
            })),
            "elicitation/create | 0\nmessage: May I?\ncodex_command: [\"touch\",\"a\"]"
        );
        assert_eq!(
            in_short(json!({
                "method": "notifications/progress",
                "params": {"progressToken": 1, "progress": 1, "message": "Codex thinks"},
            })),
            "notifications/progress | Codex thinks"
        );
    }

    #[test]
    fn result_is_summarised_by_its_content() {
        assert_eq!(
            in_short(json!({
                "id": 1,
                "result": {"tools": [{"name": "codex", "description": "Begins."}, {"name": "codex-reply"}]},
            })),
            "result | 1\ntools: codex, codex-reply"
        );
        assert_eq!(
            in_short(json!({
                "id": 2,
                "result": {
                    "content": [{"type": "text", "text": "Done"}],
                    "structuredContent": {"content": "Done", "status": "completed", "threadId": "t"},
                },
            })),
            "result | 2\nthreadId: t\nstatus: completed\ncontent: Done"
        );
        assert_eq!(
            in_short(json!({
                "id": 2,
                "result": {
                    "isError": true,
                    "structuredContent": {"content": "", "error": {"code": "TIMEOUT", "message": "too long", "hint": "wait"}},
                },
            })),
            "result | 2\ncode: TIMEOUT\nmessage: too long"
        );
        assert_eq!(
            in_short(json!({"id": 0, "result": {"action": "accept"}})),
            "result | 0\naction: accept"
        );
        assert_eq!(
            in_short(json!({"id": 3, "error": {"code": -32602, "message": "no such tool"}})),
            "error | 3\ncode: -32602\nmessage: no such tool"
        );
    }
}
