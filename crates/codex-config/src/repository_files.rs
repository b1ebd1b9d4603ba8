//! The names of the files in a repository that count once the user trusts it.

/// The file with settings of ours.
pub(crate) const SETTINGS: &str = ".atm.toml";

/// The directory of prompts, at the top of a repository.
pub(crate) const PROMPTS: &str = ".codex-mcp/prompts";

/// A repository's layer of Codex's configuration, in any of its directories.
pub const OF_REPOSITORY: &str = ".codex/config.toml";

/// What counts for Codex, in any directory: files, and directories with files.
pub const FOR_CODEX: [&str; 4] = [
    OF_REPOSITORY,
    ".codex/hooks.json",
    ".codex/rules",
    ".codex/agents",
];
