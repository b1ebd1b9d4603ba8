//! A script that plays the work of a turn.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use super::dialect::Call;

/// How long to read the output of an ended script: processes that it left behind may hold its
/// streams open.
const REST: Duration = Duration::from_millis(100);

/// A running script. Dropping it kills the script, but not the processes that it has started.
pub(super) struct RunningScript {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
    has_ended: bool,
}

impl RunningScript {
    pub(super) fn start(script: &str, call: &Call, settings: &Value) -> Self {
        let prompt = call.params["input"].as_array().into_iter().flatten();
        let prompt = prompt.filter_map(|part| part["text"].as_str());
        let mut command = Command::new("setsid");
        command
            .args(["sh", "-c", script, "codex"])
            .arg(prompt.collect::<String>())
            .envs(variables(&settings["config"]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(directory) = settings["cwd"].as_str() {
            command.current_dir(directory);
        }
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Self {
            stdout: BufReader::new(stdout).lines(),
            stderr: child.stderr.take().unwrap(),
            child,
            has_ended: false,
        }
    }

    /// The next line that it prints; `None` at its end.
    pub(super) async fn line(&mut self) -> Option<String> {
        if !self.has_ended {
            tokio::select! {
                biased;
                line = self.stdout.next_line() => match line {
                    Ok(Some(line)) => return Some(line),
                    _ => drop(self.child.wait().await),
                },
                _ = self.child.wait() => {}
            }
            self.has_ended = true;
        }
        let rest: Result<io::Result<Option<String>>, _> =
            timeout(REST, self.stdout.next_line()).await;
        rest.ok()?.ok()?
    }

    /// The stderr of the script, if it has failed.
    pub(super) async fn failure(&mut self) -> Option<String> {
        if self.child.wait().await.unwrap().success() {
            return None;
        }
        let mut written = Vec::new();
        let _ = timeout(REST, self.stderr.read_to_end(&mut written)).await;
        Some(String::from_utf8_lossy(&written).trim().to_owned())
    }
}

/// The variables that the thread's settings set for commands.
fn variables(config: &Value) -> Vec<(String, String)> {
    const TABLE: &str = "shell_environment_policy";
    let mut variables = Vec::new();
    for (key, value) in config.as_object().into_iter().flatten() {
        let dotted = key
            .strip_prefix(TABLE)
            .and_then(|key| key.strip_prefix(".set."));
        match (dotted, value) {
            (Some(name), Value::String(value)) => variables.push((name.to_owned(), value.clone())),
            (None, table) if key == TABLE => {
                let set = table["set"].as_object().into_iter().flatten();
                let set = set
                    .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
                variables.extend(set);
            }
            _ => {}
        }
    }
    variables
}
