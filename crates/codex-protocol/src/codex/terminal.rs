//! Background terminals: commands of a thread that run on after their turn.

use serde::{Deserialize, Serialize};

use super::ThreadId;

/// A command that continues to run after its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundTerminal {
    /// Codex's ID of the terminal, which is not a process ID of the system.
    pub process_id: String,
    /// The command line.
    pub command: String,
    /// Where it runs.
    pub cwd: String,
    /// The step that began it.
    pub item_id: String,
}

/// Parameters of `thread/backgroundTerminals/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalsListParams<'a> {
    /// The thread.
    pub thread_id: &'a ThreadId,
    /// The end of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<&'a str>,
}

/// The answer to `thread/backgroundTerminals/list`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalsPage {
    /// The terminals of the page.
    pub data: Vec<BackgroundTerminal>,
    /// Where the next page begins, if there is one.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// Parameters of `thread/backgroundTerminals/terminate`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalTerminateParams<'a> {
    /// The thread.
    pub thread_id: &'a ThreadId,
    /// The terminal.
    pub process_id: &'a str,
}

/// The answer to `thread/backgroundTerminals/terminate`.
#[derive(Debug, Deserialize)]
pub struct TerminalTerminated {
    /// Whether there was such a terminal.
    pub terminated: bool,
}
