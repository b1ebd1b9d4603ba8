//! The events of a job, as the store keeps them and clients read them.
//!
//! Their form is that of `codex exec --json`, by which older releases of this program ran
//! jobs. Unknown events, items, fields and values are accepted. A known field of an
//! unexpected type counts as absent.

use codex_protocol::codex::{StepStatus, ThreadId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type")]
pub enum WorkEvent {
    /// The first event: the thread has an ID, the requested one if the thread was resumed.
    #[serde(rename = "thread.started")]
    ThreadStarted {
        /// Its ID.
        thread_id: ThreadId,
    },
    /// The turn has begun.
    #[serde(rename = "turn.started")]
    TurnStarted,
    /// A step has begun. Messages and thoughts have no beginning.
    #[serde(rename = "item.started")]
    ItemStarted {
        /// The step so far.
        #[serde(default, deserialize_with = "lenient")]
        item: WorkItem,
    },
    /// A step has changed.
    #[serde(rename = "item.updated")]
    ItemUpdated {
        /// The step so far.
        #[serde(default, deserialize_with = "lenient")]
        item: WorkItem,
    },
    /// A step has ended.
    #[serde(rename = "item.completed")]
    ItemCompleted {
        /// The whole step.
        #[serde(default, deserialize_with = "lenient")]
        item: WorkItem,
    },
    /// The turn completed. The last event.
    #[serde(rename = "turn.completed")]
    TurnCompleted {
        /// The tokens used by the thread, over all its turns.
        #[serde(default, deserialize_with = "lenient")]
        usage: TokensUsed,
    },
    /// The turn failed. The last event.
    #[serde(rename = "turn.failed")]
    TurnFailed {
        /// The error.
        #[serde(default, deserialize_with = "lenient")]
        error: WorkError,
    },
    /// An error after which Codex may retry.
    #[serde(rename = "error")]
    Error {
        /// The message.
        #[serde(default, deserialize_with = "lenient")]
        message: String,
    },
    /// An event of a newer Codex.
    #[serde(other)]
    Other,
}

/// A step of a turn.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkItem {
    /// A message of Codex; the last one is the answer.
    AgentMessage {
        /// The whole text.
        #[serde(default, deserialize_with = "lenient")]
        text: String,
    },
    /// Codex runs a command, or was not allowed to.
    CommandExecution {
        /// The step's ID.
        #[serde(default, deserialize_with = "lenient")]
        id: String,
        /// The command line.
        #[serde(default, deserialize_with = "lenient")]
        command: String,
        /// Its output to stdout and stderr.
        #[serde(default, deserialize_with = "lenient")]
        aggregated_output: String,
        /// Its exit code, once it has one.
        #[serde(default, deserialize_with = "lenient")]
        exit_code: Option<i32>,
        /// Its status.
        #[serde(default, deserialize_with = "lenient")]
        status: StepStatus,
    },
    /// Codex changes files with its own tool. Changes by commands are not reported.
    FileChange {
        /// The step's ID.
        #[serde(default, deserialize_with = "lenient")]
        id: String,
        /// The changes.
        #[serde(default, deserialize_with = "lenient")]
        changes: Vec<EditedFile>,
        /// Its status.
        #[serde(default, deserialize_with = "lenient")]
        status: StepStatus,
        /// Why it was not allowed, if Codex reports it.
        #[serde(default, deserialize_with = "lenient")]
        reason: String,
    },
    /// Codex calls a tool of an MCP server.
    McpToolCall {
        /// The step's ID.
        #[serde(default, deserialize_with = "lenient")]
        id: String,
        /// The server.
        #[serde(default, deserialize_with = "lenient")]
        server: String,
        /// The tool.
        #[serde(default, deserialize_with = "lenient")]
        tool: String,
        /// Its status.
        #[serde(default, deserialize_with = "lenient")]
        status: StepStatus,
    },
    /// Codex calls a tool of ours.
    DynamicToolCall {
        /// The step's name.
        #[serde(default, deserialize_with = "lenient")]
        id: String,
        /// The tool.
        #[serde(default, deserialize_with = "lenient")]
        tool: String,
        /// How far it has come.
        #[serde(default, deserialize_with = "lenient")]
        status: StepStatus,
        /// Why it failed.
        #[serde(default, deserialize_with = "lenient")]
        error: String,
    },
    /// Codex searches the web.
    WebSearch {
        /// The step's ID.
        #[serde(default, deserialize_with = "lenient")]
        id: String,
        /// The query.
        #[serde(default, deserialize_with = "lenient")]
        query: String,
    },
    /// Codex's plan.
    TodoList {
        /// Its steps.
        #[serde(default, deserialize_with = "lenient")]
        items: Vec<Todo>,
    },
    /// Codex's reasoning.
    Reasoning {
        /// The summary of the reasoning.
        #[serde(default, deserialize_with = "lenient")]
        text: String,
    },
    /// A warning; the turn continues.
    Error {
        /// The warning.
        #[serde(default, deserialize_with = "lenient")]
        message: String,
    },
    /// A step of a newer Codex.
    #[default]
    #[serde(other)]
    Other,
}

