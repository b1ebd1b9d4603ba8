//! Our tools for Codex's threads.
//!
//! Codex receives them with a new thread and stores them with it.

use std::fmt;
use std::path::PathBuf;

use codex_protocol::codex::{DynamicTool, Release, ToolAnswer};
use futures::future::BoxFuture;
use serde_json::Value;

use super::connection::OnDelivered;

/// Our tools for Codex's threads, and the handler of their calls.
pub trait ThreadTools: Send + Sync {
    /// The tools of new threads. Names consist of letters, digits, `_` and `-`.
    fn describe(&self) -> Vec<DynamicTool>;

    /// Whether each call of this tool needs the user's approval.
    fn needs_approval(&self, tool: &str) -> bool {
        let _ = tool;
        false
    }

    /// Answers a call. [`describe`](Self::describe) may not list the tool, as a thread keeps the
    /// tools with which it was begun. The future is dropped when the turn ends.
    fn call(&self, call: ToolInvocation) -> BoxFuture<'static, Reply>;
}

impl fmt::Debug for dyn ThreadTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadTools")
    }
}

/// A call of a tool, and its context.
#[derive(Debug)]
pub struct ToolInvocation {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as the model wrote them, unchecked.
    pub arguments: Value,
    /// The thread's working directory, without links, if it is known.
    pub cwd: Option<PathBuf>,
    /// The release of the Codex that calls, if it is known.
    pub codex: Option<Release>,
}

/// The reply to a call.
pub struct Reply {
    /// The answer.
    pub answer: ToolAnswer,
    /// Called once the answer has been written to Codex.
    pub delivered: Option<OnDelivered>,
}

impl From<ToolAnswer> for Reply {
    fn from(answer: ToolAnswer) -> Self {
        Self {
            answer,
            delivered: None,
        }
    }
}

/// Gives threads no tools.
pub struct NoTools;

impl ThreadTools for NoTools {
    fn describe(&self) -> Vec<DynamicTool> {
        Vec::new()
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'static, Reply> {
        let answer = ToolAnswer::refusal(format!("{} is not available here", call.tool));
        Box::pin(async { answer.into() })
    }
}
