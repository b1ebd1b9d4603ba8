//! A shell command for Codex to run, in whichever form a release's tool takes.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::request::Tool;

/// A command line the model asks Codex to run. A plain string is one too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    command: String,
    directory: Option<PathBuf>,
    wait: Option<Duration>,
    justification: Option<String>,
}

/// The shell tools Codex has had, newest first.
pub(crate) const SHELL_TOOLS: [&str; 3] = ["exec_command", "shell_command", "shell"];

impl Shell {
    /// Runs `command` with the sandbox of the turn.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            directory: None,
            wait: None,
            justification: None,
        }
    }

    /// Runs `command` outside the sandbox, so that Codex asks for approval
    /// (under the approval policy `on-request`). `justification` is the question
    /// the user is shown.
    pub fn escalated(command: impl Into<String>, justification: impl Into<String>) -> Self {
        Self {
            justification: Some(justification.into()),
            ..Self::new(command)
        }
    }

    /// Runs it in `directory` instead of the turn's working directory.
    #[must_use]
    pub fn in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// How long Codex waits for the command: `exec_command` then reports what
    /// there is and leaves it running (0.25 to 30 s, 10 s unless told), the
    /// older tools end it.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The arguments for `tool`, one of [`SHELL_TOOLS`]. The names are those in
    /// the tool schemas of Codex 0.104.0 (`exec_command` and `shell`), 0.153.4
    /// and 0.169.0 (`exec_command`).
    pub(crate) fn arguments(&self, tool: &Tool<'_>) -> Value {
        let (name, command, wait) = match tool.name {
            "exec_command" => ("cmd", json!(self.command), "yield_time_ms"),
            "shell_command" => ("command", json!(self.command), "timeout_ms"),
            _ => (
                "command",
                json!(["bash", "-lc", self.command]),
                "timeout_ms",
            ),
        };
        let mut arguments = Map::new();
        arguments.insert(name.into(), command);
        if let Some(directory) = &self.directory {
            arguments.insert("workdir".into(), json!(directory.to_string_lossy()));
        }
        if let Some(duration) = self.wait {
            let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
            arguments.insert(wait.into(), json!(milliseconds));
        }
        if let Some(justification) = &self.justification {
            arguments.insert("sandbox_permissions".into(), json!("require_escalated"));
            arguments.insert("justification".into(), json!(justification));
        }
        Value::Object(arguments)
    }
}

impl From<&str> for Shell {
    fn from(command: &str) -> Self {
        Self::new(command)
    }
}

impl From<String> for Shell {
    fn from(command: String) -> Self {
        Self::new(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(tool: &str, shell: &Shell) -> Value {
        shell.arguments(&Tool {
            namespace: None,
            name: tool,
            declaration: &Value::Null,
        })
    }

    #[test]
    fn each_tool_gets_its_own_arguments() {
        let shell = Shell::from("ls");
        assert_eq!(arguments("exec_command", &shell), json!({"cmd": "ls"}));
        assert_eq!(arguments("shell_command", &shell), json!({"command": "ls"}));
        assert_eq!(
            arguments("shell", &shell),
            json!({"command": ["bash", "-lc", "ls"]})
        );
    }

    #[test]
    fn options_are_passed_on() {
        let shell = Shell::escalated("ls", "May I?")
            .in_directory("/srv")
            .waiting(Duration::from_secs(2));
        assert_eq!(
            arguments("exec_command", &shell),
            json!({
                "cmd": "ls",
                "workdir": "/srv",
                "yield_time_ms": 2000,
                "sandbox_permissions": "require_escalated",
                "justification": "May I?",
            })
        );
    }
}
