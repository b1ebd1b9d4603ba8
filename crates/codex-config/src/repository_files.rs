//! The names of the files in a repository that count once the user trusts it.

/// The file with codex-mcp's settings.
pub(crate) const SETTINGS: &str = ".atm.toml";

/// The directory of prompts, at the top of a repository.
pub(crate) const PROMPTS: &str = ".codex-mcp/prompts";

/// A repository's layer of Codex's configuration, in any of its directories.
pub const CODEX_CONFIG_FILE: &str = ".codex/config.toml";

/// The files that Codex itself reads, and directories with such files, in any directory
/// of the repository.
pub const CODEX_FILES: [&str; 4] = [
    CODEX_CONFIG_FILE,
    ".codex/hooks.json",
    ".codex/rules",
    ".codex/agents",
];
