//! Where the child's threads work, so that none is prompted whose directory was replaced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use codex_protocol::rpc::{Message, RequestId};
use safe_files::directory::{self, ReplacedDirectory};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::logic::Note;

/// Of how many threads the directory is known. Of others, only the child knows it.
const THREADS: usize = 10_000;

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
    /// The older name of the same.
    #[serde(rename = "conversationId")]
    conversation: Option<String>,
}

/// The directories of calls that begin threads, and of their threads; resolved.
#[derive(Debug, Default)]
pub(super) struct Directories {
    calls: HashMap<RequestId, PathBuf>,
    threads: HashMap<String, PathBuf>,
}

impl Directories {
    /// Notes where a call begins a thread.
    pub(super) fn begins(&mut self, message: &Message<'_>, cwd: Option<&Path>) {
        if let Message::Request { id, .. } = message {
            let cwd = directory::resolved(cwd.unwrap_or(Path::new("")));
            self.calls.insert(id.clone(), cwd);
        }
    }

    /// Hears what has become of a call.
    pub(super) fn hear(&mut self, note: &Note) {
        match note {
            Note::Began { call, thread } => {
                if let Some(cwd) = self.calls.remove(call)
                    && self.threads.len() < THREADS
                {
                    self.threads.insert(thread.clone(), cwd);
                }
            }
            Note::Over { call, .. } => drop(self.calls.remove(call)),
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
            } if method == "tools/call" => prompted(params),
            _ => None,
        };
        let cwd = thread.and_then(|thread| self.threads.get(&thread));
        cwd.map_or(Ok(()), |cwd| directory::check(cwd))
    }
}

fn prompted(params: &RawValue) -> Option<String> {
    let call: Call = serde_json::from_str(params.get()).ok()?;
    let Arguments {
        thread,
        conversation,
    } = call.arguments;
    thread.or(conversation).filter(|_| call.name == TOOL)
}
