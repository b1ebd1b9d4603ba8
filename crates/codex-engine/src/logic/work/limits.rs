//! How much of a turn is kept.

use common::text::BoundedText;

/// How much is kept of a message of Codex's, in bytes.
pub const MESSAGE_LIMIT: usize = 1024 * 1024;

/// How much is kept of an error or a warning, in bytes.
pub const ERROR_LIMIT: usize = 4 * 1024;

/// How many commands are kept; all are counted.
pub const COMMANDS_LIMIT: usize = 200;

/// How much is kept of a command line, in bytes.
pub const COMMAND_LIMIT: usize = 2 * 1024;

/// How much is kept of what a command wrote, in bytes.
pub const OUTPUT_LIMIT: usize = 2 * 1024;

/// How many files are kept that Codex says it changed.
pub const FILES_LIMIT: usize = 1000;

/// How many warnings are kept.
pub const WARNINGS_LIMIT: usize = 20;

/// How many failed steps are kept; all are counted.
pub const FAILED_LIMIT: usize = 50;

/// How many steps under way are told apart. Codex has a handful at a time.
pub(super) const OPEN_LIMIT: usize = 256;

/// The longest path that is kept, in bytes (Linux's `PATH_MAX`).
pub(super) const PATH_LIMIT: usize = 4096;

/// At most `limit` bytes of `text`, and a mark if that isn't all.
pub(super) fn bounded(text: &str, limit: usize) -> String {
    let mut kept = BoundedText::default();
    kept.push(text, limit);
    kept.as_str().to_owned()
}