/// A file that Codex changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct EditedFile {
    /// Its absolute path.
    #[serde(default, deserialize_with = "lenient")]
    pub path: String,
    /// The kind of change.
    #[serde(default, deserialize_with = "lenient")]
    pub kind: EditKind,
}

/// The kind of change of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditKind {
    /// The file is added.
    Add,
    /// The file is deleted.
    Delete,
    /// The file is changed, or changed in a way that only a newer Codex knows.
    #[default]
    #[serde(other)]
    Update,
}

/// A step of Codex's plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Todo {
    /// The task.
    #[serde(default, deserialize_with = "lenient")]
    pub text: String,
    /// Whether it is done.
    #[serde(default, deserialize_with = "lenient")]
    pub completed: bool,
}

/// The tokens used by a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TokensUsed {
    /// Input tokens, cached ones included.
    #[serde(default, deserialize_with = "lenient")]
    pub input_tokens: u64,
    /// Cached input tokens.
    #[serde(default, deserialize_with = "lenient")]
    pub cached_input_tokens: u64,
    /// Output tokens, reasoning included.
    #[serde(default, deserialize_with = "lenient")]
    pub output_tokens: u64,
    /// Reasoning tokens; 0.104.0 does not report them.
    #[serde(default, deserialize_with = "lenient")]
    pub reasoning_output_tokens: u64,
}

/// Why a turn failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct WorkError {
    /// Codex's message.
    #[serde(default, deserialize_with = "lenient")]
    pub message: String,
}

