//! The part of the Codex app-server protocol (v2) that codex-mcp uses.
//!
//! Source: `codex app-server generate-json-schema --out DIR` of the releases 0.104.0,
//! 0.153.4 and 0.169.0, and what those releases send. Types that are read accept unknown
//! fields and values; types that are written leave out unset fields, so that Codex's own
//! configuration decides.

mod account;
mod ask;
mod dynamic_tool;
mod item;
mod method;
mod notification;
mod rate_limits;
pub mod raw_item;
mod release;
mod review;
mod terminal;
mod thread;
mod turn;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

pub use account::{AccountReadParams, AccountReadResponse, ConfigReadParams};
pub use ask::{
    Ask, CommandApproval, FileChangeApproval, LegacyCommandApproval, LegacyPatchApproval,
    LegacyRefusal, McpElicitation, PermissionsApproval, Question, QuestionOption, UserInputRequest,
};
pub use dynamic_tool::{BadToolCall, DynamicTool, ToolAnswer, ToolCall, ToolContent};
pub use item::{FileChange, FileChangeKind, Item, StepError, StepStatus, ToolText};
pub use method::Method;
pub use notification::{
    Delta, DeltaSource, Notification, Plan, PlanStep, ThreadNotification, TokenCount, TokenUsage,
};
pub use rate_limits::{Credits, ModelLimit, RateLimits, RateWindow, ReportedWindows};
pub use raw_item::RawItem;
pub use release::Release;
pub use review::{ReviewStartParams, ReviewTarget};
pub use terminal::{
    BackgroundTerminal, TerminalTerminateParams, TerminalTerminated, TerminalsListParams,
    TerminalsPage,
};
pub use thread::{
    ClientInfo, InitializeCapabilities, InitializeParams, InitializeResponse, Persistence,
    ReportedSandbox, Thread, ThreadForkParams, ThreadResponse, ThreadResumeParams, ThreadSettings,
    ThreadStartParams, WorkspaceWrite,
};
pub use turn::{
    Effort, ErrorInfo, ErrorKind, ModelOptions, Personality, ReasoningSummary, SandboxPolicy,
    ThreadParams, Turn, TurnError, TurnInterruptParams, TurnOverrides, TurnResponse,
    TurnStartParams, TurnStatus, TurnSteerParams, UserInput,
};

/// The ID of a Codex thread: a UUID, as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadId(String);

/// Why a text is not a [`ThreadId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a thread id: Codex names threads by a UUID such as 0199a213-81c0-7800-8aa1-bbab2a035a53"
)]
pub struct NotAThreadId;

impl ThreadId {
    /// Parses the thread ID that a caller gave.
    ///
    /// # Errors
    ///
    /// [`NotAThreadId`] unless it is a hyphenated UUID.
    pub fn parse(text: &str) -> Result<Self, NotAThreadId> {
        let groups: Vec<&str> = text.split('-').collect();
        let lengths_fit = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
        let digits = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
        if lengths_fit && groups.iter().all(digits) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(NotAThreadId)
        }
    }

    /// The id as Codex wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ThreadId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ThreadId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Codex's ID of one turn of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TurnId(pub String);

/// How far Codex's commands may reach.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands may read everything and write nothing.
    ReadOnly,
    /// Commands may write in the working directory.
    WorkspaceWrite,
    /// No sandbox at all.
    DangerFullAccess,
}

/// When Codex asks before it runs something.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ApprovalPolicy {
    /// Asks before all but known harmless commands.
    Untrusted,
    /// Asks when the model wants to leave the sandbox.
    OnRequest,
    /// Never asks; what the sandbox forbids fails.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_ids_are_uuids() {
        let id = "0199A213-81c0-7800-8aa1-bbab2a035a53";
        assert_eq!(
            ThreadId::parse(id).unwrap().as_str(),
            id.to_ascii_lowercase()
        );
        for bad in [
            "",
            "nonsense",
            "0199a213-81c0-7800-8aa1-bbab2a035a5",
            "../../../etc/passwd",
            "0199a213-81c0-7800-8aa1-bbab2a035a5g",
            "0199a21381c078008aa1bbab2a035a53",
        ] {
            assert_eq!(ThreadId::parse(bad), Err(NotAThreadId), "{bad}");
        }
    }
}
