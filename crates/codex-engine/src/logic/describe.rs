//! One-line descriptions of Codex's steps, for people.

use codex_protocol::codex::{Ask, FileChange, Item, StepStatus, TokenUsage};
use common::secrets::mask;
use common::text::one_line;

use crate::logic::approval_text::command_line;
use crate::logic::progress::{THINKING, without_shell};

/// The longest line, in bytes.
const LIMIT: usize = 200;

/// Formats a text as one line of at most `LIMIT` bytes. Hidden characters are made visible, as the
/// text comes from the model or the repository, and credentials are masked.
pub fn line(text: &str) -> String {
    // Masked before it is cut: the remainder of a cut credential would not be recognised.
    one_line(&mask(text), LIMIT)
}

/// Describes a step that has begun; `None` if it is of no interest.
pub(crate) fn item(item: &Item) -> Option<String> {
    let words = match item {
        Item::AgentMessage { .. } => "writing".to_owned(),
        Item::CommandExecution { command, .. } => format!("running {}", without_shell(command)),
        Item::FileChange { changes, .. } => format!("editing {}", paths(changes)),
        Item::McpToolCall { server, tool, .. } => format!("calling {server}.{tool}"),
        Item::DynamicToolCall { tool, .. } => format!("calling {tool}"),
        Item::WebSearch { query, .. } => format!("searching the web for {query}"),
        Item::CollabAgentToolCall { .. } => "working with other agents".to_owned(),
        Item::ContextCompaction => "compacting the context".to_owned(),
        Item::Reasoning => THINKING.to_owned(),
        Item::UserMessage | Item::Other => return None,
    };
    Some(line(&words))
}

/// Describes a step that has ended; `None` if it is of no interest.
pub(crate) fn ended(item: &Item) -> Option<String> {
    let words = match item {
        Item::AgentMessage { .. } => "Codex wrote a message".to_owned(),
        Item::CommandExecution {
            command,
            status,
            exit_code,
            ..
        } => {
            let command = without_shell(command);
            let verbs = ["ran", "failed to run", "not allowed to run"];
            match exit_code {
                // The exit code is appended after the cut, so that long commands show it too.
                Some(code) => {
                    return Some(format!("{} (exit {code})", line(&format!("ran {command}"))));
                }
                None => after(*status, verbs, &command),
            }
        }
        Item::FileChange {
            changes, status, ..
        } => {
            let verbs = ["changed", "failed to change", "not allowed to change"];
            after(*status, verbs, &paths(changes))
        }
        Item::McpToolCall {
            server,
            tool,
            status,
            ..
        } => {
            let verbs = ["called", "failed to call", "not allowed to call"];
            after(*status, verbs, &format!("{server}.{tool}"))
        }
        Item::DynamicToolCall { tool, status, .. } => {
            let verbs = ["called", "failed to call", "not allowed to call"];
            after(*status, verbs, tool)
        }
        Item::WebSearch { query, .. } => format!("searched the web for {query}"),
        Item::CollabAgentToolCall { .. } => "worked with other agents".to_owned(),
        Item::ContextCompaction => "compacted the context".to_owned(),
        Item::Reasoning => "thought".to_owned(),
        Item::UserMessage | Item::Other => return None,
    };
    Some(line(&words))
}

/// Describes an ended step, with the verb for its status.
fn after(status: StepStatus, [done, failed, declined]: [&str; 3], what: &str) -> String {
    let verb = match status {
        StepStatus::Completed | StepStatus::InProgress => done,
        StepStatus::Failed => failed,
        StepStatus::Declined => declined,
    };
    format!("{verb} {what}")
}

/// Describes the tokens used.
pub(crate) fn usage(usage: &TokenUsage) -> String {
    let (last, total) = (usage.last.total_tokens, usage.total.total_tokens);
    format!("{last} tokens used by the last request, {total} by the thread")
}