/// Reads a value; one of the wrong type counts as absent.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events printed by 0.104.0, with other IDs.
    const OLD: &str = r#"{"type":"thread.started","thread_id":"01a200a4-af16-7971-bdb2-fa12438e61e4"}
{"type":"item.completed","item":{"id":"item_0","type":"error","message":"Model metadata for `m` not found."}}
{"type":"turn.started"}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'exit 3'","aggregated_output":"","exit_code":null,"status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/bash -lc 'exit 3'","aggregated_output":"","exit_code":3,"status":"failed"}}
{"type":"item.completed","item":{"id":"item_2","type":"file_change","changes":[{"path":"/w/patched.txt","kind":"add"}],"status":"completed"}}
{"type":"item.started","item":{"id":"item_3","type":"todo_list","items":[{"text":"a","completed":true},{"text":"b","completed":false}]}}
{"type":"item.completed","item":{"id":"item_4","type":"reasoning","text":"thinking"}}
{"type":"item.completed","item":{"id":"item_5","type":"agent_message","text":"Hello."}}
{"type":"turn.completed","usage":{"input_tokens":200,"cached_input_tokens":40,"output_tokens":20}}"#;

    /// Events printed by 0.153.4 and 0.169.0.
    const NEW: &str = r#"{"type":"error","message":"Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"}
{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}
{"type":"turn.completed","usage":{"input_tokens":200,"cached_input_tokens":40,"cache_write_input_tokens":0,"output_tokens":20,"reasoning_output_tokens":6}}"#;

    fn read(line: &str) -> WorkEvent {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn recorded_events_are_parsed() {
        let events: Vec<WorkEvent> = OLD.lines().map(read).collect();
        let thread_id = ThreadId::parse("01a200a4-af16-7971-bdb2-fa12438e61e4").unwrap();
        assert_eq!(events[0], WorkEvent::ThreadStarted { thread_id });
        assert!(matches!(
            &events[1],
            WorkEvent::ItemCompleted { item: WorkItem::Error { message } } if message.contains("metadata")
        ));
        assert!(matches!(
            &events[4],
            WorkEvent::ItemCompleted {
                item: WorkItem::CommandExecution {
                    exit_code: Some(3),
                    status: StepStatus::Failed,
                    ..
                }
            }
        ));
        assert!(matches!(
            &events[5],
            WorkEvent::ItemCompleted { item: WorkItem::FileChange { changes, .. } }
                if changes[0].kind == EditKind::Add && changes[0].path == "/w/patched.txt"
        ));
        assert!(matches!(
            &events[6],
            WorkEvent::ItemStarted { item: WorkItem::TodoList { items } } if items[0].completed
        ));
        assert!(matches!(
            &events[7],
            WorkEvent::ItemCompleted { item: WorkItem::Reasoning { text } } if text == "thinking"
        ));
        assert!(!events.contains(&WorkEvent::Other));

        let usage = TokensUsed {
            input_tokens: 200,
            cached_input_tokens: 40,
            output_tokens: 20,
            reasoning_output_tokens: 6,
        };
        let events: Vec<WorkEvent> = NEW.lines().map(read).collect();
        assert_eq!(events[2], WorkEvent::TurnCompleted { usage });
        let WorkEvent::Error { message } = &events[0] else {
            panic!("{events:?}");
        };
        assert!(message.contains("429 Too Many Requests"), "{message}");
        let WorkEvent::TurnFailed { error } = &events[1] else {
            panic!("{events:?}");
        };
        assert!(error.message.contains("429"), "{error:?}");
    }

    #[test]
    fn unknown_events_and_values_are_accepted() {
        for (line, expected) in [
            (r#"{"type":"thread.paused","why":[1]}"#, WorkEvent::Other),
            (
                r#"{"type":"item.completed","item":{"id":"i","type":"dream","of":1}}"#,
                WorkEvent::ItemCompleted {
                    item: WorkItem::Other,
                },
            ),
            (
                r#"{"type":"item.completed","item":7}"#,
                WorkEvent::ItemCompleted {
                    item: WorkItem::Other,
                },
            ),
            (
                r#"{"type":"turn.completed","usage":null,"new":{}}"#,
                WorkEvent::TurnCompleted {
                    usage: TokensUsed::default(),
                },
            ),
            (
                r#"{"type":"error","message":null}"#,
                WorkEvent::Error {
                    message: String::new(),
                },
            ),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
        let partly = r#"{"type":"item.completed","item":{"type":"command_execution","command":"c","exit_code":"x","status":"paused"}}"#;
        assert!(matches!(
            read(partly),
            WorkEvent::ItemCompleted { item: WorkItem::CommandExecution { command, exit_code: None, .. } }
                if command == "c"
        ));
    }

    #[test]
    fn malformed_event_is_refused() {
        for line in ["", "garbage", "{}", "[]", "7", r#"{"type":7}"#] {
            assert!(serde_json::from_str::<WorkEvent>(line).is_err(), "{line}");
        }
    }
}
