//! The items exchanged with the model provider: `rawResponseItem/completed`, which Codex
//! sends for threads begun with `experimentalRawEvents` (0.104.0 to 0.169.0).
//!
//! They are the only trace of a call that Codex does not allow.

use serde::Deserialize;
use serde_json::Value;

/// An item, with the fields that codex-mcp uses.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RawItem {
    /// The model calls a tool.
    #[serde(alias = "custom_tool_call")]
    FunctionCall {
        /// The ID of the call, and of the step that results from it.
        call_id: String,
        /// The tool.
        name: String,
    },
    /// The output of a call, for the model.
    #[serde(alias = "custom_tool_call_output")]
    FunctionCallOutput {
        /// The ID of the call.
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
    /// Whether a tool of this name runs commands or changes files.
    #[must_use]
    pub fn is_acting_tool(name: &str) -> bool {
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

/// The text of the output of a call, without its preamble.
#[must_use]
pub fn output_text(output: &Value) -> &str {
    match output {
        Value::String(text) => without_preamble(text),
        Value::Array(parts) => {
            let texts = parts.iter().map(output_text);
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

/// Whether a call was executed, judged by its output: the output of a refused call has no
/// preamble.
#[must_use]
pub fn was_run(output: &Value) -> bool {
    let text = match output {
        Value::String(text) => text.as_str(),
        other => output_text(other),
    };
    ["Chunk ID:", "Exit code:", "exit code:"]
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// The exit code in the output of an executed command; `None` while the command runs.
#[must_use]
pub fn exit_code(output: &Value) -> Option<i32> {
    let text = match output {
        Value::String(text) => text.as_str(),
        other => output_text(other),
    };
    let mut preamble = text.lines().take_while(|line| *line != "Output:");
    preamble.find_map(|line| {
        let beginnings = ["Process exited with code ", "Exit code: ", "exit code: "];
        let code = beginnings.iter().find_map(|words| line.strip_prefix(words));
        code?.trim().parse().ok()
    })
}

/// Newer releases begin an output with the ID and the duration of the command.
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
    fn calls_and_their_outputs_are_read() {
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
            assert_eq!(output_text(&output), "no");
        }
        assert_eq!(output_text(&json!(7)), "");
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