/// Describes an open question.
pub(crate) fn ask(ask: &Ask) -> String {
    let words = match ask {
        Ask::Command(asked) => {
            let command = asked.command.as_deref().unwrap_or("a command");
            format!("waiting for approval to run {}", without_shell(command))
        }
        Ask::LegacyCommand(asked) => {
            let command = command_line(&asked.command);
            format!("waiting for approval to run {command}")
        }
        Ask::FileChange(asked) => {
            format!("waiting for approval to change {}", paths(&asked.changes))
        }
        Ask::LegacyPatch(asked) => {
            let paths: Vec<&str> = asked.file_changes.keys().map(String::as_str).collect();
            format!("waiting for approval to change {}", paths.join(", "))
        }
        Ask::Permissions(_) => "waiting for approval of permissions".to_owned(),
        Ask::McpElicitation(asked) => format!("waiting for an answer to {}", asked.server_name),
        Ask::UserInput(_) => "waiting for an answer of the user".to_owned(),
    };
    line(&words)
}

fn paths(changes: &[FileChange]) -> String {
    let paths: Vec<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    match paths.as_slice() {
        [] => "files".to_owned(),
        paths => paths.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use codex_protocol::codex::{CommandApproval, LegacyCommandApproval};

    use super::*;

    #[test]
    fn question_names_the_command_without_its_shell() {
        let asked = Ask::Command(CommandApproval {
            command: Some("/bin/bash -lc 'git push origin main'".to_owned()),
            ..CommandApproval::default()
        });
        let expected = "waiting for approval to run git push origin main";
        assert_eq!(ask(&asked), expected);
    }

    #[test]
    fn question_about_words_shows_where_they_end() {
        let words = ["git", "commit", "-m", "two words"];
        let asked = Ask::LegacyCommand(LegacyCommandApproval {
            command: words.map(str::to_owned).to_vec(),
            ..LegacyCommandApproval::default()
        });
        let expected = "waiting for approval to run git commit -m 'two words'";
        assert_eq!(ask(&asked), expected);
    }

    #[test]
    fn title_of_an_ended_step_states_its_outcome() {
        let long = "x".repeat(1000);
        for (step, title) in [
            (
                serde_json::json!({ "type": "commandExecution", "exitCode": 1,
                    "command": "/bin/bash -lc 'cargo test'", "status": "failed" }),
                "ran cargo test (exit 1)".to_owned(),
            ),
            (
                serde_json::json!({ "type": "commandExecution", "command": "ls", "status": "declined" }),
                "not allowed to run ls".to_owned(),
            ),
            (
                serde_json::json!({ "type": "commandExecution", "command": long, "exitCode": 0,
                    "status": "completed" }),
                format!(
                    "ran {} … (exit 0)",
                    &long[..LIMIT - "ran ".len() - " …".len()]
                ),
            ),
            (
                serde_json::json!({ "type": "fileChange", "status": "completed",
                    "changes": [{ "path": "a.rs", "diff": "" }] }),
                "changed a.rs".to_owned(),
            ),
            (
                serde_json::json!({ "type": "mcpToolCall", "server": "s", "tool": "t",
                    "status": "failed" }),
                "failed to call s.t".to_owned(),
            ),
            (
                serde_json::json!({ "type": "dynamicToolCall", "tool": "t",
                    "status": "completed" }),
                "called t".to_owned(),
            ),
        ] {
            let told = ended(&serde_json::from_value(step.clone()).unwrap());
            assert_eq!(told, Some(title), "{step}");
        }
    }

    #[test]
    fn command_is_described_without_its_shell() {
        let run = serde_json::json!({ "type": "commandExecution",
            "command": "/bin/bash -lc 'cargo test'" });
        let told = item(&serde_json::from_value(run).unwrap()).unwrap();
        assert_eq!(told, "running cargo test");
    }

    #[test]
    fn long_command_is_cut_to_one_line() {
        let command = format!("cat <<EOF\n\u{1b}[31m{}\nEOF", "word \n".repeat(10_000));
        let run = serde_json::json!({ "type": "commandExecution", "command": command });
        let told = item(&serde_json::from_value(run).unwrap()).unwrap();
        assert!(
            told.starts_with("running cat <<EOF \\u{1b}[31mword word"),
            "{told}"
        );
        assert!(told.len() <= LIMIT && told.ends_with(" …"), "{told}");
    }
}
