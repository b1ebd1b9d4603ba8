//! What the model said and was told, as it went to and from the provider:
//! `rawResponseItem/completed`, which a thread tells that was begun with
//! `experimentalRawEvents` (0.104.0 to 0.169.0).
//!
//! A call that Codex doesn't allow leaves no other trace.

use serde::Deserialize;
use serde_json::Value;

/// An item, as far as it is used.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RawItem {
    /// The model calls a tool.
    #[serde(alias = "custom_tool_call")]
    FunctionCall {
        /// Its name. A step that comes of it has the same.
        call_id: String,
        /// The tool.
        name: String,
    },
    /// The model is told what came of it.
    #[serde(alias = "custom_tool_call_output")]
    FunctionCallOutput {
        /// The name of the call.
        call_id: String,
        /// A text, or an object or a list with texts in it.
        #[serde(default)]
        output: Value,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

impl RawItem {
    /// Whether this is a call of a tool that runs commands or changes files.
    #[must_use]
    pub fn wants_to_act(name: &str) -> bool {
        let tools = [
            "exec_command",
            "shell_command",
            "shell",
            "local_shell",
            "apply_patch",
        ];
        tools.contains(&name)
    }
}

/// The text that the model is told of a call.
#[must_use]
pub fn told(output: &Value) -> &str {
    match output {
        Value::String(text) => without_preamble(text),
        Value::Array(parts) => {
            let texts = parts.iter().map(told);
            texts
                .into_iter()
                .find(|text| !text.is_empty())
                .unwrap_or("")
        }
        Value::Object(members) => {
            let text = members.get("content").or_else(|| members.get("text"));
            without_preamble(text.and_then(Value::as_str).unwrap_or(""))
        }
        _ => "",
    }
}

/// Whether something was run, by what the model is told of it: of what is not allowed
/// it is told no more than that.
#[must_use]
pub fn was_run(output: &Value) -> bool {
    let text = match output {
        Value::String(text) => text.as_str(),
        other => told(other),
    };
    ["Chunk ID:", "Exit code:", "exit code:"]
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// The exit code of a command that was run, by what the model is told of it; `None` while
/// it runs.
#[must_use]
pub fn exit_code(output: &Value) -> Option<i32> {
    let text = match output {
        Value::String(text) => text.as_str(),
        other => told(other),
    };
    let mut preamble = text.lines().take_while(|line| *line != "Output:");
    preamble.find_map(|line| {
        let beginnings = ["Process exited with code ", "Exit code: ", "exit code: "];
        let code = beginnings.iter().find_map(|words| line.strip_prefix(words));
        code?.trim().parse().ok()
    })
}

/// Newer releases begin with the id and the time of what was run.
fn without_preamble(text: &str) -> &str {
    match text.split_once("\nOutput:\n") {
        Some((preamble, output)) if preamble.starts_with("Chunk ID:") => output,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_and_what_came_of_them_are_read() {
        let read = |value: Value| serde_json::from_value::<RawItem>(value).unwrap();
        let call = read(json!({
            "type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "…",
        }));
        let expected = RawItem::FunctionCall {
            call_id: "c".to_owned(),
            name: "apply_patch".to_owned(),
        };
        assert_eq!(call, expected);
        for output in [
            json!("no"),
            json!("Chunk ID: 5\nWall time: 0.1 seconds\nOutput:\nno"),
            json!({ "content": "no", "success": false }),
            json!([{ "type": "input_image" }, { "type": "input_text", "text": "no" }]),
        ] {
            assert_eq!(told(&output), "no");
        }
        assert_eq!(told(&json!(7)), "");
        assert!(was_run(&json!(
            "Chunk ID: 5\nProcess exited with code 1\nOutput:\nno"
        )));
        assert!(!was_run(&json!("approval policy is Never; reject command")));
        for (output, code) in [
            (
                "Chunk ID: 5\nProcess exited with code 1\nOutput:\nno",
                Some(1),
            ),
            ("Exit code: 2\nWall time: 0 seconds\nOutput:\nno", Some(2)),
            (
                "Chunk ID: 5\nProcess running with session ID 7\nOutput:\nExit code: 3",
                None,
            ),
        ] {
            assert_eq!(exit_code(&json!(output)), code, "{output}");
        }
        assert_eq!(
            read(json!({ "type": "message", "role": "user" })),
            RawItem::Other
        );
    }
}
