//! `codex` and `codex-reply`, as `codex mcp-server` had them, and `codex_review`, which
//! answers as they do.

pub(super) mod codex;
pub(super) mod codex_reply;
pub(super) mod codex_review;
pub(super) mod definition;
