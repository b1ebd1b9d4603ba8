//! Calls of the model's that Codex refused: they are no events of `codex exec`, and only
//! the rollout has them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use codex_mcp_core::clock::timestamp;
use codex_mcp_core::exec::{FailedStep, StepKind};
use codex_mcp_protocol::codex::{RawItem, raw_item};
use serde::Deserialize;
use serde_json::Value;

use crate::untrusted_file::{self, Links};

/// How much of the end of a rollout is read, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// How many calls are waited for an answer at once.
const OPEN: usize = 64;

/// What the model is told of a command that the sandbox stopped (0.104.0): the command is
/// an event then.
const STOPPED: &str = "exec_command failed: SandboxDenied";

/// The tool that changes files.
const PATCH: &str = "apply_patch";

/// A line of a rollout, as far as it is used. Its moment has the form of ours, so that
/// the two can be compared as texts.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    payload: Value,
}

/// The calls that were refused since then. A rollout that cannot be read has none.
pub(super) fn calls(rollout: &Path, since: SystemTime) -> Vec<FailedStep> {
    let Ok(file) = untrusted_file::open(rollout, Links::Refused) else {
        return Vec::new();
    };
    let Ok(lines) = last_lines(file) else {
        return Vec::new();
    };
    let since = timestamp(since);
    let mut open = BTreeMap::new();
    let mut refused = Vec::new();
    for line in lines.map_while(Result::ok) {
        // What is no call costs nothing.
        if !line.contains("_call") {
            continue;
        }
        if let Ok(Line { timestamp, payload }) = serde_json::from_str(&line)
            && timestamp >= since
        {
            refused.extend(refusal(payload, &mut open));
        }
    }
    refused
}

fn last_lines(mut file: File) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LIMIT);
    file.seek(SeekFrom::Start(start))?;
    // The first line may be the end of one.
    let lines = BufReader::new(file.take(LIMIT)).lines();
    Ok(lines.skip(usize::from(start > 0)))
}

/// Takes in an item of the conversation; the refusal, if it is one.
fn refusal(payload: Value, open: &mut BTreeMap<String, (StepKind, String)>) -> Option<FailedStep> {
    match RawItem::deserialize(&payload).ok()? {
        RawItem::FunctionCall { call_id, name } if RawItem::wants_to_act(&name) => {
            if open.len() < OPEN {
                open.insert(call_id, asked(&name, &payload));
            }
            None
        }
        RawItem::FunctionCallOutput { call_id, output } => {
            let (kind, what) = open.remove(&call_id)?;
            let why = raw_item::told(&output);
            let was_run = raw_item::was_run(&output) || why.starts_with(STOPPED);
            (!was_run).then(|| FailedStep::refused(kind, &what, why))
        }
        _ => None,
    }
}

/// What a call wants done.
fn asked(name: &str, payload: &Value) -> (StepKind, String) {
    let kind = match name == PATCH {
        true => return (StepKind::FileChange, PATCH.to_owned()),
        false => StepKind::Command,
    };
    let arguments = payload.get("arguments").and_then(Value::as_str);
    let arguments: Value = arguments
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let command = arguments.get("cmd").or_else(|| arguments.get("command"));
    let words = match command {
        Some(Value::String(command)) => command.clone(),
        Some(Value::Array(words)) => {
            let words = words.iter().filter_map(Value::as_str);
            shlex::try_join(words).unwrap_or_default()
        }
        _ => name.to_owned(),
    };
    (kind, words)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use codex_mcp_core::exec::StepFailure;
    use serde_json::json;

    use super::*;

    fn line(second: u64, payload: &Value) -> String {
        let at = timestamp(UNIX_EPOCH + Duration::from_secs(second));
        json!({ "timestamp": at, "type": "response_item", "payload": payload }).to_string()
    }

    #[test]
    fn refused_calls_of_this_run_are_told() {
        let call = |id: &str, command: &str| {
            json!({ "type": "function_call", "call_id": id, "name": "exec_command",
                "arguments": json!({ "cmd": command }).to_string() })
        };
        let answer = |id: &str, output: &str| json!({ "type": "function_call_output", "call_id": id, "output": output });
        let patch = json!({ "type": "custom_tool_call", "call_id": "p", "name": "apply_patch",
            "input": "*** Begin Patch" });
        let lines = [
            line(1, &call("0", "before")),
            line(1, &answer("0", "refused long ago")),
            line(3, &call("1", "touch x")),
            line(3, &answer("1", "approval policy is Never; reject command")),
            line(3, &call("2", "ls")),
            line(
                3,
                &answer("2", "Chunk ID: 5\nProcess exited with code 1\nOutput:\nno"),
            ),
            line(3, &call("3", "rm y")),
            line(3, &answer("3", "exec_command failed: SandboxDenied { }")),
            line(3, &patch),
            line(3, &answer("p", "patch rejected")),
            "no JSON _call".to_owned(),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let refused = calls(file.path(), UNIX_EPOCH + Duration::from_secs(2));
        let told: Vec<_> = refused
            .iter()
            .map(|step| (step.kind, &*step.what, step.reason.as_deref().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    StepKind::Command,
                    "touch x",
                    "approval policy is Never; reject command"
                ),
                (StepKind::FileChange, "apply_patch", "patch rejected"),
            ]
        );
        assert!(
            refused
                .iter()
                .all(|step| step.outcome == StepFailure::Refused)
        );
        assert_eq!(calls(Path::new("/nonexistent"), UNIX_EPOCH), []);
    }
}
