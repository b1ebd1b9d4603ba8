//! Jobs that answer calls of the classic tools: `codex`, `codex-reply` and `codex_review`.

pub mod call;
pub mod spec;
