//! The directories of the child's threads. A thread whose directory was replaced is not prompted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use codex_protocol::rpc::{Message, RequestId};
use safe_files::directory::{self, ReplacedDirectory};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::logic::Note;

/// The most threads whose directories are remembered. The directories of others are not checked.
const MAX_THREADS: usize = 10_000;

/// The tool that prompts a thread again.
const TOOL: &str = "codex-reply";

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Arguments,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(rename = "threadId")]
    thread: Option<String>,
    /// The older name of `threadId`.
    #[serde(rename = "conversationId")]
    conversation: Option<String>,
}

/// The directories of calls that begin threads, and of their threads; resolved.
#[derive(Debug, Default)]
pub(super) struct ThreadDirectories {
    calls: HashMap<RequestId, PathBuf>,
    threads: HashMap<String, PathBuf>,
}

impl ThreadDirectories {
    /// Remembers the directory of a call that begins a thread.
    pub(super) fn note_start(&mut self, message: &Message<'_>, cwd: Option<&Path>) {
        if let Message::Request { id, .. } = message {
            let cwd = directory::resolved(cwd.unwrap_or(Path::new("")));
            self.calls.insert(id.clone(), cwd);
        }
    }

    /// Follows the start of a thread and the end of a call.
    pub(super) fn apply(&mut self, note: &Note) {
        match note {
            Note::ThreadStarted { call, thread } => {
                if let Some(cwd) = self.calls.remove(call)
                    && self.threads.len() < MAX_THREADS
                {
                    self.threads.insert(thread.clone(), cwd);
                }
            }
            Note::CallEnded { call, .. } => drop(self.calls.remove(call)),
            _ => {}
        }
    }

    /// Checks a message that prompts a thread.
    ///
    /// # Errors
    ///
    /// [`ReplacedDirectory`].
    pub(super) fn check(&self, message: &Message<'_>) -> Result<(), ReplacedDirectory> {
        let thread = match message {
            Message::Request {
                method,
                params: Some(params),
                ..
            } if method == "tools/call" => prompted_thread(params),
            _ => None,
        };
        let cwd = thread.and_then(|thread| self.threads.get(&thread));
        cwd.map_or(Ok(()), |cwd| directory::check(cwd))
    }
}

fn prompted_thread(params: &RawValue) -> Option<String> {
    let call: Call = serde_json::from_str(params.get()).ok()?;
    let Arguments {
        thread,
        conversation,
    } = call.arguments;
    thread.or(conversation).filter(|_| call.name == TOOL)
}
