//! The tools of the npm package @leo000001/codex-mcp, which return at once. Their names, numbers
//! and shapes are those of its README and its repository, version 2.1.0.

mod answers;
pub(super) mod codex;
pub(super) mod codex_check;
pub(super) mod codex_reply;
pub(super) mod codex_session;
mod elicit;
mod settings;
