//! Remembers the directories of the child's threads, and refuses prompts to a thread whose
//! directory was replaced.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use codex_protocol::rpc::{Message, RequestId};
use mcp_server::error::ToolError;
use safe_files::directory;
use serde::Deserialize;
use serde_json::Value;
use settings::bounds::Bounds;

use crate::logic::Note;
use crate::recorder::ThreadStart;
use crate::wire;

/// The most threads whose directories are remembered. Other threads are not checked; where
/// directories are bounded, they are not prompted either.
const MAX_THREADS: usize = 10_000;

/// The tool that sends a further prompt to a thread.
const TOOL: &str = "codex-reply";

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Arguments,
}

/// Values of any type: one release of Codex may ignore a member that another refuses.
#[derive(Deserialize)]
struct Arguments {
    #[serde(default, rename = "threadId")]
    thread: Value,
    /// The older name of `threadId`.
    #[serde(default, rename = "conversationId")]
    conversation: Value,
}

/// The resolved directories of open calls that begin threads, and of the threads that they began.
#[derive(Debug, Default)]
pub(super) struct ThreadDirectories {
    /// The directory of the message that the router gets next, if that message begins a thread.
    next: Option<PathBuf>,
    calls: HashMap<RequestId, PathBuf>,
    threads: HashMap<String, PathBuf>,
}

impl ThreadDirectories {
    /// Announces the thread that the router's next message begins; `None` if it begins no thread.
    pub(super) fn expect_start(&mut self, start: Option<&ThreadStart>) {
        let cwd = |start: &ThreadStart| {
            let cwd = start.cwd.as_deref();
            directory::resolved(cwd.unwrap_or(Path::new("")))
        };
        self.next = start.map(cwd);
    }

    /// Updates the directories when a call is forwarded, begins its thread, or ends.
    pub(super) fn apply(&mut self, note: &Note) {
        match note {
            Note::CallForwarded { call, .. } => {
                if let Some(cwd) = self.next.take() {
                    self.calls.insert(call.clone(), cwd);
                }
            }
            Note::ThreadStarted { call, thread } => {
                if let Some(cwd) = self.calls.remove(call)
                    && self.threads.len() < MAX_THREADS
                {
                    self.threads.insert(thread.clone(), cwd);
                }
            }
            Note::CallEnded { call, .. } => drop(self.calls.remove(call)),
            Note::OwnCallCancelled
            | Note::SummaryRequested { .. }
            | Note::SummaryReceived { .. } => {}
        }
    }

    /// Checks a message that prompts a thread.
    ///
    /// # Errors
    ///
    /// If the thread's directory was replaced, or is unknown while directories are bounded.
    pub(super) fn check(&self, message: &Message<'_>, bounds: &Bounds) -> Result<(), ToolError> {
        for thread in named_threads(message) {
            match self.threads.get(&thread) {
                Some(cwd) => directory::check(cwd)?,
                None => bounds.check_unknown_directory()?,
            }
        }
        Ok(())
    }
}

/// The threads that a call names. If it names two, the release of Codex decides which of them gets
/// the prompt.
fn named_threads(message: &Message<'_>) -> impl Iterator<Item = String> {
    let params = wire::call_params(message);
    let call: Option<Call> = params.and_then(|params| serde_json::from_str(params.get()).ok());
    let call = call.filter(|call| call.name == TOOL);
    let named = |Call { arguments, .. }| [arguments.thread, arguments.conversation];
    let named = call.map(named).into_iter().flatten();
    named.filter_map(|thread| thread.as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: RequestId = RequestId::Number(1);

    fn start(cwd: &str) -> ThreadStart {
        ThreadStart {
            cwd: Some(cwd.into()),
            ..ThreadStart::default()
        }
    }

    fn forwarded() -> Note {
        Note::CallForwarded {
            call: CALL,
            tool: "codex".to_owned(),
            thread: None,
            prompt: String::new(),
        }
    }

    #[test]
    fn call_that_is_not_forwarded_changes_nothing() {
        let mut directories = ThreadDirectories::default();
        directories.expect_start(Some(&start("/nonexistent/a")));
        directories.apply(&forwarded());
        directories.expect_start(Some(&start("/nonexistent/b")));
        directories.expect_start(None);
        assert_eq!(directories.calls.len(), 1);
        directories.apply(&Note::ThreadStarted {
            call: CALL,
            thread: "t".to_owned(),
        });
        let known = directories.threads.get("t").map(PathBuf::as_path);
        assert_eq!(known, Some(Path::new("/nonexistent/a")));
        assert!(directories.calls.is_empty());
    }

    #[test]
    fn unknown_thread_is_refused_where_directories_are_bounded() {
        let check = |directories: &ThreadDirectories, bounds: &Bounds, arguments: &str| {
            let line = format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"codex-reply","arguments":{arguments}}}}}"#
            );
            let message = Message::read(line.as_bytes()).unwrap();
            directories.check(&message, bounds).is_ok()
        };
        let mut directories = ThreadDirectories::default();
        directories.expect_start(Some(&start("/nonexistent/a")));
        directories.apply(&forwarded());
        directories.apply(&Note::ThreadStarted {
            call: CALL,
            thread: "t".to_owned(),
        });
        let bounds = Bounds {
            directories: Some(vec!["/nonexistent".into()]),
            ..Bounds::default()
        };
        for (arguments, is_allowed) in [
            (r#"{"threadId":"t"}"#, true),
            (r#"{"conversationId":"t"}"#, true),
            (r#"{"threadId":"u"}"#, false),
            (r#"{"threadId":"t","conversationId":"u"}"#, false),
            (r#"{"threadId":"u","conversationId":"t"}"#, false),
            (r#"{"threadId":5,"conversationId":"u"}"#, false),
            (r#"{"threadId":"u","conversationId":5}"#, false),
        ] {
            let is_ok = check(&directories, &bounds, arguments);
            assert_eq!(is_ok, is_allowed, "{arguments}");
            assert!(check(&directories, &Bounds::default(), arguments));
        }
    }
}
