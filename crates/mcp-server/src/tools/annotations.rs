//! The effects of tools. Clients receive them as hints, so that they can ask their user before a
//! call.

use rmcp::model::ToolAnnotations;

/// The effect of a tool on its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The tool only reads.
    Looks,
    /// The tool lets Codex read and judge.
    Reviews,
    /// The tool exchanges messages with others. Codex asks before such a call, unless it is
    /// approved beforehand.
    Exchanges,
    /// The tool ends work. Ended work stays as it is.
    Ends,
    /// The tool lets Codex work, which may change and delete files and use the network.
    Works,
}

impl Effect {
    /// The hints of the effect. A missing hint has MCP's default: a tool that acts may destroy, is
    /// not idempotent, and touches an open world. For a tool that only reads, the first two have no
    /// meaning.
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
