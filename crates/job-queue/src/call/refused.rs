//! Reads the rollout of a resumed thread for calls that Codex refused or that the sandbox stopped
//! at once. Codex reports such calls only for new threads.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use codex_engine::logic::work::Recorder;
use codex_engine::rollouts::{self, Rollout};
use codex_protocol::codex::ThreadId;
use common::timestamp::timestamp;
use safe_files::off_runtime;
use safe_files::untrusted_file::{self, Links};
use serde::Deserialize;
use serde_json::Value;

/// How much of the end of a rollout is read, in bytes.
const LIMIT: u64 = 16 * 1024 * 1024;

/// A line of a rollout, with the fields that are used. Its time stamp has the same format as ours,
/// so the two can be compared as texts.
#[derive(Deserialize)]
struct RolloutLine {
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    payload: Value,
}

/// The refused and stopped calls since a moment, as events. `recorder` knows the steps that
/// Codex has reported. Returns nothing if the rollout cannot be read.
pub(super) async fn calls(
    codex_home: PathBuf,
    id: ThreadId,
    since: SystemTime,
    recorder: Recorder,
) -> Vec<Value> {
    let looked = off_runtime::run(move || match rollouts::find(&codex_home, &id) {
        Rollout::At(path) => calls_in(&path, since, recorder),
        Rollout::Missing | Rollout::Unknown => Vec::new(),
    });
    looked.await.unwrap_or_else(|error| {
        tracing::debug!("looking for refused calls: {error}");
        Vec::new()
    })
}

fn calls_in(rollout: &Path, since: SystemTime, mut recorder: Recorder) -> Vec<Value> {
    let Ok(file) = untrusted_file::open(rollout, Links::Refused) else {
        return Vec::new();
    };
    let Ok(lines) = last_lines(file) else {
        return Vec::new();
    };
    let since = timestamp(since);
    let mut refused = Vec::new();
    for line in lines.map_while(Result::ok) {
        // Parse only lines that may have a call.
        if !line.contains("_call") {
            continue;
        }
        if let Ok(RolloutLine { timestamp, payload }) = serde_json::from_str(&line)
            && timestamp >= since
        {
            refused.extend(recorder.raw(&payload));
        }
    }
    refused
}

fn last_lines(mut file: File) -> io::Result<impl Iterator<Item = io::Result<String>>> {
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LIMIT);
    file.seek(SeekFrom::Start(start))?;
    // The first line may be incomplete.
    let lines = BufReader::new(file.take(LIMIT)).lines();
    Ok(lines.skip(usize::from(start > 0)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    fn line(second: u64, payload: &Value) -> String {
        let at = timestamp(UNIX_EPOCH + Duration::from_secs(second));
        json!({ "timestamp": at, "type": "response_item", "payload": payload }).to_string()
    }

    #[test]
    fn refused_calls_of_this_turn_are_reported() {
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
                &answer("2", "Chunk ID: 5\nProcess exited with code 0\nOutput:\nyes"),
            ),
            line(3, &call("3", "rm y")),
            line(3, &answer("3", "exec_command failed: SandboxDenied { }")),
            line(3, &patch),
            line(3, &answer("p", "patch rejected")),
            "no JSON _call".to_owned(),
        ];
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let refused = calls_in(
            file.path(),
            UNIX_EPOCH + Duration::from_secs(2),
            Recorder::default(),
        );
        let told: Vec<_> = refused
            .iter()
            .map(|event| (&event["item"]["type"], &event["item"]["status"]))
            .collect();
        let declined = json!("declined");
        assert_eq!(
            told,
            [
                (&json!("command_execution"), &declined),
                (&json!("file_change"), &declined),
            ]
        );
        assert_eq!(
            calls_in(Path::new("/nonexistent"), UNIX_EPOCH, Recorder::default()),
            [Value::Null; 0]
        );
    }
}
