//! The limits of the data that are kept of a turn.

/// The most that is kept of a message of Codex's, in bytes.
pub const MESSAGE_LIMIT: usize = 1024 * 1024;

/// The most that is kept of an error or a warning, in bytes.
pub const ERROR_LIMIT: usize = 4 * 1024;

/// The most commands that are kept; all are counted.
pub const COMMANDS_LIMIT: usize = 200;

/// The most that is kept of a command line, in bytes.
pub const COMMAND_LIMIT: usize = 2 * 1024;

/// The most that is kept of a command's output, in bytes.
pub const OUTPUT_LIMIT: usize = 2 * 1024;

/// The most files reported by Codex that are kept.
pub const FILES_LIMIT: usize = 1000;

/// The most warnings that are kept.
pub const WARNINGS_LIMIT: usize = 20;

/// The most failed steps that are kept; all are counted.
pub const FAILED_LIMIT: usize = 50;

/// The most running steps that are tracked. Codex has a handful at a time.
pub(super) const OPEN_LIMIT: usize = 256;

/// The longest path that is kept, in bytes (Linux's `PATH_MAX`).
pub(super) const PATH_LIMIT: usize = 4096;
