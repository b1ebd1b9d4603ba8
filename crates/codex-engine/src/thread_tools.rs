//! Tools of ours that Codex's threads are given.
//!
//! Codex gets them with a new thread and keeps them with it.

use std::fmt;
use std::path::PathBuf;

use codex_protocol::codex::{DynamicTool, Release, ToolAnswer};
use futures::future::BoxFuture;
use serde_json::Value;

use super::connection::Delivered;

/// Tools of ours for Codex's threads.
pub trait ThreadTools: Send + Sync {
    /// What new threads are given. Names are letters, digits, `_` and `-`.
    fn describe(&self) -> Vec<DynamicTool>;

    /// Whether somebody has to approve each call of this tool.
    fn asks_first(&self, tool: &str) -> bool {
        let _ = tool;
        false
    }

    /// Answers a call, also of a tool that is not among those that are given now: a thread
    /// keeps those that it was begun with. The future is dropped when the turn ends.
    fn call(&self, call: Called) -> BoxFuture<'static, Reply>;
}

impl fmt::Debug for dyn ThreadTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadTools")
    }
}

/// A call, and where it comes from.
#[derive(Debug)]
pub struct Called {
    /// The name of the tool.
    pub tool: String,
    /// The arguments, as the model has written them: nobody has checked them.
    pub arguments: Value,
    /// Where the thread works, without links, if that is known.
    pub cwd: Option<PathBuf>,
    /// Which Codex asks, if it tells.
    pub codex: Option<Release>,
}

/// What comes of a call.
pub struct Reply {
    /// The answer.
    pub answer: ToolAnswer,
    /// What is to be done once Codex has been given the answer.
    pub delivered: Option<Delivered>,
}

impl From<ToolAnswer> for Reply {
    fn from(answer: ToolAnswer) -> Self {
        Self {
            answer,
            delivered: None,
        }
    }
}

/// No tools.
pub struct NoTools;

impl ThreadTools for NoTools {
    fn describe(&self) -> Vec<DynamicTool> {
        Vec::new()
    }

    fn call(&self, call: Called) -> BoxFuture<'static, Reply> {
        let answer = ToolAnswer::refusal(format!("{} is not available here", call.tool));
        Box::pin(async { answer.into() })
    }
}
