//! What Codex's file of a thread says of how it was begun.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::Deserialize;

use crate::untrusted_file::{self, Links};

/// How long the first line may be, which holds the instructions too, in bytes.
const LONGEST: u64 = 4 * 1024 * 1024;

/// The first line of a rollout, as far as it is used.
#[derive(Deserialize)]
struct Beginning {
    payload: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    dynamic_tools: Option<Vec<Tool>>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
}

/// The names of the tools that a client has given the thread; `None` if that can't be told.
pub(super) fn tools(rollout: &Path) -> Option<Vec<String>> {
    let file = untrusted_file::open(rollout, Links::Followed).ok()?;
    let mut line = Vec::new();
    let mut file = BufReader::new(file.take(LONGEST));
    file.read_until(b'\n', &mut line).ok()?;
    let Beginning { payload } = serde_json::from_slice(&line).ok()?;
    let tools = payload.dynamic_tools.unwrap_or_default();
    Some(tools.into_iter().map(|tool| tool.name).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tools_are_those_of_the_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let rollout = directory.path().join("rollout.jsonl");
        let tools = |text: &str| {
            fs::write(&rollout, text).unwrap();
            tools(&rollout)
        };
        let with = r#"{"type":"session_meta","payload":{"id":"x","dynamic_tools":[
            {"name":"a","description":"","inputSchema":{}},{"name":"b"}]}}"#;
        let with = with.replace('\n', "");
        assert_eq!(tools(&format!("{with}\n{{}}\n")).unwrap(), ["a", "b"]);
        let without = r#"{"type":"session_meta","payload":{"id":"x"}}"#;
        assert_eq!(tools(without).unwrap(), [""; 0]);
        assert_eq!(tools("nothing"), None);
        assert_eq!(super::tools(&directory.path().join("missing")), None);
    }
}
