//! What clients are told of a tool's effects, so that they can ask their user first.

use rmcp::model::ToolAnnotations;

/// What a tool does to its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It only looks.
    Looks,
    /// It has Codex read and judge.
    Reviews,
    /// It exchanges messages with others. Codex asks before such a tool, unless it is
    /// approved beforehand.
    Exchanges,
    /// It ends work. What has ended stays as it is.
    Ends,
    /// It has Codex work, which may change and delete files and use the network.
    Works,
}

impl Effect {
    /// What is left out has MCP's default: a tool that acts may destroy, is not idempotent,
    /// and touches an open world. Of a tool that only reads the first two say nothing.
    pub(crate) fn annotations(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            Self::Looks => hints.read_only(true).open_world(false),
            Self::Reviews => hints.read_only(true),
            Self::Exchanges => hints.read_only(false).destructive(false),
            Self::Ends => hints.read_only(false).idempotent(true).open_world(false),
            Self::Works => hints.read_only(false),
        }
    }
}
